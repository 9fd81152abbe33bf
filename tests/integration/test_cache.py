"""The store: what it keeps, how much it may use, and what happens when it is damaged or full."""

import contextlib
import os
import subprocess
import threading

import pytest

from lib import child, data, reads, wait
from lib.data import MIB
from lib.mount import Cache
from lib.origins import DirectoryOrigin, FaultyOrigin

SIZE = 9 * MIB + 77
CONTENT = data.make("cached", SIZE)


@pytest.fixture
def scripted(faulty):
    faulty.put("dir/a", CONTENT)
    return FaultyOrigin(faulty)


@contextlib.contextmanager
def file_system(path, kind, options):
    path.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", kind, "-o", options, "none", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


def warm(cache, path):
    reads.sha256(path)
    cache.wait_warm(path)


def gone(cache):
    wait.until(lambda: not cache.processes(), 30, "the daemon's end")


def raw_files(cache):
    return [path for path in (cache.store / "raw").rglob("*") if path.is_file()]


def disk_bytes(directory):
    """As du counts them."""
    total = 0
    for where, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(where, name)).st_blocks * 512
    return total


# Keeping

def test_one_cache_for_all_mounts(cache, scripted):
    """Overlapping volumes, and volumes with other options, share what is cached."""
    root = cache.mount_origin(scripted)
    below = cache.mount(f"{scripted.source}/dir", *scripted.options, name="below")
    other = cache.mount_origin(scripted, "uid=7", name="other")
    warm(cache, root / "dir" / "a")
    gets = scripted.faulty.count("get")
    for path in (below / "a", other / "dir" / "a"):
        assert reads.sha256(path) == data.digest(CONTENT)
        assert cache.status(path)["warm"]
    assert scripted.faulty.count("get") == gets
    assert cache.volume(below)["passthrough_opens"] == 1
    assert cache.status()["store"]["objects"] == 1


def test_kept_over_a_restart_and_a_kill(cache, scripted):
    mounted = cache.mount_origin(scripted)
    warm(cache, mounted / "dir" / "a")
    before = cache.status()["store"]
    cache.umount(mounted)
    gone(cache)
    scripted.faulty.clear_log()
    mounted = cache.mount_origin(scripted)
    store = cache.status()["store"]
    assert (store["objects"], store["used_bytes"]) == (before["objects"], before["used_bytes"])
    assert reads.sha256(mounted / "dir" / "a") == data.digest(CONTENT)
    cache.kill()
    subprocess.run(["umount", "-l", mounted], check=True)
    mounted = cache.mount_origin(scripted)
    assert reads.sha256(mounted / "dir" / "a") == data.digest(CONTENT)
    assert cache.volume(mounted)["passthrough_opens"] == 1
    assert scripted.faulty.count("get") == 0


def test_what_is_used_is_what_du_says(cache, workdir):
    origin = DirectoryOrigin(workdir / "origin")
    for n in range(20):
        origin.put(f"{n}", data.make(str(n), n * 300001))
    mounted = cache.mount_origin(origin)
    reads.tree(mounted)
    for n in range(20):
        cache.wait_warm(mounted / str(n))
    store = cache.status()["store"]
    assert store["objects"] in (19, 20)  # an empty one needs no file
    assert abs(store["used_bytes"] - disk_bytes(cache.store)) < 2 * MIB
    cache.run("evict", mounted)
    assert raw_files(cache) == []
    assert cache.status()["store"]["objects"] == 0
    assert disk_bytes(cache.store) < 2 * MIB


# Evicting and pinning

def test_evict(cache, scripted):
    scripted.faulty.put("dir/b", b"b" * 5000)
    scripted.faulty.put("c", b"c" * 5000)
    mounted = cache.mount_origin(scripted)
    paths = [mounted / "dir" / "a", mounted / "dir" / "b", mounted / "c"]
    for path in paths:
        warm(cache, path)
    cache.run("evict", mounted / "dir")
    assert [cache.status(path)["cached_bytes"] for path in paths] == [0, 0, 5000]
    assert len(raw_files(cache)) == 1
    cache.run("evict", scripted.source)
    assert cache.status(mounted / "c")["cached_bytes"] == 0
    assert cache.status()["store"]["objects"] == 0
    result = cache.run("evict", mounted / "missing", check=False)
    assert result.returncode == 1 and "missing" in result.stderr and not result.stdout
    assert cache.run("evict", "s3://another", check=False).returncode == 1


def test_what_is_open_is_not_evicted(cache, scripted):
    mounted = cache.mount_origin(scripted)
    path = mounted / "dir" / "a"
    warm(cache, path)
    with open(path, "rb", buffering=0) as f:
        result = cache.run("evict", path, check=False)
        assert result.returncode == 1 and "kept: 1 in use" in result.stdout
        assert f.read() == CONTENT
    wait.until(lambda: cache.volume(mounted)["handles"] == 0, 30, "the release")
    cache.run("evict", path)
    assert cache.status(path)["cached_bytes"] == 0


def test_pins(cache, scripted):
    scripted.faulty.put("dir/b", b"b")
    mounted = cache.mount_origin(scripted)
    path = mounted / "dir" / "a"
    cache.run("pin", mounted / "dir")
    assert cache.status(path)["pinned"] and cache.status(mounted / "dir" / "b")["pinned"]
    warm(cache, path)
    result = cache.run("evict", mounted / "dir")
    assert "pinned" in result.stdout and cache.status(path)["warm"]
    cache.umount(mounted)
    gone(cache)
    mounted = cache.mount_origin(scripted)
    assert cache.status(path)["pinned"]
    cache.run("unpin", path)
    assert not cache.status(path)["pinned"]
    cache.run("pin", "--ttl", "1s", path)
    assert cache.status(path)["pinned"]
    wait.until(lambda: not cache.status(path)["pinned"], 30, "the pin's end")
    cache.run("evict", path)
    assert cache.status(path)["cached_bytes"] == 0
    assert cache.run("pin", "--ttl", "soon", path, check=False).returncode == 2


def test_an_unpinned_file_of_which_nothing_is_kept_leaves_no_record(cache, scripted):
    mounted = cache.mount_origin(scripted)
    cache.run("pin", mounted)
    assert cache.status()["store"]["objects"] > 0
    cache.run("unpin", mounted)
    assert cache.status()["store"]["objects"] == 0
    # It is as it was: it can be read, kept, and pinned again.
    warm(cache, mounted / "dir" / "a")
    cache.run("pin", mounted)
    cache.run("unpin", mounted)
    assert cache.status(mounted / "dir" / "a")["warm"]


def test_pinned_files_stay_under_pressure(workdir, scripted):
    with Cache(workdir / "cache", size="64M") as cache:
        for n in range(12):
            scripted.faulty.put(f"other/{n}", data.make(str(n), 10 * MIB))
        mounted = cache.mount_origin(scripted)
        path = mounted / "dir" / "a"
        cache.run("pin", path)
        warm(cache, path)
        for n in range(12):
            assert reads.sha256(mounted / "other" / str(n)) == data.digest(data.make(str(n), 10 * MIB))
        assert cache.status(path)["warm"]
        assert cache.counters()["evictions"] > 0
        assert disk_bytes(cache.store) <= 66 * MIB


# Damage

def damage_flip(path):
    with open(path, "r+b", buffering=0) as f:
        f.seek(5 * MIB + 17)
        byte = f.read(1)
        f.seek(5 * MIB + 17)
        f.write(bytes([byte[0] ^ 1]))


def damage_cut(path):
    os.truncate(path, 3 * MIB)


def damage_grow(path):
    os.truncate(path, 30 * MIB)


def damage_hole(path):
    subprocess.run(["fallocate", "-p", "-o", str(2 * MIB), "-l", str(MIB), path], check=True)


def damage_remove(path):
    path.unlink()


WRONG_BYTES = [damage_flip, damage_cut, damage_hole]


@pytest.mark.parametrize("damage, running", [(damage, running) for damage in WRONG_BYTES for running in (True, False)])
def test_wrong_bytes_are_found_by_reading(cache, scripted, damage, running):
    """The right bytes come from the origin, and it is counted."""
    mounted = cache.mount_origin(scripted)
    path = mounted / "dir" / "a"
    warm(cache, path)
    [raw] = raw_files(cache)
    if not running:
        cache.umount(mounted)
        gone(cache)
    damage(raw)
    if not running:
        cache.mount_origin(scripted)
    assert reads.sha256(path) == data.digest(CONTENT)
    assert child.call(reads.sha256_mapped, path) == data.digest(CONTENT)
    wait.until(lambda: cache.counters()["checksum_failures"] > 0, 30, "the count")

    def whole():
        assert reads.sha256(path) == data.digest(CONTENT)
        return cache.status(path)["warm"]

    wait.until(whole, 30, "the file to be warm again")
    assert cache.run("verify", "--all").returncode == 0


@pytest.mark.parametrize("damage", [damage_grow, damage_remove])
@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
def test_a_file_that_is_not_the_store_s(cache, scripted, damage, running):
    """Longer than its object, or gone: never shown, and made anew when the store is opened the next time."""
    mounted = cache.mount_origin(scripted)
    path = mounted / "dir" / "a"
    warm(cache, path)
    [raw] = raw_files(cache)
    if running:
        damage(raw)
        assert reads.sha256(path) == data.digest(CONTENT)
        assert child.call(reads.sha256_mapped, path) == data.digest(CONTENT)
    cache.umount(mounted)
    gone(cache)
    if not running:
        damage(raw)
    cache.mount_origin(scripted)
    assert reads.sha256(path) == data.digest(CONTENT)
    cache.wait_warm(path)
    [raw] = raw_files(cache)
    assert raw.stat().st_size == SIZE
    assert cache.run("verify", "--all").returncode == 0


@pytest.mark.parametrize("damage", WRONG_BYTES)
def test_wrong_bytes_are_found_by_verify(cache, scripted, damage):
    mounted = cache.mount_origin(scripted)
    path = mounted / "dir" / "a"
    warm(cache, path)
    assert cache.run("verify", path).returncode == 0
    [raw] = raw_files(cache)
    damage(raw)
    result = cache.run("verify", "--all", check=False)
    assert result.returncode == 1 and result.stdout
    cache.run("verify", "--all", check=False)  # a file that was cut is found to be of no use now
    assert cache.run("verify", "--all").returncode == 0
    assert reads.sha256(path) == data.digest(CONTENT)


def test_repair(cache, scripted):
    mounted = cache.mount_origin(scripted)
    path = mounted / "dir" / "a"
    warm(cache, path)
    [raw] = raw_files(cache)
    damage_flip(raw)
    result = cache.run("verify", "--repair", path)
    assert "1 bad, 1 repaired" in result.stdout
    gets = scripted.faulty.count("get")
    assert reads.sha256(path) == data.digest(CONTENT)
    cache.wait_warm(path)
    assert scripted.faulty.count("get") == gets
    damage_flip(raw)
    assert "1 bad, 1 repaired" in cache.run("verify", "--all", "--repair").stdout
    assert cache.counters()["checksum_failures"] == 2


def test_strangers_in_the_store(cache, scripted):
    """Files without a record only take room: `verify --all` removes them. Nothing in the store is followed by name."""
    mounted = cache.mount_origin(scripted)
    path = mounted / "dir" / "a"
    warm(cache, path)
    [raw] = raw_files(cache)
    stray = raw.with_name(raw.name[:-1] + ("0" if raw.name[-1] != "0" else "1"))
    stray.write_bytes(b"stray")
    assert "1 stray" in cache.run("verify", "--all").stdout
    assert not stray.exists() and raw.exists()
    outside = cache.directory / "outside"
    outside.write_bytes(b"kept")
    raw.unlink()
    raw.symlink_to(outside)
    assert reads.sha256(path) == data.digest(CONTENT)
    assert outside.read_bytes() == b"kept"


def test_an_index_that_is_cut(cache, scripted):
    """An error that says what to do, never a crash."""
    mounted = cache.mount_origin(scripted)
    warm(cache, mounted / "dir" / "a")
    cache.umount(mounted)
    gone(cache)
    [index] = (cache.store / "index").glob("data*")
    os.truncate(index, os.path.getsize(index) // 2 & ~4095)
    result = cache.run("mount", "-o", ",".join(scripted.options), scripted.source, mounted, check=False)
    if result.returncode == 0:
        cache.mountpoints.append(mounted)
        assert reads.sha256(mounted / "dir" / "a") == data.digest(CONTENT)
    else:
        assert str(cache.store) in result.stderr and "signal" not in result.stderr
        assert not cache.processes()


# Capacity

@pytest.mark.timeout(200)
def test_the_limit_counts_disk_blocks(workdir, faulty):
    """10,000 objects of one byte are 40 MB of blocks. The index grows beside, which is seen a moment later."""
    for n in range(10000):
        faulty.put(f"{n % 100:02}/{n:05}", bytes([n % 251]))
    with Cache(workdir / "cache", size="24M") as cache:
        mounted = cache.mount_origin(FaultyOrigin(faulty))
        for n in range(10000):
            assert (mounted / f"{n % 100:02}" / f"{n:05}").read_bytes() == bytes([n % 251])
            if n % 500 == 499:
                assert disk_bytes(cache.store) <= 26 * MIB
                assert cache.status()["store"]["used_bytes"] <= 25 * MIB
        assert cache.counters()["evictions"] > 1000
        assert cache.counters()["store_errors"] == 0


def test_two_readers_of_what_the_store_can_not_hold(workdir, faulty):
    content = data.make("large", 200 * MIB)
    (workdir / "local").write_bytes(content)
    faulty.put("a", content)
    with file_system(workdir / "store", "tmpfs", "size=64M") as store:
        with Cache(workdir / "cache", store=store, needed=("io_uring",)) as cache:
            path = cache.mount_origin(FaultyOrigin(faulty)) / "a"
            assert child.call(reads.by_many, path, workdir / "local", 2) == 2
            assert faulty.sent() <= 2.2 * len(content)
            assert cache.counters()["uncached_bytes"] > 0
            assert cache.status()["store"]["full"]
            assert "full" in cache.run("status").stdout


@pytest.mark.timeout(200)
def test_many_readers_through_a_small_store(workdir, rounds):
    """The store never uses more than it may, whatever is read."""
    origin = DirectoryOrigin(workdir / "origin")
    count = rounds(40, 640)
    wanted = {}
    for n in range(count):
        content = data.make(str(n), 8 * MIB)
        origin.put(f"{n:03}", content)
        wanted[f"{n:03}"] = data.digest(content)
    ended = threading.Event()
    most = []
    with Cache(workdir / "cache", size="64M") as cache:
        mounted = cache.mount_origin(origin)

        def watch():
            while not ended.wait(0.05):
                most.append(disk_bytes(cache.store))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            readers = [child.Child(reads.tree, mounted) for _ in range(8)]
            assert all(reader.result(180) == wanted for reader in readers)
        finally:
            ended.set()
            watcher.join()
        assert max(most) <= 66 * MIB
        assert cache.counters()["evictions"] > 0
        assert cache.rss_peak_bytes() < 512 * MIB


def test_a_disk_that_others_fill(workdir, faulty):
    content = data.make("a", 48 * MIB)
    faulty.put("a", content)
    faulty.put("b", content[::-1])
    with file_system(workdir / "store", "tmpfs", "size=160M") as disk:
        with Cache(workdir / "cache", store=disk / "store", needed=("io_uring",)) as cache:
            mounted = cache.mount_origin(FaultyOrigin(faulty))
            hold = faulty.rule(op="get", key="a", after=1, stall_at=-1)
            with open(mounted / "a", "rb", buffering=0) as f:
                assert os.pread(f.fileno(), 1000, 0) == content[:1000]
                with contextlib.suppress(OSError), open(disk / "hog", "wb", buffering=0) as hog:
                    while True:
                        hog.write(bytes(MIB))
                hold.remove()
                assert data.digest(b"".join(iter(lambda: f.read(MIB), b""))) == data.digest(content)
            assert reads.sha256(mounted / "b") == data.digest(content[::-1])
            counters = cache.counters()
            assert counters["uncached_bytes"] > 0 and counters["checksum_failures"] == 0
            os.unlink(disk / "hog")
            reads.drop_pages(mounted / "b")

            def kept():
                assert reads.sha256(mounted / "b") == data.digest(content[::-1])
                reads.drop_pages(mounted / "b")
                return cache.status(mounted / "b")["warm"]

            wait.until(kept, 60, "the file to be kept")
            assert cache.run("verify", "--all").returncode == 0


# File systems

def check_works(cache, scripted):
    mounted = cache.mount_origin(scripted)
    path = mounted / "dir" / "a"
    for read in (reads.sha256, reads.sha256_mapped, reads.sha256_backwards):
        assert child.call(read, path) == data.digest(CONTENT)
    cache.wait_warm(path)
    assert child.call(reads.sha256_mapped, path) == data.digest(CONTENT)
    assert cache.run("verify", "--all").returncode == 0
    return cache.volume(mounted)["passthrough_opens"], cache.status()["daemon"]["features"]


def test_a_store_on_tmpfs(workdir, scripted):
    with file_system(workdir / "disk", "tmpfs", "size=256M") as disk:
        with Cache(workdir / "cache", store=disk / "store", needed=("io_uring",)) as cache:
            opens, features = check_works(cache, scripted)
            assert features["passthrough"] == (opens > 0)


def overlay(workdir, stack, lower, upper, name):
    (upper / f"{name}-upper").mkdir()
    (upper / f"{name}-work").mkdir()
    options = f"lowerdir={lower},upperdir={upper}/{name}-upper,workdir={upper}/{name}-work"
    return stack.enter_context(file_system(workdir / name, "overlay", options))


def test_a_store_on_overlayfs(workdir, scripted):
    """As in a container without a volume."""
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(file_system(workdir / "disk", "tmpfs", "size=256M"))
        (disk / "lower").mkdir()
        top = overlay(workdir, stack, disk / "lower", disk, "over")
        with Cache(workdir / "cache", store=top / "store", needed=("io_uring",)) as cache:
            opens, features = check_works(cache, scripted)
            assert features["passthrough"] == (opens > 0)
            assert features["passthrough"] or features["passthrough_reason"]


def test_a_store_that_can_not_back_passthrough(workdir, scripted):
    """overlayfs on overlayfs: too deep for the kernel. It works without, and says so."""
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(file_system(workdir / "disk", "tmpfs", "size=256M"))
        (disk / "lower").mkdir()
        middle = overlay(workdir, stack, disk / "lower", disk, "middle")
        (middle / "low").mkdir()
        top = overlay(workdir, stack, middle / "low", disk, "top")
        with Cache(workdir / "cache", store=top / "store", needed=("io_uring",)) as cache:
            opens, features = check_works(cache, scripted)
            if features["passthrough"]:
                assert opens > 0
            else:
                assert opens == 0 and features["passthrough_reason"]
                assert features["passthrough_reason"] in cache.run("status").stdout
