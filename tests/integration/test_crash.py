"""The daemon is killed at any moment of a fill: afterwards the store holds the origin's bytes or none, never others."""

import os
import random
import signal
import subprocess
import time

import pytest

from lib import child, mounts, origins, process, reads, wait
from lib.data import MIB
from lib.mount import PROGRAM, Cache

FILES = 12


@pytest.fixture
def tree(workdir):
    return origins.numbered(workdir / "origin", FILES, 700001)


def unmount_dead(cache):
    """Daemon and keeper are gone, so that the mount is dead."""
    for mount in mounts.below(cache.directory):
        subprocess.run(["umount", "-l", mount.path], check=True)
    cache.mountpoints.clear()
    wait.until(lambda: not cache.processes(), 30, "the daemon's end")


def kill_while_filling(cache, origin, dice):
    """Readers fill the store, and after a moment of chance's choosing the daemon is gone."""
    mounted = cache.mount_origin(origin)
    readers = [child.Child(reads.tree, mounted / f"d{n}") for n in range(3)]
    try:
        start = cache.counters()["fetches"]
        goal = dice.choice([0, 1, 5, 10, 20])
        deadline = time.monotonic() + dice.uniform(0.1, 0.6)
        while cache.counters()["fetches"] < start + goal and time.monotonic() < deadline:
            pass
        if dice.random() < 0.3:
            cache.run("evict", mounted / f"d{dice.randrange(3)}", check=False)
        cache.kill(signal.SIGKILL)
    finally:
        for reader in readers:
            reader.end()
    unmount_dead(cache)


def check_store(cache, origin, wanted):
    """An eviction removes the file before its record: a record without a file may be left, and isn't damage."""
    mounted = cache.mount_origin(origin)
    assert " 0 bad" in cache.run("verify", "--all").stdout
    assert reads.tree(mounted) == wanted
    assert cache.counters()["checksum_failures"] == 0
    return mounted


@pytest.mark.timeout(3600)
def test_killed_while_filling(cache, tree, rounds):
    origin, wanted = tree
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    dice = random.Random(seed)
    for n in range(rounds(20, 200)):
        kill_while_filling(cache, origin, dice)
        if n % 4 == 3:
            mounted = check_store(cache, origin, wanted)
            if dice.random() < 0.5:
                cache.run("evict", mounted, check=False)
            cache.umount(mounted)
            wait.until(lambda: not cache.processes(), 30, "the daemon's end")
    mounted = check_store(cache, origin, wanted)
    for key in wanted:
        cache.wait_warm(mounted / key)
    assert reads.tree(mounted) == wanted
    assert cache.volume(mounted)["passthrough_opens"] >= FILES


def damage_and_kill(cache, damage):
    """The daemon writes nothing in between."""
    pid = cache.pid()
    os.kill(pid, signal.SIGSTOP)
    damage(cache.store / "index" / "data.mdb")
    os.kill(pid, signal.SIGKILL)
    cache.wait_other_daemon(pid)


def scribble(path, dice):
    """What a disk may do to the pages of the index, but for the two that lead to the others."""
    size = path.stat().st_size
    with open(path, "r+b") as f:
        for at in range(2 * 4096, size, 4096):
            if dice.random() < 0.5:
                f.seek(at)
                f.write(dice.randbytes(4096))


@pytest.mark.parametrize("seed", range(6))
def test_an_index_of_random_bytes(cache, tree, seed):
    """The mount lives on whatever that does to the daemon, and to those after it; the index is set aside at last."""
    origin, wanted = tree
    mounted = cache.mount_origin(origin, "ttl=1s")
    assert reads.tree(mounted) == wanted
    keeper = cache.keeper()["pid"]
    damage_and_kill(cache, lambda path: scribble(path, random.Random(seed)))
    assert reads.tree(mounted) == wanted
    wait.until(lambda: cache.run("status", check=False).returncode == 0, 30, "a daemon")
    cache.umount(mounted)
    wait.until(lambda: not cache.processes(), 30, "the end of daemon and keeper")
    mounted = check_store(cache, origin, wanted)
    assert cache.keeper()["pid"] != keeper


def test_a_damaged_index_is_set_aside(cache, tree):
    """The daemon starts without it, says so, and what it knew comes from the origin again."""
    origin, wanted = tree
    mounted = cache.mount_origin(origin)
    assert reads.tree(mounted) == wanted
    damage_and_kill(cache, lambda path: path.write_bytes(b"Z" * 8192))
    assert reads.tree(mounted) == wanted
    assert cache.status()["store"]["damaged_indexes"] == 1
    assert "index.damaged" in cache.run("status").stdout
    assert "index_set_aside" in cache.log.read_text()
    assert (cache.store / "index.damaged" / "data.mdb").read_bytes()[:8192] == b"Z" * 8192


def test_killed_while_evicting(workdir, tree, rounds):
    """A store that is too small for what is read: files come and go all the time."""
    origin, wanted = tree
    dice = random.Random(5)
    with Cache(workdir / "small", size="20M") as cache:
        for _ in range(rounds(4, 40)):
            kill_while_filling(cache, origin, dice)
            mounted = check_store(cache, origin, wanted)
            assert cache.status()["store"]["used_bytes"] <= 21 * MIB
            cache.umount(mounted)
            wait.until(lambda: not cache.processes(), 30, "the daemon's end")


def test_killed_while_starting(cache, tree, rounds):
    """Half a store is a store: the next start makes the rest."""
    origin, wanted = tree
    for n in range(rounds(5, 30)):
        argv = [PROGRAM, "serve", "--store", cache.store, "--control", cache.control]
        serve = process.start(argv, cache.log, cache.env)
        time.sleep(0.002 * n)  # any moment will do
        process.kill([serve.pid])
        serve.wait()
    check_store(cache, origin, wanted)
