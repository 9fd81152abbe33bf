"""What runs on a mount while its daemon is killed and replaced. Each function is run by lib.child until the file flag
is gone; it raises at the first error or wrong byte, and returns what it did and the longest time that one call took."""

import errno
import fcntl
import mmap
import os
import random
import struct
import subprocess
import time
import zlib
from pathlib import Path

BLOCK = 4096
PIECE = 1 << 18
REST_S = 0.002  # between rounds, so that a machine of two processors has some left for the daemon


class Meter:
    def __init__(self, flag):
        self._flag = flag
        self.rounds, self.longest_s = 0, 0.0

    def going(self):
        time.sleep(REST_S)
        self.rounds += 1
        return os.path.exists(self._flag)

    def time(self, call, *args):
        start = time.monotonic()
        try:
            return call(*args)
        finally:
            self.longest_s = max(self.longest_s, time.monotonic() - start)

    def result(self, **more):
        return {"rounds": self.rounds, "longest_s": self.longest_s, **more}


def _files(local):
    return sorted(path.relative_to(local) for path in Path(local).rglob("*") if path.is_file())


def _pick(dice, names):
    """Any directory, then any file in it: there are many more small files than large ones."""
    where = dice.choice(sorted({name.parts[0] for name in names}))
    return dice.choice([name for name in names if name.parts[0] == where])


def _same(got, wanted, what):
    if got != wanted:
        raise AssertionError(f"{what}: {len(got)} bytes, {len(wanted)} wanted, and they differ")


def _wanted(local, name, first, size):
    with open(Path(local) / name, "rb", buffering=0) as f:
        return os.pread(f.fileno(), size, first)


def whole(flag, shown, local, seed, drop=False):
    """By read(2), from start to end; drop: the kernel's pages of it are dropped each time."""
    meter, dice, names = Meter(flag), random.Random(seed), _files(local)
    while meter.going():
        name = _pick(dice, names)
        fd = meter.time(os.open, Path(shown) / name, os.O_RDONLY)
        try:
            assert meter.time(os.fstat, fd).st_size == os.stat(Path(local) / name).st_size
            content = b"".join(iter(lambda: meter.time(os.read, fd, PIECE), b""))
            if drop:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
        _same(content, (Path(local) / name).read_bytes(), name)
    return meter.result()


def pieces(flag, shown, local, seed):
    """By pread(2), anywhere."""
    meter, dice, names = Meter(flag), random.Random(seed), _files(local)
    while meter.going():
        name = _pick(dice, names)
        fd = meter.time(os.open, Path(shown) / name, os.O_RDONLY)
        try:
            size = os.fstat(fd).st_size
            for _ in range(8):
                first, length = dice.randrange(size), dice.choice([1, 4096, 65537, PIECE])
                _same(meter.time(os.pread, fd, length, first), _wanted(local, name, first, length), name)
        finally:
            os.close(fd)
    return meter.result()


def _map(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        return mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)
    finally:
        os.close(fd)


def mapped(flag, shown, local, seed):
    """Through mappings that outlive their descriptors."""
    meter, dice, names = Meter(flag), random.Random(seed), _files(local)
    while meter.going():
        name = _pick(dice, names)
        with meter.time(_map, Path(shown) / name) as mapping:
            for _ in range(8):
                first, length = dice.randrange(len(mapping)), dice.choice([1, 4096, 65537, PIECE])
                _same(meter.time(mapping.__getitem__, slice(first, first + length)),
                      _wanted(local, name, first, length), name)
    return meter.result()


def held(flag, shown, local, seed):
    """Through descriptors and mappings that live as long as this process does."""
    meter, dice, names = Meter(flag), random.Random(seed), _files(local)
    names = dice.sample(names, min(20, len(names)))
    fds = [os.open(Path(shown) / name, os.O_RDONLY) for name in names]
    mappings = [mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ) for fd in fds]
    while meter.going():
        i = dice.randrange(len(names))
        first, length = dice.randrange(len(mappings[i])), dice.choice([1, 4096, 65537, PIECE])
        wanted = _wanted(local, names[i], first, length)
        _same(meter.time(os.pread, fds[i], length, first), wanted, names[i])
        _same(meter.time(mappings[i].__getitem__, slice(first, first + length)), wanted, names[i])
    return meter.result()


def stamped(version, blocks):
    """An object's content that says in each block which version it belongs to."""
    return struct.pack("<Q", version) * (BLOCK // 8 * blocks)


def versions(flag, path, seed):
    """Each handle shows one version whole; where that is gone from the origin, and not kept, ESTALE."""
    meter, dice = Meter(flag), random.Random(seed)
    seen, stale, newest = set(), 0, 0
    while meter.going():
        fd = meter.time(os.open, path, os.O_RDONLY)
        try:
            blocks, stamps = os.fstat(fd).st_size // BLOCK, set()
            for _ in range(16):
                got = meter.time(os.pread, fd, BLOCK * dice.choice([1, 3, 64]), BLOCK * dice.randrange(blocks))
                stamps.update(number for number, in struct.iter_unpack("<Q", got))
            assert len(stamps) == 1, f"one handle shows the versions {sorted(stamps)}"
            version, = stamps
            assert version >= newest, f"version {version} after {newest}"
            newest = version
            seen.add(version)
        except OSError as e:
            if e.errno != errno.ESTALE:
                raise
            stale += 1
        finally:
            os.close(fd)
    return meter.result(versions=len(seen), stale=stale)


def command(flag, *argv):
    """A command that must succeed and print the same each time."""
    meter, first = Meter(flag), None
    while meter.going():
        done = meter.time(lambda: subprocess.run(argv, capture_output=True, check=False, env={"LC_ALL": "C"}))
        assert (done.returncode, done.stderr) == (0, b""), done
        lines = sorted(done.stdout.splitlines())
        first = first or lines
        assert lines == first, f"{argv} printed otherwise than the first time"
    return {"rounds": meter.rounds, "lines": len(first)}


def listing(flag, path, wanted):
    """Slow walks through one large directory to which names are added: each of the first `wanted` names comes once."""
    meter = Meter(flag)
    while meter.going():
        seen = []
        with meter.time(os.scandir, path) as entries:
            for entry in entries:
                seen.append(entry.name)
                if len(seen) % 100 == 0:
                    time.sleep(REST_S)
        assert len(set(seen)) == len(seen), "a name came twice"
        missing = {f"{n:05d}" for n in range(wanted)} - set(seen)
        assert not missing, f"{len(missing)} of {wanted} names are missing, as {min(missing)}"
    return meter.result()


def hold_lock(flag, path, ready):
    """Has the lock all the time."""
    with open(path, "rb") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        Path(ready).touch()
        while os.path.exists(flag):
            time.sleep(0.02)
    return {"rounds": 1}


def wait_for_lock(flag, path):
    """Waits behind hold_lock all the time."""
    with open(path, "rb") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        assert not os.path.exists(flag), "two have one lock"
    return {"rounds": 1}


def take_turns(flag, path, owner):
    """Several take one lock in turn; who has it writes that into the file owner."""
    meter = Meter(flag)
    with open(path, "rb") as f, open(owner, "r+b", buffering=0) as shared:
        me = struct.pack("<Q", os.getpid())
        while meter.going():
            fcntl.flock(f, fcntl.LOCK_EX)
            assert os.pread(shared.fileno(), 8, 0) == bytes(8), "two have one lock"
            os.pwrite(shared.fileno(), me, 0)
            time.sleep(REST_S)
            assert os.pread(shared.fileno(), 8, 0) == me, "two have one lock"
            os.pwrite(shared.fileno(), bytes(8), 0)
            fcntl.flock(f, fcntl.LOCK_UN)
    return {"rounds": meter.rounds}


class _Samples:
    """A torch Dataset of the files' checksums."""

    def __init__(self, root, names):
        self._paths = [os.path.join(root, name) for name in names]

    def __len__(self):
        return len(self._paths)

    def __getitem__(self, i):
        with open(self._paths[i], "rb") as f:
            return i, zlib.crc32(f.read())


def data_loader(flag, shown, local):
    """A torch DataLoader with workers, epoch after epoch."""
    from torch.utils.data import DataLoader

    names = _files(local)
    wanted = [zlib.crc32((Path(local) / name).read_bytes()) for name in names]
    rounds = 0
    while not rounds or os.path.exists(flag):  # on a busy machine torch may take as long to start as the load goes on
        rounds += 1
        seen = {}
        for which, sums in DataLoader(_Samples(shown, names), batch_size=4, shuffle=True, num_workers=2):
            seen.update(zip(which.tolist(), sums.tolist()))
        assert [seen[i] for i in range(len(names))] == wanted
    return {"rounds": rounds}
