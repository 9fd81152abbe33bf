"""The daemon under test: a store, a control socket and mountpoints of its own below one directory."""

import json
import os
import signal
import subprocess
from pathlib import Path

from lib import mounts, process, wait

REPO = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("CACHEFS_PROGRAM", REPO / "build" / "prefix" / "bin" / "cachefs"))
COMMAND_TIMEOUT_S = 60
# A run that silently went without these would test another product.
NEEDED_FEATURES = ("passthrough", "io_uring")


class CommandError(AssertionError):
    """A command of cachefs failed; the message holds what it said."""

    def __init__(self, argv, result, log):
        self.status = result.returncode
        self.stderr = result.stderr
        super().__init__(f"{' '.join(map(str, argv))}: exit status {result.returncode}\n{result.stderr}\n"
                         f"--- the daemon's log ends with\n{log}")


class Cache:
    """close() leaves nothing behind: no mount, no process, whatever the test did to them.

    needed: features without which mount() fails; a test of a fallback passes fewer."""

    def __init__(self, directory, size=None, store=None, env=None, needed=NEEDED_FEATURES):
        self.directory = Path(directory)
        self.store = Path(store) if store else self.directory / "store"
        self.control = self.directory / "control.sock"
        self.log = self.directory / "cachefs.log"  # where a daemon that `mount` starts writes, too
        self.needed = needed
        self.size = size
        self.mountpoints = []
        self._serve = None  # the daemon when start() started it
        self.directory.mkdir(parents=True, exist_ok=True)
        self.store.mkdir(parents=True, exist_ok=True)
        self.log.touch()
        self.env = process.environment(
            CACHEFS_STORE=self.store, CACHEFS_CONTROL=self.control, HOME=self.directory, **(env or {}))
        if size is not None:
            self.env["CACHEFS_SIZE"] = str(size)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # Commands

    def run(self, *argv, check=True, timeout_s=COMMAND_TIMEOUT_S):
        """Runs `cachefs ARGV…`; its standard error also goes into the log."""
        argv = [PROGRAM, *map(str, argv)]
        with open(self.directory / "command.err", "w+") as err:
            # A daemon that the command starts keeps these open, so they are files: a pipe would never end.
            with open(self.directory / "command.out", "w+") as out:
                result = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=self.env,
                                        timeout=timeout_s, check=False)
                out.seek(0)
                result.stdout = out.read()
            err.seek(0)
            result.stderr = err.read()
        if check and result.returncode != 0:
            raise CommandError(argv, result, self.log_end())
        return result

    def status(self, *paths):
        return json.loads(self.run("status", "--json", *paths).stdout)

    def counters(self):
        return self.status()["counters"]

    def volume(self, mountpoint):
        """The volume's part of the status."""
        path = os.path.realpath(mountpoint)
        return next(v for v in self.status()["volumes"] if v["mountpoint"] == path)

    def wait_warm(self, path, timeout_s=30.0):
        """Returns when the file is kept whole and its next open can be passed through."""
        try:
            wait.until(lambda: self.status(path)["warm"], timeout_s, f"{path} to be warm")
        except TimeoutError as e:
            raise AssertionError(f"{e}: {self.status(path)} {self.status()}\n{self.log_end()}") from None

    def log_end(self, lines=40):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    # The daemon

    def start(self, *argv):
        """Starts the daemon as `cachefs serve`, its log in self.log; without this the first mount() starts it."""
        size = [] if self.size is None else ["--size", self.size]
        self._serve = process.start(
            [PROGRAM, "serve", "--store", self.store, "--control", self.control, *size, *argv], self.log, self.env)
        wait.until(self._answers, 30, "the daemon's answer")
        return self

    def _answers(self):
        if self._serve.poll() is not None:
            raise AssertionError(f"the daemon ended with {self._serve.returncode}:\n{self.log_end()}")
        return self.control.exists() and self.run("status", "--json", check=False).returncode == 0

    def pid(self):
        return self.status()["daemon"]["pid"]

    def keeper(self):
        """The keeper's part of the status; None when the daemon was started without one."""
        return self.status()["daemon"]["keeper"]

    def kill_daemon(self, number=signal.SIGKILL):
        """Sends the daemon alone a signal; returns the pid of the one that its keeper starts."""
        pid = self.pid()
        os.kill(pid, number)
        return self.wait_other_daemon(pid)

    def wait_other_daemon(self, pid, timeout_s=30.0):
        def other():
            result = self.run("status", "--json", check=False)
            now = json.loads(result.stdout)["daemon"]["pid"] if result.returncode == 0 else pid
            return now if now != pid else None
        return wait.until(other, timeout_s, "the next daemon")

    def kill(self, number=signal.SIGKILL):
        """Sends the daemon a signal, with SIGKILL its keeper too; returns when the process is gone."""
        daemon = self.status()["daemon"]
        pid = daemon["pid"]
        if daemon["keeper"] and number == signal.SIGKILL:
            os.kill(daemon["keeper"]["pid"], number)
        os.kill(pid, number)
        if self._serve and self._serve.pid == pid:
            self._serve.wait(30)
            self._serve = None
        wait.until(lambda: not process.alive(pid), 30, "the daemon's end")

    def rss_peak_bytes(self):
        with open(f"/proc/{self.pid()}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) << 10 for line in f if line.startswith("VmHWM:"))

    # Mounts

    def mount(self, source, *options, name="m"):
        """Mounts source on a directory of that name; returns its path."""
        path = self.directory / "mnt" / name
        path.mkdir(parents=True, exist_ok=True)
        more = ["-o", ",".join(options)] if options else []
        self.run("mount", *more, source, path)
        self.mountpoints.append(path)
        self.check_features()
        return path

    def mount_origin(self, origin, *options, name="m"):
        self.env.update(origin.env)
        return self.mount(origin.source, *origin.options, *options, name=name)

    def umount(self, path, *argv):
        self.run("umount", *argv, path)
        self.mountpoints.remove(path)

    def check_features(self):
        features = self.status()["daemon"]["features"]
        missing = [name for name in self.needed if features.get(name) is not True]
        assert not missing, f"the daemon runs without {', '.join(missing)}: {features}"

    def processes(self):
        """Our live processes that work on this store: the daemon and what it started."""
        mark = f"CACHEFS_CONTROL={self.control}".encode()
        found = []
        for pid in process.ours():
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    if mark in f.read().split(b"\0"):
                        found.append(pid)
            except OSError:
                pass
        return found

    def close(self):
        try:
            for path in reversed(self.mountpoints):
                self.run("umount", "--no-drain", path, check=False)
            for pid in self.processes():
                os.kill(pid, signal.SIGTERM)
            if self._serve:
                process.stop(self._serve)
            wait.until(lambda: not self.processes(), 10, "the daemon's end")
        except (TimeoutError, ProcessLookupError, subprocess.TimeoutExpired):
            pass  # what is left is ended below
        finally:
            mounts.clear(self.directory)
            process.kill(self.processes())
            self.mountpoints.clear()
            self._serve = None
