"""The mounts of this machine, by mountinfo alone: a dead mount must never be touched by stat."""

import os
import re
import subprocess
from dataclasses import dataclass


@dataclass(frozen=True)
class Mount:
    path: str
    kind: str
    source: str
    minor: int  # of the superblock's device; names the connection of a FUSE mount


def _unescape(text):
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m.group(1), 8)), text)


def below(directory):
    """The mounts on and below directory, in the order in which they were made."""
    root = os.path.realpath(directory)
    found = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as f:
        for line in f:
            left, _, right = line.rstrip("\n").partition(" - ")
            fields, (kind, source, *_) = left.split(" "), right.split(" ")
            path = _unescape(fields[4])
            if path == root or path.startswith(root + "/"):
                found.append(Mount(path, kind, _unescape(source), int(fields[2].split(":")[1])))
    return found


def abort(mount):
    """Ends a FUSE connection: each request that waits gets an error, so that no process hangs in it."""
    if not mount.kind.startswith("fuse"):
        return
    try:
        with open(f"/sys/fs/fuse/connections/{mount.minor}/abort", "w") as f:
            f.write("1")
    except FileNotFoundError:
        pass  # fusectl is not mounted, or the connection is gone


def clear(directory):
    """Unmounts everything on and below directory, the newest first, without waiting for anybody."""
    for mount in reversed(below(directory)):
        abort(mount)
        subprocess.run(["umount", "-l", mount.path], check=False, capture_output=True)
