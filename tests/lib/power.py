"""A disk whose power can fail: an ext4 on a loop device on the file of a file system that records every write and flush.

Disk records while it is mounted. losses() plays what the record allows to be left of it: all that was written before
the last flush, and of what came after it, which the disk never promised to keep, any part: kept, dropped, or torn."""

import bisect
import contextlib
import mmap
import os
import struct
import subprocess
from pathlib import Path

from lib import mounts, process, wait
from lib.data import MIB
from lib.mount import REPO

RECORDER = REPO / "build" / "release" / "tests" / "power" / "recorder"
HEAD = struct.Struct("<c7xQQ")
SECTOR = 512
BLOCK = 4096


def _run(*argv):
    return subprocess.run([str(a) for a in argv], check=True, capture_output=True, text=True).stdout.strip()


@contextlib.contextmanager
def mounted(image, path):
    """The ext4 in the file image, on the directory path."""
    loop = _run("losetup", "--find", "--show", image)
    try:
        _run("mount", "-t", "ext4", loop, path)
        try:
            yield path
        finally:
            _run("umount", path)
    finally:
        _run("losetup", "--detach", loop)


class Disk:
    """with Disk(directory) as disk: disk.path is the mounted file system."""

    def __init__(self, directory, size=384 * MIB):
        self.directory = Path(directory)
        self.base = self.directory / "base.img"  # as it was before the first write
        self.image = self.directory / "disk.img"
        self.log = self.directory / "writes.log"
        self.path = self.directory / "mnt"
        self._fuse = self.directory / "fuse"
        for path in (self.path, self._fuse):
            path.mkdir(parents=True)
        with open(self.base, "wb") as f:
            f.truncate(size)
        _run("mkfs.ext4", "-q", "-F", "-b", BLOCK, "-E", "lazy_itable_init=0,lazy_journal_init=0", self.base)
        _copy(self.base, self.image)
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        with self._stack as stack:
            recorder = process.start([RECORDER, self._fuse, self.image, self.log], self.directory / "recorder.log")
            stack.callback(process.stop, recorder)
            wait.until(lambda: mounts.below(self._fuse), 30, "the recording file system")
            stack.enter_context(mounted(self._fuse / "disk", self.path))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    def sync(self):
        """Everything that was written up to now is kept."""
        _run("sync", "--file-system", self.path)


def _copy(source, target):
    _run("cp", "--sparse=always", source, target)


class Record:
    """What a disk recorded: entries in order, flushes among them."""

    def __init__(self, disk):
        self._file = open(disk.log, "rb")
        self._bytes = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        self.writes = []  # (offset on the disk, where in the log, size)
        self.flushes = [0]  # how many writes came before each
        at = 0
        while at < len(self._bytes):
            kind, offset, size = HEAD.unpack_from(self._bytes, at)
            at += HEAD.size
            if kind == b"F":
                self.flushes.append(len(self.writes))
            else:
                self.writes.append((offset, at, size))
            at += size

    def close(self):
        self._bytes.close()
        self._file.close()

    def flushed(self, n):
        """How many of the first n writes the disk had promised to keep."""
        return self.flushes[bisect.bisect_right(self.flushes, n) - 1]

    def apply(self, fd, index, sectors=None):
        """Write number index; of it only these sectors, when they are given."""
        offset, at, size = self.writes[index]
        if sectors is None:
            os.pwrite(fd, self._bytes[at:at + size], offset)
            return
        for sector in sectors:
            start = sector * SECTOR
            os.pwrite(fd, self._bytes[at + start:at + min(start + SECTOR, size)], offset + start)


def _lose(record, fd, first, end, dice):
    """Of the writes that no flush covers: each is kept, dropped or torn."""
    for index in range(first, end):
        fate = dice.choice(("kept", "kept", "dropped", "torn"))
        # Its superblock ext4 itself can't bear to see torn.
        if fate == "torn" and record.writes[index][0] < BLOCK:
            fate = "dropped"
        if fate == "kept":
            record.apply(fd, index)
        elif fate == "torn":
            n = -(-record.writes[index][2] // SECTOR)
            record.apply(fd, index, [sector for sector in range(n) if dice.random() < 0.5])


def losses(disk, dice, count):
    """Yields (number of the write at which the power failed, image of what was left), count times, earliest first.

    The disk is not mounted any more. Each image is gone with the next."""
    with contextlib.closing(Record(disk)) as record:
        points = sorted(dice.randrange(len(record.writes) + 1) for _ in range(count))
        kept, left, done = disk.directory / "kept.img", disk.directory / "left.img", 0
        _copy(disk.base, kept)
        for point in points:
            flushed = record.flushed(point)
            with open(kept, "r+b", buffering=0) as f:
                for index in range(done, flushed):
                    record.apply(f.fileno(), index)
            done = max(done, flushed)
            _copy(kept, left)
            with open(left, "r+b", buffering=0) as f:
                _lose(record, f.fileno(), flushed, point, dice)
            yield point, left
            left.unlink()
