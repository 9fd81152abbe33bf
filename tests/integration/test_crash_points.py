"""The daemon dies at each named point between a request and its answer: each request is answered once, and right."""

import pytest

from lib import child, data, load, mounts, reads, wait
from lib.data import MIB
from lib.mount import Cache
from lib.origins import DirectoryOrigin, FaultyOrigin

OF_REQUESTS = ("after_read", "after_table", "before_reply", "after_reply")
DEATHS = 4


@pytest.fixture
def tree(workdir):
    origin = DirectoryOrigin(workdir / "origin")
    for n in range(30):
        origin.put(f"d{n % 3}/{n}", data.make(str(n), 1000 + 40000 * n))
    return origin


@pytest.fixture
def crashing(workdir):
    """crashing(spec): a cache whose daemons die there."""
    caches = []

    def make(spec):
        caches.append(Cache(workdir / "cache", env={"CACHEFS_CRASH_AT": spec}))
        return caches[-1]
    yield make
    for cache in caches:
        cache.close()


def look_and_read(cache, mounted, tree, workdir, deaths):
    """Lookups, opens, reads of all kinds and listings until so many daemons have died."""
    flag = workdir / "going"
    flag.touch()
    kinds = [(load.whole, mounted, tree.directory, 1), (load.pieces, mounted, tree.directory, 2),
             (load.mapped, mounted, tree.directory, 3), (load.command, "ls", "-lR", mounted),
             (load.command, "find", mounted, "-printf", r"%p %s %T@\n")]
    children = [child.Child(function, flag, *args) for function, *args in kinds]
    try:
        wait.until(lambda: log_count(cache, "daemon_died") >= deaths or not all(c.running() for c in children), 60,
                   f"{deaths} deaths")
        flag.unlink()
        for one in children:
            assert one.result()["rounds"] > 0
    finally:
        for one in children:
            one.end()


def log_count(cache, event):
    return cache.log.read_text(errors="replace").count(event)


@pytest.mark.parametrize("point", OF_REQUESTS)
@pytest.mark.parametrize("passes", [60, 301])
def test_between_request_and_answer(crashing, tree, workdir, point, passes):
    cache = crashing(f"{point}:{passes}")
    mounted = cache.mount_origin(tree)
    look_and_read(cache, mounted, tree, workdir, DEATHS)
    wait.until(lambda: cache.run("status", "--json", check=False).returncode == 0, 30, "a daemon")
    assert cache.volume(mounted)["handles"] == 0
    assert "result_not_kept" not in cache.log.read_text()


@pytest.mark.parametrize("point", ["after_backing_open", "before_backing_close"])
def test_around_a_backing_file(crashing, tree, workdir, point):
    """No backing id is lost: each file can be evicted afterwards."""
    cache = crashing(f"{point}:25")
    mounted = cache.mount_origin(tree)
    look_and_read(cache, mounted, tree, workdir, 2)
    wait.until(lambda: cache.run("status", "--json", check=False).returncode == 0, 30, "a daemon")
    wait.until(lambda: cache.run("evict", mounted, check=False).returncode == 0, 30, "the eviction")
    assert cache.status()["store"]["objects"] == 0


def mount(cache, origin, path):
    path.mkdir(parents=True, exist_ok=True)
    return cache.run("mount", "-o", ",".join(origin.options) or "ro", origin.source, path, check=False, timeout_s=60)


@pytest.mark.parametrize("point", ["after_put", "after_mount"])
def test_while_mounting(crashing, tree, workdir, point):
    """The command may fail or have come through; either way nothing hangs, and the next one works."""
    cache = crashing(point)
    path = workdir / "cache" / "mnt"
    mount(cache, tree, path)
    assert log_count(cache, "daemon_died") > 0
    if not mounts.below(path):
        del cache.env["CACHEFS_CRASH_AT"]
        cache.close()
        assert mount(cache, tree, path).returncode == 0
    cache.mountpoints.append(path)
    wait.until(lambda: cache.run("status", "--json", check=False).returncode == 0, 30, "a daemon")
    assert (path / "d1" / "1").read_bytes() == (tree.directory / "d1" / "1").read_bytes()
    assert len(cache.status()["volumes"]) == 1
    cache.umount(path)


def test_a_fault_of_a_mapping_waits_for_the_next_daemon(cache, faulty, workdir):
    """A mapping of a passthrough file and one of a file that is just arriving: SIGBUS would end their process."""
    content = data.make("m", 6 * MIB)
    faulty.put("warm", content)
    faulty.put("cold", content)
    mounted = cache.mount_origin(FaultyOrigin(faulty))
    (mounted / "warm").read_bytes()
    cache.wait_warm(mounted / "warm")
    passed = cache.volume(mounted)["passthrough_opens"]
    flag = workdir / "held"
    warm = child.Child(reads.held_mapping, mounted / "warm", flag)
    wait.until(flag.exists, 30, "the mapping")
    assert cache.volume(mounted)["passthrough_opens"] == passed + 1
    rule = faulty.rule(op="get", key="cold", stall_at=0)
    cold = child.Child(reads.sha256_mapped, mounted / "cold")
    rule.wait_hits(1)
    for _ in range(3):
        cache.kill_daemon()
        assert warm.running() and cold.running()
    rule.remove()
    flag.unlink()
    assert warm.result() == cold.result() == data.digest(content)
