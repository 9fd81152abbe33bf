"""Real S3 servers: versitygw, which checks each signature strictly, and MinIO."""

import errno
import os
import subprocess

import pytest

from lib import child, data, reads, wait
from lib.data import MIB
from lib.origins import FaultyOrigin, S3Origin
from lib.servers import Minio, Versitygw

KEYS = {"model/a.safetensors": 18 * MIB + 3, "b c+d": 5000, "e/%25/\u00fc&=?": 777, "empty": 0, "~tilde*'()!": 9}


@pytest.fixture(params=["versitygw", "minio"])
def server(request):
    return request.getfixturevalue(request.param)


def fill(origin):
    wanted = {}
    for key, size in KEYS.items():
        content = data.make(key, size)
        origin.put(key, content)
        wanted[key] = data.digest(content)
    return wanted


@pytest.fixture
def bucket(server):
    origin = S3Origin(server)
    yield origin
    origin.close()


def files_of_credentials(directory, server, profile="default", secret=None):
    directory.mkdir(exist_ok=True)
    path = directory / "credentials"
    path.write_text(f"[{profile}]\naws_access_key_id = {server.access_key}\n"
                    f"aws_secret_access_key = {secret or server.secret_key}\n")
    return path


def test_everything_is_equal(cache, bucket):
    wanted = fill(bucket)
    mounted = cache.mount_origin(bucket)
    for _ in range(2):
        assert reads.tree(mounted) == wanted
    for key in KEYS:
        assert (mounted / key).stat().st_size == KEYS[key]
        if KEYS[key]:
            version = bucket.client.head(bucket.bucket, key)["ETag"]
            assert cache.status(mounted / key)["version"] == version


def test_a_prefix(cache, server):
    origin = S3Origin(server, prefix="deep/er/")
    try:
        wanted = fill(origin)
        origin.client.put(origin.bucket, "deep/other", b"x")
        mounted = cache.mount_origin(origin)
        assert reads.tree(mounted) == wanted
    finally:
        origin.close()


@pytest.mark.parametrize("way", ["environment", "file", "profile", "home"])
def test_credentials_from(cache, bucket, server, way):
    wanted = fill(bucket)
    options = list(bucket.options)
    if way == "environment":
        cache.env.update(bucket.env)
    elif way == "file":
        options.append(f"credentials={files_of_credentials(cache.directory / 'keys', server)}")
    elif way == "profile":
        files_of_credentials(cache.directory / ".aws", server, "team")
        options.append("aws_profile=team")
    else:
        files_of_credentials(cache.directory / ".aws", server)
    assert reads.tree(cache.mount(bucket.source, *options)) == wanted


def test_the_region_is_found_out(cache, bucket):
    """Neither option nor environment says it."""
    wanted = fill(bucket)
    env = {name: value for name, value in bucket.env.items() if name != "AWS_REGION"}
    cache.env.update(env)
    options = [option for option in bucket.options if not option.startswith("region=")]
    assert reads.tree(cache.mount(bucket.source, *options)) == wanted


@pytest.mark.parametrize("kind", [Versitygw, Minio])
def test_another_region(cache, workdir, kind):
    if not kind.available():
        pytest.skip(f"{kind.program} is not in build/tools")

    class Elsewhere(kind):
        region = "eu-central-1"

    with Elsewhere(workdir / "server") as server:
        origin = S3Origin(server)
        wanted = fill(origin)
        env = {name: value for name, value in origin.env.items() if name != "AWS_REGION"}
        cache.env.update(env)
        options = [option for option in origin.options if not option.startswith("region=")]
        assert reads.tree(cache.mount(origin.source, *options)) == wanted


@pytest.mark.parametrize("addressing", ["path", "virtual", "auto"])
def test_addressing(cache, bucket, server, addressing):
    """virtual: the bucket is part of the host name."""
    wanted = fill(bucket)
    cache.env.update(bucket.env)
    endpoint = server.endpoint.replace("127.0.0.1", "localhost")
    mounted = cache.mount(bucket.source, f"endpoint={endpoint}", f"region={server.region}", f"addressing={addressing}")
    assert reads.tree(mounted) == wanted


def test_anonymous(cache, minio):
    """A public bucket of MinIO is read without signing; a private one is refused."""
    origin = S3Origin(minio)
    try:
        wanted = fill(origin)
        path = cache.directory / "m"
        path.mkdir()
        options = [f"endpoint={minio.endpoint}", "addressing=path", "anonymous"]
        result = cache.run("mount", "-o", ",".join(options), origin.source, path, check=False)
        assert result.returncode == 1 and "denies access" in result.stderr
        origin.client.boto.put_bucket_policy(Bucket=origin.bucket, Policy='{"Version":"2012-10-17","Statement":[{'
                                             '"Effect":"Allow","Principal":{"AWS":["*"]},"Action":["s3:ListBucket",'
                                             '"s3:GetBucketLocation","s3:GetObject"],"Resource":["arn:aws:s3:::'
                                             f'{origin.bucket}","arn:aws:s3:::{origin.bucket}/*"]}}]}}')
        assert reads.tree(cache.mount(origin.source, *options)) == wanted
    finally:
        origin.close()


@pytest.mark.parametrize("kind", [Versitygw, Minio])
def test_tls_with_a_private_ca(cache, workdir, certificates, kind):
    if not kind.available():
        pytest.skip(f"{kind.program} is not in build/tools")
    with kind(workdir / "server", certificates) as server:
        origin = S3Origin(server)
        wanted = fill(origin)
        cache.env.update(origin.env)
        path = cache.directory / "m"
        path.mkdir()
        result = cache.run("mount", "-o", ",".join(origin.options), origin.source, path, check=False)
        assert result.returncode == 1 and "certificate" in result.stderr.lower()
        assert reads.tree(cache.mount(origin.source, *origin.options, f"ca={certificates.ca}")) == wanted


def test_credentials_that_are_replaced(cache, workdir):
    """The secret changes at the server and in the file: reads go on without a remount."""
    with Versitygw(workdir / "server") as server:
        origin = S3Origin(server)
        for name in ("a", "b", "c"):
            origin.put(name, data.make(name, 2 * MIB))
        keys = files_of_credentials(cache.directory / "keys", server)
        mounted = cache.mount(origin.source, *origin.options, f"credentials={keys}", "timeout=30s", "ttl=100ms")
        assert reads.sha256(mounted / "a") == data.digest(data.make("a", 2 * MIB))
        server.stop()
        server.secret_key = "another-secret-0"
        server.start()
        files_of_credentials(cache.directory / "keys", server)
        for name in ("b", "c"):
            assert reads.sha256(mounted / name) == data.digest(data.make(name, 2 * MIB))


def test_credentials_that_are_withdrawn(cache, workdir):
    """EACCES for what is cold, at once; what is warm goes on; and it recovers."""
    with Versitygw(workdir / "server") as server:
        origin = S3Origin(server)
        for name in ("a", "b"):
            origin.put(name, data.make(name, 2 * MIB))
        keys = files_of_credentials(cache.directory / "keys", server)
        mounted = cache.mount(origin.source, *origin.options, f"credentials={keys}", "timeout=20s")
        reads.sha256(mounted / "a")
        cache.wait_warm(mounted / "a")
        os.stat(mounted / "b")
        server.stop()
        server.secret_key = "another-secret-0"
        server.start()
        with pytest.raises(OSError) as caught:
            child.call(reads.sha256, mounted / "b")
        assert caught.value.errno == errno.EACCES
        assert reads.sha256(mounted / "a") == data.digest(data.make("a", 2 * MIB))
        assert "another-secret-0" not in cache.run("status", "--json").stdout
        files_of_credentials(cache.directory / "keys", server)
        wait.until(lambda: subprocess.run(["cmp", mounted / "b", mounted / "b"], capture_output=True, timeout=60,
                                          check=False).returncode == 0, 30, "the recovery")


def test_each_request_of_an_object_is_conditional(cache, faulty):
    """If-Match with the version, on whatever is fetched."""
    faulty.put("a", data.make("a", 40 * MIB))
    mounted = cache.mount_origin(FaultyOrigin(faulty))
    reads.sha256(mounted / "a")
    version = cache.status(mounted / "a")["version"]
    assert {r.headers.get("if-match") for r in faulty.requests("get")} == {version}
    assert all("authorization" not in r.headers for r in faulty.requests())
