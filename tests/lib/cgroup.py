"""A memory cgroup of the tests' own, on machines with the first version of cgroups and with the second."""

import os
import uuid
from pathlib import Path

V1 = Path("/sys/fs/cgroup/memory")
V2 = Path("/sys/fs/cgroup")


class MemoryCgroup:
    """Limits the processes that enter() names, and what they start from then on."""

    def __init__(self, limit_bytes):
        self._first = (V1 / "cgroup.procs").exists()
        self._root = V1 if self._first else V2
        self.path = self._root / f"cachefs-test-{uuid.uuid4().hex}"
        if not self._first:
            (self._root / "cgroup.subtree_control").write_text("+memory")
        self.path.mkdir()
        self.limit(limit_bytes)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in self.pids():
            self.leave(pid)
        os.rmdir(self.path)

    def limit(self, limit_bytes):
        name = "memory.limit_in_bytes" if self._first else "memory.max"
        (self.path / name).write_text(str(limit_bytes))

    def enter(self, pid):
        (self.path / "cgroup.procs").write_text(str(pid))

    def leave(self, pid):
        (self._root / "cgroup.procs").write_text(str(pid))

    def pids(self):
        return [int(line) for line in (self.path / "cgroup.procs").read_text().split()]

    def kills(self):
        """How often the kernel has killed for want of memory."""
        name = "memory.oom_control" if self._first else "memory.events"
        words = dict(line.split() for line in (self.path / name).read_text().splitlines())
        return int(words["oom_kill"])
