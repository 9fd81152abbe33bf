"""The network between the origin and whoever reads: two network namespaces of the benchmarks' own, so that the machine's
network is left alone, and a link of a given rate, length and loss between them.

The namespaces have no names: they end with the processes that are in them, however those end."""
import ctypes
import os
import subprocess

from measure import Refused

HERE, THERE = "198.18.77.1", "198.18.77.2"  # of the block that is kept for benchmarks
NEAR, FAR = "cb-near", "cb-far"
BURST_BYTES = 256 << 10
QUEUE_MS = 50  # more than a round trip: a sender that fills the link finds room
QUEUE_PACKETS = 10000  # of a device, until the wire takes them
CLONE_NEWNET = 0x40000000
SEGMENT_BYTES, PACKET_BYTES, ETHERNET_BYTES = 1448, 1500, 14
# Linux's own default, whatever this machine has been set to: the one that loss and distance trouble most.
CONGESTION = "cubic"


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Refused(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


class Link:
    """From its making on this process and those that it starts are at the near end. mbit: of each direction; rtt_ms: of a
    round trip, 0 for none; loss_percent: of the packets of each direction; delay: the program cachefs-bench-delay.
    enter: what starts a program at the far end."""

    def __init__(self, stack, mbit, rtt_ms, loss_percent, delay):
        self.mbit, self.rtt_ms, self.loss_percent = mbit, rtt_ms, loss_percent
        self.address = THERE
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNET) < 0:
            raise Refused(f"unshare(CLONE_NEWNET): {os.strerror(ctypes.get_errno())}")
        holder = self.start(stack, ["unshare", "--net", "sh", "-c", "echo ready; exec cat"])
        self.far_space = f"/proc/{holder.pid}/ns/net"
        self.enter = ["nsenter", f"--net={self.far_space}", "--"]
        if rtt_ms:
            self.start(stack, [delay, str(rtt_ms / 2), f"/proc/{os.getpid()}/ns/net", NEAR, self.far_space, FAR])
        else:
            run("ip", "link", "add", NEAR, "type", "veth", "peer", "name", FAR, "netns", str(holder.pid))
        self.set_up([], NEAR, HERE, THERE)
        self.set_up(self.enter, FAR, THERE, HERE)

    @staticmethod
    def start(stack, command):
        """A process that says that it is ready, and ends with its standard input, so with this process at the latest."""
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def stop():
            process.stdin.close()
            process.wait()
            process.stdout.close()
        stack.callback(stop)
        if process.stdout.readline() != "ready\n":
            raise Refused(f"{command[0]} did not start")
        return process

    def set_up(self, enter, device, address, peer):
        ip = [*enter, "ip"]
        run(*ip, "link", "set", "lo", "up")
        run(*ip, "addr", "add", address, "dev", device)
        run(*ip, "link", "set", device, "txqueuelen", str(QUEUE_PACKETS))
        if self.loss_percent:
            # One segment a packet, so that what is lost is what a network loses, and not 64 KiB.
            run(*ip, "link", "set", device, "gso_max_segs", "1")
            # Where packets arrive: a packet that is dropped where it is sent is one that TCP knows about.
            run(*enter, "iptables", "-t", "raw", "-A", "PREROUTING", "-i", device, "-m", "statistic", "--mode", "random",
                "--probability", f"{self.loss_percent / 100:.6f}", "-j", "DROP")
        run(*ip, "link", "set", device, "up")
        # By the route: the sysctl of a namespace takes only what the machine allows to all users.
        run(*ip, "route", "add", peer, "dev", device, "congctl", CONGESTION)
        # Large segments would be one packet to the shaper, longer than a small bucket.
        run(*enter, "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{self.mbit}mbit",
            "burst", str(BURST_BYTES), "latency", f"{QUEUE_MS}ms")

    @property
    def payload_bytes_per_s(self):
        """What the link carries of TCP's payload: the shaper counts headers, too."""
        packet = PACKET_BYTES + (0 if self.rtt_ms else ETHERNET_BYTES)
        return self.mbit * 1e6 / 8 * SEGMENT_BYTES / packet

    def dropped(self):
        """Packets that arrived here and were thrown away."""
        rules = run("iptables", "-t", "raw", "-nvxL", "PREROUTING") if self.loss_percent else ""
        return sum(int(line.split()[0]) for line in rules.splitlines() if " DROP " in line)

    def __str__(self):
        text = f"{self.mbit} Mbit/s"
        text += f", {self.rtt_ms:g} ms" if self.rtt_ms else ""
        return text + (f", {self.loss_percent:g} % lost" if self.loss_percent else "")
