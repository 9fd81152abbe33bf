"""The power fails while the store is filled: what its index says is true, and nothing else is needed to go on."""

import random

import pytest

from lib import child, origins, power, reads, wait
from lib.mount import Cache

FILES = 24


@pytest.fixture
def tree(workdir):
    return origins.numbered(workdir / "origin", FILES, 300007)


def fill(cache, origin, dice):
    """Readers, evictions, a daemon that is killed, and one that ends as it should: what a store sees in its days."""
    mounted = cache.mount_origin(origin)
    for turn in range(4):
        readers = [child.Child(reads.tree, mounted / f"d{n}") for n in range(3)]
        for reader in readers:
            reader.result()
        cache.run("evict", mounted / f"d{dice.randrange(3)}", check=False)
        if turn == 1:
            cache.kill_daemon()
    cache.umount(mounted)
    wait.until(lambda: not cache.processes(), 30, "the daemon's end")


def check_store(cache, origin, wanted):
    mounted = cache.mount_origin(origin)
    assert " 0 bad" in cache.run("verify", "--all").stdout
    assert reads.tree(mounted) == wanted
    assert cache.counters()["checksum_failures"] == 0


@pytest.mark.timeout(3600)
def test_power_fails_while_filling(workdir, tree, rounds):
    origin, wanted = tree
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    dice = random.Random(seed)
    with power.Disk(workdir / "disk") as disk, Cache(workdir / "cache", store=disk.path / "store", size="60M") as cache:
        fill(cache, origin, dice)
    left = workdir / "left"
    left.mkdir()
    found = 0
    for n, (point, image) in enumerate(power.losses(disk, dice, rounds(20, 200))):
        print(f"write {point}")
        with power.mounted(image, left), Cache(workdir / f"after{n}", store=left / "store") as cache:
            check_store(cache, origin, wanted)
            found += cache.status()["store"]["objects"]
    assert found > 0, "every store was empty: nothing was shown"
