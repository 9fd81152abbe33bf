"""The tests' own tools: real servers answer, and the scripted origin does what its rules say and counts right."""

import hashlib
import http.client
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
import xml.etree.ElementTree as ElementTree

import botocore.exceptions
import pytest

from lib import listing, mounts, process
from lib.faulty import Faulty
from lib.s3 import S3
from lib.servers import Minio, Versitygw, bucket_name

DATA = bytes(range(256)) * 4096  # 1 MiB


@pytest.fixture(params=["versitygw", "minio"])
def server(request):
    return request.getfixturevalue(request.param)


def get(origin, key, first=None, last=None, **headers):
    """Status, headers and body of one GET on a connection of its own."""
    link = http.client.HTTPConnection("127.0.0.1", origin.port, timeout=10)
    try:
        if first is not None:
            headers["Range"] = f"bytes={first}-{last}"
        path = f"/{origin.bucket}/{key}" if origin.bucket else f"/{key}"
        link.request("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        answer = link.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        link.close()


# Real servers

def test_server_round_trip(server):
    client, bucket = server.client(), bucket_name()
    client.make_bucket(bucket)
    etag = client.put(bucket, "dir/a b+c", DATA)
    assert client.get(bucket, "dir/a b+c") == DATA
    assert client.get(bucket, "dir/a b+c", 10, 19) == DATA[10:20]
    assert client.head(bucket, "dir/a b+c")["ETag"] == etag
    client.put(bucket, "z", b"z")
    assert client.list(bucket) == client.list(bucket, v1=True) == ["dir/a b+c", "z"]
    client.remove_bucket(bucket)


def test_server_refuses_a_wrong_signature(server):
    client = S3(server.endpoint, server.access_key, "not the secret", server.region)
    with pytest.raises(botocore.exceptions.ClientError, match="SignatureDoesNotMatch|Forbidden"):
        client.list("bucket")


@pytest.mark.parametrize("kind", [Versitygw, Minio])
def test_server_over_tls_and_restarted(kind, workdir, certificates):
    if not kind.available():
        pytest.skip(f"{kind.program} is not in build/tools")
    with kind(workdir / "tls", certificates) as server:
        bucket = bucket_name()
        server.client().make_bucket(bucket)
        server.client().put(bucket, "a", b"data")
        endpoint = server.endpoint
        server.stop()
        server.start()
        assert server.endpoint == endpoint
        assert server.client().get(bucket, "a") == b"data"


# The scripted origin, without rules

def test_faulty_speaks_s3(faulty):
    keys = ["a//b", "d/", "d/x", "plus+ space %25?#", "\u00e4/\u4e2d", "x", "x/y"]
    for key in keys:
        faulty.put(key, key.encode())
    client = S3(faulty.endpoint, "any", "thing")
    for v1 in (False, True):
        assert sorted(client.list("bucket", v1=v1)) == sorted(keys)
    for key in keys:
        assert client.get("bucket", key) == key.encode()
    assert client.head("bucket", "x")["ETag"] == f'"{hashlib.md5(b"x").hexdigest()}"'
    with pytest.raises(client.boto.exceptions.NoSuchKey):
        client.get("bucket", "no")
    faulty.delete("x/y")
    assert "x/y" not in client.list("bucket")


@pytest.mark.parametrize("v1", [False, True])
def test_faulty_pages_are_complete(faulty, v1):
    keys = [f"k{n:04}" for n in range(1500)] + [f"dir{n:03}/{m}" for n in range(40) for m in range(3)]
    for key in keys:
        faulty.put(key, b"")
    faulty.listing.page_size = 100
    client = S3(faulty.endpoint, "any", "thing")
    assert client.list("bucket", v1=v1) == sorted(keys)
    assert faulty.count("list") == 17
    pages = client.boto.get_paginator("list_objects" if v1 else "list_objects_v2")
    names, prefixes = [], []
    for page in pages.paginate(Bucket="bucket", Delimiter="/"):
        names += [entry["Key"] for entry in page.get("Contents", ())]
        prefixes += [entry["Prefix"] for entry in page.get("CommonPrefixes", ())]
    assert names == [k for k in sorted(keys) if "/" not in k]
    assert prefixes == sorted({k.partition("/")[0] + "/" for k in keys if "/" in k})


def test_listing_of_keys_that_are_no_text():
    keys = sorted([b"\xff\xfe", b"a\nb", b"\xff/x", b"\xff/y"])
    page = listing.page(keys, b"", b"/", b"", 10)
    assert page.keys == [b"a\nb", b"\xff\xfe"] and page.prefixes == [b"\xff/"]
    assert listing.page(keys, b"", b"/", b"\xff/", 10).keys == [b"\xff\xfe"]
    xml = listing.to_xml(page, lambda k: (1, '"e"', "2024-01-01T00:00:00.000Z"),
                         {"encoding-type": "url"}, "bucket", True, 10)
    found = [e.text for e in ElementTree.fromstring(xml).iter(f"{{{listing.NAMESPACE}}}Key")]
    assert found == ["a%0Ab", "%FF%FE"]


def test_faulty_without_list_v2(faulty):
    faulty.put("a", b"")
    faulty.listing.v2 = "refused"
    client = S3(faulty.endpoint, "any", "thing")
    with pytest.raises(botocore.exceptions.ClientError, match="NotImplemented"):
        client.list("bucket")
    assert client.list("bucket", v1=True) == ["a"]
    faulty.listing.v2 = "ignored"
    assert b"KeyCount" not in get(faulty, "?list-type=2")[2]


def test_ranges_and_conditions(faulty):
    etag = faulty.put("a", DATA)
    status, headers, body = get(faulty, "a", 100, 199)
    assert (status, headers["Content-Range"], body) == (206, f"bytes 100-199/{len(DATA)}", DATA[100:200])
    assert get(faulty, "a", len(DATA), len(DATA) + 5)[0] == 416
    assert get(faulty, "a", If_Match=etag)[0] == 200
    faulty.put("a", DATA[::-1])
    assert get(faulty, "a", If_Match=etag)[0] == 412
    weak = faulty.put("a", DATA, etag='W/"1"')
    assert get(faulty, "a", If_Match=weak)[0] == 412
    assert [r.status for r in faulty.requests("get")] == [206, 416, 200, 412, 412]
    assert [r.sent for r in faulty.requests("get") if r.status < 400] == [100, len(DATA)]


def test_plain_web_server(web):
    web.put("models/a.bin", DATA)
    web.put("models/sub/b", b"b")
    with urllib.request.urlopen(f"{web.endpoint}/models/a.bin") as answer:
        assert answer.read() == DATA
    with urllib.request.urlopen(f"{web.endpoint}/models/") as answer:
        body = answer.read()
    assert b'href="a.bin"' in body and b'href="sub/"' in body
    web.listing.index = False
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{web.endpoint}/models/")


def test_faulty_over_tls(workdir, certificates):
    with Faulty(certificates=certificates) as origin:
        origin.put("a", DATA)
        assert S3(origin.endpoint, "any", "thing", ca=certificates.ca).get("bucket", "a") == DATA


# Rules

def test_error_status_is_counted_down(faulty):
    faulty.put("a", DATA)
    rule = faulty.rule(op="get", key="a", after=1, times=2, status=503, code="SlowDown", headers={"Retry-After": "1"})
    answers = [get(faulty, "a") for _ in range(4)]
    assert [status for status, _, _ in answers] == [200, 503, 503, 200]
    assert answers[1][1]["Retry-After"] == "1" and b"SlowDown" in answers[1][2]
    assert rule.hits == 2


def test_cut_and_reset(faulty):
    faulty.put("a", DATA)
    faulty.rule(times=1, cut_at=1000)
    with pytest.raises(http.client.IncompleteRead) as short:
        get(faulty, "a")
    assert short.value.partial == DATA[:1000]
    faulty.rule(times=1, cut_at=1000, reset=True)
    with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
        get(faulty, "a")
    faulty.rule(times=1, cut_at=-1, reset=True)
    with pytest.raises(ConnectionResetError):
        get(faulty, "a")
    assert get(faulty, "a")[2] == DATA
    assert [r.sent for r in faulty.requests()] == [1000, 1000, 0, len(DATA)]


@pytest.mark.parametrize("stall_at", [-1, 0, 5000])
def test_stall_until_released(faulty, stall_at):
    faulty.put("a", DATA)
    rule = faulty.rule(op="get", stall_at=stall_at)
    bodies = []
    readers = [threading.Thread(target=lambda: bodies.append(get(faulty, "a")[2])) for _ in range(20)]
    for reader in readers:
        reader.start()
    rule.wait_hits(20)
    faulty.wait_for(lambda: sum(r.sent for r in faulty._log) == 20 * max(stall_at, 0))
    assert not bodies
    rule.release()
    for reader in readers:
        reader.join()
    assert bodies == [DATA] * 20


def test_stop_ends_stalled_answers(workdir):
    origin = Faulty().start()
    origin.put("a", DATA)
    rule = origin.rule(stall_at=10)
    ended = threading.Event()

    def read():
        try:
            get(origin, "a")
        except (OSError, http.client.HTTPException):
            ended.set()

    reader = threading.Thread(target=read)
    reader.start()
    rule.wait_hits(1)
    origin.stop()
    reader.join(10)
    assert ended.is_set()


def test_wrong_answers(faulty):
    faulty.put("a", DATA, headers={"Content-Encoding": "gzip"})
    assert get(faulty, "a")[1]["Content-Encoding"] == "gzip"
    rule = faulty.rule(headers={"Content-Range": "bytes 5-9/10", "ETag": '"other"'})
    _, headers, _ = get(faulty, "a", 0, 9)
    assert headers["Content-Range"] == "bytes 5-9/10" and headers["ETag"] == '"other"'
    rule.remove()
    rule = faulty.rule(body=b"<Error><Code>InternalError</Code></Error>")
    assert get(faulty, "a", 0, 9)[0::2] == (206, b"<Error><Code>InternalError</Code></Error>")
    rule.remove()
    rule = faulty.rule(headers={"Content-Length": str(len(DATA) + 1)})
    with pytest.raises(http.client.IncompleteRead):
        get(faulty, "a")
    rule.remove()
    faulty.rule(edit=lambda body: body[::-1])
    assert get(faulty, "a")[2] == DATA[::-1]


def test_slow_trickle(faulty):
    faulty.put("a", DATA)
    faulty.rule(trickle=(1 << 18, 0.001))
    assert get(faulty, "a")[2] == DATA


def test_a_listing_page_fails(faulty):
    for n in range(30):
        faulty.put(f"k{n:02}", b"")
    faulty.listing.page_size = 10
    faulty.rule(op="list", where=lambda r: "continuation-token" in r.query, times=1, status=500)
    client = S3(faulty.endpoint, "any", "thing")
    with pytest.raises(botocore.exceptions.ClientError):
        client.list("bucket")
    assert len(client.list("bucket")) == 30


def test_many_connections_at_once(faulty):
    faulty.put("a", b"x")
    links = [socket.create_connection(("127.0.0.1", faulty.port)) for _ in range(300)]
    for link in links:
        link.sendall(b"GET /bucket/a HTTP/1.1\r\nHost: a\r\n\r\n")
    faulty.wait_requests(300, op="get")
    for link in links:
        link.close()


# Processes and mounts

def test_leftovers_are_found(workdir):
    child = process.start(["sh", "-c", "sleep 1000 & wait"], workdir / "log")
    try:
        found = []
        deadline = time.monotonic() + 10
        while len(found) < 2 and time.monotonic() < deadline:
            found = [pid for pid, line in process.ours().items() if "sleep 1000" in line]
        assert child.pid in found and len(found) == 2
    finally:
        process.kill(found)
        child.wait()
    assert child.returncode == -signal.SIGKILL
    assert not any("sleep 1000" in line for line in process.ours().values())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_mounts_are_found_and_cleared(workdir):
    inner = workdir / "with space"
    inner.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", inner], check=True)
    assert [(m.path, m.kind) for m in mounts.below(workdir)] == [(str(inner), "tmpfs")]
    mounts.clear(workdir)
    assert not mounts.below(workdir)
