"""What the origin does wrong: reads get the right bytes or one clear error, never something in between, and what is
warm goes on."""

import concurrent.futures
import errno
import gzip
import os
import time

import pytest

from lib import child, data, reads, wait
from lib.data import MIB
from lib.faulty import Faulty
from lib.origins import FaultyOrigin, S3Origin
from lib.servers import Versitygw

SIZE = 20 * MIB + 3
CONTENT = data.make("faults", SIZE)
ERROR_BODY = b"<?xml version='1.0'?><Error><Code>InternalError</Code><Message>try again</Message></Error>"


@pytest.fixture
def scripted(faulty):
    faulty.put("a", CONTENT)
    return FaultyOrigin(faulty)


def error_of(read):
    """The errno of read(), 0 when it succeeds."""
    try:
        read()
    except OSError as e:
        return e.errno
    return 0


def retried(cache):
    return cache.counters()["retries"]


# Faults that pass: each of them must be tried again, and nothing of a bad answer may reach a reader.

PASSING = {
    "500": {"status": 500},
    "502": {"status": 502, "code": "BadGateway"},
    "503": {"status": 503, "code": "SlowDown", "headers": {"Retry-After": "1"}},
    "429": {"status": 429, "code": "TooManyRequests"},
    "reset before the answer": {"cut_at": -1, "reset": True},
    "cut before the answer": {"cut_at": -1},
    "cut before the body": {"cut_at": 0},
    "cut in the middle": {"cut_at": 700001},
    "reset in the middle": {"cut_at": 700001, "reset": True},
    "one byte short": {"edit": lambda body: body[:-1]},
    "one byte long": {"edit": lambda body: body + b"x"},
    "an error document for data": {"body": ERROR_BODY},
    "an empty body": {"body": b""},
    "another range": {"headers": {"Content-Range": f"bytes 5-9/{SIZE}"}},
    "a range that is none": {"headers": {"Content-Range": "bytes all"}},
    "no range": {"headers": {"Content-Range": None}},
}


@pytest.mark.parametrize("name", PASSING)
def test_tried_again(cache, scripted, name):
    mounted = cache.mount_origin(scripted)
    rule = scripted.faulty.rule(op="get", times=3, **PASSING[name])
    assert reads.sha256(mounted / "a") == data.digest(CONTENT)
    assert rule.hits == 3
    assert retried(cache) >= 1  # curl by itself tries again what went lost on a connection that was used before
    cache.wait_warm(mounted / "a")
    assert reads.sha256(mounted / "a") == data.digest(CONTENT)
    assert cache.run("verify", "--all").returncode == 0
    assert cache.volume(mounted)["origin"]["last_error"]
    assert cache.counters()["checksum_failures"] == 0


def test_slowdown_makes_the_gaps_grow(cache, scripted):
    """Each try of one range comes later after the one before, and the read succeeds when it ends."""
    mounted = cache.mount_origin(scripted)
    times = []

    def note(request):
        times.append(time.monotonic())
        return True

    scripted.faulty.put("b", b"x" * 1000)
    scripted.faulty.rule(op="get", where=note, times=6, status=503, code="SlowDown")
    assert (mounted / "a").stat().st_size == SIZE
    with open(mounted / "a", "rb", buffering=0) as f:
        assert os.pread(f.fileno(), 10, 0) == CONTENT[:10]
    assert retried(cache) == 6
    gaps = [b - a for a, b in zip(times, times[1:])]
    # How they grow, and that they are drawn, is shown without a clock (tests/unit/origin/verdict.c).
    assert min(gaps) >= 0.09


def test_retry_after_is_kept(cache, scripted):
    mounted = cache.mount_origin(scripted)
    scripted.faulty.rule(op="get", times=1, status=503, code="SlowDown", headers={"Retry-After": "2"})
    with open(mounted / "a", "rb", buffering=0) as f:
        start = time.monotonic()
        assert os.pread(f.fileno(), 10, 0) == CONTENT[:10]
        assert time.monotonic() - start >= 1.9


# Faults that don't pass

@pytest.mark.parametrize("what, wanted", [
    ({"status": 500}, errno.EIO), ({"cut_at": -1, "reset": True}, errno.EIO), ({"body": ERROR_BODY}, errno.EIO),
    ({"cut_at": 5}, errno.EIO), ({"status": 403, "code": "AccessDenied"}, errno.EACCES),
    ({"status": 400, "code": "Whatever"}, errno.EIO), ({"stall_at": -1}, errno.EIO), ({"stall_at": 1000}, errno.EIO),
    ({"headers": {"ETag": '"other"'}}, errno.ESTALE)], ids=str)
def test_one_clear_error_after_the_timeout(cache, scripted, what, wanted):
    mounted = cache.mount_origin(scripted, "timeout=3s")
    rule = scripted.faulty.rule(op="get", **what)
    start = time.monotonic()
    assert error_of(lambda: reads.sha256(mounted / "a")) == wanted
    assert time.monotonic() - start < 30
    assert (mounted / "a").stat().st_size == SIZE
    assert sorted(os.listdir(mounted)) == ["a"]
    rule.remove()
    assert reads.sha256(mounted / "a") == data.digest(CONTENT)
    assert cache.volume(mounted)["origin"]["state"] == "reachable"


@pytest.mark.parametrize("status, code", [(403, "AccessDenied"), (503, "SlowDown"), (500, "InternalError"),
                                          (404, "NoSuchBucket"), (400, "ExpiredToken")])
def test_no_error_becomes_a_missing_name(cache, scripted, status, code):
    """Neither of a name nor of a listing; and nothing of it is remembered."""
    for n in range(3):
        scripted.faulty.put(f"dir{n}/b", b"x")
    mounted = cache.mount_origin(scripted, "timeout=2s")
    rule = scripted.faulty.rule(where=lambda r: r.op in ("list", "head"), status=status, code=code)
    allowed = {errno.EIO, errno.EACCES}
    assert error_of(lambda: os.listdir(mounted / "dir0")) in allowed
    assert error_of(lambda: os.stat(mounted / "dir1" / "b")) in allowed
    assert error_of(lambda: os.stat(mounted / "dir1" / "missing")) in allowed
    rule.remove()
    assert os.listdir(mounted / "dir0") == ["b"]
    assert (mounted / "dir1" / "b").read_bytes() == b"x"
    assert error_of(lambda: os.stat(mounted / "dir1" / "missing")) == errno.ENOENT


# Listings

@pytest.mark.parametrize("v2", ["yes", "refused"])
def test_a_page_of_a_listing_fails(cache, faulty, v2):
    for n in range(500):
        faulty.put(f"dir/{n:04}", b"")
    faulty.listing.page_size = 100
    faulty.listing.v2 = v2
    mounted = cache.mount_origin(FaultyOrigin(faulty), "timeout=20s")

    def where(request):
        return "continuation-token" in request.query or "marker" in request.query

    rules = [faulty.rule(op="list", where=where, after=1, times=1, status=500),
             faulty.rule(op="list", where=where, after=2, times=1, cut_at=300),
             faulty.rule(op="list", where=where, after=2, times=1, body=ERROR_BODY)]
    assert sorted(os.listdir(mounted / "dir")) == [f"{n:04}" for n in range(500)]
    assert [rule.hits for rule in rules] == [1, 1, 1]


@pytest.mark.parametrize("fault", ["fails", "repeats", "cut short", "no end"])
def test_a_listing_is_whole_or_an_error(cache, faulty, fault):
    for n in range(500):
        faulty.put(f"dir/{n:04}", b"")
    faulty.listing.page_size = 100
    mounted = cache.mount_origin(FaultyOrigin(faulty), "timeout=3s")
    first = faulty.page({"prefix": "dir/", "delimiter": "/", "list-type": "2", "encoding-type": "url"}, True)
    what = {
        "fails": {"status": 500},
        "repeats": {"body": first},
        "cut short": {"edit": lambda body: body[:-100]},
        "no end": {"body": first.replace(b"NextContinuationToken>", b"X>")},
    }[fault]
    rule = faulty.rule(op="list", where=lambda r: "continuation-token" in r.query, **what)
    assert error_of(lambda: os.listdir(mounted / "dir")) == errno.EIO
    assert faulty.count("list") < 200
    rule.remove()
    assert len(os.listdir(mounted / "dir")) == 500


# Content-Encoding

@pytest.mark.parametrize("kind", ["faulty", "versitygw", "minio"])
def test_stored_with_content_encoding(cache, kind, request):
    """Size and bytes exactly as stored: nothing is unpacked on the way."""
    packed = gzip.compress(data.make("plain", 3 * MIB))
    server = request.getfixturevalue(kind)
    if kind == "faulty":
        origin = FaultyOrigin(server)
        server.put("a.gz", packed, headers={"Content-Encoding": "gzip"})
    else:
        origin = S3Origin(server)
        origin.client.put(origin.bucket, "a.gz", packed, ContentEncoding="gzip")
    try:
        path = cache.mount_origin(origin) / "a.gz"
        assert path.stat().st_size == len(packed)
        for _ in range(2):
            assert path.read_bytes() == packed
            cache.wait_warm(path)
    finally:
        if kind != "faulty":
            origin.close()


# Stalls and outages

def test_200_stalled_reads_stop_nobody_else(cache, scripted):
    faulty = scripted.faulty
    for n in range(200):
        faulty.put(f"cold/{n:03}", data.make(f"cold {n}", 5000))
    faulty.put("warm/b", CONTENT)
    mounted = cache.mount_origin(scripted)
    reads.sha256(mounted / "warm" / "b")
    cache.wait_warm(mounted / "warm" / "b")
    os.listdir(mounted / "cold")
    stall = faulty.rule(op="get", key=lambda key: key.startswith("cold/"), stall_at=-1)
    with concurrent.futures.ThreadPoolExecutor(200) as pool:
        cold = [pool.submit((mounted / "cold" / f"{n:03}").read_bytes) for n in range(200)]
        try:
            wait.until(lambda: cache.volume(mounted)["parked"] >= 200, 30, "200 parked reads")
            assert stall.hits > 0
            for advice in (None, "MADV_RANDOM"):
                assert child.call(reads.sha256_mapped, mounted / "warm" / "b", advice) == data.digest(CONTENT)
            assert child.call(reads.sha256, mounted / "warm" / "b") == data.digest(CONTENT)
            assert len(child.call(os.listdir, mounted / "cold")) == 200
            assert child.call(os.path.getsize, mounted / "cold" / "007") == 5000
            assert child.call(os.path.getsize, mounted / "a") == SIZE
            assert not any(read.done() for read in cold)
        finally:
            stall.release()
        for n, read in enumerate(cold):
            assert read.result(60) == data.make(f"cold {n}", 5000)
    assert all(faulty.count("get", f"cold/{n:03}") == 1 for n in range(200))


def test_a_killed_reader_of_a_stalled_origin(cache, scripted):
    """It goes at once, and what it waited for comes to no harm."""
    mounted = cache.mount_origin(scripted)
    stall = scripted.faulty.rule(op="get", stall_at=1000)
    readers = [child.Child(reads.sha256, mounted / "a") for _ in range(5)]
    try:
        wait.until(lambda: cache.volume(mounted)["handles"] == 5, 30, "the readers")
        stall.wait_hits(1)
    finally:
        for reader in readers:
            reader.end()
    stall.remove()
    wait.until(lambda: cache.volume(mounted)["handles"] == 0, 30, "no handles")
    assert reads.sha256(mounted / "a") == data.digest(CONTENT)


def test_umount_while_the_origin_stalls(cache, scripted):
    mounted = cache.mount_origin(scripted)
    scripted.faulty.rule(op="get", stall_at=-1)
    reader = child.Child(reads.sha256, mounted / "a")
    wait.until(lambda: cache.volume(mounted)["parked"] >= 1, 30, "the reader")
    assert cache.run("umount", mounted, check=False).returncode == 1
    cache.umount(mounted, "--force")
    reader.end()
    wait.until(lambda: not cache.processes(), 30, "the daemon's end")


def test_an_origin_that_goes_away(cache):
    origin = Faulty().start()
    origin.put("dir/warm", CONTENT)
    origin.put("dir/cold", CONTENT)
    try:
        mounted = cache.mount_origin(FaultyOrigin(origin), "timeout=2s", "ttl=200ms")
        reads.sha256(mounted / "dir" / "warm")
        cache.wait_warm(mounted / "dir" / "warm")
    finally:
        origin.stop()
    for _ in range(3):
        assert reads.sha256(mounted / "dir" / "warm") == data.digest(CONTENT)
        assert sorted(os.listdir(mounted / "dir")) == ["cold", "warm"]
        assert (mounted / "dir" / "cold").stat().st_size == SIZE
    assert error_of(lambda: reads.sha256(mounted / "dir" / "cold")) == errno.EIO
    wait.until(lambda: os.path.exists(mounted / "dir" / "warm") and cache.volume(mounted)["stale"] > 0, 30,
               "an answer known to be stale")
    volume = cache.volume(mounted)
    assert volume["origin"]["state"] == "unreachable" and volume["origin"]["last_error"]
    assert "unreachable" in cache.run("status").stdout


def test_an_origin_that_comes_back(cache, versitygw, workdir):
    """The server is one of this test's own, since it is stopped."""
    with Versitygw(workdir / "server") as server:
        origin = S3Origin(server)
        origin.put("warm", CONTENT)
        origin.put("cold", CONTENT)
        mounted = cache.mount_origin(origin, "timeout=60s")
        reads.sha256(mounted / "warm")
        cache.wait_warm(mounted / "warm")
        server.stop()
        cold = child.Child(reads.sha256, mounted / "cold")
        wait.until(lambda: cache.volume(mounted)["origin"]["state"] == "unreachable", 30, "the outage")
        assert child.call(reads.sha256, mounted / "warm") == data.digest(CONTENT)
        assert cold.running()
        server.start()
        assert cold.result() == data.digest(CONTENT)
        assert cache.volume(mounted)["origin"]["state"] == "reachable"


def test_a_daemon_that_starts_without_its_origin(cache):
    """What is in the store does not help a mount that can't be checked: it is refused, and nothing is lost."""
    with Faulty() as origin:
        origin.put("a", CONTENT)
        scripted = FaultyOrigin(origin)
        mounted = cache.mount_origin(scripted)
        reads.sha256(mounted / "a")
        cache.wait_warm(mounted / "a")
        cache.umount(mounted)
        wait.until(lambda: not cache.processes(), 30, "the daemon's end")
        rule = origin.rule(status=503, code="SlowDown")
        result = cache.run("mount", "-o", ",".join([*scripted.options, "timeout=2s"]), scripted.source, mounted,
                           check=False)
        assert result.returncode == 1 and "SlowDown" in result.stderr
        rule.remove()
        origin.clear_log()
        mounted = cache.mount_origin(scripted)
        assert reads.sha256(mounted / "a") == data.digest(CONTENT)
        assert origin.count("get") == 0
