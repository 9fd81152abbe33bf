"""Files as people's programs write them, and those programs reading them from two places. Each compare_* returns a
number that says how much was compared, and raises when something differs."""

import io
import os
import tarfile

import numpy

SHARDS, SAMPLES = 4, 50


def _dice():
    return numpy.random.default_rng(7)


def make_safetensors(root):
    from safetensors.numpy import save_file

    dice = _dice()
    save_file({f"layer.{n}.weight": dice.standard_normal((256, 1024), dtype=numpy.float32) for n in range(12)},
              os.path.join(root, "model.safetensors"), metadata={"format": "pt"})


def compare_safetensors(local, mounted):
    """By mmap, as safetensors always does: whole tensors and slices, by numpy and by torch."""
    from safetensors import safe_open

    count = 0
    for framework in ("numpy", "pt"):
        with (safe_open(os.path.join(local, "model.safetensors"), framework) as wanted,
              safe_open(os.path.join(mounted, "model.safetensors"), framework) as shown):
            assert list(wanted.keys()) == list(shown.keys()) and wanted.metadata() == shown.metadata()
            for name in wanted.keys():
                assert (wanted.get_tensor(name) == shown.get_tensor(name)).all(), name
                assert (wanted.get_slice(name)[7:9, 100:300] == shown.get_slice(name)[7:9, 100:300]).all(), name
                count += 1
    return count


def make_numpy(root):
    numpy.save(os.path.join(root, "array.npy"), _dice().integers(0, 1 << 30, (2000, 1500)))
    numpy.savez_compressed(os.path.join(root, "arrays.npz"), a=numpy.arange(100000), b=numpy.eye(300))


def compare_numpy(local, mounted):
    def load(root, name, **more):
        return numpy.load(os.path.join(root, name), **more)

    mapped = load(mounted, "array.npy", mmap_mode="r")
    wanted = load(local, "array.npy")
    assert isinstance(mapped, numpy.memmap)
    assert (mapped[::-7, ::13] == wanted[::-7, ::13]).all() and (mapped == wanted).all()
    assert (load(mounted, "array.npy") == wanted).all()
    with load(local, "arrays.npz") as ours, load(mounted, "arrays.npz") as theirs:
        assert all((ours[name] == theirs[name]).all() for name in ("a", "b"))
    return mapped.size


def make_parquet(root):
    import pyarrow
    import pyarrow.parquet

    dice = _dice()
    table = pyarrow.table({"id": numpy.arange(200000), "score": dice.random(200000),
                           "text": [f"row {n}" for n in range(200000)]})
    pyarrow.parquet.write_table(table, os.path.join(root, "table.parquet"), row_group_size=20000)
    os.mkdir(os.path.join(root, "parts"))
    for n in range(5):
        pyarrow.parquet.write_table(table.slice(n * 1000, 1000), os.path.join(root, "parts", f"{n}.parquet"))


def compare_parquet(local, mounted):
    import pyarrow.parquet

    def path(root, name):
        return os.path.join(root, name)

    rows = 0
    for more in ({}, {"memory_map": True}, {"columns": ["score"]}, {"filters": [("id", ">", 150000)]}):
        wanted = pyarrow.parquet.read_table(path(local, "table.parquet"), **more)
        assert wanted.equals(pyarrow.parquet.read_table(path(mounted, "table.parquet"), **more))
        rows += wanted.num_rows
    with pyarrow.parquet.ParquetFile(path(mounted, "table.parquet")) as shown:
        wanted = pyarrow.parquet.ParquetFile(path(local, "table.parquet"))
        assert shown.read_row_group(7).equals(wanted.read_row_group(7))
    assert pyarrow.parquet.read_table(path(local, "parts")).equals(pyarrow.parquet.read_table(path(mounted, "parts")))
    return rows


def make_tar(root):
    dice = _dice()
    for shard in range(SHARDS):
        with tarfile.open(os.path.join(root, f"train-{shard:06}.tar"), "w") as tar:
            for n in range(SAMPLES):
                for suffix, size in (("jpg", int(dice.integers(1, 60000))), ("cls", 2)):
                    member = tarfile.TarInfo(f"{shard:03}-{n:06}.{suffix}")
                    member.size = size
                    tar.addfile(member, io.BytesIO(dice.bytes(size)))


def _samples(paths):
    """As webdataset iterates: a stream without seeking, members of one base name together."""
    for path in paths:
        base, sample = None, {}
        with open(path, "rb") as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                name, _, suffix = member.name.partition(".")
                if name != base and sample:
                    yield base, sample
                    sample = {}
                base = name
                sample[suffix] = tar.extractfile(member).read()
        if sample:
            yield base, sample


def compare_tar(local, mounted):
    def shards(root):
        return [os.path.join(root, f"train-{n:06}.tar") for n in range(SHARDS)]

    count = 0
    for wanted, shown in zip(_samples(shards(local)), _samples(shards(mounted)), strict=True):
        assert wanted == shown
        count += 1
    for ours, theirs in zip(shards(local), shards(mounted)):
        with tarfile.open(ours) as wanted, tarfile.open(theirs) as shown:
            assert wanted.getnames() == shown.getnames()
            for name in reversed(wanted.getnames()):
                assert wanted.extractfile(name).read() == shown.extractfile(name).read()
    return count


def make_hdf5(root):
    import h5py

    dice = _dice()
    with h5py.File(os.path.join(root, "data.h5"), "w") as f:
        f.create_dataset("plain", data=dice.random((1000, 800)))
        f.create_dataset("chunked", data=dice.integers(0, 9, (500, 2000)), chunks=(50, 200), compression="gzip")
        f["group/text"] = "a label"


def compare_hdf5(local, mounted):
    import h5py

    def names(root):
        return os.path.join(root, "data.h5")

    with h5py.File(names(local), "r") as wanted, h5py.File(names(mounted), "r") as shown:
        for name in ("plain", "chunked"):
            assert (wanted[name][100:200, ::7] == shown[name][100:200, ::7]).all()
            assert (wanted[name][...] == shown[name][...]).all()
        assert wanted["group/text"][()] == shown["group/text"][()]
        return int(wanted["plain"].size)


def make_torch(root):
    import torch

    torch.manual_seed(7)
    torch.save({"weight": torch.randn(600, 700), "step": 12, "bias": torch.randn(700)}, os.path.join(root, "check.pt"))
    os.mkdir(os.path.join(root, "samples"))
    dice = _dice()
    for n in range(400):
        with open(os.path.join(root, "samples", f"{n:05}.bin"), "wb") as f:
            f.write(dice.bytes(3000 + n))


def compare_torch(local, mounted):
    import torch

    wanted, shown = (torch.load(os.path.join(root, "check.pt")) for root in (local, mounted))
    assert wanted.keys() == shown.keys() and shown["step"] == 12
    assert torch.equal(wanted["weight"], shown["weight"]) and torch.equal(wanted["bias"], shown["bias"])
    return wanted["weight"].numel()


class _Files:
    """A map-style dataset of the files in one directory."""

    def __init__(self, directory):
        self.paths = sorted(e.path for e in os.scandir(directory))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        import torch

        with open(self.paths[i], "rb") as f:
            content = f.read()
        return torch.frombuffer(bytearray(content), dtype=torch.uint8)[:3000].clone(), len(content)


def compare_dataloader(local, mounted):
    """Two epochs with 8 workers, in the same random order from both places."""
    import torch
    from torch.utils.data import DataLoader

    def epochs(root):
        order = torch.Generator()
        order.manual_seed(3)
        loader = DataLoader(_Files(os.path.join(root, "samples")), batch_size=16, shuffle=True, num_workers=8,
                            generator=order)
        return [batch for _ in range(2) for batch in loader]

    count = 0
    for (ours, our_sizes), (theirs, their_sizes) in zip(epochs(local), epochs(mounted), strict=True):
        assert torch.equal(ours, theirs) and torch.equal(our_sizes, their_sizes)
        count += len(our_sizes)
    return count
