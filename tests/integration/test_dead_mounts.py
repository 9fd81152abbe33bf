"""What the keeper can't save: no daemon comes back, or the keeper is gone too. Nothing hangs, and nothing is lost."""

import errno
import os
import signal
import subprocess

import pytest

from lib import child, data, mounts, process, reads, wait
from lib.data import MIB
from lib.mount import PROGRAM, Cache
from lib.origins import DirectoryOrigin, FaultyOrigin

# What a request gets whose connection was ended: when it waited, and when it came later.
ENDED = (errno.ECONNABORTED, errno.ENOTCONN, errno.EIO)


@pytest.fixture
def local(workdir):
    origin = DirectoryOrigin(workdir / "origin")
    for n in range(3):
        origin.put(str(n), data.make(str(n), 2 * MIB + n))
    return origin


def read_all(mounted):
    return {path.name: path.read_bytes() for path in mounted.iterdir()}


def kill_both(cache):
    """The mount stays, and nobody serves it."""
    cache.kill(signal.SIGKILL)
    wait.until(lambda: not cache.processes(), 30, "the end of daemon and keeper")


def test_a_dead_mount_is_replaced(cache, local):
    mounted = cache.mount_origin(local)
    wanted = read_all(local.directory)
    assert read_all(mounted) == wanted
    for name in wanted:
        cache.wait_warm(mounted / name)
    kill_both(cache)
    assert len(mounts.below(mounted)) == 1
    with pytest.raises(OSError) as dead:
        os.listdir(mounted)
    assert dead.value.errno in ENDED
    assert cache.run("status", check=False).returncode == 1
    assert cache.run("status", mounted, check=False).returncode == 1
    cache.run("mount", local.source, mounted)
    assert len(mounts.below(mounted)) == 1
    assert read_all(mounted) == wanted
    status = cache.status()
    assert status["counters"]["origin_gets"] == 0  # nothing that was kept is fetched again
    assert " 0 bad" in cache.run("verify", "--all").stdout
    assert cache.volume(mounted)["passthrough_opens"] >= len(wanted)


def test_a_dead_mount_goes(cache, local):
    mounted = cache.mount_origin(local)
    kill_both(cache)
    cache.umount(mounted)
    assert not mounts.below(mounted)
    assert not os.listdir(mounted)


def test_a_dead_mount_in_use_goes(cache, local, workdir):
    mounted = cache.mount_origin(local)
    with open(mounted / "0", "rb"):
        kill_both(cache)
        cache.umount(mounted)
        assert not mounts.below(mounted)


def test_a_hung_mount_goes(cache, local):
    """Daemon and keeper are there and do nothing: no command waits for ever, and the mount can be got rid of."""
    mounted = cache.mount_origin(local)
    stopped = [cache.keeper()["pid"], cache.pid()]
    try:
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        asked = cache.run("status", mounted / "0", check=False)
        assert asked.returncode == 1 and "does not answer" in asked.stderr, asked.stderr
        cache.umount(mounted, "--force")
        assert not mounts.below(mounted)
    finally:
        # The daemon first: a keeper that wakes before it takes it for one that hangs.
        for pid in reversed(stopped):
            os.kill(pid, signal.SIGCONT)


def test_a_living_mount_is_not_replaced(cache, local, workdir):
    """Not by another daemon either, which knows nothing of it."""
    mounted = cache.mount_origin(local)
    with Cache(workdir / "other") as other:
        result = other.run("mount", local.source, mounted, check=False)
        assert result.returncode == 1 and "is a mount already" in result.stderr, result.stderr
    assert read_all(mounted) == read_all(local.directory)


@pytest.fixture
def keeper(cache):
    """keeper(*options): `cachefs hold`, ready."""
    started = []

    def start(*options):
        started.append(process.start([PROGRAM, "hold", "--store", cache.store, "--control", cache.control, *options],
                                     cache.log, cache.env))
        wait.until(lambda: cache.run("status", "--json", check=False).returncode == 0, 30, "the daemon")
        return started[-1]
    yield start
    for mount in mounts.below(cache.directory):
        mounts.abort(mount)
    for one in started:
        process.stop(one)


def test_requests_fail_when_no_daemon_comes_back(cache, keeper, faulty):
    """Rather than hang: the successors can't start, since the store is no longer one of theirs."""
    faulty.put("x", data.make("x", MIB))
    keeper("--abort-after", "1s")
    mounted = cache.mount_origin(FaultyOrigin(faulty))
    rule = faulty.rule(op="get", stall_at=0)
    reader = child.Child(reads.sha256, mounted / "x")
    rule.wait_hits(1)
    (cache.store / "FORMAT").rename(cache.store / "FORMAT.kept")
    (cache.store / "FORMAT").write_text("cachefs-store 99\n")
    os.kill(cache.pid(), signal.SIGKILL)
    with pytest.raises(OSError) as ended:
        reader.result()
    assert ended.value.errno in ENDED
    with pytest.raises(OSError) as later:
        os.open(mounted / "x", os.O_RDONLY)
    assert later.value.errno in ENDED
    log = cache.log.read_text()
    assert "connections_aborted" in log and "--abort-after" in log
    # The keeper goes on trying, and the mount can be replaced as soon as one comes back.
    (cache.store / "FORMAT.kept").rename(cache.store / "FORMAT")
    rule.remove()
    wait.until(lambda: cache.run("status", "--json", check=False).returncode == 0, 30, "the next daemon")
    cache.run("mount", "-o", ",".join(FaultyOrigin(faulty).options), FaultyOrigin(faulty).source, mounted)
    assert data.digest((mounted / "x").read_bytes()) == data.digest(data.make("x", MIB))


def test_without_the_kernels_help(cache, faulty):
    """CACHEFS_RESEND=off, as before 6.9: what was in flight fails, the mount lives. The read is an O_DIRECT one, since
    the kernel asks again by itself for pages that its readahead did not get."""
    content = data.make("x", 2 * MIB)
    faulty.put("x", content)
    cache.env["CACHEFS_RESEND"] = "off"
    mounted = cache.mount_origin(FaultyOrigin(faulty))
    assert cache.status()["daemon"]["features"]["resend"] is False
    rule = faulty.rule(op="get", stall_at=0)
    reader = child.Child(reads.sha256_direct, mounted / "x")
    rule.wait_hits(1)
    with open(mounted / "x", "rb", buffering=0) as held:
        cache.kill_daemon()
        with pytest.raises(OSError) as failed:
            reader.result()
        assert failed.value.errno == errno.EIO
        rule.remove()
        assert held.read(MIB) == content[:MIB]
    for _ in range(3):
        cache.kill_daemon()
        assert (mounted / "x").read_bytes() == content
    assert cache.volume(mounted)["handles"] == 0


def test_nobody_writes_below_a_mount(cache, local, workdir):
    """An application that comes before the mount, or after it, gets an error and doesn't fill the host's disk."""
    mounted = cache.mount_origin(local, "protect")
    try:
        assert read_all(mounted) == read_all(local.directory)
        cache.umount(mounted)
        with pytest.raises(PermissionError):
            (mounted / "checkpoint").write_bytes(b"x")
        with pytest.raises(PermissionError):
            (mounted / "directory").mkdir()
        assert cache.mount_origin(local, "protect") == mounted
        assert read_all(mounted) == read_all(local.directory)
        cache.umount(mounted)
    finally:
        mounts.clear(mounted)
        subprocess.run(["chattr", "-i", mounted], check=True)


def test_protect_names_what_it_lacks(cache, local, workdir):
    mounted = workdir / "m"
    mounted.mkdir()
    daemon = process.start(["setpriv", "--bounding-set=-linux_immutable", PROGRAM, "serve", "--store", cache.store,
                            "--control", cache.control], cache.log, cache.env)
    try:
        wait.until(cache.control.exists, 30, "the daemon")
        result = cache.run("mount", "-o", "protect", local.source, mounted, check=False)
        assert result.returncode == 1 and "CAP_LINUX_IMMUTABLE" in result.stderr
        assert not mounts.below(mounted)
    finally:
        process.stop(daemon)


def test_mount_knows_the_type(cache, local, workdir):
    """`mount -t fuse.cachefs`, as fstab has it: by the helper that the installation links."""
    helper = "/sbin/mount.fuse.cachefs"
    if os.path.lexists(helper):
        pytest.fail(f"{helper} is there: this test makes it, and must not break what is installed")
    os.symlink(PROGRAM, helper)
    path = workdir / "by-type"
    path.mkdir()
    try:
        subprocess.run(["mount", "-t", "fuse.cachefs", local.source, path, "-o", "_netdev,noatime,ttl=5s"],
                       env=cache.env, check=True, timeout=60)
        assert mounts.below(path)[0].kind == "fuse.cachefs"
        assert read_all(path) == read_all(local.directory)
        kill_both(cache)
        subprocess.run(["mount", "-t", "fuse.cachefs", local.source, path], env=cache.env, check=True, timeout=60)
        assert read_all(path) == read_all(local.directory)
        subprocess.run(["umount", path], check=True, timeout=60)
    finally:
        os.unlink(helper)
        mounts.clear(path)
