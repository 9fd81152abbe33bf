"""What reads waited for: seen while they wait, counted afterwards, and told to Prometheus."""

import http.client
import os
import subprocess

import pytest

from lib import child, data, metrics, reads, wait
from lib.data import MIB
from lib.mount import PROGRAM
from lib.origins import FaultyOrigin
from lib.servers import TOOLS, free_port

SIZE = 3 * MIB + 5
LABELS = {"volume", "source", "waited_for", "request", "kind", "outcome", "version", "le"}


@pytest.fixture
def scripted(faulty):
    faulty.put("dir/a", data.make("a", SIZE))
    faulty.put("dir/b", b"b")
    return FaultyOrigin(faulty)


def test_a_held_read_is_a_stall_while_it_lasts(cache, scripted):
    mounted = cache.mount_origin(scripted)
    path = mounted / "dir" / "a"
    os.listdir(mounted / "dir")
    volume = cache.volume(mounted)
    assert volume["stalled"] == {"now": 0, "seconds": 0, "share": 0, "share_1m": 0, "share_5m": 0}
    names = volume["stalled_names"]
    held = scripted.faulty.rule(op="get", stall_at=-1)
    reader = child.Child(reads.sha256, path)
    try:
        wait.until(lambda: cache.volume(mounted)["stalled"]["now"] > 0, 30, "a stalled read")
        before, now = cache.volume(mounted)["stalled"], cache.volume(mounted)["stalled"]
        # It counts while it lasts, for as long as it lasts.
        assert 0 < before["seconds"] < now["seconds"]
        assert all(0 < now[share] <= 1 for share in ("share", "share_1m", "share_5m"))
        assert cache.volume(mounted)["waits"]["origin"]["count"] == 0
        head = cache.run("status").stdout.splitlines()[0]
        assert head.startswith("stalled") and " now" in head and scripted.source in head, head
        assert metrics.value(metrics.text(cache), "cachefs_stalled_requests", request="read") >= 1
    finally:
        held.release()
    assert reader.result() == data.digest(data.make("a", SIZE))
    volume = cache.volume(mounted)
    waits = volume["waits"]
    assert volume["stalled"]["now"] == 0 and waits["origin"]["count"] > 0
    # Reads that waited at the same time count once in the one, each in the other.
    assert now["seconds"] < volume["stalled"]["seconds"] <= waits["origin"]["seconds"] == volume["stall_seconds"]
    assert volume["stalled_names"] == names | {s: volume["stalled_names"][s] for s in names if s.startswith("share")}


def test_hits_are_no_stalls(cache, scripted):
    """Through the daemon: by a handle from before the file was warm."""
    mounted = cache.mount_origin(scripted)
    path = mounted / "dir" / "a"
    with open(path, "rb", buffering=0) as file:
        assert file.read(1) == data.make("a", SIZE)[:1]
        reads.sha256(path)
        cache.wait_warm(path)
        before = cache.volume(mounted)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert os.pread(file.fileno(), SIZE, 0) == data.make("a", SIZE)
        after = cache.volume(mounted)
    assert after["stalled"]["seconds"] == before["stalled"]["seconds"] > 0
    assert after["waits"]["origin"] == before["waits"]["origin"]
    hits = [sum(v["waits"][kind]["count"] for kind in ("none", "store")) for v in (before, after)]
    assert hits[1] > hits[0]
    assert after["waits"]["none"]["seconds"] == 0
    assert after["hit_bytes"] - before["hit_bytes"] == SIZE
    # Nothing of it is to be seen when the kernel reads by itself.
    reads.drop_pages(path)
    assert reads.sha256(path) == data.digest(data.make("a", SIZE))
    passed = cache.volume(mounted)
    assert passed["waits"] == after["waits"] and passed["passthrough_opens"] > after["passthrough_opens"]


@pytest.mark.parametrize("op, call", [("list", os.listdir), ("list", os.path.getsize)])
def test_waits_for_names_are_apart(cache, scripted, op, call):
    mounted = cache.mount_origin(scripted)
    before = cache.volume(mounted)["stalled_names"]
    held = scripted.faulty.rule(op=op, stall_at=-1)
    asking = child.Child(call, mounted / "dir")
    try:
        wait.until(lambda: cache.volume(mounted)["stalled_names"]["now"] > 0, 30, "a stalled name")
        assert cache.volume(mounted)["stalled"]["now"] == 0
        assert metrics.value(metrics.text(cache), "cachefs_stalled_requests", request="name") >= 1
    finally:
        held.release()
    asking.result()
    volume = cache.volume(mounted)
    assert volume["stalled_names"]["now"] == 0
    assert before["seconds"] < volume["stalled_names"]["seconds"] <= volume["waits"]["names"]["seconds"]
    assert volume["stalled"]["seconds"] == 0 and volume["waits"]["origin"]["count"] == 0


def test_failed_reads_stall_no_longer(cache, scripted):
    mounted = cache.mount_origin(scripted, "timeout=1s")
    scripted.faulty.rule(op="get", status=500)
    with pytest.raises(OSError):
        reads.sha256(mounted / "dir" / "a")
    volume = cache.volume(mounted)
    assert volume["stalled"]["now"] == 0 and volume["waits"]["origin"]["count"] > 0
    assert volume["miss_bytes"] == 0 < volume["stalled"]["seconds"]


def test_counters_begin_again_with_a_new_daemon(cache, scripted):
    mounted = cache.mount_origin(scripted)
    reads.sha256(mounted / "dir" / "a")
    before = metrics.text(cache)
    assert cache.volume(mounted)["stalled"]["seconds"] > 0
    old = cache.pid()
    cache.kill_daemon()
    cache.wait_other_daemon(old)
    volume, after = cache.volume(mounted), metrics.text(cache)
    assert volume["stalled"]["seconds"] == 0 and volume["waits"]["origin"] == {"count": 0, "seconds": 0}
    # By these a rate tells a restart from an error.
    for name in ("cachefs_stalled_seconds_total", "cachefs_read_wait_seconds_count", "cachefs_miss_bytes_total"):
        assert metrics.value(after, name) < metrics.value(before, name)
    assert metrics.value(after, "process_start_time_seconds") > metrics.value(before, "process_start_time_seconds")


# What Prometheus gets

def check_histogram(family):
    """Buckets of each set of labels add up, and to the count."""
    series = {}
    for sample in family.samples:
        labels = {name: text for name, text in sample.labels.items() if name != "le"}
        part = series.setdefault(tuple(sorted(labels.items())), {"buckets": []})
        if sample.name.endswith("_bucket"):
            part["buckets"].append((float(sample.labels["le"]), sample.value))
        else:
            part[sample.name.rpartition("_")[2]] = sample.value
    for labels, part in series.items():
        bounds, counts = zip(*part["buckets"])
        assert list(bounds) == sorted(set(bounds)) and bounds[-1] == float("inf"), labels
        assert list(counts) == sorted(counts) and counts[-1] == part["count"], labels
        lowest = sum((n - m) * low for (low, m), (_, n) in zip(part["buckets"], part["buckets"][1:]))
        assert lowest <= part["sum"], labels
    return series


def get(port, path):
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    link.request("GET", path)
    answer = link.getresponse()
    body = answer.read().decode()
    link.close()
    return answer.status, answer.headers, body


def test_metrics(cache, scripted):
    port = free_port()
    cache.start("--metrics", f"127.0.0.1:{port}")
    mounted = cache.mount_origin(scripted)
    cache.mount_origin(scripted, "uid=5", name="second")
    reads.sha256(mounted / "dir" / "a")
    cache.wait_warm(mounted / "dir" / "a")
    status, headers, body = get(port, "/metrics")
    assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert body.endswith("\n")
    families = metrics.families(body)
    assert body.count("# HELP ") == body.count("# TYPE ") == len(families)
    for name, family in families.items():
        assert name.startswith(("cachefs_", "process_")) and family.documentation
        assert family.type in ("counter", "gauge", "histogram")
        assert not name.endswith(("_ms", "_us", "_ns", "_kb", "_mb", "_percent", "_ratio"))
        assert f"# TYPE {name}{'_total' if family.type == 'counter' else ''} {family.type}\n" in body
        seen = [(s.name, tuple(sorted(s.labels.items()))) for s in family.samples]
        assert len(seen) == len(set(seen)) and all(set(s.labels) <= LABELS for s in family.samples)
        if family.type == "histogram":
            check_histogram(family)
    source = {"source": scripted.source, "volume": str(cache.volume(mounted)["id"])}
    gets = metrics.value(body, "cachefs_origin_requests_total", kind="get", **source)
    assert gets == scripted.faulty.count("get")
    assert metrics.value(body, "cachefs_fetched_bytes_total") == SIZE
    used, capacity = (metrics.value(body, f"cachefs_store_{name}_bytes") for name in ("used", "capacity"))
    assert 0 < used < capacity
    waits = cache.volume(mounted)["waits"]
    for kind in ("origin", "store", "none"):
        assert metrics.value(body, "cachefs_read_wait_seconds_count", waited_for=kind, **source) == waits[kind]["count"]
    assert waits["origin"]["count"] > 0
    assert metrics.value(body, "cachefs_name_wait_seconds_count", **source) == waits["names"]["count"] > 0
    assert 0 < metrics.value(body, "cachefs_stalled_seconds_total", request="read", **source)
    assert get(port, "/healthz")[0] == 200
    assert get(port, "/v1/status")[0] == 404


def test_promtool_has_nothing_to_say(cache, scripted):
    """Of names, units, types and help texts."""
    if not os.access(TOOLS / "promtool", os.X_OK):
        pytest.skip("promtool is not in build/tools: scripts/test_tools.sh puts it there")
    mounted = cache.mount_origin(scripted)
    reads.sha256(mounted / "dir" / "a")
    result = subprocess.run([TOOLS / "promtool", "check", "metrics"], input=metrics.text(cache), capture_output=True,
                            text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


# top

def test_top(cache, scripted):
    mounted = cache.mount_origin(scripted)
    os.listdir(mounted / "dir")
    held = scripted.faulty.rule(op="get", stall_at=-1)
    reader = child.Child(reads.sha256, mounted / "dir" / "a")
    try:
        wait.until(lambda: cache.volume(mounted)["stalled"]["now"] > 0, 30, "a stalled read")
        lines = cache.run("top", "--interval", "100ms", "--count", "2", mounted).stdout.splitlines()
        heads, rows = lines[::2], lines[1::2]
        assert len(rows) == 2 and all(head.split()[0] == "STALLED" for head in heads), lines
        for row in rows:
            assert row.endswith(scripted.source)
            stalled, minute, now = float(row.split()[0]), float(row.split()[2]), int(row.split()[4])
            # It was stalled all the time, also of the interval.
            assert 50 < stalled <= 100 and 0 <= minute <= 100 and now >= 1, row
    finally:
        held.release()
    reader.result()
    [_, row] = cache.run("top", "--interval", "100ms", "--count", "1").stdout.splitlines()
    assert float(row.split()[0]) == 0 and int(row.split()[4]) == 0


@pytest.mark.parametrize("wrong", [["--interval", "0"], ["--interval", "x"], ["--count", "0"], ["--count", "-1"],
                                   ["--count", "1x"], ["/a", "/b"]])
def test_wrong_use_of_top(cache, wrong):
    assert cache.run("top", *wrong, check=False).returncode == 2


def test_top_without_a_daemon(cache):
    result = cache.run("top", check=False)
    assert result.returncode == 1 and str(cache.control) in result.stderr


def test_top_outlives_the_daemon(cache, scripted):
    """It goes on with the successor, and takes its counters for what they are."""
    mounted = cache.mount_origin(scripted)
    reads.sha256(mounted / "dir" / "a")
    shown = cache.directory / "top"
    with open(shown, "w", encoding="utf-8") as out:
        top = subprocess.Popen([PROGRAM, "top", "--interval", "100ms"], env=cache.env, stdout=out)
        try:
            rows = lambda: [line for line in shown.read_text().splitlines() if line.endswith(scripted.source)]
            wait.until(lambda: len(rows()) > 1, 30, "rows")
            old = cache.pid()
            cache.kill_daemon()
            cache.wait_other_daemon(old)
            seen = len(rows())
            wait.until(lambda: len(rows()) > seen + 1, 30, "more rows")
            assert top.poll() is None
            assert all(0 <= float(row.split()[0]) <= 100 for row in rows())
        finally:
            top.kill()
            top.wait()
