"""inotify on a mount: what processes of the node do is seen, what happens at the origin is not."""

import ctypes
import os
import struct

from lib import wait

IN_MODIFY, IN_ATTRIB, IN_OPEN, IN_MOVE, IN_CREATE, IN_DELETE = 0x2, 0x4, 0x20, 0xC0, 0x100, 0x200
EVENT = struct.Struct("iIII")


def events(fd):
    """[(mask, name)] of what came so far."""
    found = []
    try:
        data = os.read(fd, 1 << 16)
    except BlockingIOError:
        return found
    while data:
        _, mask, _, size = EVENT.unpack_from(data)
        found.append((mask, data[EVENT.size:EVENT.size + size].rstrip(b"\0").decode()))
        data = data[EVENT.size + size:]
    return found


def watch(directory):
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    mask = IN_MODIFY | IN_ATTRIB | IN_OPEN | IN_MOVE | IN_CREATE | IN_DELETE
    if libc.inotify_add_watch(fd, os.fsencode(directory), mask) < 0:
        raise OSError(ctypes.get_errno(), "inotify_add_watch", directory)
    return fd


def test_what_a_watch_sees(cache, origin):
    """Case 12. A remote change is found by looking, within the time that names are believed."""
    origin.put("dir/a", b"old")
    origin.put("dir/gone", b"x")
    mounted = cache.mount_origin(origin, "ttl=200ms", "negative_ttl=200ms")
    assert sorted(os.listdir(mounted / "dir")) == ["a", "gone"]
    fd = watch(mounted / "dir")
    try:
        origin.put("dir/a", b"newer")
        origin.put("dir/b", b"x")
        origin.delete("dir/gone")
        wait.until(lambda: sorted(os.listdir(mounted / "dir")) == ["a", "b"], 30, "the listing")
        wait.until(lambda: (mounted / "dir" / "a").stat().st_size == 5, 30, "the new size")
        assert not [event for event in events(fd) if event[1]]
        assert (mounted / "dir" / "a").read_bytes() == b"newer"
        assert (IN_OPEN, "a") in events(fd)
    finally:
        os.close(fd)
