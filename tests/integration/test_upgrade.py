"""An upgrade that fails leaves the old version serving, and says why; reads in flight go on either way."""

import os
import shutil
import subprocess

import pytest

from lib import child, data, reads, wait
from lib.data import MIB
from lib.mount import PROGRAM
from lib.origins import FaultyOrigin

SOURCE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "lib", "impostor.c")


@pytest.fixture
def impostor(workdir):
    """impostor(name): a binary that fails as impostor.c says."""
    def make(name):
        subprocess.run(["cc", f'-DREAL="{PROGRAM}"', SOURCE, "-o", workdir / name], check=True)
        return workdir / name
    return make


def upgrade(cache, binary):
    return subprocess.run([PROGRAM, "upgrade", "--binary", binary], env=cache.env, capture_output=True, text=True,
                          timeout=100, check=False)


class ReadInFlight:
    """A read of a cold object that waits for its origin until end()."""

    def __init__(self, cache, faulty):
        content = data.make("flight", 3 * MIB)
        self._wanted = data.digest(content)
        faulty.put("flight", content)
        self._rule = faulty.rule(op="get", stall_at=0)
        self.mounted = cache.mount_origin(FaultyOrigin(faulty))
        self._child = child.Child(reads.sha256, self.mounted / "flight")
        self._rule.wait_hits(1)

    def end(self):
        assert self._child.running()
        self._rule.remove()
        assert self._child.result() == self._wanted


def test_reads_in_flight_go_on(cache, faulty, workdir):
    flight = ReadInFlight(cache, faulty)
    pid, keeper = cache.pid(), cache.keeper()["pid"]
    new = shutil.copy(PROGRAM, workdir / "new")
    result = upgrade(cache, new)
    assert result.returncode == 0, result.stderr
    assert not os.path.exists(f"/proc/{pid}") and cache.keeper()["pid"] == keeper
    assert os.readlink(f"/proc/{cache.pid()}/exe") == str(new)
    flight.end()


@pytest.mark.parametrize("how,reason", [
    ("crashes", "the new daemon was killed by signal"),
    ("silent", "the new daemon did not start within"),
    ("hangs", "check did not end within"),
])
def test_a_failing_one_changes_nothing(cache, faulty, impostor, how, reason):
    flight = ReadInFlight(cache, faulty)
    before = cache.status()["daemon"]
    result = upgrade(cache, impostor(how))
    assert result.returncode == 1 and reason in result.stderr, result.stderr
    after = cache.status()["daemon"]
    assert (after["pid"], after["keeper"]) == (before["pid"], before["keeper"])
    flight.end()
    assert upgrade(cache, PROGRAM).returncode == 0


def test_one_that_cannot_read_the_store_is_refused(cache, faulty, workdir):
    """As if the store were of a version that the new one doesn't know."""
    flight = ReadInFlight(cache, faulty)
    pid = cache.pid()
    (cache.store / "FORMAT").write_text("cachefs-store 2\n")
    result = upgrade(cache, PROGRAM)
    assert result.returncode == 1 and "FORMAT" in result.stderr or "format" in result.stderr, result.stderr
    assert cache.pid() == pid
    (cache.store / "FORMAT").write_text("cachefs-store 1\n")
    flight.end()


def test_the_old_one_dies_meanwhile(cache, faulty, impostor):
    """An upgrade that waits for its check when the daemon is killed: that one is restarted, and the command fails."""
    flight = ReadInFlight(cache, faulty)
    pid = cache.pid()
    command = subprocess.Popen([PROGRAM, "upgrade", "--binary", impostor("hangs")], env=cache.env,
                               stderr=subprocess.PIPE, text=True)
    wait.until(lambda: "--check" in str(subprocess.run(["ps", "--ppid", str(cache.keeper()["pid"]), "-o", "args"],
                                                       capture_output=True, text=True, check=False).stdout),
               30, "the check")
    os.kill(pid, 9)
    _, said = command.communicate(timeout=60)
    assert command.returncode == 1 and "died meanwhile" in said, said
    cache.wait_other_daemon(pid)
    flight.end()
