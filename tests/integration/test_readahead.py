"""What is fetched of a cold object, beside what is read: the patterns of loaders, counted at the origin."""

import mmap
import os
import random
import threading

import pytest

from lib import child, data, reads, wait
from lib.data import MIB
from lib.origins import DirectoryOrigin, FaultyOrigin

SIZE = 120 * MIB + 4321
PART = 8 * MIB  # the least that is worth a GET when all is read
RAMP = 16       # smaller GETs, at the beginning of a stream


@pytest.fixture(scope="module")
def content():
    return data.make("readahead", SIZE)


@pytest.fixture
def scripted(faulty, content):
    faulty.put("a", content)
    return FaultyOrigin(faulty)


def sparse(path, size):
    """So many zeros as an object's bytes, which take no room. Unmapped when the last answer has let go of it."""
    with open(path, "wb+") as f:
        f.truncate(size)
        return mmap.mmap(f.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)


def fetched_whole(faulty, streams=1):
    """Each byte once, in large parts."""
    return (data.fetched_once(faulty.requests("get"), SIZE)
            and faulty.count("get") <= SIZE // PART + 1 + streams * RAMP)


# All of it

@pytest.mark.parametrize("read", [reads.sha256, reads.sha256_mapped, reads.sha256_direct, reads.sha256_backwards])
def test_one_stream(cache, scripted, content, read):
    mounted = cache.mount_origin(scripted)
    assert child.call(read, mounted / "a") == data.digest(content)
    cache.wait_warm(mounted / "a")
    assert fetched_whole(scripted.faulty)


def test_forked_readers_of_one_descriptor(cache, scripted, content):
    mounted = cache.mount_origin(scripted)
    assert child.call(reads.quarters, mounted / "a") == data.digest(content)
    cache.wait_warm(mounted / "a")
    assert fetched_whole(scripted.faulty, 4)


@pytest.mark.parametrize("wanted", [
    [[0, 8], [8, 100_000], [100_008, SIZE - 100_008]],
    [[SIZE - 8, 8], [SIZE - 70_000, 70_000], [4, SIZE - 70_004]]], ids=["safetensors", "parquet"])
def test_the_header_first(cache, scripted, content, wanted):
    mounted = cache.mount_origin(scripted)
    read = b"".join(content[at:at + size] for at, size in wanted)
    assert child.call(reads.ranges, mounted / "a", wanted) == data.digest(read)
    cache.wait_warm(mounted / "a")
    assert fetched_whole(scripted.faulty, 2)


# Some of it

def test_tensors_with_gaps(cache, faulty, workdir):
    """In file order, as of a layer each. The kernel's own readahead goes two of its windows into a gap, and ours before
    the first tensor has ended, four times as far as it was read."""
    tensor, stride, count = 16 * MIB, 80 * MIB, 8
    wanted = [[n * stride, tensor] for n in range(count)]
    faulty.put("a", sparse(workdir / "sparse", count * stride), etag='"gaps"')
    mounted = cache.mount_origin(FaultyOrigin(faulty))
    child.call(reads.ranges, mounted / "a", wanted)
    wait.until(lambda: cache.counters()["fetched_bytes"] == faulty.sent(), 30, "the end of the fetches")
    assert count * tensor <= faulty.sent() <= count * (tensor + 8 * MIB) + 4 * tensor
    assert faulty.count("get") <= count * RAMP


def test_random_reads(cache, faulty, workdir):
    """1,000 of 10,000 chunks: a chunk each and no more, also when all is done."""
    size, count = 10 << 30, 1000
    dice = random.Random(7)
    faulty.put("a", sparse(workdir / "sparse", size), etag='"random"')
    mounted = cache.mount_origin(FaultyOrigin(faulty))
    fd = os.open(mounted / "a", os.O_RDONLY)
    try:
        for _ in range(count):
            assert os.pread(fd, 4096, dice.randrange(size // 4096) * 4096) == bytes(4096)
    finally:
        os.close(fd)
    cache.umount(mounted)
    wait.until(lambda: not cache.processes(), 30, "the daemon's end")
    assert faulty.count("get") <= count
    assert faulty.sent() <= count * MIB


# What was not asked for

def test_most_of_a_file_becomes_all_of_it(cache, scripted, content):
    """After the last close; nobody reads the rest."""
    mounted = cache.mount_origin(scripted)
    half = [[0, SIZE // 2 + 3 * MIB]]
    assert child.call(reads.ranges, mounted / "a", half) == data.digest(content[:half[0][1]])
    cache.wait_warm(mounted / "a")
    assert data.fetched_once(scripted.faulty.requests("get"), SIZE)
    before = cache.volume(mounted)["passthrough_opens"]
    assert reads.sha256(mounted / "a") == data.digest(content)
    assert cache.volume(mounted)["passthrough_opens"] == before + 1


def test_a_completion_gives_way(cache, scripted, content):
    """While a reader waits for another file nothing is fetched that nobody asked for."""
    scripted.put("b", b"b" * 5000)
    held = scripted.faulty.rule(op="get", key="b", stall_at=-1)
    mounted = cache.mount_origin(scripted)
    reader = child.Child(reads.sha256, mounted / "b")
    try:
        held.wait_hits(1)
        some = [[n * MIB, MIB] for n in range(70)]
        dice = random.Random(3)
        dice.shuffle(some)
        child.call(reads.ranges, mounted / "a", some)
        wait.until(lambda: cache.status(mounted / "a")["cached_bytes"] >= 70 * MIB, 30, "the commit")
        asked = scripted.faulty.count("get", "a")
        assert not cache.status(mounted / "a")["warm"]
        held.release()
        assert reader.result() == data.digest(b"b" * 5000)
    finally:
        held.remove()
        reader.end()
    cache.wait_warm(mounted / "a")
    assert scripted.faulty.count("get", "a") > asked
    assert data.fetched_once(scripted.faulty.requests("get", "a"), SIZE)


# Memory

def memory_bytes(pid):
    """Anonymous and shared memory of a process: what the ceiling is of; pages of files come and go as the kernel
    likes."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return sum(int(line.split()[1]) << 10 for line in f if line.startswith(("RssAnon:", "RssShmem:")))


@pytest.mark.timeout(240)
def test_500_files_open(cache, workdir):
    """More than there are buffers."""
    origin = DirectoryOrigin(workdir / "origin")
    size = 2 * MIB + 99
    names = [f"f{n:03}" for n in range(500)]
    whole = data.make("500", size + 500)
    for n, name in enumerate(names):
        origin.put(name, memoryview(whole)[n:n + size])
    mounted = cache.mount_origin(origin)
    pid = cache.pid()
    most, ended = 0, threading.Event()

    def watch():
        nonlocal most
        while not ended.wait(0.02):
            most = max(most, memory_bytes(pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        in_turn, anywhere = child.call(reads.many_open, [str(mounted / name) for name in names], 3, timeout_s=200)
    finally:
        ended.set()
        watcher.join()
    assert in_turn == [data.digest(whole[n:n + MIB]) for n in range(500)]
    for n, (first, found) in enumerate(anywhere):
        assert found == data.digest(whole[n + first:n + min(first + MIB, size)]), names[n]
    assert 192 * MIB <= most <= 256 * MIB
    assert cache.counters()["store_errors"] == 0
