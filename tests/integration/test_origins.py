"""Every kind of origin through a mount: the bytes of cold, warm and restarted reads, by the fast ways."""

import hashlib
import os
import random
import subprocess

import pytest

from lib import mounts, reads
from lib.faulty import Faulty
from lib.origins import FaultyOrigin

FILES = {
    "model/weights.safetensors": 5 * (1 << 20) + 123,
    "data/a/0001.bin": 4096,
    "data/b/0002.bin": 1,
    "data/empty": 0,
    "name with + and %25 and \u00fc": 1000,
}


def fill(origin):
    """Puts FILES into the origin; returns {key: bytes}."""
    content = {key: random.Random(key).randbytes(size) for key, size in FILES.items()}
    for key, data in content.items():
        origin.put(key, data)
    return content


def same_everywhere(root, content):
    found = {os.path.relpath(os.path.join(folder, name), root)
             for folder, _, names in os.walk(root) for name in names}
    assert found == set(content)
    for key, data in content.items():
        assert (root / key).stat().st_size == len(data)
        assert hashlib.sha256((root / key).read_bytes()).digest() == hashlib.sha256(data).digest(), key


def opens(cache):
    [volume] = cache.status()["volumes"]
    return volume["opens"], volume["passthrough_opens"]


def test_cold_warm_and_restarted(cache, origin):
    content = fill(origin)
    root = cache.mount_origin(origin, "ro")
    same_everywhere(root, content)
    fetched = cache.counters()["origin_bytes"]
    assert fetched >= sum(map(len, content.values()))
    for key in content:
        cache.wait_warm(root / key)
    before = opens(cache)
    same_everywhere(root, content)
    after = opens(cache)
    assert after[1] - before[1] >= sum(1 for data in content.values() if data), "warm opens were not passed through"
    assert cache.counters()["origin_bytes"] == fetched
    cache.umount(root)

    root = cache.mount_origin(origin, "ro")
    same_everywhere(root, content)
    assert cache.counters()["origin_bytes"] == 0, "the store did not survive the restart"


def test_killed_and_mounted_again(cache, origin):
    content = fill(origin)
    cache.mount_origin(origin, "ro")
    cache.kill()
    same_everywhere(cache.mount_origin(origin, "ro", name="again"), content)


def test_plain_web_server(cache, web):
    content = fill(FaultyOrigin(web))
    same_everywhere(cache.mount_origin(FaultyOrigin(web), "ro"), content)


def test_range_is_fetched_once_for_many_readers(cache, faulty):
    data = random.Random(1).randbytes(8 << 20)
    faulty.put("big", data)
    root = cache.mount_origin(FaultyOrigin(faulty), "ro")
    stall = faulty.rule(op="get", key="big", stall_at=-1)
    readers = [subprocess.Popen(["sha256sum", root / "big"], stdout=subprocess.PIPE) for _ in range(16)]
    stall.wait_hits(1)
    stall.release()
    sums = {reader.communicate()[0].split()[0].decode() for reader in readers}
    assert sums == {hashlib.sha256(data).hexdigest()}
    assert faulty.sent("get", "big") == len(data)


@pytest.mark.parametrize("source", ["http://no-such-host.invalid/", "s3://bucket"])
def test_a_host_that_does_not_resolve(cache, workdir, source):
    mountpoint = workdir / "mnt"
    mountpoint.mkdir()
    options = "endpoint=http://no-such-host.invalid,anonymous,timeout=2s" if source[0] == "s" else "timeout=2s"
    result = cache.run("mount", "-o", options, source, mountpoint, check=False)
    assert result.returncode == 1
    assert "no-such-host.invalid" in result.stderr and "resolve" in result.stderr
    assert not mounts.below(workdir)


def test_one_bucket_name_at_two_endpoints(cache, faulty):
    """Neither names nor bytes of the one are taken for the other's, also not after a restart."""
    with Faulty() as other:
        for n in range(3):
            faulty.put(f"dir/{n}", b"a" * (1000 + n), etag='"same"')
            other.put(f"dir/{n + 1}", b"b" * (1000 + n), etag='"same"')
        wanted = [{f"dir/{n + i}": char * (1000 + n) for n in range(3)} for i, char in enumerate((b"a", b"b"))]
        for _ in range(2):
            roots = [cache.mount_origin(FaultyOrigin(origin), name=str(i)) for i, origin in enumerate((faulty, other))]
            for root, content in zip(roots, wanted):
                assert reads.tree(root) == {key: hashlib.sha256(data).hexdigest() for key, data in content.items()}
                for key in content:
                    cache.wait_warm(root / key)
            for root in roots:
                cache.umount(root)


@pytest.mark.parametrize("source", ["gopher://host/", "s3://", "file:///no/such/directory"])
def test_wrong_source_changes_nothing(cache, workdir, source):
    mountpoint = workdir / "mnt"
    mountpoint.mkdir()
    result = cache.run("mount", source, mountpoint, check=False)
    assert result.returncode in (1, 2) and result.stderr.strip()
    assert not mounts.below(workdir)
