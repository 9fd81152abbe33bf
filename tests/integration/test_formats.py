"""The formats that people train with, read through the mount by their own programs: equal to the local copy, cold and
warm."""

import pytest

from lib import child, formats
from lib.origins import FaultyOrigin, S3Origin


@pytest.fixture(params=["faulty", "versitygw"])
def remote(request):
    server = request.getfixturevalue(request.param)
    if request.param == "faulty":
        yield FaultyOrigin(server)
        return
    origin = S3Origin(server)
    yield origin
    origin.close()


CASES = {
    "safetensors": (formats.make_safetensors, formats.compare_safetensors, 24),
    "numpy": (formats.make_numpy, formats.compare_numpy, 2000 * 1500),
    "parquet": (formats.make_parquet, formats.compare_parquet, 649999),
    "tar": (formats.make_tar, formats.compare_tar, formats.SHARDS * formats.SAMPLES),
    "hdf5": (formats.make_hdf5, formats.compare_hdf5, 800000),
    "torch": (formats.make_torch, formats.compare_torch, 420000),
    "dataloader": (formats.make_torch, formats.compare_dataloader, 800),
}


@pytest.mark.parametrize("name", CASES)
def test_equal_to_the_local_copy(cache, remote, workdir, name):
    make, compare, compared = CASES[name]
    local = workdir / "local"
    local.mkdir()
    child.call(make, local)
    files = sorted(p for p in local.rglob("*") if p.is_file())
    for path in files:
        remote.put(f"data/{path.relative_to(local)}", path.read_bytes())
    mounted = cache.mount_origin(remote) / "data"
    assert child.call(compare, local, mounted) == compared
    for path in files[:5]:
        (mounted / path.relative_to(local)).read_bytes()
        cache.wait_warm(mounted / path.relative_to(local))
    before = cache.volume(mounted.parent)["passthrough_opens"]
    assert child.call(compare, local, mounted) == compared
    assert cache.volume(mounted.parent)["passthrough_opens"] > before
    assert cache.counters()["checksum_failures"] == 0
