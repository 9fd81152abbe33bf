"""Each fault of an origin against each kind of request, once for a moment and once for good: the reader gets the right
bytes or one clear errno and never a mixture, in time, and the origin is not asked more often than it must be."""

import collections
import concurrent.futures
import errno
import gzip
import os
import time
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Optional

import pytest

from lib import data
from lib.data import MIB
from lib.origins import FaultyOrigin

SIZE = 3 * MIB + 5
MIDDLE = 300001  # of the first range
TIMES = 2  # how often a fault that passes comes
TIMEOUT_S = 2
MARGIN_S = 40  # of a busy machine
PIECE = 1 << 16
# The shortest pause between two tries is 100 ms, and curl by itself repeats what went lost on a used connection.
MOST_TRIES = 2 * (TIMEOUT_S * 10 + 1)
ERROR_DOCUMENT = b"<?xml version='1.0'?><Error><Code>InternalError</Code><Message>try again</Message></Error>"
ALL = ("get", "stat", "list")
BODIES = ("get", "list")


@dataclass
class Fault:
    """what: of the rule, for every op; more: of the rule for one op. error: what it gives when it lasts. goes_on: each
    try of a GET may bring some bytes, so it may get there all the same. once: it is final, and not tried again. again:
    so many bytes of an object may come twice."""

    what: dict
    ops: tuple = ALL
    error: int = errno.EIO
    goes_on: bool = False
    once: bool = False
    again: int = 4096
    kinds: tuple = ("s3", "web")
    more: dict = field(default_factory=dict)


def soon(_request):
    return formatdate(time.time() + 2, usegmt=True)


def packed(body):
    return gzip.compress(body)


def wrong_range(first, last, total):
    """A Content-Range that is off by so much."""
    def text(request):
        return f"bytes {request.first + first}-{request.last + last}/{SIZE + total}"
    return Fault({"headers": {"Content-Range": text}}, ("get",))


FAULTS = {
    "500": Fault({"status": 500}),
    "502": Fault({"status": 502, "code": "BadGateway"}),
    "504": Fault({"status": 504, "code": "GatewayTimeout"}),
    "503 without Retry-After": Fault({"status": 503, "code": "SlowDown"}),
    "503 with Retry-After in seconds": Fault({"status": 503, "code": "SlowDown", "headers": {"Retry-After": "1"}}),
    "503 with Retry-After as a date": Fault({"status": 503, "code": "SlowDown", "headers": {"Retry-After": soon}}),
    "429": Fault({"status": 429, "code": "TooManyRequests"}),
    "408": Fault({"status": 408, "code": "RequestTimeout"}),
    "400": Fault({"status": 400, "code": "Whatever"}, once=True),
    "403": Fault({"status": 403, "code": "AccessDenied"}, error=errno.EACCES, once=True),
    "416": Fault({"status": 416, "code": "InvalidRange"}, ("get",), errno.ESTALE, once=True),
    "closed before the answer": Fault({"cut_at": -1}),
    "reset before the answer": Fault({"cut_at": -1, "reset": True}),
    "closed before the body": Fault({"cut_at": 0}, BODIES),
    "closed in the middle": Fault({}, BODIES, goes_on=True, more={"get": {"cut_at": MIDDLE}, "list": {"cut_at": 50}}),
    "reset in the middle": Fault({"reset": True}, BODIES, goes_on=True, again=2 * TIMES * MIDDLE,
                                 more={"get": {"cut_at": MIDDLE}, "list": {"cut_at": 50}}),
    "silent before the answer": Fault({"stall_at": -1}),
    "silent in the middle": Fault({}, BODIES, more={"get": {"stall_at": MIDDLE}, "list": {"stall_at": 50}}),
    "trickles": Fault({"trickle": (1, 0.3)}, BODIES),
    "Content-Length below the range": Fault({"edit": lambda body: body[:-1]}, ("get",)),
    "Content-Length above the range": Fault({"edit": lambda body: body + b"x"}, ("get",)),
    # An index document that ends too early is one that lacks names, as others do: a web server's is not asked for.
    "chunked and short": Fault({"chunked": True, "edit": lambda body: body[:-20]}, BODIES, kinds=("s3",)),
    "chunked, short, of the web": Fault({"chunked": True, "edit": lambda body: body[:-20]}, ("get",), kinds=("web",)),
    "chunked and long": Fault({"chunked": True, "edit": lambda body: body + b"x"}, ("get",), again=2 * TIMES * SIZE),
    "chunked and cut": Fault({"chunked": True}, BODIES, goes_on=True,
                             more={"get": {"cut_at": MIDDLE}, "list": {"cut_at": 50}}),
    "Content-Range begins elsewhere": wrong_range(1, 0, 0),
    "Content-Range ends elsewhere": wrong_range(0, -1, 0),
    "Content-Range with more in all": wrong_range(0, 0, 1),
    "Content-Range with less in all": wrong_range(0, 0, -1),
    "Content-Range that is none": Fault({"headers": {"Content-Range": "bytes all"}}, ("get",)),
    "no Content-Range": Fault({"headers": {"Content-Range": None}}, ("get",)),
    "an error document for the bytes": Fault({"body": ERROR_DOCUMENT}, BODIES, kinds=("s3",)),
    "an error document after a 200": Fault({"status": 200}, kinds=("s3",)),
    "an error document after a 200, of the web": Fault({"status": 200}, ("get",), kinds=("web",)),
    "an empty body": Fault({"body": b""}, BODIES, kinds=("s3",)),
    "no version": Fault({"headers": {"ETag": None, "Last-Modified": None}}, ("get",)),
    # A web server that knows neither is refused at once, since it may never know them.
    "no version, in a HEAD": Fault({"headers": {"ETag": None, "Last-Modified": None}}, ("stat",), kinds=("s3",)),
    "another version": Fault({"headers": {"ETag": '"other"'}}, ("get",), errno.ESTALE, once=True),
    "packed on the way": Fault({"edit": packed, "headers": {"Content-Encoding": "gzip"}}, BODIES),
    "packed on the way, chunked": Fault({"edit": packed, "headers": {"Content-Encoding": "gzip"}, "chunked": True},
                                        BODIES),
    "no size, in a HEAD": Fault({"headers": {"Content-Length": None}}, ("stat",), kinds=("s3",)),
}
CASES = [(name, kind) for name, fault in FAULTS.items() for kind in fault.kinds]


@dataclass
class Outcome:
    error: int
    found: Optional[bytes]
    took_s: float


class Origin:
    """The scripted origin as object store or web server, with a directory of its own for each op and volume."""

    def __init__(self, faulty, kind):
        self.faulty = faulty
        self.kind = kind
        self.content = data.make(kind, SIZE)
        for volume in ("passing", "lasting"):
            for op in ALL:
                faulty.put(f"{volume}/{op}/a", self.content)
        self.names = {"list": "index" if kind == "web" else "list", "stat": "head", "get": "get"}

    def mount(self, cache, volume, *options):
        """Warm up to what the ops below are to meet; an object store is asked by HEAD when a volume is strict."""
        mounted = cache.mount_origin(FaultyOrigin(self.faulty), *options, "strict" if self.kind == "s3" else "ttl=1h",
                                     name=volume) / volume
        os.listdir(mounted)
        for op in ("stat", "get"):
            if self.kind == "s3" or op == "get":
                assert (mounted / op / "a").stat().st_size == SIZE
        return mounted

    def rule(self, volume, op, fault, **more):
        """The directory of a listing or the object itself meets the fault."""
        key = f"{volume}/{op}/a"

        def where(request):
            if op != "list":
                return request.key == key
            return (request.key if self.kind == "web" else request.query.get("prefix")) == f"{volume}/list/"

        return self.faulty.rule(op=self.names[op], where=where, **fault.what, **fault.more.get(op, {}), **more)


def get(mounted):
    """All bytes up to the error, if one comes."""
    found = b""
    fd = os.open(mounted / "get" / "a", os.O_RDONLY)
    try:
        while piece := os.pread(fd, PIECE, len(found)):
            found += piece
        return 0, found
    except OSError as e:
        return e.errno, found
    finally:
        os.close(fd)


def stat(mounted):
    try:
        fd = os.open(mounted / "stat" / "a", os.O_RDONLY)
        try:
            assert os.fstat(fd).st_size == SIZE
        finally:
            os.close(fd)
        return 0, None
    except OSError as e:
        return e.errno, None


def ls(mounted):
    try:
        assert os.listdir(mounted / "list") == ["a"]
        return 0, None
    except OSError as e:
        return e.errno, None


def run(mounted, ops):
    """Every op at once: {op: Outcome}."""
    calls = {"get": get, "stat": stat, "list": ls}

    def timed(op):
        begin = time.monotonic()
        error, found = calls[op](mounted)
        return Outcome(error, found, time.monotonic() - begin)

    with concurrent.futures.ThreadPoolExecutor(len(ops)) as pool:
        return dict(zip(ops, pool.map(timed, ops)))


@pytest.fixture
def made(request, name, kind):
    return Origin(request.getfixturevalue("web" if kind == "web" else "faulty"), kind), FAULTS[name]


@pytest.mark.parametrize("name, kind", CASES)
def test_for_good(cache, made, name, kind):  # pylint: disable=unused-argument
    """One clear error in time; what came before it is right; and it is over when the fault is."""
    origin, fault = made
    mounted = origin.mount(cache, "lasting", f"timeout={TIMEOUT_S}s")
    rules = {op: origin.rule("lasting", op, fault) for op in fault.ops}
    for op, outcome in run(mounted, fault.ops).items():
        if fault.goes_on and op == "get":
            assert outcome.error in (0, fault.error) and origin.content.startswith(outcome.found)
            assert outcome.error or len(outcome.found) == SIZE
            continue
        assert outcome.error == fault.error, (op, cache.volume(mounted.parent)["origin"])
        assert outcome.took_s < TIMEOUT_S + MARGIN_S
        if outcome.found is not None:
            assert origin.content.startswith(outcome.found)
        assert 1 <= rules[op].hits <= MOST_TRIES, op
        # What failed at once as readahead the kernel reads once more, what took long it is not asked for again; and a
        # HEAD has no body that says whether another region was meant.
        asked = collections.Counter(r.first for r in origin.faulty.requests(where=lambda r, op=op: r.rule is rules[op]))
        assert not fault.once or max(asked.values()) <= 2, op
    assert cache.volume(mounted.parent)["origin"]["last_error"] or fault.error == errno.ESTALE
    for rule in rules.values():
        rule.remove()
    for op, outcome in run(mounted, fault.ops).items():
        assert outcome.error == 0, op
        assert outcome.found in (None, origin.content)
    assert cache.counters()["checksum_failures"] == 0


# Curl's own limit for what is silent is 15 s; test_silent_for_a_while waits for it, once for all.
PASSING = [(name, kind) for name, kind in CASES
           if not FAULTS[name].once and "silent" not in name and name != "trickles"]


@pytest.mark.parametrize("name, kind", PASSING)
def test_for_a_moment(cache, made, name, kind):  # pylint: disable=unused-argument
    """Nobody sees it: the bytes are right, those that were right are not asked for twice, and nothing wrong is kept."""
    origin, fault = made
    mounted = origin.mount(cache, "passing", "timeout=60s")
    origin.faulty.clear_log()
    rules = {op: origin.rule("passing", op, fault, times=TIMES) for op in fault.ops}
    for op, outcome in run(mounted, fault.ops).items():
        assert outcome.error == 0, (op, cache.volume(mounted.parent)["origin"])
        assert outcome.found in (None, origin.content)
        assert rules[op].hits == TIMES
    assert cache.counters()["retries"] >= 1
    if "get" in fault.ops:
        if rules["get"].cut_at in (None, -1, 0) and not rules["get"].chunked:
            right = origin.faulty.requests("get", "passing/get/a", lambda r: r.rule is None)
            assert data.fetched_once(right, SIZE)
        assert cache.counters()["origin_bytes"] <= SIZE + fault.again
        assert origin.faulty.sent("get", "passing/get/a") <= (TIMES + 1) * SIZE
        cache.wait_warm(mounted / "get" / "a")
        origin.faulty.clear_log()
        assert get(mounted) == (0, origin.content)
        assert origin.faulty.count("get") == 0
    assert cache.run("verify", "--all").returncode == 0


@pytest.mark.parametrize("kind", ["s3", "web"])
def test_silent_for_a_while(cache, request, kind):
    """A try without a byte is given up long before the request is, and goes on where it was."""
    origin = Origin(request.getfixturevalue("web" if kind == "web" else "faulty"), kind)
    mounted = origin.mount(cache, "passing", "timeout=100s")
    origin.faulty.clear_log()
    middle, before = FAULTS["silent in the middle"], FAULTS["silent before the answer"]
    rules = [origin.rule("passing", op, fault, times=1) for op, fault in zip(ALL, (middle, before, before))]
    for op, outcome in run(mounted, ALL).items():
        assert outcome.error == 0, (op, cache.volume(mounted.parent)["origin"])
        assert outcome.found in (None, origin.content)
    assert [rule.hits for rule in rules] == [1, 1, 1]
    first, second = origin.faulty.requests("get", "passing/get/a", lambda r: r.first <= MIDDLE)
    assert (first.first, first.sent, second.first) == (0, MIDDLE, MIDDLE)


@pytest.mark.parametrize("twice", [False, True], ids=["a byte", "the answer again"])
def test_more_than_was_asked_for(cache, faulty, twice):
    """What comes behind an answer's end is no part of it, and not taken for the next one's on that connection."""
    content = data.make("more", 20 * MIB)
    etag = faulty.put("a", content)

    def more(body):
        if not twice:
            return body + b"x"
        first = content.index(body[:64])
        head = (f"HTTP/1.1 206 Partial Content\r\nETag: {etag}\r\nContent-Length: {len(body)}\r\n"
                f"Content-Range: bytes {first}-{first + len(body) - 1}/{len(content)}\r\n\r\n")
        return body + head.encode() + body

    rule = faulty.rule(op="get", edit=more, headers={"Content-Length": lambda r: str(r.last - r.first + 1)})
    mounted = cache.mount_origin(FaultyOrigin(faulty), "connections=1", "timeout=60s")
    with open(mounted / "a", "rb", buffering=0) as f:
        assert b"".join(iter(lambda: f.read(PIECE), b"")) == content
    assert rule.hits == faulty.count("get") >= 2
    cache.wait_warm(mounted / "a")
    assert cache.run("verify", "--all").returncode == 0


def test_slow_and_steady(cache, faulty):
    """timeout= is for what does not come, not for what takes its time: each MiB of a range has all of it."""
    content = data.make("steady", 12 * MIB)
    faulty.put("a", content)
    mounted = cache.mount_origin(FaultyOrigin(faulty), "timeout=3s")
    long = faulty.rule(op="get", where=lambda r: r.last - r.first >= 3 * MIB - 1, times=1, trickle=(1 << 17, 0.15))
    with open(mounted / "a", "rb", buffering=0) as f:
        found = b"".join(iter(lambda: f.read(1 << 17), b""))
    assert data.digest(found) == data.digest(content)
    assert long.hits == 1
    assert cache.counters()["retries"] == 0
    assert data.fetched_once(faulty.requests("get"), len(content))


# Faults that come when a part of the object is there already

AFTER = {
    "403": ({"status": 403, "code": "AccessDenied"}, {errno.EACCES}),
    "404": ({"status": 404, "code": "NoSuchKey"}, {errno.ENOENT, errno.ESTALE}),
    "404 of somebody else": ({"status": 404, "code": "NoSuchBucket"}, {errno.EIO}),
    "412": ({"status": 412, "code": "PreconditionFailed"}, {errno.ESTALE}),
    "416": ({"status": 416, "code": "InvalidRange"}, {errno.ESTALE}),
    "another version": ({"headers": {"ETag": '"other"'}}, {errno.ESTALE}),
}


@pytest.mark.parametrize("name", AFTER)
def test_in_the_middle(cache, faulty, name):
    """The bytes before it are the version's, and those after it come from no other."""
    what, wanted = AFTER[name]
    origin = Origin(faulty, "s3")
    mounted = origin.mount(cache, "lasting")
    faulty.rule(op="get", where=lambda r: r.first == 0, cut_at=MIDDLE)
    rule = faulty.rule(op="get", where=lambda r: r.first > 0, **what)
    error, found = get(mounted)
    assert error in wanted
    assert origin.content.startswith(found)
    assert rule.hits >= 1
    faulty.clear_rules()
    assert get(mounted) == (0, origin.content)


@pytest.mark.parametrize("kind", ["s3", "web"])
def test_the_range_is_ignored(cache, request, kind):
    """A 200 with the whole object: a web server may do that, and the bytes before are thrown away; S3 must not."""
    faulty = request.getfixturevalue("web" if kind == "web" else "faulty")
    content = data.make("whole", 20 * MIB)
    faulty.put("a", content)
    mounted = cache.mount_origin(FaultyOrigin(faulty), f"timeout={TIMEOUT_S if kind == 's3' else 60}s")
    rule = faulty.rule(op="get", whole=True)
    fd = os.open(mounted / "a", os.O_RDONLY)
    try:
        if kind == "web":
            assert os.pread(fd, 1000, 17 * MIB) == content[17 * MIB:17 * MIB + 1000]
        else:
            with pytest.raises(OSError) as caught:
                os.pread(fd, 1000, 17 * MIB)
            assert caught.value.errno == errno.EIO
        assert rule.hits >= 1
    finally:
        os.close(fd)
