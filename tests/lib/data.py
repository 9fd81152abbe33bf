"""Bytes that tests put into origins: different for each name, the same in each run."""

import hashlib
import random

MIB = 1 << 20


def make(name, size):
    dice = random.Random(name)
    return b"".join(dice.randbytes(min(MIB, size - at)) for at in range(0, size, MIB))


def digest(data):
    return hashlib.sha256(data).hexdigest()


def fetched_once(requests, size):
    """Whether these GETs asked for each byte of an object of that size, and for none twice."""
    at = 0
    for first, last in sorted((r.first, r.last) for r in requests):
        if first != at:
            return False
        at = last + 1
    return at == size
