"""Memory has a ceiling under load; and a daemon that the kernel kills for want of memory is only a pause."""

import os
import signal

import pytest

from lib import data, load, wait
from lib.cgroup import MemoryCgroup
from lib.child import Child
from lib.data import MIB
from lib.mount import Cache
from lib.origins import DirectoryOrigin

READERS = 64
FILES, FILE_BYTES = 48, 5 * MIB


@pytest.fixture
def small(workdir):
    """A store that holds half of what is read, so that files come and go all the time."""
    with Cache(workdir / "small", size=str(FILES * FILE_BYTES // 2)) as cache:
        yield cache


@pytest.fixture
def tree(workdir):
    origin = DirectoryOrigin(workdir / "origin")
    for n in range(FILES):
        origin.put(str(n), data.make(str(n), FILE_BYTES + n))
    return origin


class Readers:
    """64 at once; with `with`, none is left."""

    def __init__(self, mounted, tree, flag):
        flag.touch()
        self._flag = flag
        self._children = [Child(load.whole, flag, mounted, tree.directory, n, True) for n in range(READERS)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in self._children:
            one.end()

    def done(self):
        """Each has read and met no error; the longest pause."""
        self._flag.unlink()
        results = [one.result() for one in self._children]
        assert all(result["rounds"] > 0 for result in results)
        return max(result["longest_s"] for result in results)


def test_the_ceiling_holds(small, tree, workdir):
    mounted = small.mount_origin(tree)
    pid = small.pid()
    with MemoryCgroup(600 * MIB) as cgroup, Readers(mounted, tree, workdir / "going") as readers:
        cgroup.enter(pid)
        wait.until(lambda: small.counters()["fetched_bytes"] > 4 * FILES * FILE_BYTES, 90, "fetches")
        readers.done()
        assert cgroup.kills() == 0
        assert small.pid() == pid and small.keeper()["restarts"] == 0
        pool = small.status()["pool"]
        assert pool["waiters"] == 0 and pool["in_use"] <= pool["buffers"]


def may_lower_score(cache):
    return "keeper_killable" not in cache.log.read_text()


def score(pid):
    with open(f"/proc/{pid}/oom_score_adj", encoding="ascii") as f:
        return int(f.read())


def test_a_kill_for_memory_is_a_pause(small, tree, workdir, record_property):
    """The daemon may be killed, the keeper not, where the machine lets it say so."""
    mounted = small.mount_origin(tree)
    keeper = small.keeper()["pid"]
    assert score(keeper) == (-1000 if may_lower_score(small) else score("self"))
    assert score(small.pid()) == score("self")
    with MemoryCgroup(96 * MIB) as cgroup, Readers(mounted, tree, workdir / "going") as readers:
        for _ in range(2):
            kills, pid = cgroup.kills(), small.pid()
            cgroup.enter(keeper)  # whose next children are born there, until it leaves
            os.kill(pid, signal.SIGKILL)
            wait.until(lambda before=kills: cgroup.kills() > before, 100, "a kill for memory")
            cgroup.leave(keeper)
            small.wait_other_daemon(pid, 100)
        longest_s = readers.done()
        assert cgroup.kills() >= 2
    record_property("longest_pause_s", longest_s)
    print(f"longest pause {longest_s:.2f} s")
    assert small.keeper()["pid"] == keeper and small.keeper()["restarts"] >= 4
