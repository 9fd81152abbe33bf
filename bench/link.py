"""A link of a given rate between this network namespace and one of the benchmarks' own, where the origin stands."""
import os
import subprocess

from measure import Refused

HERE, THERE = "198.18.77.1", "198.18.77.2"  # of the block that is kept for benchmarks
BURST_BYTES = 256 << 10
QUEUE_MS = 50  # more than a round trip: a sender that fills the link finds room


def ip(*arguments):
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Refused(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


class Link:
    """mbit: of each direction. enter: what starts a program at the far end."""

    def __init__(self, stack, mbit):
        self.mbit = mbit
        self.namespace = f"cachefs-bench-{os.getpid()}"
        self.near, self.far = f"cb{os.getpid()}a", f"cb{os.getpid()}b"
        self.address = THERE
        ip("netns", "add", self.namespace)
        # With the namespace both ends of the pair go.
        stack.callback(ip, "netns", "del", self.namespace)
        ip("link", "add", self.near, "type", "veth", "peer", "name", self.far, "netns", self.namespace)
        ip("addr", "add", f"{HERE}/30", "dev", self.near)
        ip("link", "set", self.near, "up")
        ip("-n", self.namespace, "addr", "add", f"{THERE}/30", "dev", self.far)
        ip("-n", self.namespace, "link", "set", self.far, "up")
        ip("-n", self.namespace, "link", "set", "lo", "up")
        self.shape([], self.near)
        self.shape(["-n", self.namespace], self.far)

    def shape(self, namespace, device):
        # Large segments of the pair would be one packet to the shaper, longer than its bucket.
        command = ["tc", *namespace, "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{self.mbit}mbit",
                   "burst", str(BURST_BYTES), "latency", f"{QUEUE_MS}ms"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Refused(f"{' '.join(command)}: {done.stderr.strip()}")

    @property
    def enter(self):
        return ["ip", "netns", "exec", self.namespace]
