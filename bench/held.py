"""Benchmark 15: what the rest of a volume feels of 200 cold reads that the origin holds.

usage: held.py DIR   reads all files of DIR at once, each whole; an error is told, and the exit status is 1
"""
import concurrent.futures
import contextlib
import mmap
import os
import random
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

import sides
from measure import Refused, verdict

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests"))
from lib.faulty import Faulty  # pylint: disable=wrong-import-position

HELD = 200
COLD_BYTES = 4096
WARM_BYTES = 64 << 20
BLOCK_BYTES = 128 << 10
READS, NAMES, LISTS = 400, HELD, 100  # calls of a sample
TARGET = 1.10  # of medians


@dataclass
class HoldingOrigin:
    """The scripted origin, as a side wants to see its origin."""
    faulty: Faulty
    object: str  # a file as large as the warm object
    key: str = "dir/passed"
    ca = None

    @property
    def bucket(self):
        return self.faulty.bucket

    @property
    def endpoint(self):
        return self.faulty.endpoint


def timed(call, arguments):
    samples = []
    for argument in arguments:
        start = time.perf_counter()
        call(argument)
        samples.append((time.perf_counter() - start) * 1e3)
    return samples


class Volume:
    """A mount with a warm file that the kernel reads, one that the daemon reads, since it was opened while cold, and
    directories of cold files, one for each round."""

    def __init__(self, stack, setting, ours, rounds):
        directory = os.path.join(os.path.dirname(ours.store), "held")
        self.faulty = stack.enter_context(Faulty())
        content = os.urandom(WARM_BYTES)
        for name in ("passed", "through"):
            self.faulty.put(f"dir/{name}", content)
        for number in range(NAMES):
            self.faulty.put(f"names/{number}", b"x")
        for number in range(rounds * HELD):
            self.faulty.put(f"cold{number // HELD}/{number}", os.urandom(COLD_BYTES))
        self.side = sides.Cachefs(stack, directory, HoldingOrigin(self.faulty, setting.origin.object), ours.binary)
        self.mountpoint = self.side.mountpoint
        self.piece = stack.enter_context(mmap.mmap(-1, BLOCK_BYTES))
        self.through = self.open(stack, "through")
        os.preadv(self.through, [self.piece], 0)
        for name in ("passed", "through"):
            path = os.path.join(self.mountpoint, "dir", name)
            sides.load_cache(path)
            sides.wait_until(f"{name} becoming warm", lambda path=path: self.side.status(path)["warm"] is True)
        self.passed = self.open(stack, "passed")
        self.path_of_names = os.path.join(self.mountpoint, "names")
        if self.side.count_passthrough_opens() < 1:
            raise Refused("the file was opened without passthrough")

    def open(self, stack, name):
        file = os.open(os.path.join(self.mountpoint, "dir", name), os.O_RDONLY | os.O_DIRECT)
        stack.callback(os.close, file)
        return file

    def volume(self):
        return self.side.status()["volumes"][0]

    def measure(self):
        """Milliseconds of each call, by kind."""
        offsets = [random.randrange(WARM_BYTES // BLOCK_BYTES) * BLOCK_BYTES for _ in range(READS)]
        before = self.volume()["reads"]
        found = {"warm read, passthrough": timed(lambda at: os.preadv(self.passed, [self.piece], at), offsets)}
        passed = self.volume()["reads"]
        found["warm read, daemon"] = timed(lambda at: os.preadv(self.through, [self.piece], at), offsets)
        if passed != before or self.volume()["reads"] < passed + READS:
            raise Refused("reads did not go the ways that they were to go")
        sides.drop_caches()  # also what the kernel remembers of names
        names = [os.path.join(self.path_of_names, str(number)) for number in range(NAMES)]
        before = self.volume()["lookups"]
        found["stat"] = timed(os.stat, names)
        if self.volume()["lookups"] < before + NAMES:
            raise Refused("the kernel knew the names")
        found["ls"] = timed(os.listdir, [self.path_of_names] * LISTS)
        return found

    @contextlib.contextmanager
    def held_reads(self, number):
        """While this lasts, 200 reads of files that nobody has read wait for the origin."""
        directory = os.path.join(self.mountpoint, f"cold{number}")
        os.listdir(directory)
        rule = self.faulty.rule(op="get", key=lambda key: key.startswith("cold"), stall_at=-1)
        readers = subprocess.Popen([sys.executable, os.path.abspath(__file__), directory], stderr=subprocess.PIPE, text=True)
        try:
            sides.wait_until(f"{HELD} held reads", lambda: self.volume()["stalled"]["now"] >= HELD)
            yield
            if self.volume()["stalled"]["now"] < HELD:
                raise Refused("the held reads ended while it was measured")
        finally:
            rule.remove()
            _, errors = readers.communicate()
        if readers.returncode != 0:
            raise Refused(f"a held read failed: {errors.strip()}")


def percentile_99(values):
    return statistics.quantiles(values, n=100, method="inclusive")[98]


def row(kind, name, value, alone, held, target):
    """alone, held: the samples of each round."""
    one, other = ([call for samples in side for call in samples] for side in (alone, held))
    pairs = [value(mine) / value(theirs) for mine, theirs in zip(held, alone)]
    found = {"number": "15", "work": f"{kind}, {name}", "unit": "ms", "side": f"cachefs, {HELD} held", "base": "none held",
             "rounds": len(alone), "median": value(other), "base_median": value(one), "ratio": value(other) / value(one),
             "ratio_of_pairs": statistics.median(pairs), "error": None, "target": target, "cpu_target": None,
             "values": held, "base_values": alone}
    found["verdict"] = verdict(found, False)
    return found


def held(setting):
    ours = next((side for side in setting.sides if side.name == "cachefs"), None)
    if not ours:
        raise Refused("only cachefs's reads are held")
    setting.tell(f"15 {HELD} held reads, {setting.rounds} rounds")
    alone, beside = {}, {}
    with contextlib.ExitStack() as stack:
        volume = Volume(stack, setting, ours, setting.rounds)
        volume.measure()
        for number in range(setting.rounds):
            for kind, samples in volume.measure().items():
                alone.setdefault(kind, []).append(samples)
            with volume.held_reads(number):
                for kind, samples in volume.measure().items():
                    beside.setdefault(kind, []).append(samples)
    for kind in alone:
        yield row(kind, "median", statistics.median, alone[kind], beside[kind], TARGET)
        yield row(kind, "p99", percentile_99, alone[kind], beside[kind], None)


def read_whole(path):
    with open(path, "rb") as file:
        return len(file.read())


def main():
    paths = [entry.path for entry in os.scandir(sys.argv[1])]
    with concurrent.futures.ThreadPoolExecutor(len(paths)) as pool:
        if set(pool.map(read_whole, paths)) != {COLD_BYTES}:
            sys.exit("a read was short")


if __name__ == "__main__":
    main()
