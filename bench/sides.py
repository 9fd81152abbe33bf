"""What shows the object as a file: the native file, cachefs, and the peers beside it."""
import ctypes
import errno
import fcntl
import glob
import json
import mmap
import os
import shutil
import struct
import subprocess
import time
import urllib.request

from measure import Refused, drop_caches, load_cache

PIECE_BYTES = 1 << 20
WAIT_S = 30
MNT_DETACH = 2
LOOPBACK = "127.0.0.1"
KEYS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench-secret", "AWS_DEFAULT_REGION": "us-east-1"}


def environment(**more):
    """Ours, without what it says about object stores elsewhere."""
    return {name: value for name, value in os.environ.items() if not name.startswith("AWS_")} | KEYS | more


def wait_until(what, test):
    """Polls; the things waited for have no event that we could wait on."""
    end = time.monotonic() + WAIT_S
    while not test():
        if time.monotonic() > end:
            raise Refused(f"{what} did not happen within {WAIT_S} s")
        time.sleep(0.02)


def is_mounted(path):
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        return any(line.split(" ")[4] == path for line in file)


def unmount(path):
    """Also of a mount whose daemon is dead."""
    libc = ctypes.CDLL(None, use_errno=True)
    while is_mounted(path):
        if libc.umount2(os.fsencode(path), MNT_DETACH) < 0 and ctypes.get_errno() != errno.EINVAL:
            raise OSError(ctypes.get_errno(), "umount2", path)


def end_process(process):
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def write_direct(source, path):
    """A copy laid out as the store lays out its raw files: sized first, then O_DIRECT in pieces of 1 MiB."""
    size = os.path.getsize(source)
    with open(source, "rb", buffering=0) as file, mmap.mmap(-1, PIECE_BYTES) as piece:
        plain = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        direct = os.open(path, os.O_RDWR | os.O_DIRECT)
        try:
            os.ftruncate(plain, size)
            for at in range(0, size, PIECE_BYTES):
                got = file.readinto(piece)
                if got == PIECE_BYTES:
                    os.pwritev(direct, [piece], at)
                else:
                    os.pwrite(plain, piece[:got], at)
            os.fsync(plain)
        finally:
            os.close(direct)
            os.close(plain)


def extents(path):
    """How many pieces the file system keeps a file in (FS_IOC_FIEMAP); None where it doesn't say."""
    head = struct.pack("=QQIIII", 0, 2**64 - 1, 0, 0, 0, 0)
    with open(path, "rb") as file:
        try:
            return struct.unpack("=QQIIII", fcntl.ioctl(file, 0xC020660B, head))[3]
        except OSError:
            return None


class Origin:
    """The counting server of origin.py; at the far end of a link, where one is given. certificates: to speak TLS with."""

    def __init__(self, stack, root, bucket, key, link=None, certificates=None):
        self.root, self.bucket, self.key = root, bucket, key
        self.object = os.path.join(root, bucket, key)
        self.ca = str(certificates.ca) if certificates else None
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "origin.py")
        address = link.address if link else LOOPBACK
        tls = ["--tls", str(certificates.cert), str(certificates.key)] if certificates else []
        process = subprocess.Popen([*(link.enter if link else []), "/usr/bin/python3", script, root, "--address", address, *tls],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        stack.callback(end_origin, process)
        line = process.stdout.readline()
        if not line:
            raise Refused("the benchmarks' origin did not start")
        ports = json.loads(line)
        self.endpoint = f"{'https' if certificates else 'http'}://{address}:{ports['port']}"
        self.url = f"{self.endpoint}/{bucket}/{key}"
        self.counters_url = f"http://{address}:{ports['counters']}/-/counters"

    def counters(self):
        with urllib.request.urlopen(self.counters_url) as answer:
            return json.load(answer)


def end_origin(process):
    """It ends with its standard input, and its own server before it."""
    process.stdin.close()
    process.wait()
    process.stdout.close()


class Side:
    """
    path: the object as this side shows it. pid(): of its daemon, or None. make_warm(): afterwards it is kept whole on
    this machine. make_cold(): afterwards nothing of it is kept, and the origin has it in the page cache. settle(): after a
    read of a cold object, returns when the daemon has no more work with it.
    check_passthrough(): raises Refused where reads go through a daemon though the row is about those that don't.
    """
    name = ""
    is_peer = False
    has_origin = False  # whether it fetches from the origin, so that it can be cold

    def pid(self):
        return None

    def make_warm(self):
        pass

    def settle(self):
        pass

    def check_passthrough(self):
        pass


class Native(Side):
    name = "native"

    def __init__(self, stack, directory, origin):
        os.mkdir(directory)
        self.path = os.path.join(directory, origin.key)
        write_direct(origin.object, self.path)
        self.extents = extents(self.path)


class Null(Native):
    """A second plain file, seen through a bind mount: its ratio to the first tells the noise of the machine."""
    name = "null"

    def __init__(self, stack, directory, origin):
        super().__init__(stack, directory, origin)
        mountpoint = directory + ".mnt"
        os.mkdir(mountpoint)
        subprocess.run(["mount", "--bind", directory, mountpoint], check=True)
        stack.callback(unmount, mountpoint)
        self.path = os.path.join(mountpoint, origin.key)


class Cachefs(Side):
    name = "cachefs"
    has_origin = True

    def __init__(self, stack, directory, origin, binary, how="serve", connections=None):
        """how: "serve", or "hold" for a daemon that may die. connections: at most; None: its own default."""
        self.binary, self.origin = binary, origin
        self.store, self.mountpoint = os.path.join(directory, "store"), os.path.join(directory, "mnt")
        os.makedirs(self.mountpoint)
        self.path = os.path.join(self.mountpoint, origin.key)
        self.environment = environment(CACHEFS_STORE=self.store, CACHEFS_CONTROL=os.path.join(directory, "control.sock"))
        self.log = os.path.join(directory, "log")
        capacity = 4 * os.path.getsize(origin.object) + (1 << 30)
        with open(self.log, "wb") as log:
            self.daemon = subprocess.Popen([binary, how, "--size", str(capacity)],
                                           env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        stack.callback(end_process, self.daemon)
        wait_until("the start of the daemon", self.answers)
        stack.callback(unmount, self.mountpoint)
        options = f"ro,endpoint={origin.endpoint},addressing=path,region=us-east-1"
        options += f",ca={origin.ca}" if origin.ca else ""
        options += f",connections={connections}" if connections else ""
        self.command("mount", "-o", options, f"s3://{origin.bucket}", self.mountpoint)
        self.passthrough_opens = 0

    def answers(self):
        if self.daemon.poll() is not None:
            with open(self.log, encoding="utf-8", errors="replace") as log:
                raise Refused(f"cachefs ended: {log.read()[-2000:]}")
        return self.run("status", "--json").returncode == 0

    def run(self, *arguments):
        return subprocess.run([self.binary, *arguments], env=self.environment, capture_output=True, text=True, check=False)

    def command(self, *arguments):
        done = self.run(*arguments)
        if done.returncode != 0:
            raise Refused(f"cachefs {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def status(self, *path):
        return json.loads(self.command("status", "--json", *path))

    def pid(self):
        return self.daemon.pid

    def settle(self):
        wait_until(f"{self.origin.key} becoming warm", lambda: self.status(self.path)["warm"] is True)

    def make_warm(self):
        load_cache(self.path)
        self.settle()
        self.check_feature()
        load_cache(self.path)
        self.passthrough_opens = self.count_passthrough_opens()

    def make_cold(self):
        # The kernel may tell of the last close a moment after it.
        wait_until("the eviction", lambda: self.run("evict", self.path).returncode == 0)
        drop_caches()
        load_cache(self.origin.object)

    def check_feature(self):
        features = self.status()["daemon"]["features"]
        if features.get("passthrough") is not True:
            raise Refused(f"passthrough is off: {features.get('passthrough_reason') or 'see cachefs doctor'}")

    def count_passthrough_opens(self):
        return sum(volume["passthrough_opens"] for volume in self.status()["volumes"])

    def check_passthrough(self):
        now = self.count_passthrough_opens()
        if now <= self.passthrough_opens:
            raise Refused("the file was opened without passthrough")
        self.passthrough_opens = now

    def raw_extents(self):
        """Of the store's raw file of the object, which is as long as the object."""
        size = os.path.getsize(self.origin.object)
        found = [path for path in glob.glob(os.path.join(self.store, "raw", "*", "*")) if os.path.getsize(path) == size]
        return extents(found[0]) if len(found) == 1 else None


class Peer(Side):
    """Another program's mount of the same object, with its cache on; cold means started anew with an empty one."""
    is_peer = True
    has_origin = True

    def __init__(self, stack, directory, origin):
        self.origin = origin
        self.cache, self.mountpoint = os.path.join(directory, "cache"), os.path.join(directory, "mnt")
        os.makedirs(self.mountpoint)
        self.path = os.path.join(self.mountpoint, origin.key)
        self.process = None
        stack.callback(self.stop)
        self.start()

    def start(self):
        os.mkdir(self.cache)
        self.process = subprocess.Popen(self.arguments(), env=environment(**self.settings()),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(f"the mount by {self.name}", lambda: is_mounted(self.mountpoint) or self.process.poll() is not None)
        if self.process.poll() is not None:
            raise Refused(f"{self.name} ended with status {self.process.returncode}")

    def stop(self):
        unmount(self.mountpoint)
        if self.process:
            end_process(self.process)
        shutil.rmtree(self.cache, ignore_errors=True)

    def pid(self):
        return self.process.pid

    def make_warm(self):
        load_cache(self.path)
        load_cache(self.path)

    def make_cold(self):
        self.stop()
        self.start()
        drop_caches()
        load_cache(self.origin.object)


class Rclone(Peer):
    name = "rclone"

    def arguments(self):
        return ["rclone", "mount", f"bench:{self.origin.bucket}", self.mountpoint, "--config", "", "--read-only",
                "--vfs-cache-mode", "full", "--cache-dir", self.cache]

    def settings(self):
        remote = {"TYPE": "s3", "PROVIDER": "Other", "ENDPOINT": self.origin.endpoint, "FORCE_PATH_STYLE": "true",
                  "ACCESS_KEY_ID": KEYS["AWS_ACCESS_KEY_ID"], "SECRET_ACCESS_KEY": KEYS["AWS_SECRET_ACCESS_KEY"]}
        trust = {"RCLONE_CA_CERT": self.origin.ca} if self.origin.ca else {}
        return {f"RCLONE_CONFIG_BENCH_{name}": value for name, value in remote.items()} | trust


class S3fs(Peer):
    name = "s3fs"

    def arguments(self):
        return ["s3fs", self.origin.bucket, self.mountpoint, "-f", "-o", f"url={self.origin.endpoint}",
                "-o", "use_path_request_style", "-o", f"use_cache={self.cache}", "-o", "ro", "-o", "sigv4"]

    def settings(self):
        trust = {"CURL_CA_BUNDLE": self.origin.ca} if self.origin.ca else {}
        return {"AWSACCESSKEYID": KEYS["AWS_ACCESS_KEY_ID"], "AWSSECRETACCESSKEY": KEYS["AWS_SECRET_ACCESS_KEY"]} | trust


PEERS = {"rclone": Rclone, "s3fs": S3fs}
