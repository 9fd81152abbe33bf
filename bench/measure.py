"""How a figure comes about: contenders measured in turn, medians, ratios, CPU time and peak memory."""
import json
import os
import statistics
import subprocess
from dataclasses import dataclass, field
from typing import Callable, Optional

MOST_ROUNDS = 3  # times the rounds that were asked for
CALM = 0.005     # the standard error of a ratio at which it needs no more rounds
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Refused(Exception):
    """A row that would not say what it claims to say; the reason is printed in its place."""


def drop_caches():
    """Everything clean leaves the page cache; what others wrote is written back first."""
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as knob:
        knob.write("3")


def load_cache(path):
    """Reads a file so that it is in the page cache."""
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass


def process_cpu_s(pid):
    """User and system time of all threads of a process, ended ones included."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def process_peak_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    raise Refused(f"process {pid} has no VmHWM")


def reset_process_peak(pid):
    with open(f"/proc/{pid}/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


@dataclass
class Sample:
    bytes: int
    ops: int
    wall_s: float
    cpu_s: float         # of the reading program
    daemon_cpu_s: float  # of the daemon that served it
    sum: Optional[str]   # over the bytes read, where the program makes one


@dataclass
class Contender:
    """One side of a comparison: a program to run, again and again, and what must hold before and after."""
    label: str
    command: list
    stdin: str = ""
    pid: Callable[[], Optional[int]] = lambda: None  # of the daemon behind it, if there is one
    prepare: Callable[[], None] = lambda: None        # before each sample, not timed
    settle: Callable[[], None] = lambda: None         # returns when the daemon has done all that the sample made it do
    check: Callable[[], None] = lambda: None          # after each sample; raises Refused
    rounds: Optional[int] = None                      # takes part only in the first so many
    optional: bool = False                            # when it fails, the others go on without it
    failure: Optional[str] = None
    target: Optional[float] = None                    # of the ratio to the first contender
    cpu_target: Optional[float] = None                # highest ratio of CPU seconds for a GB
    samples: list = field(default_factory=list)
    peak_bytes: int = 0


def run_program(command, stdin):
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Refused(f"{os.path.basename(command[0])} failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


def take_sample(contender):
    contender.prepare()
    pid = contender.pid()
    if pid:
        reset_process_peak(pid)
    before = process_cpu_s(pid) if pid else 0
    out = run_program(contender.command, contender.stdin)
    contender.settle()
    after = process_cpu_s(pid) if pid else 0
    if pid:
        contender.peak_bytes = max(contender.peak_bytes, process_peak_bytes(pid))
    contender.check()
    return Sample(out["bytes"], out["ops"], out["wall_s"], out["user_s"] + out["sys_s"], after - before, out.get("sum"))


def measure_in_turn(contenders, rounds):
    """A B A B …; the bytes that two of them read must be the same. Noisy comparisons go on for up to three times as
    many rounds. What ends them is the noise alone, never the ratio."""
    for turn in range(MOST_ROUNDS * rounds):
        if turn >= rounds and settled(contenders):
            break
        for contender in contenders:
            if contender.failure or (contender.rounds is not None and turn >= contender.rounds):
                continue
            try:
                sample = take_sample(contender)
            except Refused as why:
                if not contender.optional:
                    raise
                contender.failure = str(why)
                continue
            sums = {s.sum for c in contenders for s in c.samples} | {sample.sum}
            if len(sums - {None}) > 1:
                raise Refused(f"{contender.label} read other bytes than {contenders[0].label}")
            contender.samples.append(sample)


def settled(contenders):
    if contenders[0].failure:
        return True
    base = [s.wall_s for s in contenders[0].samples]
    errors = [error_of_median([s.wall_s / b for s, b in zip(c.samples, base)]) for c in contenders[1:] if c.rounds is None]
    return all(error is None or error <= CALM for error in errors)


# Value of a sample by unit, and whether more of it is better.
UNITS = {
    "GB/s": (lambda s: s.bytes / s.wall_s / 1e9, True),
    "op/s": (lambda s: s.ops / s.wall_s, True),
    "ms": (lambda s: s.wall_s * 1e3, False),
}


def cpu_per_gb(samples, of):
    read = sum(s.bytes for s in samples)
    return sum(of(s) for s in samples) / (read / 1e9)


def compare(number, work, unit, contenders):
    """A row for each contender, set against the first one."""
    value, more_is_better = UNITS[unit]
    base = contenders[0]
    if base.failure:
        raise Refused(base.failure)
    base_values = [value(s) for s in base.samples]
    base_cpu = cpu_per_gb(base.samples, lambda s: s.cpu_s + s.daemon_cpu_s)
    rows = []
    for contender in contenders[1:]:
        if contender.failure:
            rows.append({"number": number, "work": f"{work}, {contender.label}", "refused": contender.failure})
            continue
        values = [value(s) for s in contender.samples]
        pairs = [mine / theirs for mine, theirs in zip(values, base_values)]
        row = {
            "number": number, "work": work, "unit": unit, "side": contender.label, "base": base.label,
            "rounds": len(values), "bytes": contender.samples[0].bytes,
            "median": statistics.median(values), "base_median": statistics.median(base_values[:len(values)]),
            "ratio_of_pairs": statistics.median(pairs), "error": error_of_median(pairs),
            "reader_cpu_s_per_gb": cpu_per_gb(contender.samples, lambda s: s.cpu_s),
            "daemon_cpu_s_per_gb": cpu_per_gb(contender.samples, lambda s: s.daemon_cpu_s),
            "base_cpu_s_per_gb": base_cpu,
            "daemon_peak_rss_bytes": contender.peak_bytes or None,
            "target": contender.target, "cpu_target": contender.cpu_target,
            "values": values, "base_values": base_values,
        }
        row["ratio"] = row["median"] / row["base_median"]
        cpu = row["reader_cpu_s_per_gb"] + row["daemon_cpu_s_per_gb"]
        row["cpu_ratio"] = cpu / base_cpu if base_cpu else None
        row["verdict"] = verdict(row, more_is_better)
        rows.append(row)
    return rows


def error_of_median(pairs):
    """The standard error of the pairwise ratios' median, from their quartiles, so that outliers don't count."""
    if len(pairs) < 3:
        return None
    low, _, high = statistics.quantiles(pairs, n=4, method="inclusive")
    return 1.2533 * (high - low) / 1.349 / len(pairs) ** 0.5


def verdict(row, more_is_better):
    """"met", "missed", or "noise" where the ratio misses by less than twice its error."""
    if row["target"] is None:
        return None
    if row["cpu_target"] and row["cpu_ratio"] and row["cpu_ratio"] > row["cpu_target"]:
        return "missed: CPU"
    missing = row["target"] - row["ratio"] if more_is_better else row["ratio"] - row["target"]
    if missing <= 0:
        return "met"
    return "noise" if row["error"] and missing <= 2 * row["error"] else "missed"
