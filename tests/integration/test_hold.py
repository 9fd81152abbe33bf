"""Mounts that outlive the daemon: it is killed, stopped and replaced, and what reads goes on."""

import os
import shutil
import signal
import socket
import subprocess
import time

import pytest

from lib import child, data, mounts, process, steady, wait
from lib.data import MIB
from lib.mount import PROGRAM
from lib.origins import DirectoryOrigin

PAUSE_S = 2.0


@pytest.fixture
def tree(workdir):
    origin = DirectoryOrigin(workdir / "origin")
    wanted = {}
    for n in range(4):
        content = data.make(str(n), 3 * MIB + n * 700001)
        origin.put(f"d/{n}", content)
        wanted[f"d/{n}"] = data.digest(content)
    return origin, wanted


class Reader:
    """A process that reads all the time, has all files open and mapped, until done()."""

    def __init__(self, workdir, mounted, wanted):
        self._flag = workdir / "reading"
        self._flag.touch()
        self._child = child.Child(steady.read_while, self._flag, mounted, wanted)
        wait.until((workdir / "reads").exists, what="a first round of reading")

    def done(self):
        self._flag.unlink()
        result = self._child.result()
        assert result["rounds"] > 0
        return result["longest_s"]


def newer(workdir, number=0):
    path = workdir / f"cachefs-{number}"
    shutil.copy(PROGRAM, path)
    return path


def upgrade(cache, binary, *argv, status=0):
    result = subprocess.run([binary, "upgrade", *argv], env=cache.env, capture_output=True, text=True, timeout=60,
                            check=False)
    assert result.returncode == status, result.stderr
    return result.stdout if status == 0 else result.stderr


def exe(pid):
    return os.readlink(f"/proc/{pid}/exe")


def test_killed_again_and_again(cache, tree, workdir, rounds):
    origin, wanted = tree
    mounted = cache.mount_origin(origin)
    keeper = cache.keeper()
    assert keeper["restarts"] == 0 and keeper["last_exit"] == ""
    reader = Reader(workdir, mounted, wanted)
    count = rounds(6, 120)
    for _ in range(count):
        time.sleep(0.5)  # some of a life
        cache.kill_daemon()
    assert reader.done() <= PAUSE_S
    assert cache.keeper() == {"pid": keeper["pid"], "alive": True, "restarts": count, "last_exit": "signal 9"}
    assert len(mounts.below(mounted)) == 1
    cache.umount(mounted)
    wait.until(lambda: not cache.processes(), 30, "the end of daemon and keeper")


def test_upgraded_again_and_again(cache, tree, workdir, rounds):
    origin, wanted = tree
    mounted = cache.mount_origin(origin)
    keeper = cache.keeper()["pid"]
    reader = Reader(workdir, mounted, wanted)
    for n in range(rounds(4, 60)):
        binary = newer(workdir, n)
        assert "daemon and keeper are version" in upgrade(cache, binary)
        assert exe(cache.pid()) == exe(keeper) == str(binary)
    assert reader.done() <= PAUSE_S
    assert cache.keeper() == {"pid": keeper, "alive": True, "restarts": 0, "last_exit": "hand-over"}
    # The new keeper keeps what the first one was given.
    cache.kill_daemon()
    assert (mounted / "d" / "0").stat().st_size == 3 * MIB


def test_an_upgrade_that_fails_changes_nothing(cache, tree, workdir):
    origin, wanted = tree
    mounted = cache.mount_origin(origin)
    pid = cache.pid()
    reader = Reader(workdir, mounted, wanted)
    assert "no upgrade" in upgrade(cache, PROGRAM, "--binary", "/bin/false", status=1)
    assert "no upgrade" in upgrade(cache, PROGRAM, "--binary", "/bin/true", status=1)
    assert "/no/such" in upgrade(cache, PROGRAM, "--binary", "/no/such", status=1)
    assert cache.pid() == pid
    reader.done()


def test_a_daemon_without_a_keeper_is_not_upgraded(cache):
    cache.start()
    assert cache.keeper() is None
    assert "no keeper" in upgrade(cache, PROGRAM, status=1)


def test_a_stopped_daemon_is_replaced(cache, tree, workdir):
    origin, wanted = tree
    mounted = workdir / "m"
    mounted.mkdir()
    keeper = process.start([PROGRAM, "hold", "--store", cache.store, "--control", cache.control, "--watchdog", "2s"],
                           cache.log, cache.env)
    try:
        wait.until(cache.control.exists, 30, "the daemon")
        cache.run("mount", origin.source, mounted)
        reader = Reader(workdir, mounted, wanted)
        cache.kill_daemon(signal.SIGSTOP)
        reader.done()
        cache.run("umount", mounted)
    finally:
        process.stop(keeper)


def test_a_killed_keeper_takes_nothing_away(cache, tree):
    origin, wanted = tree
    mounted = cache.mount_origin(origin)
    pid = cache.pid()
    os.kill(cache.keeper()["pid"], signal.SIGKILL)
    wait.until(lambda: not cache.keeper()["alive"], 30, "the daemon to notice")
    assert "dead: mounts end with the daemon" in cache.run("status").stdout
    said = [line for line in cache.log.read_text().splitlines() if "keeper_dead" in line]
    assert len(said) == 1 and "error" in said[0].split()
    other = cache.mount_origin(origin, "ttl=5s", name="other")
    assert data.digest((mounted / "d" / "0").read_bytes()) == wanted["d/0"]
    assert data.digest((other / "d" / "1").read_bytes()) == wanted["d/1"]
    assert cache.pid() == pid


def test_a_mount_while_the_daemon_is_replaced(cache, tree):
    """It waits for the next one rather than starts another."""
    origin, wanted = tree
    cache.mount_origin(origin)
    keeper = cache.keeper()["pid"]
    os.kill(cache.pid(), signal.SIGKILL)
    other = cache.mount_origin(origin, "ttl=5s", name="other")
    assert data.digest((other / "d" / "1").read_bytes()) == wanted["d/1"]
    assert cache.keeper()["pid"] == keeper


def test_commands_while_the_daemon_is_replaced(cache, tree):
    """Each waits for the next daemon rather than fails."""
    origin, wanted = tree
    mounted = cache.mount_origin(origin)
    for command in (["status"], ["status", mounted / "d" / "0"], ["verify", mounted], ["evict", mounted],
                    ["pin", mounted], ["umount", mounted]):
        pid = cache.pid()
        os.kill(pid, signal.SIGKILL)
        cache.run(*command)
    assert not mounts.below(mounted)
    wait.until(lambda: not cache.processes(), 30, "the end of daemon and keeper")
    cache.mountpoints.clear()


def test_commands_while_the_control_socket_is_full(cache, tree):
    """The daemon is stopped, and others wait for it already: a command waits too."""
    origin, _ = tree
    cache.mount_origin(origin)
    pid = cache.pid()
    os.kill(pid, signal.SIGSTOP)
    waiting = []
    try:
        with pytest.raises(BlockingIOError):
            while True:
                waiting.append(socket.socket(socket.AF_UNIX))
                waiting[-1].setblocking(False)
                waiting[-1].connect(str(cache.control))
        command = subprocess.Popen([PROGRAM, "status"], env=cache.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            command.wait(0.3)
    finally:
        for one in waiting:
            one.close()
        os.kill(pid, signal.SIGCONT)
    said, error = command.communicate(timeout=30)
    assert command.returncode == 0 and str(pid) in said, error
