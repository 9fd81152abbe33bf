"""What a person meets in the first hour: commands behind each other, and sentences that name what is wrong and the way
out."""

import errno
import os
import re
import shutil
import subprocess
from urllib.parse import quote

import pytest

from lib import wait
from lib.data import MIB
from lib.mount import PROGRAM, REPO, Cache
from lib.origins import DirectoryOrigin, FaultyOrigin, S3Origin

CYCLES = 20


@pytest.fixture
def local(workdir):
    origin = DirectoryOrigin(workdir / "origin")
    origin.put("dir/a", b"content")
    return origin


def says(cache, *argv, status=1):
    result = cache.run(*argv, check=False)
    assert result.returncode == status, result.stderr
    return result.stderr


def test_a_mount_right_after_the_last_umount(cache, local):
    """The daemon of the mount before is just ending; no caller sees that."""
    for _ in range(CYCLES):
        cache.umount(cache.mount_origin(local))


def test_a_daemon_that_dies_without_an_answer(cache, local):
    mounted = cache.mount_origin(local)
    cache.kill()
    cache.umount(mounted)
    assert (cache.mount_origin(local) / "dir" / "a").read_bytes() == b"content"


def test_what_failed_has_no_line_of_counts(cache, local):
    mounted = cache.mount_origin(local)
    for command in ("pin", "unpin", "evict", "verify"):
        result = cache.run(command, mounted / "missing", mounted / "dir" / "a", check=False)
        assert result.returncode == 1 and "missing" in result.stderr
        assert "missing" not in result.stdout


def test_output_that_can_not_be_written_is_a_failure(cache, local):
    cache.mount_origin(local)
    for argv in (["status"], ["status", "--json"], ["--help"], ["mount", "--help"], ["--version"]):
        with open("/dev/full", "w", encoding="ascii") as full:
            result = subprocess.run([PROGRAM, *argv], env=cache.env, stdout=full, stderr=subprocess.PIPE, text=True,
                                    timeout=30, check=False)
        assert result.returncode == 1 and "standard output" in result.stderr, argv


def test_a_source_is_no_path_of_status(cache, local):
    cache.mount_origin(local)
    assert local.source in says(cache, "status", local.source)


def test_options_of_mount_that_can_not_be_had(cache, local, workdir):
    assert "unmount" in says(cache, "mount", "-o", "remount", local.source, workdir, status=2)
    assert "leave it out" in says(cache, "mount", "-o", "noexec", local.source, workdir, status=2)


@pytest.mark.parametrize("address", ["127.0.0.1:99999", "127.0.0.1:65536", "127.0.0.1:-1", "nonsense", "127.0.0.1"])
def test_an_address_for_metrics_that_is_none(cache, address):
    assert address in says(cache, "serve", "--store", cache.store, "--control", cache.control, "--metrics", address)


def test_doctor_refuses_the_stores_that_the_daemon_refuses(cache, local, workdir):
    (workdir / "file").write_bytes(b"")
    for store in (local.directory, workdir / "no" / "parent", workdir / "file"):
        result = cache.run("doctor", "--store", store, check=False)
        assert result.returncode == 1 and "fail store: " in result.stdout and str(store) in result.stdout
        assert says(cache, "serve", "--store", store, "--control", workdir / "c.sock")
    for store in (cache.store, workdir / "new"):
        assert f"ok   store: {store}" in cache.run("doctor", "--store", store, check=False).stdout


def test_doctor_tells_that_the_daemon_has_other_credentials(cache, local):
    cache.mount_origin(local)
    assert "daemon's environment" not in cache.run("doctor", check=False).stdout
    cache.env["AWS_SECRET_ACCESS_KEY"] = "not to be shown"
    shown = cache.run("doctor", check=False).stdout
    assert "daemon's environment" in shown and "AWS_SECRET_ACCESS_KEY" in shown and "not to be shown" not in shown


@pytest.fixture
def bucket(minio):
    origin = S3Origin(minio)
    origin.put("a", b"content")
    yield origin
    origin.close()


def test_keys_of_a_shell_that_the_daemon_has_not(cache, local, bucket, workdir):
    """Everything points to this shell's keys, and the daemon that runs was started without."""
    cache.mount_origin(local)
    other = workdir / "other"
    other.mkdir()
    cache.env.update({k: v for k, v in bucket.env.items() if "KEY" in k})
    options = ",".join(bucket.options)
    said = says(cache, "mount", "-o", options, bucket.source, other)
    secret = bucket.env["AWS_SECRET_ACCESS_KEY"]
    assert "AWS_ACCESS_KEY_ID (it has none)" in said and "credentials=" in said and "AWS_SECRET_ACCESS_KEY" in said
    doctor = cache.run("doctor", "-o", options, bucket.source, check=False).stdout
    assert f"warn {bucket.source}: can't be mounted from here" in doctor
    assert "with this shell's environment; the running daemon has another" in doctor
    assert secret not in said + doctor
    keys = workdir / "keys"
    keys.write_text(f"[default]\naws_access_key_id = {bucket.env['AWS_ACCESS_KEY_ID']}\n"
                    f"aws_secret_access_key = {secret}\n", encoding="ascii")
    assert (cache.mount(bucket.source, *bucket.options, f"credentials={keys}", name="o") / "a").read_bytes() == b"content"


def test_an_endpoint_of_a_shell_that_is_not_the_daemons(cache, bucket, workdir):
    """Two servers may have a bucket of one name."""
    endpoint = bucket.server.endpoint
    cache.env.update(bucket.env, AWS_ENDPOINT_URL=endpoint)
    assert (cache.mount(bucket.source, "addressing=path") / "a").read_bytes() == b"content"
    other = workdir / "other"
    other.mkdir()
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        cache.env[name] = "http://127.0.0.1:2"
        assert f"{name} (it has {endpoint})" in says(cache, "mount", "-o", "addressing=path", bucket.source, other)
    cache.mount(bucket.source, *bucket.options, name="given")
    # Who has nothing set means the daemon's: fstab, a unit.
    for name in [name for name in cache.env if name.startswith("AWS_")]:
        del cache.env[name]
    assert (cache.mount(bucket.source, "addressing=path", name="unset") / "a").read_bytes() == b"content"


def test_a_hub_of_a_shell_that_is_not_the_daemons(cache, local, hub, workdir):
    cache.mount_origin(local)
    hub.repo("org/model").commit({"a": b"content"})
    other = workdir / "other"
    other.mkdir()
    cache.env.update(HF_ENDPOINT=hub.endpoint, HF_TOKEN="hf_of_this_shell")
    said = says(cache, "mount", "hf://org/model", other)
    assert "HF_ENDPOINT (it has none)" in said and "HF_TOKEN" in said and "hf_of_this_shell" not in said


def test_a_detached_volume_is_told(cache, local):
    mounted = cache.mount_origin(local)
    with open(mounted / "dir" / "a", "rb"):
        cache.umount(mounted, "--force")
        assert "unmounted" in cache.run("status").stdout


def test_a_server_without_ranges(cache, web):
    web.put("long", bytes(65 * MIB))
    web.put("short", bytes(2 * MIB))
    origin = FaultyOrigin(web)
    assert "ranges" not in cache.run("doctor", origin.source, check=False).stdout
    web.rule(op="get", whole=True)
    assert f"warn {origin.source}: gives no ranges" in cache.run("doctor", origin.source, check=False).stdout
    mounted = cache.mount_origin(origin)
    for _ in range(2):
        with pytest.raises(OSError) as caught:
            (mounted / "long").read_bytes()
        assert caught.value.errno == errno.EIO
    assert (mounted / "short").read_bytes() == bytes(2 * MIB)
    assert cache.log.read_text().count(" origin_without_ranges ") == 1


def test_doctor_tells_of_dead_mounts(cache, local):
    cache.start()
    mounted = cache.mount_origin(local)
    assert str(mounted) not in cache.run("doctor", check=False).stdout
    cache.kill()
    assert f"warn mount: {mounted} of {local.source} is dead" in cache.run("doctor", check=False).stdout
    cache.run("umount", mounted)
    assert str(mounted) not in cache.run("doctor", check=False).stdout


def test_doctor_tells_of_a_store_that_was_removed(cache, local):
    cache.mount_origin(local)
    assert "daemon's store" not in cache.run("doctor", check=False).stdout
    shutil.rmtree(cache.store)
    result = cache.run("doctor", check=False)
    assert result.returncode == 1 and f"fail daemon's store: {cache.store} was removed" in result.stdout


def test_doctor_warns_of_a_source_that_lists_nothing(cache, local, workdir):
    (workdir / "empty").mkdir()
    shown = cache.run("doctor", local.source, f"file://{workdir}/empty", check=False).stdout
    assert f"ok   {local.source}: answers" in shown and f"warn file://{workdir}/empty: " in shown


@pytest.fixture
def website(web):
    return FaultyOrigin(web)


def warns(cache, mounted, *argv):
    mounted.mkdir(exist_ok=True)
    result = cache.run("mount", *argv, mounted)
    cache.mountpoints.append(mounted)
    return result.stderr


def test_a_web_server_that_shows_no_names(cache, website, workdir):
    """autoindex off: 403 for the directory, and what is in it can be opened."""
    website.put("dir/a", b"content")
    website.faulty.rule(op="index", key="dir/", status=403)
    mounted = workdir / "m"
    said = warns(cache, mounted, f"{website.source}dir")
    assert "shows no names" in said and f"{website.source}dir" in said
    assert (mounted / "a").read_bytes() == b"content"
    with pytest.raises(PermissionError):
        os.listdir(mounted)
    assert re.search(r"last error at 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d: .*403", cache.run("status").stdout)
    assert "shows no names" in cache.run("doctor", f"{website.source}dir", check=False).stdout


def test_a_web_server_that_refuses_credentials(cache, website, workdir):
    """Then a 403 is about them, and says nothing of S3."""
    website.put("dir/a", b"content")
    website.faulty.rule(op="index", key="dir/", status=403)
    (workdir / "token").write_text("Bearer wrong", encoding="ascii")
    (workdir / "m").mkdir()
    said = says(cache, "mount", "-o", f"credentials={workdir}/token", f"{website.source}dir", workdir / "m")
    assert "denies access" in said and "AWS_" not in said and "bucket" not in said


def test_a_path_that_a_web_server_has_not(cache, website, workdir):
    website.put("dir/a", b"content")
    website.faulty.listing.index = False
    assert "check the spelling" in warns(cache, workdir / "m", f"{website.source}nope")


@pytest.mark.parametrize("name", ["big.bin", "a b+%.bin"])
def test_a_file_is_no_source(cache, website, bucket, workdir, name):
    website.put(f"dir/{name}", b"content")
    website.faulty.listing.index = False
    bucket.put(f"dir/{name}", b"content")
    cache.env.update(bucket.env)
    (workdir / "m").mkdir()
    for source, options, above in ((f"{website.source}dir/{quote(name)}", "ttl=1s", f"{website.source}dir"),
                                   (f"{bucket.source}/dir/{name}", ",".join(bucket.options), f"{bucket.source}/dir")):
        for said in (says(cache, "mount", "-o", options, source, workdir / "m"),
                     cache.run("doctor", "-o", options, source, check=False).stdout):
            assert "is a file" in said and f"give {above}" in said


def test_a_misspelt_subdir_is_what_is_named(cache, bucket, workdir):
    cache.env.update(bucket.env)
    said = warns(cache, workdir / "m", "-o", ",".join([*bucket.options, "subdir=nope"]), bucket.source)
    assert f"subdir=nope of {bucket.source} has nothing in it" in said


def test_a_directory_has_no_bandwidth(cache, local, workdir):
    (workdir / "m").mkdir()
    assert "leave the option out" in says(cache, "mount", "-o", "bandwidth=20M", local.source, workdir / "m")


def test_more_is_pinned_than_the_store_holds(workdir, local):
    local.put("dir/b", bytes(10 << 20))
    local.put("dir/c", bytes(10 << 20))
    with Cache(workdir / "cache", size="16M") as cache:
        mounted = cache.mount_origin(local)
        assert cache.run("pin", mounted / "dir" / "b").stderr == ""
        assert "the store holds 16.0 MiB" in cache.run("pin", mounted / "dir" / "c").stderr
        cache.run("unpin", mounted / "dir" / "b")
        assert cache.run("pin", mounted / "dir" / "c").stderr == ""


def test_a_size_that_no_disk_has(workdir, local):
    with Cache(workdir / "cache", size="900P") as cache:
        assert "size=900P is more than" in warns(cache, workdir / "m", local.source)
        assert "size_beyond_file_system" in cache.log.read_text()


def test_one_object_is_one_object(cache, local):
    mounted = cache.mount_origin(local)
    (mounted / "dir" / "a").read_bytes()
    wait.until(lambda: cache.status(mounted / "dir" / "a")["warm"], 30, "a warm file")
    assert ": 1 object, " in cache.run("verify", mounted / "dir" / "a").stdout


def test_a_store_without_its_format(cache, local):
    cache.umount(cache.mount_origin(local))
    wait.until(lambda: not cache.processes(), 30, "the daemon's end")
    (cache.store / "FORMAT").unlink()
    assert "no FORMAT" in says(cache, "serve", "--store", cache.store, "--control", cache.control)


@pytest.mark.parametrize("argv", [["scripts/test.sh", "--nosuch"], ["bench/run.py", "nosuch"]])
def test_wrong_use_of_the_scripts(argv):
    result = subprocess.run([REPO / argv[0], *argv[1:]], capture_output=True, text=True, timeout=30, check=False)
    assert result.returncode == 2 and "nosuch" in result.stderr
    assert subprocess.run([REPO / argv[0], "--help"], capture_output=True, timeout=30, check=False).returncode == 0
