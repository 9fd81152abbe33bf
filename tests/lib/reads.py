"""Ways in which programs read files. Each function is run by lib.child or in the test's own process."""

import errno
import hashlib
import mmap
import os
import random
import signal
import time

BLOCK = 1 << 20


def sha256(path):
    """By read(2)."""
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as f:
        while block := f.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def tree(root):
    """{path below root: SHA-256} of every file."""
    root = os.fsencode(root)
    found = {}
    for where, _, names in os.walk(root, onerror=_raise):
        for name in names:
            path = os.path.join(where, name)
            found[os.path.relpath(path, root).decode("utf-8", "backslashreplace")] = sha256(path)
    return found


def _raise(error):
    raise error


def names_and_sizes(path):
    """[name as hexadecimal digits, size] of each entry, by readdir and stat."""
    with os.scandir(os.fsencode(path)) as entries:
        return [[entry.name.hex(), entry.stat(follow_symlinks=False).st_size] for entry in entries]


def sha256_mapped(path, advice=None):
    """By MAP_SHARED and PROT_READ; advice: a name such as MADV_RANDOM."""
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as mapping:
        if advice:
            mapping.madvise(getattr(mmap, advice))
        digest = hashlib.sha256()
        for at in range(0, len(mapping), BLOCK):
            digest.update(mapping[at:at + BLOCK])
        return digest.hexdigest()


def drop_pages(path):
    """Makes the kernel forget the file's clean pages."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def sha256_backwards(path):
    """By pread(2) from the end to the start."""
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        blocks = [os.pread(fd, BLOCK, at) for at in reversed(range(0, size, BLOCK))]
    finally:
        os.close(fd)
    return hashlib.sha256(b"".join(reversed(blocks))).hexdigest()


def sha256_direct(path):
    """By O_DIRECT, into memory that is aligned for it."""
    digest = hashlib.sha256()
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, BLOCK) as buffer:
            at = 0
            while n := os.preadv(fd, [buffer], at):
                digest.update(buffer[:n])
                at += n
    finally:
        os.close(fd)
    return digest.hexdigest()


def pieces_differ(path, local, seed, count):
    """Reads count pieces of any place and size from both files; returns those that are not equal."""
    dice = random.Random(seed)
    different = []
    with open(path, "rb", buffering=0) as shown, open(local, "rb", buffering=0) as wanted:
        size = os.fstat(wanted.fileno()).st_size
        for _ in range(count):
            first, n = dice.randrange(size + 10), dice.choice([1, 511, 4096, 65537, 3 << 20])
            if os.pread(shown.fileno(), n, first) != os.pread(wanted.fileno(), n, first):
                different.append([first, n])
    return different


def _forked(count, function):
    """Runs function(i) in count processes at once and returns the exit statuses."""
    start_read, start_write = os.pipe()
    pids = []
    for i in range(count):
        pid = os.fork()
        if pid == 0:
            status = 99
            try:
                os.close(start_write)
                os.read(start_read, 1)  # returns for all of them when the parent closes its end
                status = function(i)
            finally:
                os._exit(status)
        pids.append(pid)
    os.close(start_read)
    os.close(start_write)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def by_many(path, local, count):
    """count processes stat, open and read the file from start to end at once; how many saw local's size and bytes."""
    with open(local, "rb") as f, mmap.mmap(f.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as wanted:
        def reader(_):
            same = os.stat(path).st_size == len(wanted)
            at, view = 0, memoryview(wanted)
            with open(path, "rb", buffering=0) as shown:
                while block := shown.read(BLOCK):
                    same = same and view[at:at + len(block)] == block
                    at += len(block)
            return 0 if same and at == len(wanted) else 1

        return _forked(count, reader).count(0)


def ranges(path, wanted):
    """Reads each [offset, size] of wanted to its end, in order, by pread(2) of at most 1 MiB on one descriptor; the
    SHA-256 of all."""
    digest = hashlib.sha256()
    fd = os.open(path, os.O_RDONLY)
    try:
        for at, size in wanted:
            for first in range(at, at + size, BLOCK):
                digest.update(os.pread(fd, min(BLOCK, at + size - first), first))
    finally:
        os.close(fd)
    return digest.hexdigest()


def quarters(path):
    """Four processes share one descriptor, and each reads its own quarter; the SHA-256 of the whole."""
    fd = os.open(path, os.O_RDONLY)
    size = os.fstat(fd).st_size
    with mmap.mmap(-1, size) as shared:
        def reader(i):
            at, end = size * i // 4, size * (i + 1) // 4
            while at < end:
                block = os.pread(fd, min(BLOCK, end - at), at)
                if not block:
                    return 1
                shared[at:at + len(block)] = block
                at += len(block)
            return 0

        assert _forked(4, reader) == [0] * 4
        os.close(fd)
        return hashlib.sha256(shared).hexdigest()


def against_dontneed(path, count, wanted):
    """count processes read the file while another drops its pages; how many saw SHA-256 wanted in each of 3 rounds."""
    dropper = os.fork()
    if dropper == 0:
        try:
            fd = os.open(path, os.O_RDONLY)
            while True:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os._exit(1)
    try:
        return _forked(count, lambda _: 0 if {sha256(path) for _ in range(3)} == {wanted} else 1).count(0)
    finally:
        os.kill(dropper, signal.SIGKILL)
        os.waitpid(dropper, 0)


def many_open(paths, seed):
    """Opens all, reads 1 MiB of each in turn, then of each in any order at any place; SHA-256 by file and round."""
    fds = [os.open(path, os.O_RDONLY) for path in paths]
    try:
        rounds = [[hashlib.sha256(os.pread(fd, BLOCK, 0)).hexdigest() for fd in fds]]
        dice = random.Random(seed)
        order = list(range(len(fds)))
        dice.shuffle(order)
        second = [None] * len(fds)
        for i in order:
            first = dice.randrange(os.fstat(fds[i]).st_size)
            second[i] = [first, hashlib.sha256(os.pread(fds[i], BLOCK, first)).hexdigest()]
        return rounds + [second]
    finally:
        for fd in fds:
            os.close(fd)


def versions_until(path, stop):
    """Reads the file again and again until the file stop exists. Each version is one byte repeated; returns the
    versions seen, how many reads were no whole version, and how many met ESTALE."""
    seen, mixed, stale = set(), 0, 0
    while not os.path.exists(stop):
        try:
            with open(path, "rb", buffering=0) as f:
                size = os.fstat(f.fileno()).st_size
                content = b"".join(iter(lambda: f.read(BLOCK), b""))
        except OSError as e:
            if e.errno != errno.ESTALE:
                raise
            stale += 1
            continue
        if len(content) == size and len(set(content)) == 1:
            seen.add(content[0])
        else:
            mixed += 1
    return {"seen": sorted(seen), "mixed": mixed, "stale": stale}


def held_mapping(path, other):
    """Maps a file and touches its first page; says so by making the file other, and waits until that is gone. Returns
    the SHA-256 of the whole mapping then."""
    with open(path, "rb") as f:
        mapping = mmap.mmap(f.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
    mapping[0]
    with open(other, "x", encoding="ascii"):
        pass
    while os.path.exists(other):
        time.sleep(0.02)
    return hashlib.sha256(mapping).hexdigest()


def count_names(path):
    """How many readdir gives."""
    return sum(1 for _ in os.scandir(path))


def paths(root):
    """The files below root, directories in the order of their names, one after the other."""
    found = []
    for directory, directories, files in os.walk(root, onerror=_raise):
        directories.sort()
        found += [os.path.relpath(os.path.join(directory, name), root) for name in files]
    return found
