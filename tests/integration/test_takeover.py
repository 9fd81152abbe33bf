"""What a successor takes over: directory streams, and session tables that it can't believe."""

import errno
import os
import subprocess
import time

import pytest

from lib import child, data, load
from lib.mount import PROGRAM
from lib.origins import DirectoryOrigin

NAMES = 6000
# Of the session table's header, after its magic; and the records of nodes, of which the root is the second.
VERSION_AT, NODE_SIZE_AT, NODES_AT = 8, 16, 4096


def test_directory_streams(cache, workdir, rounds):
    """Names are added and the listing is fetched anew each second, the daemon dies, and streams go on where they were."""
    directory = workdir / "origin" / "d"
    directory.mkdir(parents=True)
    for n in range(NAMES):
        (directory / f"{n:05d}").touch()
    mounted = cache.mount(f"file://{workdir}/origin", "ttl=1s")
    flag = workdir / "going"
    flag.touch()
    readers = [child.Child(load.listing, flag, mounted / "d", NAMES) for _ in range(4)]
    try:
        for n in range(rounds(5, 60)):
            for k in range(20):
                (directory / f"new-{n}-{k}").touch()
            time.sleep(2.1)  # a good life
            cache.kill_daemon()
            assert all(one.running() for one in readers)
        flag.unlink()
        assert sum(one.result()["rounds"] for one in readers) > 4
    finally:
        for one in readers:
            one.end()
    assert cache.volume(mounted)["handles"] == 0


def tables_of(keeper):
    """{inode: path} of the session tables that the keeper has."""
    found = {}
    for fd in os.listdir(f"/proc/{keeper}/fd"):
        path = f"/proc/{keeper}/fd/{fd}"
        if os.readlink(path).startswith("/memfd:"):
            found[os.stat(path).st_ino] = path
    return found


@pytest.fixture
def two(cache, workdir):
    """Two volumes, and the path of the second one's session table."""
    origin = DirectoryOrigin(workdir / "origin")
    origin.put("x", data.make("x", 300000))
    first = cache.mount_origin(origin, name="first")
    keeper = cache.keeper()["pid"]
    before = set(tables_of(keeper))
    second = cache.mount_origin(origin, "ttl=9s", name="second")
    tables = tables_of(keeper)
    new, = set(tables) - before
    return first, second, tables[new]


def poke(table, at, change):
    """Puts change(bytes) in the place of the eight bytes there."""
    fd = os.open(table, os.O_RDWR)
    try:
        os.pwrite(fd, change(os.pread(fd, 8, at)), at)
    finally:
        os.close(fd)


def set_version(table, number):
    poke(table, VERSION_AT, lambda old: number.to_bytes(4, "little") + old[4:])


def damage_root(table):
    """What a look at the header doesn't see."""
    fd = os.open(table, os.O_RDONLY)
    try:
        node_size = int.from_bytes(os.pread(fd, 4, NODE_SIZE_AT), "little")
    finally:
        os.close(fd)
    poke(table, NODES_AT + node_size, lambda old: bytes([old[0] ^ 1]) + old[1:])


def upgrade(cache):
    return subprocess.run([PROGRAM, "upgrade"], env=cache.env, capture_output=True, text=True, timeout=60, check=False)


def test_an_upgrade_that_does_not_know_a_table_is_refused(cache, two):
    """As if the new version had another one: found before the old one stops, and both volumes are served as before."""
    first, second, table = two
    before = cache.status()["daemon"]
    set_version(table, 999)
    done = upgrade(cache)
    assert done.returncode == 1 and "check ended" in done.stderr and "session table" in done.stderr, done
    after = cache.status()["daemon"]
    assert (after["pid"], after["keeper"]) == (before["pid"], before["keeper"])
    for mounted in (first, second):
        assert (mounted / "x").read_bytes() == data.make("x", 300000)
    set_version(table, 2)
    assert upgrade(cache).returncode == 0
    for mounted in (first, second):
        assert (mounted / "x").read_bytes() == data.make("x", 300000)


def test_an_upgrade_that_cannot_take_a_table_over_fails(cache, two):
    """The first volume is served as before."""
    first, second, table = two
    pid = cache.pid()
    damage_root(table)
    done = upgrade(cache)
    assert done.returncode == 1 and "previous version was started again" in done.stderr, done
    assert cache.pid() != pid and cache.keeper()["restarts"] == 0
    assert (first / "x").read_bytes() == data.make("x", 300000)


def test_a_table_that_nobody_can_read_costs_its_volume_only(cache, two):
    first, second, table = two
    set_version(table, 999)
    cache.kill_daemon()
    assert (first / "x").read_bytes() == data.make("x", 300000)
    with pytest.raises(OSError) as dead:
        os.listdir(second)
    assert dead.value.errno in (errno.ENOTCONN, errno.ECONNABORTED)
    assert "session table" in cache.log.read_text()
    cache.run("mount", "-o", "ttl=9s", next(v["source"] for v in cache.status()["volumes"]), second)
    assert (second / "x").read_bytes() == data.make("x", 300000)
