"""The benchmarks: what each prepares, runs and compares. The numbers are those of docs/BENCHMARKS.md."""
import os
import time
from dataclasses import dataclass, replace
from functools import wraps
from typing import Optional

from held import held
from killed import killed
from listing import listing
from measure import Contender, Refused, Sample, compare, drop_caches, load_cache, measure_in_turn
from sides import wait_until

PEER_ROUNDS = 3     # peers are slow: they take part in the first rounds only
OPENER_ROUNDS = 3   # one round reads the object 64 times
OPENERS = 64
LOSSY_PART_BYTES = 2 << 20
DISK_ROUNDS = 3     # its noise is not what the others are measured for
DISK_WRITERS = 8    # as many as fill the disks that we have seen


@dataclass
class Setting:
    """What a run measures with."""
    io: str            # the programs
    curl: str
    rounds: int
    origin: object
    native: object
    sides: list        # set against the native file
    tensors: list      # (offset, size) in the order in which a loader takes them
    tell: object       # called with a line of progress
    link: object       # to the origin; None: loopback
    connections: Optional[int] = None  # of the bare client and of cachefs; None: as many as each takes by itself

    @property
    def from_origin(self):
        """The sides that fetch the object from the origin."""
        found = [side for side in self.sides if side.has_origin]
        if not found:
            raise Refused("no side has an origin behind it")
        return found

    @property
    def size(self):
        return os.path.getsize(self.origin.object)

    @property
    def way(self):
        """To the origin, for a row's name."""
        return (str(self.link) if self.link else "unshaped") + (", TLS" if self.origin.ca else "")

    @property
    def curl_options(self):
        options = ["--ca", self.origin.ca] if self.origin.ca else []
        if self.link and self.link.loss_percent:
            # A connection is slow there: with large ranges the bare client would wait long for the last few of them.
            options += ["--part", str(LOSSY_PART_BYTES)]
        return options + (["--connections", str(self.connections)] if self.connections else [])


def measured(function):
    """For functions that measure one piece of work: what can't be measured becomes a row that says why, and leaves the
    other rows standing."""
    @wraps(function)
    def run(setting, number, work, *arguments, **more):
        setting.tell(f"{number} {work}")
        try:
            return function(setting, number, work, *arguments, **more)
        except Refused as why:
            return [{"number": number, "work": work, "refused": str(why)}]

    return run


def rounds_of(side):
    return PEER_ROUNDS if side.is_peer else None


def warm_row(setting, number, work, unit, arguments, *, prepare, target=None, cpu_target=None, stdin=""):
    """All sides hold the object; arguments are those of cachefs-bench-io, without the file."""
    mode, *options = arguments

    def contender(side):
        return Contender(side.name, [setting.io, mode, side.path, *options], stdin=stdin, pid=side.pid,
                         prepare=lambda: prepare(side), check=side.check_passthrough, rounds=rounds_of(side),
                         optional=side.is_peer, target=None if side.is_peer else target,
                         cpu_target=None if side.is_peer else cpu_target)

    contenders = [contender(side) for side in (setting.native, *setting.sides)]
    measure_in_turn(contenders, setting.rounds)
    return compare(number, work, unit, contenders)


def in_ram(side):
    """The page cache is filled anew for each sample, by equal reads: how a file came into it decides the size of its
    folios, which moves the speed of a mapping several times over, and differs from one filling to the next."""
    drop_caches()
    load_cache(side.path)


def not_in_ram(_side):
    drop_caches()


@measured
def page_cache_row(setting, number, work, *arguments, **more):
    return warm_row(setting, number, work, *arguments, prepare=in_ram, **more)


@measured
def cold_ram_row(setting, number, work, *arguments, **more):
    return warm_row(setting, number, work, *arguments, prepare=not_in_ram, **more)


def warm_sequential(setting):
    yield from page_cache_row(setting, "1", "sequential, page cache", "GB/s", ["seq", "--loops", "4"], target=0.97,
                              cpu_target=1.05)


def warm_disk(setting):
    for how, options in (("buffered", []), ("O_DIRECT QD4", ["--direct", "--depth", "4"])):
        yield from cold_ram_row(setting, "2", f"sequential, cold RAM, {how}", "GB/s", ["seq", *options], target=0.97)


def random_reads(setting):
    for kib, depth, ops, target in ((4, 1, 4096, 0.97), (4, 32, 32768, 0.97), (128, 1, 2048, 0.99), (128, 32, 8192, 0.99)):
        yield from cold_ram_row(setting, "3", f"random {kib} KiB, O_DIRECT QD{depth}", "op/s",
                                ["rand", "--direct", "--block", str(kib << 10), "--depth", str(depth), "--ops", str(ops)],
                                target=target)
    small = ["rand", "--block", "4096", "--ops"]
    yield from cold_ram_row(setting, "3", "random 4 KiB, buffered, cold RAM", "op/s", [*small, "4096"], target=0.97)
    # No target: the kernel's passthrough costs a tenth of a microsecond a call, which no daemon can take back.
    yield from page_cache_row(setting, "3", "random 4 KiB, page cache", "op/s", [*small, "524288"])


def mapped(setting):
    tensors = "".join(f"{offset} {size}\n" for offset, size in setting.tensors)
    yield from cold_ram_row(setting, "4", "mmap, cold RAM, file order", "GB/s", ["mmap"], target=0.95)
    yield from cold_ram_row(setting, "4", "mmap, cold RAM, tensor order", "GB/s", ["mmap", "--ranges"], target=0.95,
                            stdin=tensors)
    yield from page_cache_row(setting, "4", "mmap, page cache, tensor order", "GB/s",
                              ["mmap", "--ranges", "--loops", "16"], target=0.95, stdin=tensors)
    for side in setting.from_origin:
        yield from mapped_while_downloading(setting, "4", f"mmap while downloading, {side.name}, {setting.way}", side)


def cold_contender(setting, side, label, arguments, expected_bytes, settle_first=False, **more):
    """A read of an object that the side doesn't hold; refused unless the origin sent it. settle_first: all of it is kept
    before the daemon's processor time is taken, so that none of what the read cost is left out."""
    mode, *options = arguments
    sent = {}

    def prepare():
        side.make_cold()
        sent["before"] = setting.origin.counters()["bytes"]

    def check():
        # The origin counts a request when it has ended: the reader may be done before.
        wait_until(f"the fetch by {side.name} (it held the object already?)",
                   lambda: setting.origin.counters()["bytes"] - sent["before"] >= expected_bytes)

    if settle_first:
        more["settle"] = side.settle
    return Contender(label, [setting.io, mode, side.path, *options], pid=side.pid, prepare=prepare, check=check,
                     rounds=rounds_of(side), optional=side.is_peer, **more)


@measured
def mapped_while_downloading(setting, number, work, side):
    """Against the eager read of the same side: the time of the lazy one is what a loader waits longer."""
    contenders = [cold_contender(setting, side, f"{side.name}, eager read", ["seq"], setting.size),
                  cold_contender(setting, side, side.name, ["mmap"], setting.size, target=None if side.is_peer else 1.1)]
    measure_in_turn(contenders, setting.rounds)
    return compare(number, work, "ms", contenders)


def curl_and_sides(setting, curl_arguments, io_arguments, expected_bytes, others=(), **more):
    """The bare client, others, and all that fetch from the origin; more: of those that are no peers."""
    curl = Contender("libcurl", [setting.curl, setting.origin.url, *curl_arguments, *setting.curl_options],
                     prepare=lambda: load_cache(setting.origin.object))
    contenders = [curl, *others] + [
        cold_contender(setting, side, side.name, io_arguments, expected_bytes, **({} if side.is_peer else more))
        for side in setting.from_origin]
    measure_in_turn(contenders, setting.rounds)
    return contenders


def disk_contender(setting):
    """Writes as many bytes as the object has, as the store does, into a file beside it."""
    path = os.path.join(os.path.dirname(setting.native.path), "filled")

    def remove():
        if os.path.exists(path):
            os.unlink(path)
        drop_caches()

    arguments = ["--length", str(setting.size), "--workers", str(DISK_WRITERS)]
    return Contender("disk", [setting.io, "fill", path, *arguments], prepare=remove, check=remove, rounds=DISK_ROUNDS)


@measured
def cold_row(setting, number, work, io_arguments):
    """Against the bare client, and against what bounds both: the link, of which it is told what it can carry, or, without
    one, the disk."""
    targets = cold_targets(setting.link)
    more = [] if setting.link else [disk_contender(setting)]
    contenders = curl_and_sides(setting, [str(setting.size)], io_arguments, setting.size, more, settle_first=True,
                                target=targets["libcurl"], cpu_target=2.0)
    rows = compare(number, work, "GB/s", contenders)
    if setting.link:
        full = Sample(setting.link.payload_bytes_per_s, 0, 1.0, 0.0, 0.0, None)
        bound = Contender("link", [], samples=[full] * len(contenders[0].samples))
        bounded = contenders
    else:
        bound, bounded = more[0], [c for c in contenders if c.label == "cachefs"]
    bounded = [replace(c, target=targets["link"] if c.label == "cachefs" else None, cpu_target=None) for c in bounded]
    # Of a bound, processor time says nothing.
    return rows + [{**row, "base_cpu_s_per_gb": None, "cpu_ratio": None}
                   for row in compare(number, work, "GB/s", [bound, *bounded])]


def cold_targets(link):
    if not link:
        return {"libcurl": 0.75, "link": None}  # client, daemon and server share the processors
    if link.loss_percent:
        return {"libcurl": 0.9, "link": None}
    if link.rtt_ms:
        return {"libcurl": None, "link": 0.95}
    return {"libcurl": 0.97, "link": None}


def cold_read(setting):
    # A daemon's buffers are given to it page by page, once, at its first reads; the question is what a read costs.
    for side in setting.from_origin:
        if not side.is_peer:
            side.make_cold()
            load_cache(side.path)
    for readers, arguments in ((1, ["seq"]), (4, ["parallel", "--workers", "4"])):
        yield from cold_row(setting, "5", f"cold, {readers} reader{'s' * (readers > 1)}, {setting.way}", arguments)


@measured
def cold_first_row(setting, number, work):
    contenders = curl_and_sides(setting, ["4096"], ["seq", "--length", "4096", "--block", "4096"], 4096,
                                target=1.10)
    return compare(number, work, "ms", contenders)


def cold_first(setting):
    yield from cold_first_row(setting, "6", f"cold, first 4 KiB, {setting.way}")


def many_openers(setting):
    for side in setting.from_origin:
        yield from openers_row(setting, "11", f"{OPENERS} openers of one cold object, {side.name}", side)


def settled_counters(origin):
    """When no more request ends: they are counted then, and the readers may be done before."""
    last = [None]

    def stands_still():
        time.sleep(0.2)
        now = origin.counters()
        last[0], before = now, last[0]
        return now == before
    wait_until("the end of the requests", stands_still)
    return last[0]


@measured
def openers_row(setting, number, work, side):
    ratios, gets, walls, peak = [], [], [], 0
    for _ in range(1 if side.is_peer else min(OPENER_ROUNDS, setting.rounds)):
        sent = {}

        def prepare(sent=sent):
            side.make_cold()
            sent.update(setting.origin.counters())

        contender = Contender(side.name, [setting.io, "openers", side.path, "--workers", str(OPENERS)], pid=side.pid,
                              prepare=prepare)
        measure_in_turn([contender], 1)
        now = settled_counters(setting.origin)
        ratios.append((now["bytes"] - sent["bytes"]) / setting.size)
        gets.append(now["get"] - sent["get"])
        walls.append(contender.samples[0].wall_s)
        peak = max(peak, contender.peak_bytes)
    worst, target = max(ratios), None if side.is_peer else 1.01
    return [{"number": number, "work": work, "unit": "origin bytes", "side": side.name, "base": "object size",
             "rounds": len(ratios), "median": worst * setting.size, "base_median": setting.size, "ratio": worst,
             "gets": max(gets), "daemon_peak_rss_bytes": peak, "target": target,
             "verdict": None if target is None else "met" if worst <= target else "missed",
             "values": ratios, "wall_s": walls}]


@dataclass
class Benchmark:
    number: str
    name: str
    about: str
    rows: object  # called with the setting; yields rows
    needs_warm: bool


BENCHMARKS = [
    Benchmark("1", "sequential", "warm sequential read from the page cache", warm_sequential, True),
    Benchmark("2", "disk", "warm sequential read from the disk, buffered and O_DIRECT", warm_disk, True),
    Benchmark("3", "random", "random reads of 4 KiB and 128 KiB", random_reads, True),
    Benchmark("4", "mmap", "reads through a mapping, warm and while the object arrives", mapped, True),
    Benchmark("5", "cold", "cold read against bare libcurl", cold_read, False),
    Benchmark("6", "first", "the first 4 KiB of a cold object", cold_first, False),
    Benchmark("11", "openers", f"{OPENERS} processes open one cold object at once", many_openers, False),
    Benchmark("14", "killed", "longest pause of a reader while the daemon is killed again and again", killed, False),
    Benchmark("15", "held", "warm reads, stat and ls while the origin holds 200 cold reads of the same volume", held, False),
    Benchmark("16", "list", "a cold directory of a million keys against a bare client", listing, False),
]


def benchmark_named(name) -> Optional[Benchmark]:
    return next((b for b in BENCHMARKS if name in (b.number, b.name)), None)


def run_benchmark(setting, benchmark):
    results = []
    try:
        for side in setting.sides if benchmark.needs_warm else ():
            setting.tell(f"{benchmark.number} warming {side.name}")
            side.make_warm()
        for row in benchmark.rows(setting):
            results.append(row)
    except Refused as why:
        results.append({"number": benchmark.number, "work": benchmark.name, "refused": str(why)})
    return results
