"""What volumes share, and what each is held to: an origin that stalls takes nothing from another one's readers, and
connections= and bandwidth= are kept."""

import concurrent.futures
import contextlib
import os
import time

import pytest

from lib import child, data, reads, wait
from lib.data import MIB
from lib.faulty import Faulty
from lib.origins import FaultyOrigin

READERS = 220
STALLED = MIB + 1


@pytest.fixture
def other(workdir):
    with Faulty() as origin:
        yield origin


@pytest.mark.parametrize("stall_at", [-1, 1000], ids=["before the answer", "in the middle"])
def test_one_origin_does_not_starve_another(cache, faulty, other, stall_at):
    """Hundreds of reads wait for an origin that is silent, each perhaps with a part of a chunk in memory; the other's
    come through while every one of those is still held."""
    for n in range(READERS):
        faulty.put(f"{n:03}", data.make(f"stalled {n}", STALLED))
    content = data.make("other", 48 * MIB)
    for n in range(4):
        other.put(f"{n}", content[n * MIB:])
    stalled = cache.mount_origin(FaultyOrigin(faulty), "connections=256", name="stalled")
    mounted = cache.mount_origin(FaultyOrigin(other), name="other")
    stall = faulty.rule(op="get", stall_at=stall_at)
    with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
        cold = [pool.submit(reads.sha256, stalled / f"{n:03}") for n in range(READERS)]
        try:
            wait.until(lambda: cache.volume(stalled)["parked"] >= READERS, 60, "the stalled readers")
            stall.wait_hits(100 if stall_at < 0 else 160)  # in the middle: more than there are buffers for fetches
            readers = [child.Child(reads.sha256, mounted / f"{n}") for n in range(4)]
            for n, reader in enumerate(readers):
                assert reader.result(60) == data.digest(content[n * MIB:])
            assert not any(read.done() for read in cold)
        finally:
            stall.release()
        for n, read in enumerate(cold):
            assert read.result(100) == data.digest(data.make(f"stalled {n}", STALLED))


def test_readers_that_stop_reading(cache, faulty, other):
    """They hold descriptors of files that are partly here; others of the same origin and of another go on."""
    content = data.make("stopped", 12 * MIB)
    for n in range(60):
        faulty.put(f"{n}", content, etag=f'"{n}"')
    other.put("a", content[::-1])
    mounted = cache.mount_origin(FaultyOrigin(faulty), name="stopped")
    elsewhere = cache.mount_origin(FaultyOrigin(other), name="other")
    with contextlib.ExitStack() as stack:
        for n in range(59):
            f = stack.enter_context(open(mounted / f"{n}", "rb", buffering=0))
            assert f.read(100000) == content[:100000]
            # Two streams of each, so that something is read ahead of both.
            assert os.pread(f.fileno(), 3 * MIB, 5 * MIB) == content[5 * MIB:8 * MIB]
        for path, wanted in ((mounted / "59", content), (elsewhere / "a", content[::-1]), (mounted / "7", content)):
            assert child.call(reads.sha256, path) == data.digest(wanted)
    assert cache.rss_peak_bytes() < 512 * MIB


def test_what_is_begun_comes_first(cache, faulty):
    """A transfer that was cut in the middle of a chunk keeps its place until its next try, and the memory that waits
    for the rest is no more than that of as many as there are connections."""
    readers, most = 40, 8
    contents = {f"{n:02}": data.make(f"cut {n}", MIB - n) for n in range(readers)}
    for name, content in contents.items():
        faulty.put(name, content)
    mounted = cache.mount_origin(FaultyOrigin(faulty), f"connections={most}")
    faulty.rule(op="get", where=lambda r: r.first == 0, cut_at=1000)
    rest = faulty.rule(op="get", where=lambda r: r.first == 1000, stall_at=-1)
    with concurrent.futures.ThreadPoolExecutor(readers) as pool:
        cold = {name: pool.submit(reads.sha256, mounted / name) for name in contents}
        try:
            wait.until(lambda: cache.volume(mounted)["parked"] >= readers, 60, "the readers")
            rest.wait_hits(4)
            assert len({r.key for r in faulty.requests("get")}) <= most
        finally:
            rest.release()
        for name, read in cold.items():
            assert read.result(60) == data.digest(contents[name])
    assert faulty.count("get") == 2 * readers
    assert faulty.most_at_once <= most


@pytest.mark.parametrize("most", [1, 5])
def test_connections_are_kept(cache, faulty, most):
    """Counted at the server while it holds every answer, and then while it gives them."""
    wanted = {}
    for n in range(40):
        content = data.make(f"held {n}", MIB + n)
        faulty.put(f"d{n % 4}/{n:03}", content)
        wanted[f"d{n % 4}/{n:03}"] = data.digest(content)
    mounted = cache.mount_origin(FaultyOrigin(faulty), f"connections={most}")
    for directory in os.listdir(mounted):
        os.listdir(mounted / directory)
    stall = faulty.rule(op="get", stall_at=-1)
    with concurrent.futures.ThreadPoolExecutor(len(wanted)) as pool:
        cold = {name: pool.submit(reads.sha256, mounted / name) for name in wanted}
        try:
            wait.until(lambda: cache.volume(mounted)["parked"] >= len(wanted), 60, "the readers")
            stall.wait_hits(1)
        finally:
            stall.release()
        assert {name: read.result(100) for name, read in cold.items()} == wanted
    assert 1 <= faulty.most_at_once <= most
    # With one connection there is no other for it to be compared with; with several, all of them are used.
    assert faulty.most_at_once == most


def test_names_find_a_place_beside_all_gets(cache, faulty):
    """connections= is of GETs; when all of them are held, a directory is listed and a name is looked up all the same."""
    most = 16
    for n in range(40):
        faulty.put(f"held/{n:02}", data.make(f"held {n}", MIB))
    faulty.put("other/a", b"a")
    mounted = cache.mount_origin(FaultyOrigin(faulty), f"connections={most}")
    os.listdir(mounted / "held")
    stall = faulty.rule(op="get", stall_at=-1)
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        cold = [pool.submit(reads.sha256, mounted / f"held/{n:02}") for n in range(40)]
        try:
            stall.wait_hits(most)
            assert child.call(os.listdir, mounted / "other") == ["a"]
            assert child.call(os.path.getsize, mounted / "other" / "a") == 1
            assert stall.hits == most
        finally:
            stall.release()
        for n, read in enumerate(cold):
            assert read.result(60) == data.digest(data.make(f"held {n}", MIB))
    assert faulty.most_at_once <= most + most // 8


def test_bandwidth_is_kept(cache, faulty):
    """So many bytes take at least so long, whatever runs at once; and not for ever."""
    size, rate = 4 * MIB, 4 * MIB
    for n in range(4):
        faulty.put(f"{n}", data.make(f"slow {n}", size))
    mounted = cache.mount_origin(FaultyOrigin(faulty), f"bandwidth={rate}")
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(reads.sha256, [mounted / f"{n}" for n in range(4)]))
    took_s = time.monotonic() - begin
    assert found == [data.digest(data.make(f"slow {n}", size)) for n in range(4)]
    assert took_s >= 0.75 * 4 * size / rate
    assert took_s < 60
    assert faulty.sent() == 4 * size


def test_a_limit_holds_only_who_has_it(cache, faulty):
    """Whoever waits for a chunk that a volume with bandwidth= began doesn't wait for that: the object would take minutes."""
    content = data.make("shared", 16 * MIB)
    faulty.put("x", content)
    origin = FaultyOrigin(faulty)
    slow = cache.mount_origin(origin, "bandwidth=64K", name="slow")
    fast = cache.mount_origin(origin, name="fast")
    first = child.Child(reads.sha256, slow / "x")
    try:
        wait.until(lambda: cache.counters()["fetched_bytes"] > 0, 60, "the first bytes")
        assert child.Child(reads.sha256, fast / "x").result(60) == data.digest(content)
        # What is here by that, it has too.
        assert first.result(60) == data.digest(content)
    finally:
        first.end()
