"""What programs and people get from the commands: the status's fields, metrics, doctor, help, exit statuses; and that
no secret shows up anywhere."""

import http.client
import json
import os
import re
import socket
import stat
import subprocess

import pytest

from lib import data, mounts, process, reads, wait
from lib.data import MIB
from lib.mount import PROGRAM, REPO
from lib.origins import DirectoryOrigin, FaultyOrigin, S3Origin
from lib.servers import free_port

COMMANDS = ["mount", "umount", "status", "top", "pin", "unpin", "evict", "verify", "serve", "doctor"]
SIZE = 3 * MIB + 5


@pytest.fixture
def scripted(faulty):
    faulty.put("dir/a", data.make("a", SIZE))
    faulty.put("dir/b", b"b")
    return FaultyOrigin(faulty)


# status

def test_status_fields(cache, scripted):
    mounted = cache.mount_origin(scripted)
    reads.sha256(mounted / "dir" / "a")
    cache.wait_warm(mounted / "dir" / "a")
    reads.sha256(mounted / "dir" / "a")
    status = cache.status()
    daemon, store, counters = status["daemon"], status["store"], status["counters"]
    assert process.alive(daemon["pid"]) and daemon["version"] and daemon["uptime_s"] >= 0
    assert 0 < daemon["rss_bytes"] < 1 << 30
    for feature in ("passthrough", "resend", "io_uring", "io_uring_fuse", "big_requests", "handle_killpriv_v2"):
        assert isinstance(daemon["features"][feature], bool)
    assert store["path"] == str(cache.store) and store["dirty_bytes"] == 0 and store["objects"] == 1
    assert SIZE <= store["used_bytes"] <= store["capacity_bytes"]
    [volume] = status["volumes"]
    assert (volume["source"], volume["mountpoint"], volume["mode"]) == (scripted.source, str(mounted), "ro")
    assert isinstance(volume["id"], int) and volume["cached_bytes"] == SIZE
    assert volume["hit_bytes"] + volume["miss_bytes"] >= SIZE and volume["stall_seconds"] > 0
    assert volume["origin"]["state"] == "reachable" and volume["origin"]["last_error"] == ""
    assert status["uploads"] == {"pending": 0, "bytes": 0, "failed": 0}
    assert counters["origin_gets"] == scripted.faulty.count("get") and counters["origin_bytes"] == SIZE
    assert counters["checksum_failures"] == 0
    [alone] = cache.status(mounted)["volumes"]
    # What is a share of time is another one a moment later.
    assert {key: alone[key] for key in alone if "stall" not in key} == \
        {key: volume[key] for key in volume if "stall" not in key}


def test_status_of_a_path(cache, scripted):
    mounted = cache.mount_origin(scripted)
    path = mounted / "dir" / "a"
    with open(path, "rb", buffering=0) as f:
        assert len(os.pread(f.fileno(), 10, 0)) == 10
    found = cache.status(path)
    assert (found["size"], found["layout"], found["upload"], found["pinned"]) == (SIZE, "raw", "clean", False)
    assert found["version"].startswith('"')
    reads.sha256(path)
    cache.wait_warm(path)
    assert cache.status(path)["cached_bytes"] == SIZE
    directory = cache.status(mounted / "dir")
    assert directory["size"] == SIZE + 1 and directory["files"] == 2 and not directory["warm"]
    text = cache.run("status", path).stdout
    assert "warm" in text and "100.0 %" in text and str(SIZE) in text
    result = cache.run("status", mounted / "missing", check=False)
    assert result.returncode == 1 and "missing" in result.stderr
    assert cache.run("status", "/", check=False).returncode == 1
    os.chdir(mounted)  # a relative path is the caller's
    try:
        assert cache.status("dir/a")["size"] == SIZE
    finally:
        os.chdir("/")


def test_status_without_a_daemon(cache):
    result = cache.run("status", check=False)
    assert result.returncode == 1 and "daemon" in result.stderr and not cache.processes()


def test_the_control_socket_speaks_http(cache, scripted):
    """So that curl can be used; and nobody else may."""
    mounted = cache.mount_origin(scripted)
    mode = cache.control.stat().st_mode
    assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600
    link = http.client.HTTPConnection("localhost")
    link.sock = socket.socket(socket.AF_UNIX)
    link.sock.connect(str(cache.control))
    link.request("GET", "/v1/status")
    assert json.loads(link.getresponse().read())["volumes"][0]["mountpoint"] == str(mounted)
    for method, url, body, wanted in (("GET", "/v1/nosuch", None, 404), ("POST", "/v1/evict", b"{", 400),
                                      ("POST", "/v1/evict", b'{"targets": "x"}', 400),
                                      ("DELETE", "/v1/status", None, 405),
                                      ("POST", "/v1/mount", b'{"source": "file:///", "nosuch": 1}', 400)):
        link.request(method, url, body)
        answer = link.getresponse()
        text = answer.read()
        assert answer.status == wanted, (url, answer.status, text)
        assert json.loads(text)["error"]
    link.close()


# metrics

def test_metrics_on_an_address_in_use(cache):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = cache.run("serve", "--store", cache.store, "--metrics", address, check=False)
        assert result.returncode == 1 and address in result.stderr
    for wrong in ("nonsense", "127.0.0.1", "127.0.0.1:99999"):
        result = cache.run("serve", "--store", cache.store, "--metrics", wrong, check=False)
        assert result.returncode in (1, 2) and wrong in result.stderr
    assert not cache.processes()


def test_serve_with_a_file_of_settings(cache, workdir):
    config = workdir / "cachefs.conf"
    config.write_text(f"# of this test\nstore = {workdir}/elsewhere\nsize = 123M\n")
    serve = process.start([PROGRAM, "serve", "--config", config, "--size", "64M"], cache.log, cache.env)
    try:
        wait.until(lambda: cache.run("status", check=False).returncode == 0, 30, "the daemon")
        store = cache.status()["store"]
        assert (store["path"], store["capacity_bytes"]) == (f"{workdir}/elsewhere", 64 * MIB)
    finally:
        process.stop(serve)
    config.write_text("store = /x\nnosuch = 1\n")
    result = cache.run("serve", "--config", config, check=False)
    assert result.returncode == 2 and "line 2" in result.stderr and "nosuch" in result.stderr


# doctor

def test_doctor(cache, scripted, workdir):
    origin = DirectoryOrigin(workdir / "origin")
    before = sorted(cache.directory.rglob("*"))
    result = cache.run("doctor", "--json", "--store", cache.store, origin.source)
    report = json.loads(result.stdout)
    assert report["ok"] and {f["level"] for f in report["findings"]} <= {"ok", "warn"}
    assert all(f["what"] and f["says"] for f in report["findings"])
    result = cache.run("doctor", "-o", ",".join(scripted.options), scripted.source, "file:///no/such/directory",
                       check=False)
    assert result.returncode == 1 and "/no/such/directory" in result.stdout
    lines = result.stdout.splitlines()
    assert all(re.match(r"(ok|warn|fail) +\S", line) for line in lines), result.stdout
    assert any(line.startswith("ok") and "bucket" in line for line in lines)
    after = [path for path in sorted(cache.directory.rglob("*")) if not path.name.startswith("command.")]
    assert after == [path for path in before if not path.name.startswith("command.")]
    assert not cache.processes() and not mounts.below(workdir)
    cache.mount_origin(scripted)
    assert str(cache.pid()) in cache.run("doctor", "--store", cache.store).stdout


# Words

@pytest.mark.parametrize("command", COMMANDS)
def test_help(cache, command):
    result = cache.run(command, "--help")
    assert result.stdout.startswith(f"Usage: cachefs {command}") and "Example" in result.stdout
    assert result.stderr == ""
    assert cache.run(command, "--version").stdout.startswith("cachefs ")


def test_help_of_the_program(cache):
    text = cache.run("--help").stdout
    for command in COMMANDS:
        assert re.search(rf"^  {command} ", text, re.MULTILINE)
    assert cache.run("--version").stdout == f"cachefs {cache.run('status', '--version').stdout.split()[1]}\n"


def test_manual_page(cache):
    page = (REPO / "docs" / "man" / "cachefs.1").read_text()
    installed = (REPO / "docs" / "man" / "meson.build").read_text()
    for command in COMMANDS:
        assert f"'{command}'" in installed
        assert re.search(rf"^\.Cm (.* )?{command}\b", page, re.MULTILINE), command
        for option in re.findall(r"^ +(?:-\w, )? *--([a-z-]+)", cache.run(command, "--help").stdout, re.MULTILINE):
            assert option in ("help", "version") or f"Fl Fl {option}" in page, f"{command} --{option} is missing"


def test_completion(cache):
    script = REPO / "completions" / "cachefs.bash"

    def complete(*words):
        line = " ".join(words)
        program = (f"source {script}; COMP_WORDS=({' '.join(repr(w) for w in words)}); COMP_CWORD={len(words) - 1}; "
                   f"COMP_LINE={line!r}; COMP_POINT={len(line)}; "
                   "f=$(complete -p cachefs | sed 's/.*-F \\([^ ]*\\).*/\\1/'); "
                   "$f cachefs \"${COMP_WORDS[COMP_CWORD]}\" "
                   "\"${COMP_WORDS[COMP_CWORD-1]}\"; printf '%s\\n' \"${COMPREPLY[@]}\"")
        return subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert set(COMMANDS) <= set(complete("cachefs", ""))
    assert complete("cachefs", "um") == ["umount"]
    for command in COMMANDS:
        options = set(re.findall(r"^ +(?:-\w, )? *(--[a-z-]+)", cache.run(command, "--help").stdout, re.MULTILINE))
        assert options <= set(complete("cachefs", command, "--")), command


# Secrets

def test_no_secret_shows(cache, versitygw):
    """Not in status, metrics, the log, the process list or an error."""
    origin = S3Origin(versitygw)
    try:
        origin.put("a", b"content")
        secret = versitygw.secret_key
        keys = cache.directory / "keys"
        keys.write_text(f"[default]\naws_access_key_id = {versitygw.access_key}\naws_secret_access_key = {secret}\n")
        port = free_port()
        cache.start("--metrics", f"127.0.0.1:{port}")
        mounted = cache.mount(origin.source, *origin.options, f"credentials={keys}")
        assert (mounted / "a").read_bytes() == b"content"
        origin.delete("a")
        texts = [cache.run("status", "--json").stdout, cache.run("status").stdout, cache.log.read_text(),
                 cache.run("doctor", "-o", ",".join([*origin.options, f"credentials={keys}"]), origin.source,
                           "--store", cache.store, check=False).stdout]
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        link.request("GET", "/metrics")
        texts.append(link.getresponse().read().decode())
        for pid in cache.processes():
            with open(f"/proc/{pid}/cmdline", encoding="utf-8") as f:
                texts.append(f.read())
        with open("/proc/self/mountinfo", encoding="utf-8") as f:
            texts.append(f.read())
        for text in texts:
            assert secret not in text and "Signature=" not in text and "aws_secret" not in text
    finally:
        origin.close()


def test_a_secret_in_the_source_or_options_is_not_shown(cache):
    path = cache.directory / "m"
    path.mkdir()
    for source in ("http://user:hunter2@127.0.0.1:1/x/", "s3://user:hunter2@bucket"):
        result = cache.run("mount", "-o", "timeout=1s", source, path, check=False)
        assert result.returncode in (1, 2) and "hunter2" not in result.stderr, result.stderr
    assert "hunter2" not in cache.log.read_text()


def test_each_log_line_is_one_event(cache, faulty):
    """Whatever an origin says."""
    faulty.put("evil\nname\x1b[31m", b"x" * 1000)
    cache.start()
    mounted = cache.mount_origin(FaultyOrigin(faulty), "timeout=1s")
    faulty.rule(op="get", status=400, code="Evil\n2026-01-01T00:00:00.000Z error forged")
    with pytest.raises(OSError):
        (mounted / "evil\nname\x1b[31m").read_bytes()
    lines = cache.log.read_text(errors="surrogateescape").splitlines()
    event = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z (error|warn|info|debug) [a-z_]+( |$)")
    assert lines and all(event.match(line) for line in lines)
    assert not any("\x1b" in line for line in lines)
    assert not any(" error forged" in line and line.startswith("2026-01-01") for line in lines)
