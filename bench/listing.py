"""Benchmark 16: a directory of a million keys, against a bare client that asks the same server for the same pages."""
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request

import sides
from measure import Refused, process_cpu_s, process_peak_bytes, reset_process_peak

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lister.py")
ROUNDS = 3
TARGET = 1.1
# Keys, and how long the server works for a page of 1,000: none at all, and as much as a fast object store.
CASES = ((1000000, 0), (200000, 20))


class Lister:
    def __init__(self, stack, keys, delay_ms):
        process = subprocess.Popen([sys.executable, PROGRAM, "serve", str(keys), str(delay_ms)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        stack.callback(sides.end_process, process)
        word, _, port = process.stdout.readline().partition(" ")
        if word != "port":
            raise Refused("the server of listings did not start")
        self.endpoint = f"http://127.0.0.1:{int(port)}"

    def lists(self):
        with urllib.request.urlopen(f"{self.endpoint}/-/counters") as answer:
            return json.load(answer)["list"]


def bare_s(lister, keys):
    began = time.monotonic()
    done = subprocess.run([sys.executable, PROGRAM, "pages", f"{lister.endpoint}/bench"], capture_output=True,
                          text=True, check=True)
    if int(done.stdout) != keys:
        raise Refused(f"the bare client saw {done.stdout.strip()} of {keys} keys")
    return time.monotonic() - began


def listed_s(path, keys):
    """ls -f: until the first name, and until the last."""
    began = time.monotonic()
    with subprocess.Popen(["ls", "-f", path], stdout=subprocess.PIPE) as reader:
        names = reader.stdout.read(1).count(b"\n")
        first_s = time.monotonic() - began
        while piece := reader.stdout.read(1 << 20):
            names += piece.count(b"\n")
    if reader.returncode != 0 or names != keys + 2:
        raise Refused(f"ls showed {names - 2} of {keys} names, status {reader.returncode}")
    return first_s, time.monotonic() - began


def cold_listing(ours, lister, keys, number):
    """Of a bucket that was never listed. Seconds to the first name, to the last, and of the daemon's processors."""
    mountpoint = f"{ours.mountpoint}.list"
    os.makedirs(mountpoint, exist_ok=True)
    options = f"ro,endpoint={lister.endpoint},addressing=path,region=us-east-1"
    ours.command("mount", "-o", options, f"s3://bench{number}", mountpoint)
    try:
        before, cpu = lister.lists(), process_cpu_s(ours.pid())
        first_s, all_s = listed_s(os.path.join(mountpoint, "train"), keys)
        if lister.lists() - before != keys // 1000:
            raise Refused(f"{lister.lists() - before} pages were asked for")
        return first_s, all_s, process_cpu_s(ours.pid()) - cpu
    finally:
        ours.command("umount", mountpoint)


def listing(setting):
    ours = next((side for side in setting.sides if side.name == "cachefs"), None)
    if not ours:
        raise Refused("no cachefs among the sides")
    for keys, delay_ms in CASES:
        work = f"ls -f of {keys:,} cold keys, {delay_ms} ms a page"
        setting.tell(f"16 {work}")
        with contextlib.ExitStack() as stack:
            lister = Lister(stack, keys, delay_ms)
            bare, samples = [], []
            reset_process_peak(ours.pid())
            for number in range(min(ROUNDS, setting.rounds)):
                bare.append(bare_s(lister, keys))
                samples.append(cold_listing(ours, lister, keys, f"{delay_ms}-{number}"))
        walls = [all_s for _, all_s, _ in samples]
        pairs = [mine / theirs for mine, theirs in zip(walls, bare)]
        target = TARGET if delay_ms else None  # a server that works for nothing is no server
        yield {"number": "16", "work": work, "unit": "ms", "side": ours.name, "base": "bare client",
               "rounds": len(walls), "median": statistics.median(walls) * 1000,
               "base_median": statistics.median(bare) * 1000,
               "ratio": statistics.median(walls) / statistics.median(bare),
               "ratio_of_pairs": statistics.median(pairs), "target": target,
               "verdict": None if target is None else "met" if statistics.median(pairs) <= target else "missed",
               "first_name_ms": [first_s * 1000 for first_s, _, _ in samples],
               "daemon_cpu_s": [cpu for _, _, cpu in samples], "gets": keys // 1000,
               "daemon_peak_rss_bytes": process_peak_bytes(ours.pid()), "values": [w * 1000 for w in walls],
               "base_values": [b * 1000 for b in bare]}
