#!/usr/bin/python3
"""Measures cachefs against the native file and the bare origin, and prints ratios. See docs/BENCHMARKS.md."""
import argparse
import contextlib
import json
import os
import platform
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

import rows
import sides
from link import CONGESTION, Link
from measure import Refused

REPO = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.append(os.path.join(REPO, "tests"))
from lib import certificates  # noqa: E402
BUILD = os.path.join(REPO, "build", "bench")
BUCKET, KEY = "bench", "model.safetensors"


def stop(text):
    sys.exit(f"bench/run.py: {text}")


def misused(text):
    print(f"bench/run.py: {text}", file=sys.stderr)
    sys.exit(2)


def parse_arguments():
    names = "\n".join(f"  {b.number:>3} {b.name:<11} {b.about}" for b in rows.BENCHMARKS)
    parser = argparse.ArgumentParser(
        prog="bench/run.py", formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__,
        epilog=f"benchmarks:\n{names}\n\nexample: bench/run.py 1 2 --peers --json figures.json")
    parser.add_argument("names", nargs="*", metavar="NAME", help="number or name; all when none is given")
    parser.add_argument("--json", metavar="FILE", help="also write every sample to FILE")
    parser.add_argument("--rounds", type=int, default=7, help="A B A B …, so often (7)")
    parser.add_argument("--size", default="1G", help="of the object (1G)")
    parser.add_argument("--peers", action="store_true", help="also measure rclone and s3fs, where installed")
    parser.add_argument("--null", action="store_true", help="measure a second plain file in place of cachefs: the noise")
    parser.add_argument("--cachefs", metavar="PROGRAM", default=os.path.join(REPO, "build", "prefix", "bin", "cachefs"))
    parser.add_argument("--link", metavar="MBIT", type=int, help="put the origin behind a link of that rate (no limit)")
    parser.add_argument("--rtt", metavar="MS", type=float, default=0, help="of the link: the time of a round trip (0)")
    parser.add_argument("--loss", metavar="PERCENT", type=float, default=0, help="of the link: packets lost (0)")
    parser.add_argument("--tls", action="store_true", help="the origin speaks TLS")
    parser.add_argument("--connections", metavar="N", type=int,
                        help="of the bare client and, at most, of cachefs (16, and cachefs' own default)")
    parser.add_argument("--dir", metavar="DIR", default="/var/tmp", help="where to measure: its file system (/var/tmp)")
    options = parser.parse_args()
    options.size = parse_size(options.size)
    unknown = [name for name in options.names if not rows.benchmark_named(name)]
    if unknown:
        misused(f"no benchmark is called {unknown[0]}; see --help")
    if options.link is not None and options.link < 1:
        misused(f"--link {options.link}: give at least 1, as in 1000 or 2500")
    if not options.link and (options.rtt or options.loss):
        misused("--rtt and --loss are of a link: give its rate with --link")
    if not 0 <= options.rtt <= 10000 or not 0 <= options.loss <= 50:
        misused("--rtt is from 0 to 10000 ms, --loss from 0 to 50 %")
    if options.connections is not None and not 1 <= options.connections <= 256:
        misused(f"--connections {options.connections}: give 1 to 256")
    if options.rounds < 1:
        misused(f"--rounds {options.rounds}: give at least 1")
    return options


def parse_size(text):
    match = re.fullmatch(r"(\d+)([KMG]?)(?:i?B)?", text)
    size = int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]] if match else 0
    if size < 64 << 20:
        misused(f"--size {text}: give at least 64M, as in 512M or 1G")
    return size


def check_machine(options):
    if os.geteuid() != 0:
        stop("needs root: it mounts, and drops the page cache")
    if not options.null and not os.access(options.cachefs, os.X_OK):
        stop(f"{options.cachefs} is not there: run scripts/build.sh, or name one with --cachefs")
    copies = 6 if options.peers else 4
    free = shutil.disk_usage(options.dir).free
    if free < (copies + 1) * options.size:
        stop(f"{options.dir} has {free >> 20} MiB free, {(copies + 1) * options.size >> 20} are needed: give --dir or --size")


def build_programs():
    if not os.path.exists(os.path.join(BUILD, "build.ninja")):
        run_quiet(["meson", "setup", "--buildtype=release", "-Dbench=true", "-Dtests=false", BUILD, REPO])
    names = [f"bench/cachefs-bench-{name}" for name in ("io", "curl", "delay")]
    run_quiet(["ninja", "-C", BUILD, *names])
    return [os.path.join(BUILD, name) for name in names]


def run_quiet(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        stop(f"{command[0]} failed:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
    return done.stdout


def tensor_sizes(total):
    """As a transformer's: a few large matrices and a small norm in every layer, until the file is full."""
    layer = [8 << 20, 2 << 20, 2 << 20, 8 << 20, 22 << 20, 22 << 20, 22 << 20, 8192]
    number = 0
    while total > 0:
        size = min(layer[number % len(layer)], total)
        yield f"model.layers.{number // len(layer)}.tensor{number % len(layer)}.weight", size
        total -= size
        number += 1


def make_model(path, total):
    """A valid safetensors file with random bytes. Returns its tensors' places, in a shuffled order: as a loader
    takes them that asks for them by name."""
    header, at = {}, 0
    for name, size in tensor_sizes(total):
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, size in tensor_sizes(total):
            file.write(os.urandom(size))
    start = 8 + len(text)
    places = [(start + entry["data_offsets"][0], entry["shape"][0]) for entry in header.values()]
    random.Random(1).shuffle(places)
    return places


def libfuse_version():
    """The one that the build found: of its own subproject, else the system's."""
    info = json.loads(run_quiet(["meson", "introspect", BUILD, "--projectinfo"]))
    for project in info["subprojects"]:
        if project["name"] == "libfuse":
            return f"{project['version']} (static)"
    return run_quiet(["pkg-config", "--modversion", "fuse3"]).strip()


def first_line(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).splitlines()[0].strip()


def file_system_of(path):
    """Type and device from mountinfo, of the longest mountpoint above path."""
    best = ("", "unknown", "unknown")
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            point = left.split(" ")[4]
            if (path + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(best[0]):
                best = (point, *right.split(" ")[:2])
    return f"{best[1]} on {best[2]}"


def describe(options, setting):
    with open("/proc/meminfo", encoding="ascii") as file:
        memory = int(file.readline().split()[1]) >> 10
    facts = {"kernel": platform.release(), "cpus": os.cpu_count(), "memory_mib": memory,
             "file_system": file_system_of(os.path.realpath(options.dir)), "libfuse": libfuse_version(),
             "size_bytes": setting.size, "rounds": options.rounds, "native_extents": setting.native.extents,
             "origin": f"nginx, {'TLS' if options.tls else 'plain'}",
             "link": f"{setting.link}, {CONGESTION}" if setting.link else "loopback, unshaped",
             "connections": options.connections or "16 of libcurl, cachefs' default",
             "load_at_start": os.getloadavg()[0]}
    for side in setting.sides:
        if side.name == "cachefs":
            facts["cachefs"] = first_line([options.cachefs, "--version"])
        elif side.is_peer:
            facts[side.name] = first_line([side.name, "--version"])
    return facts


def add_sides(options, stack, directory, origin):
    folder = lambda name: os.path.join(directory, name)
    if options.null:
        found = [sides.Null(stack, folder("null"), origin)]
    else:
        found = [sides.Cachefs(stack, folder("cachefs"), origin, options.cachefs, connections=options.connections)]
    for name, peer in sides.PEERS.items():
        if options.peers and shutil.which(name):
            found.append(peer(stack, folder(name), origin))
        elif options.peers:
            tell(f"{name} is not installed: left out")
    return found


def tell(line):
    print(f"  {line}", file=sys.stderr, flush=True)


def prepare(options, stack, directory):
    io, curl, delay = build_programs()
    bucket = os.path.join(directory, "origin", BUCKET)
    os.makedirs(bucket)
    tell("making the object")
    tensors = make_model(os.path.join(bucket, KEY), options.size)
    link = Link(stack, options.link, options.rtt, options.loss, delay) if options.link else None
    address = link.address if link else sides.LOOPBACK
    tls = certificates.make(os.path.join(directory, "certificates"), [f"IP:{address}"]) if options.tls else None
    origin = sides.Origin(stack, os.path.join(directory, "origin"), BUCKET, KEY, link, tls)
    native = sides.Native(stack, os.path.join(directory, "native"), origin)
    found = add_sides(options, stack, directory, origin)
    return rows.Setting(io, curl, options.rounds, origin, native, found, tensors, tell, link, options.connections)


def run_all(setting, names):
    chosen = [b for b in rows.BENCHMARKS if not names or b.number in names or b.name in names]
    results = []
    for benchmark in chosen:
        try:
            results += rows.run_benchmark(setting, benchmark)
        except Refused as why:
            results.append({"number": benchmark.number, "work": benchmark.name, "refused": str(why)})
    return results


def number(value, form):
    return "" if value is None else format(value, form)


def cells(row):
    bound = "≤" if row["unit"] in ("ms", "origin bytes") else "≥"
    target = "" if row["target"] is None else f"{bound} {row['target']:.2f}"
    peak = row.get("daemon_peak_rss_bytes")
    # Of the few bytes that latencies are measured with, CPU time for a GB says nothing.
    row = row if row.get("bytes", 0) >= 1 << 20 else {**row, "base_cpu_s_per_gb": None, "cpu_ratio": None}
    cpu = f"{row['reader_cpu_s_per_gb']:.3f}+{row['daemon_cpu_s_per_gb']:.3f}" if row.get("cpu_ratio") else ""
    form = ",.0f" if row["unit"] in ("op/s", "origin bytes") else ",.2f" if row["median"] >= 0.2 else ".4f"
    return [row["number"], row["work"], row["side"], f"{row['median']:{form}} {row['unit']}",
            f"{row['base_median']:{form}} ({row['base']})", f"{row['ratio']:.3f}", number(row.get("ratio_of_pairs"), ".3f"),
            number(row.get("error"), ".3f"), target, row["verdict"] or "",
            cpu, number(row.get("base_cpu_s_per_gb"), ".3f"), number(row.get("cpu_ratio"), ".2f"),
            f"{peak / 2**20:.0f}" if peak else "", number(row.get("gets"), "d"), str(row["rounds"])]


def print_table(facts, results):
    for name, value in facts.items():
        print(f"{name}: {value}")
    print()
    table = [["#", "work", "side", "median", "against", "ratio", "pairs", "±", "target", "", "CPU s/GB", "base", "CPU ×",
              "RSS MiB", "GETs", "n"]]
    table += [cells(row) for row in results if "refused" not in row]
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    for line in table:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip())
    for row in results:
        if "refused" in row:
            print(f"{row['number']} {row['work']}: NOT MEASURED: {row['refused']}")


STOPPING = (signal.SIGINT, signal.SIGTERM)


def end_early(*_):
    """Once: what is cleaned up then is not to be stopped half-way."""
    for stopping in STOPPING:
        signal.signal(stopping, signal.SIG_IGN)
    sys.exit("bench/run.py: stopped")


def main():
    options = parse_arguments()
    check_machine(options)
    for stopping in STOPPING:
        signal.signal(stopping, end_early)
    with contextlib.ExitStack() as stack:
        directory = tempfile.mkdtemp(prefix="cachefs-bench-", dir=options.dir)
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        try:
            setting = prepare(options, stack, directory)
        except Refused as why:
            stop(str(why))
        facts = describe(options, setting)
        results = run_all(setting, options.names)
        if setting.link:
            facts["packets_lost_here"] = setting.link.dropped()
        facts["raw_file_extents"] = next((s.raw_extents() for s in setting.sides if s.name == "cachefs"), None)
    print_table(facts, results)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"environment": facts, "rows": results}, file, indent=1)
    return 1 if any("refused" in row for row in results) else 0


if __name__ == "__main__":
    sys.exit(main())
