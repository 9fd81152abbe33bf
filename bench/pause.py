#!/usr/bin/python3
"""A reader that measures how long its calls take, for benchmark 14. It reads a file of the mount at random places, or,
with --once, slowly from start to end, until the file FLAG is gone, and compares each byte with a local file."""
import argparse
import json
import mmap
import os
import random
import time

PIECE_BYTES = 1 << 20
PACE_S = 0.1  # of --once: an object of 1 GiB takes longer than the benchmark


def take_read(fd, _mapping, at, size):
    os.lseek(fd, at, os.SEEK_SET)
    return os.read(fd, size)


def take_pread(fd, _mapping, at, size):
    return os.pread(fd, size, at)


def take_mmap(_fd, mapping, at, size):
    return mapping[at:at + size]


TAKES = {"read": take_read, "pread": take_pread, "mmap": take_mmap}


def places(size, once):
    """Where to read next."""
    dice = random.Random(size)
    at = 0
    while True:
        yield at % size
        at = at + PIECE_BYTES if once else dice.randrange(0, size, 4096)


def measure(take, path, local, flag, once):
    longest_s, count = 0.0, 0
    start = time.monotonic()
    shown, wanted = os.open(path, os.O_RDONLY), os.open(local, os.O_RDONLY)
    mapping = mmap.mmap(shown, 0, prot=mmap.PROT_READ)
    for at in places(len(mapping), once):
        size = min(PIECE_BYTES, len(mapping) - at)
        got = take(shown, mapping, at, size)
        longest_s = max(longest_s, time.monotonic() - start)
        if got != os.pread(wanted, size, at):
            raise ValueError(f"other bytes at {at}")
        if not os.path.exists(flag):
            return {"longest_s": longest_s, "count": count}
        count += 1
        time.sleep(PACE_S if once else 0.005)
        if not once and count % 16 == 0:  # a new open is a request, too
            os.close(shown)
            start = time.monotonic()
            shown = os.open(path, os.O_RDONLY)
            longest_s = max(longest_s, time.monotonic() - start)
        start = time.monotonic()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--once", action="store_true")
    parser.add_argument("how", choices=TAKES)
    parser.add_argument("path")
    parser.add_argument("local")
    parser.add_argument("flag")
    arguments = parser.parse_args()
    print(json.dumps(measure(TAKES[arguments.how], arguments.path, arguments.local, arguments.flag, arguments.once)))


if __name__ == "__main__":
    main()
