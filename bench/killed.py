"""Benchmark 14: the daemon is killed again and again, and what its readers see of it is measured."""
import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import sides
from measure import Refused

LIMIT_MS = 2000
KILL_EVERY_S = 5
WARM = ("read", "pread", "mmap") * 4
COLD = ("read", "mmap") * 2
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pause.py")


def make_cold_objects(stack, origin):
    """Their names. They take longer to arrive than the daemon is being killed."""
    names = [f"{os.path.basename(origin.object)}.{number}" for number in range(len(COLD))]
    for name in names:
        link = os.path.join(os.path.dirname(origin.object), name)
        os.link(origin.object, link)
        stack.callback(os.unlink, link)
    return names


def start_readers(stack, kept, cold, flag):
    jobs = [([how], kept.path) for how in WARM]
    jobs += [(["--once", how], os.path.join(kept.mountpoint, name)) for how, name in zip(COLD, cold)]
    readers = []
    for options, path in jobs:
        command = [sys.executable, PROGRAM, *options, path, kept.origin.object, flag]
        readers.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        stack.callback(sides.end_process, readers[-1])
    return readers


def kill_daemon(kept):
    pid = kept.status()["daemon"]["pid"]
    os.kill(pid, signal.SIGKILL)

    def is_back():
        done = kept.run("status", "--json")
        return done.returncode == 0 and json.loads(done.stdout)["daemon"]["pid"] != pid
    sides.wait_until("the next daemon", is_back)


def ask(reader):
    out, err = reader.communicate()
    if reader.returncode != 0:
        return None, err.strip().splitlines()[-1]
    return json.loads(out)["longest_s"] * 1000, None


def killed(setting):
    ours = next((side for side in setting.sides if side.name == "cachefs"), None)
    if not ours:
        raise Refused("only cachefs is killed")
    kills = setting.rounds
    setting.tell(f"14 {kills} kills, one each {KILL_EVERY_S} s")
    with contextlib.ExitStack() as stack:
        cold = make_cold_objects(stack, setting.origin)
        directory = os.path.join(os.path.dirname(ours.store), "kept")
        kept = sides.Cachefs(stack, directory, setting.origin, ours.binary, "hold")
        kept.make_warm()
        flag = os.path.join(directory, "going")
        with open(flag, "x", encoding="ascii"):
            pass
        readers = start_readers(stack, kept, cold, flag)
        for _ in range(kills):
            time.sleep(KILL_EVERY_S)
            kill_daemon(kept)
        time.sleep(1)
        os.unlink(flag)
        answers = [ask(reader) for reader in readers]
    errors = [error for _, error in answers if error]
    if errors:
        setting.tell(f"14 {len(errors)} of {len(answers)} readers failed: {errors[0]}")
    pauses = [pause for pause, _ in answers if pause is not None]
    longest = max(pauses, default=float("inf"))
    return [{"number": "14", "work": f"{len(answers)} readers under SIGKILL, longest pause", "unit": "ms",
             "side": "cachefs", "base": "limit", "rounds": kills, "median": longest, "base_median": LIMIT_MS, "ratio": longest / LIMIT_MS,
             "target": 1.0, "verdict": "missed: errors" if errors else "met" if longest <= LIMIT_MS else "missed",
             "errors": errors, "values": pauses}]
