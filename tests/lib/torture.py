"""A busy node: sixteen readers and more on two volumes, one of whose objects changes all the time. The test that has it
running does to the daemon what it is about; what() afterwards says how it was for the readers."""

import ctypes
import os
import threading

from lib import child, data, load, mounts, wait
from lib.data import MIB
from lib.origins import DirectoryOrigin, FaultyOrigin

CHANGING_BLOCKS = 1024
CHANGE_EVERY_S = 0.4
SMALL_DIRECTORIES, SMALL_FILES = 10, 20
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT = 1, 2, 4, 32


def make_tree(directory):
    origin = DirectoryOrigin(directory)
    for n in range(6):
        origin.put(f"warm/{n}", data.make(f"warm{n}", MIB + n * 900001))
    for n in range(12):
        origin.put(f"cold/{n}", data.make(f"cold{n}", MIB // 2 + n * 300007))
    for n in range(SMALL_DIRECTORIES):
        for k in range(SMALL_FILES):
            origin.put(f"small/{n}/{k}", data.make(f"small{n}.{k}", 100 + 37 * k))
    return origin


def forget_names(mountpoint):
    """Makes the kernel forget names and inodes of a mount that nobody uses: a remount does that and nothing else."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(None, os.fsencode(mountpoint), None, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, None) < 0:
        raise OSError(ctypes.get_errno(), "remount", str(mountpoint))


SOCKETS_MAX = 48  # connections= of the origin, control, keeper, and some room


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def files(pid):
    """Descriptors but sockets: connections to an origin are kept for a while, as many as connections= allows."""
    count = 0
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            count += not os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:")
        except FileNotFoundError:
            pass
    return count


class _Changer(threading.Thread):
    """Replaces the object by a new version again and again."""

    def __init__(self, origin):
        super().__init__(name="changer", daemon=True)
        self._origin, self._ended = origin, threading.Event()
        self.version = 1
        self._put()

    def _put(self):
        self._origin.put("changing", load.stamped(self.version, CHANGING_BLOCKS))

    def run(self):
        while not self._ended.wait(CHANGE_EVERY_S):
            self.version += 1
            self._put()

    def end(self):
        self._ended.set()
        self.join()


class Torture:
    """Mounts both volumes. start() has everything run; end() ends it and returns the longest pause and what ran."""

    def __init__(self, cache, faulty, workdir, *options):
        self.cache = cache
        self._workdir = workdir
        self._local = workdir / "origin"
        tree = make_tree(self._local)
        self._changer = _Changer(FaultyOrigin(faulty))
        self.shown = cache.mount_origin(tree, *options, name="tree")
        self.other = cache.mount_origin(FaultyOrigin(faulty), "ttl=1s", *options, name="other")
        self._flag = workdir / "going"
        self._children = {}
        self._rest = None

    def _run(self, function, *args):
        name = f"{function.__name__} {len(self._children)}"
        self._children[name] = child.Child(function, self._flag, *args)

    def rest_state(self):
        """What is in use when nobody uses the mounts."""
        for path in (self.shown, self.other):
            forget_names(path)
        volumes = [self.cache.volume(path) for path in (self.shown, self.other)]
        return {"nodes": [v["nodes"] for v in volumes], "handles": [v["handles"] for v in volumes],
                "parked": [v["parked"] for v in volumes], "keeper": descriptors(self.cache.keeper()["pid"])}

    def start(self):
        for path in (self.shown, self.other):  # so that directories are known as they will be afterwards
            for _ in os.walk(path):
                pass
        self._rest = self.rest_state()
        self._daemon_files = files(self.cache.pid())
        for path in (self.shown / "warm").iterdir():
            path.read_bytes()
            self.cache.wait_warm(path)
        self._flag.touch()
        self._changer.start()
        for function, count in ((load.whole, 3), (load.pieces, 4), (load.mapped, 4), (load.held, 2)):
            for n in range(count):
                self._run(function, self.shown, self._local, n)
        for n in range(3):
            self._run(load.versions, self.other / "changing", n)
        self._run(load.command, "find", self.shown, "-printf", r"%p %s %T@ %i\n")
        self._run(load.command, "ls", "-lR", self.shown)
        self._run(load.data_loader, self.shown, self._local)
        self._start_locks()

    def _start_locks(self):
        ready, owner = self._workdir / "locked", self._workdir / "owner"
        owner.write_bytes(bytes(8))
        self._run(load.hold_lock, self.shown / "warm" / "0", ready)
        wait.until(ready.exists, 60, "the first lock")
        for _ in range(2):
            self._run(load.wait_for_lock, self.shown / "warm" / "0")
            self._run(load.take_turns, self.shown / "warm" / "1", owner)

    def check_running(self):
        ended = [name for name, one in self._children.items() if not one.running()]
        for name in ended:
            raise AssertionError(f"{name} ended: {self._children[name].result()}\n{self.cache.log_end()}")

    def end(self):
        """The results by name, after the flag is gone and each has ended by itself."""
        self.check_running()
        self._flag.unlink()
        self._changer.end()
        results = {name: one.result() for name, one in self._children.items()}
        assert all(result["rounds"] > 0 for result in results.values()), results
        assert sum(r.get("versions", 0) for r in results.values()) > 3, results
        return results

    def stop(self):
        """Whatever happened: nothing of it runs any more."""
        self._flag.unlink(missing_ok=True)
        if self._changer.is_alive():
            self._changer.end()
        for path in (self.shown, self.other):
            for mount in mounts.below(path):
                if any(one.running() for one in self._children.values()):
                    mounts.abort(mount)
        for one in self._children.values():
            one.end()

    def check_nothing_leaked(self, timeout_s=150):
        """Lost FORGETs are found by a sweep each minute, which is the time that this may take."""
        def rested():
            state = self.rest_state()
            return state == self._rest
        try:
            wait.until(rested, timeout_s, "rest")
        except TimeoutError:
            raise AssertionError(f"{self.rest_state()} at rest, {self._rest} before") from None
        # Fills that a kill cut off before their first record take room until they are looked for. A backing id that
        # leaked keeps its file open: the lease for its eviction is refused then.
        self.cache.run("verify", "--all", check=False)
        self.cache.run("evict", self.shown, self.other)
        status = self.cache.status()
        assert self.cache.volume(self.shown)["cached_bytes"] == 0
        left = [path for path in (self.cache.store / "raw").rglob("*") if path.is_file()]
        assert len(left) == status["store"]["objects"] < self._changer.version
        assert all(path.stat().st_size == CHANGING_BLOCKS * load.BLOCK for path in left)  # older versions
        assert status["pool"]["in_use"] <= CHANGING_BLOCKS * load.BLOCK // MIB * len(left), status["pool"]
        # An object in memory has its file open twice, once for O_DIRECT.
        count, sockets = files(self.cache.pid()), descriptors(self.cache.pid()) - files(self.cache.pid())
        assert count <= self._daemon_files + 2 * len(left) + 4, (count, self._daemon_files, len(left))
        assert sockets <= SOCKETS_MAX
