"""Bytes through the mount are those of the origin, by whatever way they are read, and are fetched once."""

import os
import subprocess
import time

import pytest

from lib import child, data, reads, wait
from lib.data import MIB
from lib.origins import DirectoryOrigin, FaultyOrigin

SIZES = [0, 1, 4095, 4096, 4097, MIB - 1, MIB, MIB + 1, 16 * MIB, 16 * MIB + 1, 21 * MIB + 12345]


@pytest.fixture
def scripted(faulty):
    return FaultyOrigin(faulty)


def warm(cache, path):
    """Reads the file once and returns when all of it is kept."""
    reads.sha256(path)
    cache.wait_warm(path)


def stopped(cache):
    """After the last umount the daemon that mount started ends by itself."""
    wait.until(lambda: not cache.processes(), 30, "the daemon's end")


@pytest.mark.parametrize("profile", ["mount", "restart"])
def test_every_size_cold_and_warm(cache, origin, profile):
    wanted = {}
    for size in SIZES:
        content = data.make(f"object-{size}", size)
        origin.put(f"dir/of {size}", content)
        wanted[f"of {size}"] = data.digest(content)
    mounted = cache.mount_origin(origin)
    assert [os.stat(mounted / "dir" / f"of {size}").st_size for size in SIZES] == SIZES
    assert reads.tree(mounted / "dir") == wanted
    for name in wanted:
        cache.wait_warm(mounted / "dir" / name)
    cold = cache.counters()
    assert cold["fetched_bytes"] == sum(SIZES)
    if profile == "restart":
        cache.umount(mounted)
        stopped(cache)
        mounted = cache.mount_origin(origin)
        cold = {"fetched_bytes": 0}
    before = cache.volume(mounted)
    assert reads.tree(mounted / "dir") == wanted
    after = cache.volume(mounted)
    assert cache.counters()["fetched_bytes"] == cold["fetched_bytes"]
    opened = after["passthrough_opens"] - before["passthrough_opens"]
    assert opened >= len([size for size in SIZES if size]), f"{opened} opens were passthrough"


@pytest.mark.parametrize("read", [reads.sha256, reads.sha256_mapped, reads.sha256_backwards, reads.sha256_direct])
def test_ways_to_read(cache, scripted, read):
    content = data.make("ways", 33 * MIB + 777)
    scripted.put("a", content)
    mounted = cache.mount_origin(scripted)
    assert child.call(read, mounted / "a") == data.digest(content)
    cache.wait_warm(mounted / "a")
    assert data.fetched_once(scripted.faulty.requests("get"), len(content))
    before = cache.volume(mounted)["passthrough_opens"]
    assert child.call(read, mounted / "a") == data.digest(content)
    assert cache.volume(mounted)["passthrough_opens"] == before + 1
    assert data.fetched_once(scripted.faulty.requests("get"), len(content))


@pytest.mark.parametrize("advice", ["MADV_NORMAL", "MADV_RANDOM", "MADV_SEQUENTIAL", "MADV_WILLNEED"])
def test_mapping_with_advice(cache, scripted, advice):
    content = data.make("advice", 9 * MIB + 1)
    scripted.put("a", content)
    mounted = cache.mount_origin(scripted)
    assert child.call(reads.sha256_mapped, mounted / "a", advice) == data.digest(content)
    assert data.fetched_once(scripted.faulty.requests("get"), len(content))


def test_pieces_of_any_place_and_size(cache, workdir):
    origin = DirectoryOrigin(workdir / "origin")
    origin.put("a", data.make("pieces", 40 * MIB + 3))
    mounted = cache.mount_origin(origin)
    local = origin.directory / "a"
    assert child.call(reads.pieces_differ, mounted / "a", local, 1, 300) == []
    warm(cache, mounted / "a")
    assert child.call(reads.pieces_differ, mounted / "a", local, 2, 300) == []
    assert cache.volume(mounted)["passthrough_opens"] >= 1


@pytest.mark.parametrize("argv", [
    ["cat", "PATH"], ["dd", "if=PATH", "bs=3M", "status=none"],
    ["dd", "if=PATH", "bs=4M", "iflag=direct", "status=none"],
    ["tail", "-c", "+1", "PATH"]], ids=" ".join)
def test_common_programs(cache, scripted, argv):
    content = data.make("programs", 7 * MIB + 5)
    scripted.put("a", content)
    mounted = cache.mount_origin(scripted)
    argv = [a.replace("PATH", str(mounted / "a")) for a in argv]
    for _ in range(2):
        assert subprocess.run(argv, capture_output=True, timeout=60, check=True).stdout == content
    assert data.fetched_once(scripted.faulty.requests("get"), len(content))


def test_copies(cache, scripted, workdir):
    content = data.make("copies", 7 * MIB + 5)
    scripted.put("dir/a", content)
    mounted = cache.mount_origin(scripted)
    for n in range(2):
        subprocess.run(["cp", "-r", mounted / "dir", workdir / f"copy{n}"], timeout=60, check=True)
        assert (workdir / f"copy{n}" / "a").read_bytes() == content


@pytest.mark.timeout(300)
def test_many_processes_read_one_object(cache, scripted, rounds, workdir):
    size = rounds(256, 1024) * MIB
    content = data.make("shared", size)
    (workdir / "local").write_bytes(content)
    scripted.put("a", content)
    mounted = cache.mount_origin(scripted)
    assert child.call(reads.by_many, mounted / "a", workdir / "local", 64, timeout_s=250) == 64
    assert data.fetched_once(scripted.faulty.requests("get"), size)
    assert scripted.faulty.sent() == size
    assert scripted.faulty.count("head") == 0
    assert cache.rss_peak_bytes() < 512 * MIB


def test_readers_against_dontneed(cache, scripted):
    content = data.make("dontneed", 64 * MIB)
    scripted.put("a", content)
    mounted = cache.mount_origin(scripted)
    assert child.call(reads.against_dontneed, mounted / "a", 4, data.digest(content)) == 4
    assert data.fetched_once(scripted.faulty.requests("get"), len(content))


def test_a_cold_mapping_is_as_fast_as_reading(cache, scripted):
    """The origin's pace decides, and it is the same for both: what differs is how far ahead the requests go."""
    content = data.make("pace", 64 * MIB)
    scripted.put("a", content)
    scripted.faulty.rule(op="get", trickle=(256 << 10, 0.01))
    mounted = cache.mount_origin(scripted)

    def seconds(read):
        start = time.monotonic()
        assert child.call(read, mounted / "a") == data.digest(content)
        spent = time.monotonic() - start
        wait.until(lambda: cache.run("evict", mounted / "a", check=False).returncode == 0, 30, "the eviction")
        return spent

    by_read = min(seconds(reads.sha256) for _ in range(2))
    by_mapping = min(seconds(reads.sha256_mapped) for _ in range(2))
    assert by_mapping <= 1.3 * by_read


def test_a_directory_of_small_files(cache, scripted):
    wanted = {}
    for n in range(1000):
        content = data.make(f"small-{n}", n * 7)
        scripted.put(f"samples/{n % 10}/{n:04}", content)
        wanted[f"{n % 10}/{n:04}"] = data.digest(content)
    mounted = cache.mount_origin(scripted)
    for _ in range(2):
        assert reads.tree(mounted / "samples") == wanted
    assert scripted.faulty.count("get") == 999
    assert scripted.faulty.count("head") == 0


def test_attributes(cache, scripted):
    scripted.put("dir/a", b"12345")
    mounted = cache.mount_origin(scripted, "umask=027", "uid=1234", "gid=4321")
    found = os.stat(mounted / "dir" / "a")
    assert (found.st_mode & 0o7777, found.st_uid, found.st_gid, found.st_nlink) == (0o440, 1234, 4321, 1)
    assert (found.st_size, found.st_mtime) == (5, 1704067200)
    assert os.stat(mounted / "dir").st_mode & 0o7777 == 0o550
    version = os.getxattr(mounted / "dir" / "a", "user.cachefs.version").decode()
    assert version == cache.status(mounted / "dir" / "a")["version"]
    assert os.getxattr(mounted / "dir" / "a", "user.cachefs.upload") == b"clean"
    assert os.statvfs(mounted).f_namemax == 1023
