"""A reader that never stops: what an application sees while daemons come and go. Run it as a lib.child."""

import hashlib
import mmap
import os
import time
from pathlib import Path


def read_while(flag, root, digests):
    """Reads all files again and again while the file flag is there, keeping a handle and a mapping of each from the
    first round on; returns the number of rounds and the longest time that one call took. There is a file `reads` beside
    flag once the first round is over."""
    kept = {}
    rounds, longest_s = 0, 0.0

    def timed(call, *args):
        nonlocal longest_s
        start = time.monotonic()
        result = call(*args)
        longest_s = max(longest_s, time.monotonic() - start)
        return result

    while os.path.exists(flag):
        for name, digest in digests.items():
            path = Path(root) / name
            assert hashlib.sha256(timed(path.read_bytes)).hexdigest() == digest, name
            if name not in kept:
                fd = os.open(path, os.O_RDONLY)
                kept[name] = fd, mmap.mmap(fd, 0, prot=mmap.PROT_READ)
            fd, mapping = kept[name]
            assert timed(os.fstat, fd).st_size == len(mapping)
            assert hashlib.sha256(timed(os.pread, fd, len(mapping), 0)).hexdigest() == digest, name
            assert hashlib.sha256(mapping).hexdigest() == digest, name
            assert os.path.basename(name) in timed(os.listdir, path.parent)
        rounds += 1
        Path(flag).with_name("reads").touch()
    return {"rounds": rounds, "longest_s": longest_s}
