"""Kills, upgrades, mounts and unmounts at the same time: whatever their order, what is mounted serves."""

import os
import random
import shutil
import signal
import subprocess
import threading

import pytest

from lib import data, load, mounts, wait
from lib.child import Child
from lib.mount import PROGRAM
from lib.origins import DirectoryOrigin


@pytest.fixture
def tree(workdir):
    origin = DirectoryOrigin(workdir / "origin")
    for n in range(12):
        origin.put(f"d{n % 3}/{n}", data.make(str(n), 1000 + 200000 * n))
    return origin


class Killer(threading.Thread):
    """Kills the daemon, whichever it is, again and again."""

    def __init__(self, keeper, dice, pause_s):
        super().__init__(name="killer", daemon=True)
        self._keeper, self._dice, self._pause_s = keeper, dice, pause_s
        self._ended = threading.Event()
        self.kills = 0

    def run(self):
        while not self._ended.wait(self._pause_s * self._dice.uniform(0.5, 1.5)):
            with open(f"/proc/{self._keeper}/task/{self._keeper}/children", encoding="ascii") as f:
                children = f.read().split()
            for pid in children:
                os.kill(int(pid), signal.SIGKILL)
                self.kills += 1

    def end(self):
        self._ended.set()
        self.join()


@pytest.fixture
def killer(request):
    killers = []

    def start(cache, pause_s):
        killers.append(Killer(cache.keeper()["pid"], random.Random(11), pause_s))
        killers[-1].start()
        return killers[-1]
    yield start
    for one in killers:
        one.end()


@pytest.fixture
def reader(workdir):
    """reader(mounted, tree): reads until done() is called on it."""
    started = []

    def start(mounted, tree):
        flag = workdir / f"going-{len(started)}"
        flag.touch()
        one = Child(load.whole, flag, mounted, tree.directory, len(started))
        started.append((flag, one))
        return flag, one
    yield start
    for _, one in started:
        one.end()


def finish(flag, one):
    flag.unlink()
    assert one.result()["rounds"] > 0


def answers(cache):
    return cache.run("status", "--json", check=False).returncode == 0


def test_upgrades_that_are_killed(cache, tree, workdir, killer, reader, rounds):
    """Any of the processes of an upgrade may die in it, but for the keeper: it succeeds or fails, the mount lives."""
    mounted = cache.mount_origin(tree)
    keeper = cache.keeper()["pid"]
    running = reader(mounted, tree)
    binaries = [shutil.copy(PROGRAM, workdir / name) for name in ("a", "b")]
    one = killer(cache, 0.7)
    statuses = []
    for n in range(rounds(25, 300)):
        done = subprocess.run([binaries[n % 2], "upgrade"], env=cache.env, capture_output=True, text=True, check=False,
                              timeout=100)
        assert done.returncode in (0, 1) and (done.returncode == 0 or done.stderr), done
        statuses.append(done.returncode)
        assert running[1].running(), running[1].result()
    one.end()
    print(statuses, one.kills)
    wait.until(lambda: answers(cache), 30, "a daemon")
    assert cache.keeper()["pid"] == keeper
    assert subprocess.run([PROGRAM, "upgrade"], env=cache.env, check=False, timeout=100).returncode == 0
    finish(*running)
    assert cache.volume(mounted)["handles"] == 0


def test_mounts_and_unmounts_under_kills(cache, tree, killer, reader, rounds):
    """A command that is cut off may fail; afterwards there is what mountinfo says, and no volume without a mount."""
    mounted = cache.mount_origin(tree, name="first")
    running = reader(mounted, tree)
    dice = random.Random(5)
    one = killer(cache, 2.5)
    paths = [cache.directory / "mnt" / str(n) for n in range(4)]
    for path in paths:
        path.mkdir()
    wanted = {str(p.relative_to(tree.directory)) for p in tree.directory.rglob("*")}
    failed = 0
    n = 0
    while one.kills < rounds(5, 100):
        n += 1
        path = dice.choice(paths)
        there = mounts.below(path)
        if there:
            failed += cache.run("umount", path, check=False).returncode
        else:
            options = dice.choice([[], ["-o", "ttl=7s"], ["-o", f"ttl={n + 20}s"]])
            failed += cache.run("mount", *options, tree.source, path, check=False).returncode
        assert len(mounts.below(path)) <= 1
        if mounts.below(path):
            assert {str(p.relative_to(path)) for p in path.rglob("*")} == wanted
        assert running[1].running(), running[1].result()
    one.end()
    print(f"{failed} of {n} commands failed, {one.kills} kills")
    wait.until(lambda: answers(cache), 30, "a daemon")
    finish(*running)
    for path in paths:
        if mounts.below(path):
            cache.run("umount", path)
    wait.until(lambda: len(cache.status()["volumes"]) == 1, 30, "the other volumes' end")
    cache.umount(mounted)
    wait.until(lambda: not cache.processes(), 30, "the end of all")


def test_many_volumes_are_taken_over(cache, tree):
    count = 60
    shown = [cache.mount_origin(tree, f"ttl={n + 10}s", name=str(n)) for n in range(count)]
    opened = [open(path / "d1" / "7", "rb") for path in shown]
    wanted = (tree.directory / "d1" / "7").read_bytes()
    for _ in range(3):
        cache.kill_daemon()
        assert all(os.pread(f.fileno(), len(wanted), 0) == wanted for f in opened)
        assert all((path / "d1" / "7").read_bytes() == wanted for path in shown)
    assert len(cache.status()["volumes"]) == count
    for f in opened:
        f.close()


def test_the_keeper_ends_while_no_daemon_is_there(cache, tree, workdir):
    """SIGTERM to the keeper just after the daemon's death: it ends, and the mounts with it."""
    mounted = cache.mount_origin(tree)
    keeper = cache.keeper()["pid"]
    os.kill(cache.pid(), signal.SIGKILL)
    os.kill(keeper, signal.SIGTERM)
    wait.until(lambda: not cache.processes(), 30, "the end of both")
    wait.until(lambda: not mounts.below(mounted), 10, "the mount's end")
    cache.mountpoints.clear()
