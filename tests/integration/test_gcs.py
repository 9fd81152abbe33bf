"""Google Cloud Storage by its S3-compatible XML API. There is none here: what its documentation says, and what other
clients have met, is asserted of our requests."""

import errno

import pytest


@pytest.fixture
def mounted(cache, faulty):
    """(root, scripted origin) of a bucket with one object in its root."""
    faulty.put("a b.bin", b"x" * 3000)
    faulty.put("dir/c.bin", b"c")
    cache.env.update(AWS_ACCESS_KEY_ID="GOOG1EXAMPLE", AWS_SECRET_ACCESS_KEY="secret")
    return cache.mount("s3://bucket", f"endpoint={faulty.endpoint}", "region=auto", "timeout=3s"), faulty


def test_what_is_signed_and_asked(mounted):
    root, faulty = mounted
    assert sorted(path.name for path in root.iterdir()) == ["a b.bin", "dir"]
    assert (root / "a b.bin").read_bytes() == b"x" * 3000
    assert faulty.count("list") and faulty.count("get")
    for request in faulty.requests():
        scheme, _, rest = request.headers["authorization"].partition(" ")
        fields = dict(part.strip().split("=", 1) for part in rest.split(","))
        assert scheme == "AWS4-HMAC-SHA256"
        assert fields["Credential"].split("/")[2:] == ["auto", "s3", "aws4_request"]
        # Google's front end rewrites that header after it was signed.
        assert "accept-encoding" not in fields["SignedHeaders"].split(";")
        if request.op == "list":
            assert request.query["list-type"] == "2" and request.query["encoding-type"] == "url"
        if request.op == "get":
            assert request.headers["if-match"]


def test_object_that_is_unpacked_on_the_way(mounted):
    """Stored with Content-Encoding: gzip it is sent unpacked, whole, and without a length: never taken for the object."""
    root, faulty = mounted
    faulty.rule(op="get", whole=True, chunked=True, body=b"unpacked" * 1000)
    with open(root / "a b.bin", "rb", buffering=0) as f:
        with pytest.raises(OSError) as e:
            f.read(100)
    assert e.value.errno == errno.EIO
