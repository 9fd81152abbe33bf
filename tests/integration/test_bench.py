"""The benchmarks measure what they say, and leave the machine as it was. How fast anything is, is no matter here."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from lib import mounts, process
from lib.mount import PROGRAM, REPO

NOTHING = {"files": [], "mounts": [], "processes": {}}


def command(workdir, *argv):
    return [REPO / "bench" / "run.py", *argv, "--size", "64M", "--dir", workdir, "--cachefs", PROGRAM]


def left_behind(workdir):
    files = list(Path(workdir).glob("cachefs-bench-*"))
    return {"files": files, "mounts": mounts.below(workdir), "processes": process.ours()}


@pytest.fixture
def devices():
    """The network devices of this machine are the same afterwards."""
    before = os.listdir("/sys/class/net")
    yield before
    assert os.listdir("/sys/class/net") == before


@pytest.mark.timeout(240)  # the first run builds the timed programs
@pytest.mark.parametrize("way", [(), ("--tls", "--link", "1000", "--rtt", "4", "--loss", "1")], ids=["loopback", "link"])
def test_cold_rows(workdir, devices, way):
    figures = workdir / "figures.json"
    done = subprocess.run(command(workdir, "5", "6", "--rounds", "1", "--json", figures, *way), env=process.environment(), text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(figures.read_text())
    # Each row against libcurl; those of a whole object also against what bounds them.
    sides = [(row["number"], row["side"], row["base"]) for row in result["rows"]]
    if way:
        whole = [("5", "cachefs", "libcurl"), ("5", "libcurl", "link"), ("5", "cachefs", "link")]
    else:
        whole = [("5", "disk", "libcurl"), ("5", "cachefs", "libcurl"), ("5", "cachefs", "disk")]
    assert sides == [*whole, *whole, ("6", "cachefs", "libcurl")]
    if way:
        assert result["environment"]["link"] == "1000 Mbit/s, 4 ms, 1 % lost, cubic"
        assert result["environment"]["packets_lost_here"] > 0
        assert all(row["ratio"] <= 1 for row in result["rows"] if row["base"] == "link")
        # A round trip for the connection and two for TLS, before that of the request.
        first = result["rows"][-1]
        assert min(first["base_values"]) >= 4 * 4
        assert min(first["values"]) >= 4
    assert left_behind(workdir) == NOTHING


@pytest.mark.timeout(240)
@pytest.mark.parametrize("number, at", [(signal.SIGINT, "5 cold, 1 reader"), (signal.SIGTERM, "5 cold, 4 readers"),
                                        (signal.SIGTERM, "making the object")])
def test_stopped(workdir, devices, number, at):
    run = subprocess.Popen(command(workdir, "5", "--rounds", "2", "--tls", "--link", "1000", "--rtt", "4", "--loss", "0.1"),
                           env=process.environment(), text=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, start_new_session=True)
    with run:
        for line in run.stderr:
            if at in line:
                break
        else:
            raise AssertionError(f"it ended with {run.wait()}")
        # As a terminal does it: to everything that the run has started.
        (os.killpg if number == signal.SIGINT else os.kill)(run.pid, number)
        assert run.wait() == 1
    assert left_behind(workdir) == NOTHING
