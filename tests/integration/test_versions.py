"""Objects that change while they are read: every handle and every mapping has one version, whole, or ESTALE."""

import errno
import mmap
import os

import pytest

from lib import child, data, reads, wait
from lib.data import MIB
from lib.faulty import EPOCH
from lib.origins import DirectoryOrigin, FaultyOrigin

TTL = "ttl=200ms"


@pytest.fixture
def scripted(faulty):
    return FaultyOrigin(faulty)


def error_of(read):
    """The errno of read(), 0 when it succeeds."""
    try:
        read()
    except OSError as e:
        return e.errno
    return 0


def pieces(fd, size):
    """[(offset, bytes or errno)] of the whole file, each MiB by itself."""
    found = []
    for at in range(0, size, MIB):
        try:
            found.append((at, os.pread(fd, MIB, at)))
        except OSError as e:
            found.append((at, e.errno))
    return found


def wait_for_version(path, digest, allowed=()):
    """Opens and reads the file until its new version is seen; until then it may only be one of the allowed ones."""
    def seen():
        try:
            found = reads.sha256(path)
        except OSError as e:
            assert e.errno == errno.ESTALE
            return False
        assert found == digest or found in allowed
        return found == digest

    wait.until(seen, 30, "the new version")


def test_replaced_by_one_of_the_same_size(cache, origin):
    old, new = (data.make(version, 24 * MIB + 7) for version in ("old", "new"))
    origin.put("a", old)
    path = cache.mount_origin(origin, TTL) / "a"
    fd = os.open(path, os.O_RDONLY)
    try:
        assert os.pread(fd, MIB, 0) == old[:MIB]
        origin.put("a", new)
        wait_for_version(path, data.digest(new), [data.digest(old)])
        for at, found in pieces(fd, len(old)):
            assert found in (old[at:at + MIB], errno.ESTALE), f"piece at {at}"
        assert os.pread(fd, MIB, 0) == old[:MIB]
    finally:
        os.close(fd)
    assert reads.sha256(path) == data.digest(new)


@pytest.mark.parametrize("size", [5 * MIB, 3 * MIB, 0, 40 * MIB])
def test_reopened_after_the_ttl(cache, origin, size):
    old, new = data.make("old", 5 * MIB), data.make("new", size)
    origin.put("a", old)
    path = cache.mount_origin(origin, TTL) / "a"
    with open(path, "rb", buffering=0) as f:
        assert f.read(2 * MIB) == old[:2 * MIB]
    origin.put("a", new)
    wait_for_version(path, data.digest(new), [data.digest(old)])
    assert os.stat(path).st_size == size


@pytest.mark.parametrize("change", ["replaced", "deleted"])
@pytest.mark.parametrize("option", ["ttl=1h", "immutable"])
def test_an_uncached_range_of_what_is_gone(cache, scripted, change, option):
    """The name is believed for long; only the read finds out."""
    old, new = data.make("old", 64 * MIB), data.make("new", 64 * MIB)
    scripted.put("a", old)
    path = cache.mount_origin(scripted, option) / "a"
    held = scripted.faulty.rule(op="get", where=lambda r: r.first >= 16 * MIB, stall_at=-1)
    fd = os.open(path, os.O_RDONLY)
    try:
        assert os.pread(fd, MIB, 0) == old[:MIB]
        if change == "replaced":
            scripted.put("a", new)
        else:
            scripted.delete("a")
        held.remove()
        assert error_of(lambda: os.pread(fd, MIB, 63 * MIB)) in (errno.ESTALE, errno.ENOENT)
        assert error_of(lambda: os.pread(fd, MIB, 63 * MIB)) in (errno.ESTALE, errno.ENOENT)
        assert os.pread(fd, MIB, 0) == old[:MIB]
        if change == "replaced":
            assert reads.sha256(path) == data.digest(new)
            assert error_of(lambda: os.pread(fd, MIB, 62 * MIB)) == errno.ESTALE
        else:
            assert error_of(lambda: reads.sha256(path)) == errno.ENOENT
    finally:
        os.close(fd)
    assert cache.volume(path.parent)["origin"]["state"] == "reachable"


def test_a_deleted_name_goes(cache, origin):
    for name in ("a", "b", "dir/c"):
        origin.put(name, b"x")
    mounted = cache.mount_origin(origin, TTL)
    assert sorted(os.listdir(mounted)) == ["a", "b", "dir"]
    os.stat(mounted / "a")
    origin.delete("a")
    wait.until(lambda: error_of(lambda: os.stat(mounted / "a")) == errno.ENOENT, 30, "ENOENT")
    wait.until(lambda: sorted(os.listdir(mounted)) == ["b", "dir"], 30, "the listing without it")
    origin.put("new", b"x")
    wait.until(lambda: sorted(os.listdir(mounted)) == ["b", "dir", "new"], 30, "the new name")


def test_a_missing_name_that_comes(cache, origin):
    origin.put("a", b"x")
    mounted = cache.mount_origin(origin, "ttl=1h", "negative_ttl=200ms")
    assert error_of(lambda: os.stat(mounted / "b")) == errno.ENOENT
    origin.put("b", b"y")
    wait.until(lambda: error_of(lambda: os.stat(mounted / "b")) == 0, 30, "the new name")
    assert (mounted / "b").read_bytes() == b"y"


def test_a_file_that_becomes_a_directory(cache, scripted):
    scripted.put("a", b"file")
    scripted.put("b", b"other")
    mounted = cache.mount_origin(scripted, TTL)
    assert (mounted / "a").read_bytes() == b"file"
    scripted.delete("a")
    scripted.put("a/x", b"in it")
    wait.until(lambda: error_of(lambda: reads.sha256(mounted / "a" / "x")) == 0, 30, "the directory")
    assert os.listdir(mounted / "a") == ["x"]
    scripted.delete("a/x")
    scripted.put("a", b"file again")
    wait.until(lambda: os.path.isfile(mounted / "a"), 30, "the file")
    assert (mounted / "a").read_bytes() == b"file again"


def test_strict_sees_each_change_at_the_next_open(cache, origin):
    origin.put("a", b"version 0")
    path = cache.mount_origin(origin, "strict", "ttl=1h") / "a"
    for n in range(10):
        content = f"version {n}".encode() * (n + 1)
        origin.put("a", content)
        assert path.read_bytes() == content
        assert path.read_bytes() == content


def test_immutable_believes_what_it_saw(cache, scripted):
    scripted.put("a", b"first")
    path = cache.mount_origin(scripted, "immutable") / "a"
    assert path.read_bytes() == b"first"
    lists, heads = scripted.faulty.count("list"), scripted.faulty.count("head")
    scripted.put("a", b"other")
    for _ in range(5):
        assert path.read_bytes() == b"first"
    assert (scripted.faulty.count("list"), scripted.faulty.count("head")) == (lists, heads)


@pytest.mark.parametrize("origin", ["file", "versitygw"], indirect=True)
def test_a_mapping_keeps_its_bytes(cache, origin):
    """Mapped while warm, closed, evicted, replaced: the store's file must not lose a block."""
    old, new = data.make("old", 9 * MIB + 5), data.make("new", 9 * MIB + 5)
    origin.put("a", old)
    path = cache.mount_origin(origin, TTL) / "a"
    reads.sha256(path)
    cache.wait_warm(path)
    before = cache.volume(path.parent)["passthrough_opens"]
    fd = os.open(path, os.O_RDONLY)
    mapping = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)
    os.close(fd)
    assert cache.volume(path.parent)["passthrough_opens"] == before + 1
    result = cache.run("evict", path, check=False)
    assert result.returncode == 1 and "in use" in result.stdout
    origin.put("a", new)
    wait_for_version(path, data.digest(new), [data.digest(old)])
    cache.run("evict", path.parent, check=False)
    mapping.madvise(mmap.MADV_DONTNEED)
    assert data.digest(mapping) == data.digest(old)
    mapping.close()
    assert reads.sha256(path) == data.digest(new)
    cache.umount(path.parent)


def test_an_unused_file_is_evicted(cache, workdir):
    origin = DirectoryOrigin(workdir / "origin")
    content = data.make("a", 9 * MIB)
    origin.put("a", content)
    path = cache.mount_origin(origin) / "a"
    for _ in range(2):
        reads.sha256(path)
        cache.wait_warm(path)
        with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as mapping:
            assert data.digest(mapping) == data.digest(content)
        wait.until(lambda: cache.volume(path.parent)["handles"] == 0, 30, "no handles")
        cache.run("evict", path)
        assert cache.status(path)["cached_bytes"] == 0
        reads.drop_pages(path)  # the kernel may have kept what it read cold
    assert cache.counters()["fetched_bytes"] == 2 * len(content)


def test_mapped_cold_while_it_becomes_warm(cache, scripted, workdir):
    content = data.make("a", 20 * MIB + 1)
    scripted.put("a", content)
    path = cache.mount_origin(scripted) / "a"
    held = child.Child(reads.held_mapping, path, workdir / "mapped")
    wait.until((workdir / "mapped").exists, 30, "the mapping")
    assert reads.sha256(path) == data.digest(content)
    cache.wait_warm(path)
    before = cache.volume(path.parent)["passthrough_opens"]
    assert child.call(reads.sha256_mapped, path) == data.digest(content)
    assert cache.volume(path.parent)["passthrough_opens"] == before + 1
    (workdir / "mapped").unlink()
    assert held.result() == data.digest(content)
    assert data.fetched_once(scripted.faulty.requests("get"), len(content))


@pytest.mark.parametrize("origin", ["file", "faulty", "versitygw"], indirect=True)
def test_old_handles_over_ten_changes(cache, origin):
    size = 3 * MIB + 11
    path = None
    handles = []
    try:
        for n in range(10):
            content = data.make(f"version {n}", size)
            origin.put("a", content)
            path = path or cache.mount_origin(origin, TTL) / "a"
            wait_for_version(path, data.digest(content), [data.digest(handles[-1][1])] if handles else [])
            if n % 2:
                cache.wait_warm(path)
            fd = os.open(path, os.O_RDONLY)
            handles.append((fd, content))
            assert os.pread(fd, size, 0) == content
        for fd, content in handles:
            assert b"".join(found for _, found in pieces(fd, size)) == content
            assert os.fstat(fd).st_size == size
        assert cache.volume(path.parent)["handles"] == 10
    finally:
        for fd, _ in handles:
            os.close(fd)
    cache.umount(path.parent)
    wait.until(lambda: not cache.processes(), 30, "the daemon's end")


def test_a_handle_opened_again_by_its_descriptor(cache, scripted):
    """/proc/self/fd leads to the old node, whose name has another version now."""
    old, new = data.make("old", 2 * MIB), data.make("new", 2 * MIB)
    scripted.put("a", old)
    path = cache.mount_origin(scripted, TTL) / "a"
    fd = os.open(path, os.O_RDONLY)
    try:
        assert os.pread(fd, 2 * MIB, 0) == old
        scripted.put("a", new)
        wait_for_version(path, data.digest(new), [data.digest(old)])
        with open(f"/proc/self/fd/{fd}", "rb", buffering=0) as again:
            assert again.read(2 * MIB) == old
    finally:
        os.close(fd)


@pytest.mark.parametrize("kind", ["file", "faulty"])
def test_readers_while_it_is_replaced_again_and_again(cache, workdir, kind, request):
    origin = DirectoryOrigin(workdir / "o") if kind == "file" else FaultyOrigin(request.getfixturevalue("faulty"))
    origin.put("a", bytes([0]) * (5 * MIB))
    path = cache.mount_origin(origin, "ttl=20ms") / "a"
    stop = workdir / "stop"
    readers = [child.Child(reads.versions_until, path, stop) for _ in range(3)]
    for version in range(1, 40):
        content = bytes([version]) * (5 * MIB + version)
        origin.put("a", content)
        opens = cache.volume(path.parent)["opens"]
        wait.until(lambda opens=opens: cache.volume(path.parent)["opens"] > opens + 6, 30, "the readers")
    stop.touch()
    results = [reader.result() for reader in readers]
    assert [r["mixed"] for r in results] == [0, 0, 0]
    assert all(len(r["seen"]) > 5 for r in results), results
    wait_for_version(path, data.digest(bytes([39]) * (5 * MIB + 39)), [])


@pytest.mark.parametrize("etag", ['W/"{}"', ""], ids=["weak", "none"])
@pytest.mark.parametrize("kind", ["s3", "web"])
def test_versions_without_a_strong_etag(cache, etag, kind, request):
    """If-Match can't be used: the answers' headers are compared."""
    server = request.getfixturevalue("faulty" if kind == "s3" else "web")
    old, new = data.make("old", 40 * MIB), data.make("new", 40 * MIB)
    server.put("a", old, etag=etag.format(1))
    server.put("b", old, etag=etag.format(1))
    path = cache.mount_origin(FaultyOrigin(server), TTL) / "a"
    assert reads.sha256(path) == data.digest(old)
    held = server.rule(op="get", key="b", where=lambda r: r.first >= 16 * MIB, stall_at=-1)
    fd = os.open(path.parent / "b", os.O_RDONLY)
    try:
        assert os.pread(fd, MIB, 0) == old[:MIB]
        server.put("b", new, etag=etag.format(2), modified=EPOCH.replace(day=2))
        held.remove()
        assert error_of(lambda: os.pread(fd, MIB, 39 * MIB)) == errno.ESTALE
    finally:
        os.close(fd)
    wait_for_version(path.parent / "b", data.digest(new))
    assert not any("if-match" in r.headers for r in server.requests("get"))
