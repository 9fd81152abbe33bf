"""The daemon is killed and replaced under everything that a node runs: nobody sees an error or a wrong byte."""

import os
import random
import shutil
import signal
import subprocess
import time

import pytest

from lib import process, wait
from lib.mount import PROGRAM
from lib.torture import Torture


LIFE_S = 2.2  # of a daemon; one that dies sooner is taken for one that can't live, and comes back later each time


@pytest.fixture
def torture(cache, faulty, workdir):
    torture = Torture(cache, faulty, workdir)
    yield torture
    torture.stop()


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        return [int(word) for word in f.read().split()]


def kill_while_taking_over(cache, keeper, pid):
    """Kills the daemon, and then its successor before that is ready."""
    os.kill(pid, signal.SIGKILL)
    after, = wait.until(lambda: [p for p in children_of(keeper) if p != pid and process.alive(p)], 30, "a successor")
    os.kill(after, signal.SIGKILL)
    return cache.wait_other_daemon(pid)


def report(results, record_property):
    pauses = {name: round(result["longest_s"], 2) for name, result in results.items() if "longest_s" in result}
    record_property("longest_pause_s", max(pauses.values()))
    print(f"longest pauses, in seconds: {pauses}")


@pytest.mark.timeout(1200)
def test_killed_under_load(cache, torture, rounds, record_property):
    dice = random.Random(3)
    keeper = cache.keeper()["pid"]
    torture.start()
    end = time.monotonic() + rounds(25, 600)
    kills = 0
    while time.monotonic() < end:
        time.sleep(rounds(LIFE_S, 5) * dice.uniform(1, 1.3))
        cache.run("evict", torture.shown / "cold", check=False)
        if dice.random() < 0.25:
            kill_while_taking_over(cache, keeper, cache.pid())
        else:
            cache.kill_daemon()
        kills += 1
        torture.check_running()
    report(torture.end(), record_property)
    assert cache.keeper()["pid"] == keeper and cache.keeper()["restarts"] >= kills
    torture.check_nothing_leaked()


@pytest.mark.timeout(1200)
def test_upgraded_under_load(cache, torture, workdir, rounds, record_property):
    """Daemon and keeper are replaced by another binary each time, with reads in flight."""
    binaries = [shutil.copy(PROGRAM, workdir / name) for name in ("cachefs-a", "cachefs-b")]
    keeper = cache.keeper()["pid"]
    torture.start()
    end = time.monotonic() + rounds(15, 600)
    upgrades = 0
    while time.monotonic() < end:
        binary = binaries[upgrades % 2]
        cache.run("evict", torture.shown / "cold", check=False)
        done = subprocess.run([binary, "upgrade"], env=cache.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{done.stderr}{cache.log_end()}"
        assert os.readlink(f"/proc/{cache.pid()}/exe") == os.readlink(f"/proc/{keeper}/exe") == str(binary)
        upgrades += 1
        torture.check_running()
        time.sleep(rounds(0.5, 5))  # some of a life in between
    report(torture.end(), record_property)
    assert cache.keeper() == {"pid": keeper, "alive": True, "restarts": 0, "last_exit": "hand-over"}
    torture.check_nothing_leaked()
