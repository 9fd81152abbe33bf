"""Mounting and unmounting: who starts the daemon, what is shared, what is refused with which words, and that a refusal
changes nothing."""

import errno
import os
import signal
import subprocess
import sys
import time

import pytest

from lib import mounts, process, wait
from lib.mount import PROGRAM, Cache
from lib.origins import DirectoryOrigin, FaultyOrigin, S3Origin
from lib.servers import free_port

REFUSAL_S = 30  # no refusal may take the minutes that a read may wait


@pytest.fixture
def local(workdir):
    origin = DirectoryOrigin(workdir / "origin")
    origin.put("dir/a", b"content")
    return origin


def refused(cache, argv, *words, status=1):
    """Runs a command that must fail and say so in one sentence that holds the words."""
    start = time.monotonic()
    result = cache.run(*argv, check=False)
    assert result.returncode == status, result.stderr
    assert time.monotonic() - start < REFUSAL_S
    lines = result.stderr.strip().splitlines()
    assert lines and lines[0].startswith("cachefs: "), result.stderr
    for word in words:
        assert str(word) in result.stderr, result.stderr
    return result.stderr


def gone(cache):
    wait.until(lambda: not cache.processes(), 30, "the daemon's end")


def shown(directory):
    """Everything below a directory, without its contents."""
    return sorted((str(p), p.lstat().st_mode, p.lstat().st_size) for p in directory.rglob("*"))


# Starting, joining, ending

def test_mount_starts_the_daemon_and_the_last_umount_ends_it(cache, local):
    mounted = cache.mount_origin(local)
    assert (mounted / "dir" / "a").read_bytes() == b"content"
    kind = mounts.below(mounted)[0]
    assert (kind.kind, kind.source) == ("fuse.cachefs", local.source)
    pid = cache.pid()
    cache.umount(mounted)
    wait.until(lambda: not process.alive(pid), 30, "the daemon's end")
    assert cache.run("status", check=False).returncode == 1
    assert list(mounted.iterdir()) == []


def test_a_second_volume_joins_the_daemon(cache, local, workdir):
    other = DirectoryOrigin(workdir / "other")
    other.put("b", b"other")
    first, second = cache.mount_origin(local), cache.mount_origin(other, name="second")
    assert (second / "b").read_bytes() == b"other"
    status = cache.status()
    assert {v["source"] for v in status["volumes"]} == {local.source, other.source}
    assert len(cache.processes()) == 2  # the daemon and its keeper
    assert os.stat(first).st_dev != os.stat(second).st_dev
    cache.umount(first)
    assert (second / "b").read_bytes() == b"other"
    assert cache.pid() == status["daemon"]["pid"]


def test_mounts_at_once_share_one_daemon(cache, workdir):
    running = []
    for n in range(6):
        DirectoryOrigin(workdir / f"origin{n}").put("a", str(n).encode())
        path = cache.directory / f"m{n}"
        path.mkdir()
        cache.mountpoints.append(path)
        running.append(process.start([PROGRAM, "mount", f"file://{workdir}/origin{n}", path], cache.log, cache.env))
    assert [mount.wait(60) for mount in running] == [0] * 6, cache.log.read_text()
    assert [(cache.directory / f"m{n}" / "a").read_text() for n in range(6)] == [str(n) for n in range(6)]
    assert len(cache.processes()) == 2  # the daemon and its keeper
    assert len(cache.status()["volumes"]) == 6


def test_the_same_volume_is_mounted_once_and_bound(cache, local):
    first, second = cache.mount_origin(local), cache.mount_origin(local, name="second")
    assert os.stat(first).st_dev == os.stat(second).st_dev
    assert os.stat(first / "dir" / "a").st_ino == os.stat(second / "dir" / "a").st_ino
    volumes = cache.status()["volumes"]
    assert [v["mounts"] for v in volumes] == [2]
    cache.umount(first)
    assert (second / "dir" / "a").read_bytes() == b"content"


def test_other_options_are_another_volume(cache, local):
    first, second = cache.mount_origin(local), cache.mount_origin(local, "uid=77", name="second")
    assert os.stat(first / "dir" / "a").st_uid == 0
    assert os.stat(second / "dir" / "a").st_uid == 77
    assert len(cache.status()["volumes"]) == 2


def test_subdir_is_the_prefix(cache, local):
    mounted = cache.mount_origin(local, "subdir=dir")
    assert os.listdir(mounted) == ["a"]


def test_the_mount_is_read_only(cache, local):
    mounted = cache.mount_origin(local)
    for act in (lambda: open(mounted / "new", "w"), lambda: open(mounted / "dir" / "a", "r+"),
                lambda: os.mkdir(mounted / "d"), lambda: os.unlink(mounted / "dir" / "a"),
                lambda: os.rename(mounted / "dir", mounted / "e"), lambda: os.truncate(mounted / "dir" / "a", 0),
                lambda: os.chmod(mounted / "dir" / "a", 0o600), lambda: os.symlink("x", mounted / "l")):
        with pytest.raises(OSError) as caught:
            act()
        assert caught.value.errno == errno.EROFS
    assert (local.directory / "dir" / "a").read_bytes() == b"content"


def test_the_kernel_checks_permissions(cache, local):
    """The mountpoint is reached by descriptor, so that only the mount's own modes decide."""
    private = cache.mount_origin(local, "umask=077")
    public = cache.mount_origin(local, name="public")
    script = "import os, sys\nprint(os.read(os.open('dir/a', os.O_RDONLY, dir_fd=int(sys.argv[1])), 100))"
    for path, wanted in ((public, 0), (private, 1)):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            result = subprocess.run([sys.executable, "-S", "-c", script, str(fd)], pass_fds=[fd], user=65534,
                                    group=65534, extra_groups=[], cwd="/", capture_output=True, text=True, check=False)
        finally:
            os.close(fd)
        assert result.returncode == wanted, result.stderr
        assert ("PermissionError" in result.stderr) == bool(wanted)


def test_serve_stays_without_volumes(cache, local):
    cache.start()
    mounted = cache.mount_origin(local)
    pid = cache.pid()
    cache.umount(mounted)
    assert cache.status()["volumes"] == []
    assert cache.pid() == pid
    cache.kill(signal.SIGTERM)
    assert not cache.control.exists()


def test_sigterm_ends_mounts_also_busy_ones(cache, local):
    cache.start()
    mounted = cache.mount_origin(local)
    fd = os.open(mounted / "dir" / "a", os.O_RDONLY)
    try:
        cache.kill(signal.SIGTERM)
        assert not mounts.below(mounted)
    finally:
        os.close(fd)


def test_the_helper_of_mount(cache, local):
    helper = cache.directory / "mount.fuse.cachefs"
    helper.symlink_to(PROGRAM)
    path = cache.directory / "by-helper"
    path.mkdir()
    cache.mountpoints.append(path)
    subprocess.run([helper, local.source, path, "-n", "-o", "rw,noatime,_netdev,uid=5"], env=cache.env, check=True,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=60)
    assert os.stat(path / "dir" / "a").st_uid == 5
    with pytest.raises(OSError):
        (path / "new").touch()


# Unmounting

def test_a_busy_mount_is_kept_unless_forced(cache, local):
    mounted = cache.mount_origin(local)
    with open(mounted / "dir" / "a", "rb", buffering=0) as f:
        refused(cache, ["umount", mounted], mounted, "--force")
        assert (mounted / "dir" / "a").read_bytes() == b"content"
        cache.umount(mounted, "--force")
        assert not mounts.below(mounted)
        assert f.read() == b"content"
    gone(cache)


def test_plain_umount_ends_the_volume(cache, local):
    mounted = cache.mount_origin(local)
    subprocess.run(["umount", mounted], check=True)
    gone(cache)


def test_umount_of_what_is_no_mount(cache, local, workdir):
    mounted = cache.mount_origin(local)
    for path in (workdir, mounted / "dir", workdir / "missing"):
        refused(cache, ["umount", path], path)
    other = workdir / "tmpfs"
    other.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", other], check=True)
    refused(cache, ["umount", other], other)
    assert len(mounts.below(other)) == 1
    subprocess.run(["umount", other], check=True)
    assert (mounted / "dir" / "a").read_bytes() == b"content"


def test_a_dead_mount(cache, local):
    """It is unmounted without being touched, or replaced by a new mount, and the cache is kept."""
    for replaced in (False, True):
        mounted = cache.mount_origin(local)
        assert (mounted / "dir" / "a").read_bytes() == b"content"
        cache.wait_warm(mounted / "dir" / "a")
        cache.kill()
        with pytest.raises(OSError) as caught:
            os.listdir(mounted)
        assert caught.value.errno in (errno.ENOTCONN, errno.ECONNABORTED)
        gone(cache)
        if not replaced:
            cache.umount(mounted)
            assert not mounts.below(mounted)
    mounted = cache.mount_origin(local)
    assert len(mounts.below(mounted)) == 1
    assert (mounted / "dir" / "a").read_bytes() == b"content"
    assert cache.counters()["fetched_bytes"] == 0


# Refusals

@pytest.mark.parametrize("options, words", [
    ("nosuch=1", ["nosuch"]), ("ttl=soon", ["ttl", "soon"]), ("rw", ["rw", "read-only"]), ("uid", ["uid"]),
    ("strict,immutable", ["strict", "immutable"]), ("readahead=-1", ["readahead", "-1"]),
    ("connections=0", ["connections", "0"]), ("subdir=../x", ["subdir"]), ("ttl=1s,ttl=2s", ["ttl", "twice"])])
def test_wrong_options_are_wrong_use(cache, local, options, words):
    path = cache.directory / "m"
    path.mkdir()
    refused(cache, ["mount", "-o", options, local.source, path], *words, status=2)
    assert not cache.processes() and not mounts.below(path)
    assert list(cache.store.iterdir()) == []


@pytest.mark.parametrize("source, words", [
    ("ftp://host/x", ["ftp://host/x", "s3://"]), ("bucket", ["bucket", "s3://"]), ("s3://", ["s3://"]),
    ("file://relative", ["relative"]), ("file:///no/such/directory", ["/no/such/directory"]),
    ("http://", ["http://"])])
def test_wrong_sources(cache, source, words):
    path = cache.directory / "m"
    path.mkdir()
    refused(cache, ["mount", source, path], *words)
    assert not mounts.below(path)
    gone(cache)


def test_wrong_mountpoints(cache, local):
    busy, plain = cache.directory / "busy", cache.directory / "plain"
    busy.mkdir()
    (busy / "there").write_text("kept")
    plain.write_text("kept")
    cache.start()
    for path, word in ((busy, "not empty"), (plain, "directory"), (cache.directory / "missing", "exist")):
        refused(cache, ["mount", local.source, path], path, word)
    mounted = cache.mount_origin(local)
    refused(cache, ["mount", local.source, mounted], mounted, "already")
    refused(cache, ["mount", "-o", "uid=5", local.source, mounted], mounted, "already")
    subprocess.run(["mount", "-t", "tmpfs", "none", busy], check=True)
    refused(cache, ["mount", local.source, busy], busy, "already")
    subprocess.run(["umount", busy], check=True)
    assert ((busy / "there").read_text(), plain.read_text()) == ("kept", "kept")
    assert [m.path for m in mounts.below(cache.directory)] == [str(mounted)]
    assert len(cache.status()["volumes"]) == 1


def test_a_missing_bucket(cache, faulty, versitygw):
    bucket = S3Origin(versitygw)
    try:
        for origin in (FaultyOrigin(faulty), bucket):
            cache.env.update(origin.env)
            path = cache.directory / origin.kind
            path.mkdir()
            options = ",".join(origin.options)
            refused(cache, ["mount", "-o", options, "s3://no-such-bucket", path], "s3://no-such-bucket", "bucket")
            assert not mounts.below(path)
            gone(cache)
    finally:
        bucket.close()


@pytest.mark.parametrize("server", ["versitygw", "minio"])
def test_wrong_credentials(cache, server, request):
    origin = S3Origin(request.getfixturevalue(server))
    path = cache.directory / "m"
    path.mkdir()
    try:
        for wrong in ({"AWS_SECRET_ACCESS_KEY": "not-the-secret"}, {"AWS_ACCESS_KEY_ID": "nobody"}):
            cache.env.update({**origin.env, **wrong})
            text = refused(cache, ["mount", "-o", ",".join(origin.options), origin.source, path], origin.bucket,
                           "credentials")
            assert "not-the-secret" not in text
            assert not mounts.below(path)
            gone(cache)
    finally:
        origin.close()


def test_missing_files_of_credentials(cache, faulty):
    path = cache.directory / "m"
    path.mkdir()
    for option in ("credentials=/no/such/file", "ca=/no/such/file", "aws_profile=nobody"):
        refused(cache, ["mount", "-o", f"endpoint={faulty.endpoint},{option}", "s3://bucket", path],
                option.partition("=")[2])
        assert not mounts.below(path)
    assert faulty.count() == 0
    gone(cache)


def test_an_origin_that_does_not_answer(cache):
    path = cache.directory / "m"
    path.mkdir()
    port = free_port()
    refused(cache, ["mount", "-o", f"anonymous,timeout=3s,endpoint=http://127.0.0.1:{port}", "s3://bucket", path],
            "s3://bucket", "127.0.0.1", port, "network")
    assert not mounts.below(path)
    gone(cache)


# The store

def test_contradictions_with_the_running_daemon(cache, local, workdir):
    cache.size = "1G"
    cache.env["CACHEFS_SIZE"] = "1G"
    mounted = cache.mount_origin(local)
    path = cache.directory / "second"
    path.mkdir()
    (workdir / "elsewhere").mkdir()
    refused(cache, ["mount", "-o", "size=2G", local.source, path], "2G", "1G")
    refused(cache, ["mount", "-o", f"store={workdir}/elsewhere", local.source, path], "elsewhere", cache.store)
    assert list((workdir / "elsewhere").iterdir()) == []
    assert not mounts.below(path)
    assert len(cache.status()["volumes"]) == 1
    cache.run("mount", "-o", f"size=1024M,store={cache.store}", local.source, path)
    cache.mountpoints.append(path)
    assert (mounted / "dir" / "a").read_bytes() == (path / "dir" / "a").read_bytes()


def test_a_store_in_use(cache, local, workdir):
    mounted = cache.mount_origin(local)
    with Cache(workdir / "other", store=cache.store) as other:
        path = other.directory / "m"
        path.mkdir()
        refused(other, ["mount", local.source, path], cache.store, cache.pid())
        assert not mounts.below(path) and not other.processes()
    assert (mounted / "dir" / "a").read_bytes() == b"content"


def test_a_control_socket_in_use(cache, workdir):
    cache.start()
    result = cache.run("serve", "--store", workdir / "elsewhere", check=False)
    assert result.returncode == 1 and str(cache.control) in result.stderr
    assert not (workdir / "elsewhere").exists()


def test_a_directory_that_is_no_store(cache, local):
    (cache.store / "thesis.txt").write_text("kept")
    before = shown(cache.store)
    path = cache.directory / "m"
    path.mkdir()
    refused(cache, ["mount", local.source, path], cache.store)
    assert shown(cache.store) == before and not mounts.below(path) and not cache.processes()


def test_a_store_of_another_version(cache, local):
    mounted = cache.mount_origin(local)
    cache.umount(mounted)
    gone(cache)
    (cache.store / "FORMAT").write_text("cachefs-store 99\n")
    before = shown(cache.store)
    refused(cache, ["mount", local.source, mounted], cache.store, "99")
    assert shown(cache.store) == before and not mounts.below(mounted) and not cache.processes()


@pytest.mark.parametrize("options, word", [("size=64M,ro", "read-only"), ("size=64k", "free")])
def test_a_store_that_can_not_be_written(cache, local, options, word):
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", cache.store], check=True)
    path = cache.directory / "m"
    path.mkdir()
    assert word in refused(cache, ["mount", local.source, path], cache.store).lower()
    assert list(cache.store.iterdir()) == []
    assert not mounts.below(path) and not cache.processes()


@pytest.mark.parametrize("kind", ["directory", "s3"])
def test_a_prefix_that_has_nothing_yet(cache, workdir, faulty, kind):
    """Mounted with a warning, since it may be a typo, or be filled later."""
    origin = DirectoryOrigin(workdir / "origin") if kind == "directory" else FaultyOrigin(faulty)
    cache.env.update(origin.env)
    path = cache.directory / "m"
    path.mkdir()
    options = ["-o", ",".join([*origin.options, "ttl=200ms"])]
    result = cache.run("mount", *options, origin.source, path)
    cache.mountpoints.append(path)
    assert origin.source in result.stderr and "nothing in it" in result.stderr
    assert os.listdir(path) == []
    origin.put("a", b"content")
    wait.until(lambda: os.listdir(path) == ["a"], 30, "the name")
    cache.umount(path)
    gone(cache)
    assert cache.run("mount", *options, origin.source, path).stderr == ""
    cache.mountpoints.append(path)


def test_a_size_that_is_none(cache, local):
    path = cache.directory / "m"
    path.mkdir()
    refused(cache, ["mount", "-o", "size=lots", local.source, path], "lots")
    assert not mounts.below(path) and not cache.processes()


def test_bad_lines_on_the_command_line(cache):
    for argv in (["mount"], ["mount", "file:///tmp"], ["mount", "--nosuch"], ["umount"], ["nosuch"], ["evict"], ["pin"],
                 ["verify"], ["verify", "--all", "/x"], ["status", "a", "b"], ["serve", "x"], []):
        result = cache.run(*argv, check=False)
        assert result.returncode == 2, argv
        assert result.stderr, argv
