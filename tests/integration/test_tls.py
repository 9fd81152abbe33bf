"""Certificates that are wrong, and handshakes that are cut: an error that names the cause, and no byte of it."""

import errno

import pytest

from lib import data, reads
from lib.certificates import make
from lib.data import MIB
from lib.faulty import Faulty
from lib.origins import FaultyOrigin

CONTENT = data.make("tls", 3 * MIB + 1)


@pytest.fixture
def wrong(certificates, workdir):
    """{what is wrong: certificates}, all but the stranger's by the authority that is trusted."""
    return {
        "another host": make(workdir / "host", ("DNS:other.example",), certificates),
        "expired": make(workdir / "old", ca=certificates, days=-1),
        "a stranger": make(workdir / "stranger"),
    }


@pytest.mark.parametrize("bucket", ["bucket", None], ids=["s3", "web"])
@pytest.mark.parametrize("what", ["another host", "expired", "a stranger"])
def test_mount_says_what_is_wrong(cache, certificates, wrong, what, bucket):
    with Faulty(bucket, wrong[what]) as origin:
        origin.put("a", CONTENT)
        source = FaultyOrigin(origin)
        options = [o for o in source.options if not o.startswith("ca=")] + [f"ca={certificates.ca}"]
        path = cache.directory / "m"
        path.mkdir()
        result = cache.run("mount", "-o", ",".join(options), source.source, path, check=False)
        assert result.returncode == 1
        assert any(word in result.stderr for word in ("certificate", "does not match")), result.stderr
        assert not origin.requests()


@pytest.mark.parametrize("what", ["another host", "expired", "a stranger"])
def test_a_certificate_that_goes_wrong(cache, certificates, wrong, what):
    """What is warm goes on, what is cold is EIO at once, and it is over with the next right one."""
    with Faulty(certificates=certificates) as origin:
        for name in ("warm", "cold"):
            origin.put(name, CONTENT)
        mounted = cache.mount_origin(FaultyOrigin(origin), "timeout=20s")
        assert reads.sha256(mounted / "warm") == data.digest(CONTENT)
        cache.wait_warm(mounted / "warm")
        origin.show(wrong[what])
        origin.clear_log()
        with pytest.raises(OSError) as caught:
            reads.sha256(mounted / "cold")
        assert caught.value.errno == errno.EIO
        assert not origin.requests()
        assert reads.sha256(mounted / "warm") == data.digest(CONTENT)
        state = cache.volume(mounted)["origin"]
        assert state["state"] == "unreachable"
        assert any(word in state["last_error"] for word in ("certificate", "does not match"))
        origin.show(certificates)
        assert reads.sha256(mounted / "cold") == data.digest(CONTENT)
        assert cache.volume(mounted)["origin"]["state"] == "reachable"


@pytest.mark.parametrize("tls", [True, False], ids=["tls", "plain"])
def test_connections_that_are_cut_at_once(cache, request, tls):
    """As of a balancer whose servers restart: tried again until one gets through."""
    with Faulty(certificates=request.getfixturevalue("certificates") if tls else None) as origin:
        origin.put("a", CONTENT)
        mounted = cache.mount_origin(FaultyOrigin(origin), "timeout=60s")
        assert (mounted / "a").stat().st_size == len(CONTENT)
        origin.cut_connections = 3
        origin.drop_connections()
        assert reads.sha256(mounted / "a") == data.digest(CONTENT)
        assert origin.cut_connections == 0
        assert data.fetched_once(origin.requests("get"), len(CONTENT))
