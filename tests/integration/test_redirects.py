"""Origins that send readers elsewhere: followed where that is right, the same bytes or one clear error, and never with
the credentials that are for somebody else."""

import errno
import os

import pytest

from lib import data, reads, wait
from lib.data import MIB
from lib.faulty import Faulty
from lib.origins import FaultyOrigin

CONTENT = data.make("redirected", 3 * MIB + 9)
SECRET = "Bearer secret-of-the-first"


@pytest.fixture
def other(workdir):
    with Faulty(bucket=None) as origin:
        yield origin


def error_of(read):
    try:
        read()
    except OSError as e:
        return e.errno
    return 0


def mount(cache, web, *options):
    token = cache.directory / "token"
    token.write_text(SECRET + "\n")
    return cache.mount(FaultyOrigin(web).source, f"credentials={token}", *options)


def lead(web, where, status, **more):
    """Sends readers of a file, or of a directory, from web to where."""
    return web.rule(where=lambda r: r.key.startswith("d/"), status=status,
                    headers={"Location": lambda r: where(r.key)}, **more)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_to_another_server(cache, web, other, status):
    web.put("d/a", b"never seen")
    other.put("d/a", CONTENT)
    mounted = mount(cache, web)
    rule = lead(web, lambda key: f"{other.endpoint}/{key}", status)
    assert os.listdir(mounted / "d") == ["a"]
    assert reads.sha256(mounted / "d" / "a") == data.digest(CONTENT)
    assert {r.op for r in other.requests()} == {"index", "head", "get"}
    assert all("authorization" not in r.headers for r in other.requests())
    assert all(r.headers.get("authorization") == SECRET for r in web.requests())
    gets = other.requests("get")
    assert data.fetched_once(gets, len(CONTENT))
    # The condition goes along: what is elsewhere must be the version, too.
    assert all(r.headers.get("if-match") for r in gets)
    assert rule.hits == other.count()


def test_another_version_elsewhere(cache, web, other):
    web.put("d/a", CONTENT)
    other.put("d/a", CONTENT[::-1])
    mounted = mount(cache, web)
    assert (mounted / "d" / "a").stat().st_size == len(CONTENT)
    rule = lead(web, lambda key: f"{other.endpoint}/{key}", 302, op="get")
    assert error_of(lambda: reads.sha256(mounted / "d" / "a")) == errno.ESTALE
    assert rule.hits >= 1
    # What was asked for ahead may still be led astray, and tells of another version then.
    wait.until(lambda: cache.volume(mounted)["origin"]["in_flight"] == 0, 30, "the last answer")
    rule.remove()
    assert reads.sha256(mounted / "d" / "a") == data.digest(CONTENT)


WRONG_WAYS = {
    "in a circle": lambda web: lambda key: f"{web.endpoint}/{key}",
    "to a name that does not resolve": lambda web: lambda key: f"http://no-such-host.invalid/{key}",
    "to a port where nobody is": lambda web: lambda key: f"http://127.0.0.1:1/{key}",
    "to a file": lambda web: lambda key: "file:///etc/hostname",
    "to another protocol": lambda web: lambda key: f"ftp://127.0.0.1/{key}",
    "nowhere": lambda web: lambda key: None,
}


@pytest.mark.parametrize("way", WRONG_WAYS)
def test_wrong_ways(cache, web, way):
    """One error in time for names, listings and bytes; nothing of it stays."""
    for name in ("a", "b"):
        web.put(f"d/{name}", CONTENT)
    mounted = mount(cache, web, "timeout=2s")
    assert (mounted / "d" / "a").stat().st_size == len(CONTENT)
    web.clear_log()
    rule = lead(web, WRONG_WAYS[way](web), 302)
    assert error_of(lambda: reads.sha256(mounted / "d" / "a")) == errno.EIO
    assert error_of(lambda: os.stat(mounted / "d" / "b")) == errno.EIO
    assert error_of(lambda: os.listdir(mounted / "d" / "none")) == errno.EIO
    if way == "in a circle":
        # Five steps for each of the few ranges that are asked for, and none is tried again.
        assert web.count("get") <= 4 * 6
    assert cache.volume(mounted)["origin"]["last_error"]
    rule.remove()
    assert reads.sha256(mounted / "d" / "a") == data.digest(CONTENT)
    assert (mounted / "d" / "b").stat().st_size == len(CONTENT)


def test_not_away_from_tls(cache, certificates, other, workdir):
    """Whoever listens on the way could give any bytes."""
    other.put("d/a", CONTENT)
    with Faulty(bucket=None, certificates=certificates) as web:
        web.put("d/a", CONTENT)
        mounted = mount(cache, web, f"ca={certificates.ca}", "timeout=2s")
        assert (mounted / "d" / "a").stat().st_size == len(CONTENT)
        rule = lead(web, lambda key: f"{other.endpoint}/{key}", 302)
        assert error_of(lambda: reads.sha256(mounted / "d" / "a")) == errno.EIO
        assert rule.hits >= 1
        assert not other.requests()


@pytest.mark.parametrize("status, code", [(301, "PermanentRedirect"), (307, "TemporaryRedirect"), (302, "Found")])
def test_an_object_store_is_not_followed(cache, faulty, other, status, code):
    """Another host would be told a signed request; what is learned is the region, and that is tried once."""
    faulty.put("d/a", CONTENT)
    cache.env.update(AWS_ACCESS_KEY_ID="KEY", AWS_SECRET_ACCESS_KEY="secret")
    mounted = cache.mount(f"s3://{faulty.bucket}", f"endpoint={faulty.endpoint}", "addressing=path", "timeout=20s")
    os.listdir(mounted / "d")
    faulty.clear_log()
    lost = faulty.rule(op="get", status=status, code=code, headers={"Location": f"{other.endpoint}/d/a"})
    assert error_of(lambda: reads.sha256(mounted / "d" / "a")) == errno.EIO
    assert 1 <= lost.hits <= 4
    lost.remove()
    moved = faulty.rule(op="get", times=1, where=lambda r: "/eu-central-1/" not in r.headers["authorization"],
                        status=status, code=code,
                        headers={"Location": f"{other.endpoint}/d/a", "x-amz-bucket-region": "eu-central-1"})
    faulty.clear_log()
    assert reads.sha256(mounted / "d" / "a") == data.digest(CONTENT)
    assert moved.hits == 1
    assert any("/eu-central-1/" in r.headers["authorization"] for r in faulty.requests("get"))
    assert not other.requests()
