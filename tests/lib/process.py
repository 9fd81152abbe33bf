"""Processes that the tests start. Each carries a mark in its environment that its children inherit, so that
whatever is left of them is found, even when it made itself a daemon."""

import os
import signal
import subprocess
import uuid

from lib import wait

MARK = "CACHEFS_TEST_RUN"
RUN = uuid.uuid4().hex


def environment(**more):
    """The environment for a process of ours: without the user's settings of AWS and Hugging Face, with the mark."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "CACHEFS_", "HF_", "HUGGING"))}
    env.pop("XDG_CACHE_HOME", None)
    env[MARK] = RUN
    env["AWS_EC2_METADATA_DISABLED"] = "true"
    env.update({k: str(v) for k, v in more.items()})
    return env


def start(argv, log, env=None, cwd=None):
    """Starts argv in a session of its own, its output appended to the file log."""
    with open(log, "ab") as out:
        return subprocess.Popen(
            [str(a) for a in argv],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=env or environment(),
            cwd=cwd,
            start_new_session=True,
        )


def stop(process, timeout_s=10.0):
    """SIGTERM, then after timeout_s SIGKILL; returns the exit status."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return process.returncode


def alive(pid):
    """Whether the process exists and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            return f.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def ours():
    """{pid: command line} of every live process with this run's mark, except this one."""
    mark = f"{MARK}={RUN}".encode()
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as f:
                if mark not in f.read().split(b"\0"):
                    continue
            with open(f"/proc/{name}/cmdline", "rb") as f:
                line = f.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if alive(int(name)):
            found[int(name)] = line
    return found


def kill(pids):
    """SIGKILL to pids that ours() named; returns when they are gone."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for pid in pids:
        wait.until(lambda pid=pid: not alive(pid), what=f"the end of process {pid}")
