"""The kinds of origin behind one shape, so that a test of reading runs against each of them.

source: what `cachefs mount` takes; options: its -o options; env: what the daemon needs in its environment;
put(key, data) and delete(key) act behind the mount's back."""

import os
from pathlib import Path

from lib.data import digest, make
from lib.servers import bucket_name


class DirectoryOrigin:
    kind = "file"

    def __init__(self, directory):
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.source = f"file://{self.directory}"
        self.options = ()
        self.env = {}

    def put(self, key, data):
        """Replaces by rename, so that no reader sees half of it."""
        path = self.directory / key
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(path.name + ".new")
        new.write_bytes(data)
        os.replace(new, path)

    def delete(self, key):
        (self.directory / key).unlink()


def numbered(directory, count, step):
    """A directory of files d0/0, d1/1, d2/2, d0/3 …, each `step` longer than the one before; and {key: digest}."""
    origin = DirectoryOrigin(directory)
    wanted = {}
    for n in range(count):
        content = make(str(n), n * step + 1)
        origin.put(f"d{n % 3}/{n}", content)
        wanted[f"d{n % 3}/{n}"] = digest(content)
    return origin, wanted


class S3Origin:
    """A bucket of its own on a real server, removed by close()."""

    def __init__(self, server, prefix=""):
        self.kind = server.program
        self.server = server
        self.client = server.client()
        self.bucket = bucket_name()
        self.prefix = prefix
        self.client.make_bucket(self.bucket)
        self.source = f"s3://{self.bucket}/{prefix}".rstrip("/")
        self.options = (f"endpoint={server.endpoint}", f"region={server.region}", "addressing=path")
        self.env = server.credentials()

    def put(self, key, data):
        self.client.put(self.bucket, self.prefix + key, data)

    def delete(self, key):
        self.client.delete(self.bucket, self.prefix + key)

    def close(self):
        self.client.remove_bucket(self.bucket)


class FaultyOrigin:
    """A scripted origin as seen by `cachefs mount`; the script is in `faulty`."""

    kind = "faulty"

    def __init__(self, faulty):
        self.faulty = faulty
        self.env = {}
        if faulty.bucket is None:
            self.source = f"{faulty.endpoint}/"
            self.options = ()
        else:
            self.source = f"s3://{faulty.bucket}"
            self.options = (f"endpoint={faulty.endpoint}", f"region={faulty.region}", "addressing=path", "anonymous")
        if faulty.certificates:
            self.options += (f"ca={faulty.certificates.ca}",)

    def put(self, key, data):
        self.faulty.put(key, data)

    def delete(self, key):
        self.faulty.delete(key)
