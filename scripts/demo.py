"""The quickstart's data: makes a model and a dataset, then reads them through a mount, cold and warm.

demo.py make ORIGIN         demo.py read ORIGIN MOUNTPOINT
"""

import hashlib
import json
import os
import struct
import sys
import time
from pathlib import Path

MODEL = "model/model.safetensors"
LAYERS, HIDDEN = 16, 2048
SAMPLES, SAMPLE_BYTES = 400, 48 << 10
BLOCK = 1 << 20


def make_model(path):
    """A valid safetensors file of some 256 MiB: an 8-byte length, a JSON header, the tensors behind each other."""
    header, end = {}, 0
    for layer in range(LAYERS):
        for name, rows in (("q_proj", HIDDEN), ("mlp", HIDDEN)):
            size = rows * HIDDEN * 2
            header[f"layers.{layer}.{name}.weight"] = {
                "dtype": "F16", "shape": [rows, HIDDEN], "data_offsets": [end, end + size]}
            end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _ in range(end // BLOCK):
            f.write(os.urandom(BLOCK))


def make(origin):
    (origin / "model").mkdir()
    make_model(origin / MODEL)
    for n in range(SAMPLES):
        folder = origin / "dataset" / f"class{n % 10}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{n:04}.bin").write_bytes(os.urandom(SAMPLE_BYTES))


def drop_page_cache():
    """Without it the cold read would come from memory. Containers may not be allowed to."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("1\n")
    except OSError:
        print("  (the page cache can't be dropped here: the speeds are those of memory)")


def read(paths):
    """Reads each file to its end; returns bytes and seconds."""
    buffer = bytearray(BLOCK)
    total, start = 0, time.monotonic()
    for path in paths:
        with open(path, "rb", buffering=0) as f:
            while size := f.readinto(buffer):
                total += size
    return total, time.monotonic() - start


def checksum(paths):
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb", buffering=0) as f:
            while block := f.read(BLOCK):
                digest.update(block)
    return digest.hexdigest()


def files(root):
    return {"model": [root / MODEL], "dataset": sorted((root / "dataset").rglob("*.bin"))}


def measure(origin, mountpoint):
    """Exits with an error when a byte differs."""
    wanted, shown = files(origin), files(mountpoint)
    for what, paths in shown.items():
        print(f"{what}: {len(paths)} file{'s' if len(paths) > 1 else ''}")
        for how in ("cold", "warm", "warm, in memory"):
            if how != "warm, in memory":
                drop_page_cache()
            size, seconds = read(paths)
            print(f"  {how + ':':18}{size / 1e6:7.1f} MB in {seconds:6.3f} s  {size / seconds / 1e6:8.0f} MB/s")
        ours, theirs = checksum(paths), checksum(wanted[what])
        print(f"  sha256 of origin  {theirs}\n  sha256 of mount   {ours}")
        if ours != theirs:
            sys.exit(f"{what}: the mount shows other bytes than the origin")


if __name__ == "__main__":
    command, *where = sys.argv[1:]
    try:
        {"make": make, "read": measure}[command](*map(Path, where))
    except KeyboardInterrupt:
        sys.exit(130)
