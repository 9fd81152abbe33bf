"""Real S3 servers on free ports of the loopback: versitygw, which checks signatures strictly, and MinIO."""

import http.client
import os
import socket
import ssl
import uuid
from pathlib import Path

from lib import process, wait
from lib.s3 import S3

REPO = Path(__file__).resolve().parents[2]
TOOLS = REPO / "build" / "tools"
START_TRIES = 3  # a free port can be taken by another process before the server binds it


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """An S3 server with its data below directory, started by `with` or start()."""

    program = None
    health = None
    region = "us-east-1"
    access_key = "testaccess"
    secret_key = "testsecretkey0"

    def __init__(self, directory, certificates=None):
        self.directory = Path(directory)
        self.certificates = certificates
        self.log = self.directory / "server.log"
        self.port = None
        self.process = None
        (self.directory / "data").mkdir(parents=True, exist_ok=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    @classmethod
    def available(cls):
        return os.access(TOOLS / cls.program, os.X_OK)

    @property
    def endpoint(self):
        return f"{'https' if self.certificates else 'http'}://127.0.0.1:{self.port}"

    def argv(self):
        raise NotImplementedError

    def environment(self):
        return process.environment()

    def _healthy(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.program} ended with {self.process.returncode}:\n{self.log.read_text()}")
        if self.certificates:
            context = ssl.create_default_context(cafile=str(self.certificates.ca))
            link = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=5, context=context)
        else:
            link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            link.request("GET", self.health)
            return link.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            link.close()

    def start(self):
        """Starts the server; the first time on a port of its own, afterwards on the same."""
        again = self.port is not None
        for attempt in range(START_TRIES):
            if not again:
                self.port = free_port()
            self.process = process.start([TOOLS / self.program, *self.argv()], self.log, self.environment())
            try:
                wait.until(self._healthy, 60, f"{self.program}'s health")
                return self
            except (RuntimeError, TimeoutError):
                self.stop()
                if again or attempt == START_TRIES - 1:
                    raise

    def stop(self):
        if self.process:
            process.stop(self.process)
            self.process = None

    def client(self, **more):
        ca = self.certificates.ca if self.certificates else None
        return S3(self.endpoint, self.access_key, self.secret_key, self.region, ca, **more)

    def credentials(self):
        """The environment that lets an S3 program in."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
        }


def bucket_name():
    return "t" + uuid.uuid4().hex[:20]


class Versitygw(Server):
    """Keeps each object as a file below data/BUCKET, so that `x` and `x/y` exclude each other."""

    program = "versitygw"
    health = "/health"

    def argv(self):
        tls = []
        if self.certificates:
            tls = ["--cert", self.certificates.cert, "--key", self.certificates.key]
        return ["--port", f"127.0.0.1:{self.port}", "--access", self.access_key, "--secret", self.secret_key,
                "--region", self.region, "--health", self.health, "--quiet", "--keep-alive",
                "--virtual-domain", "localhost", *tls, "posix", self.directory / "data"]


class Minio(Server):
    """Can't hold both `x` and `x/y`."""

    program = "minio"
    health = "/minio/health/ready"

    def argv(self):
        tls = ["--certs-dir", self.certificates.cert.parent] if self.certificates else []
        return ["server", "--quiet", "--address", f"127.0.0.1:{self.port}", *tls, self.directory / "data"]

    def environment(self):
        return process.environment(
            MINIO_ROOT_USER=self.access_key,
            MINIO_ROOT_PASSWORD=self.secret_key,
            MINIO_REGION=self.region,
            MINIO_DOMAIN="localhost",
            MINIO_BROWSER="off",
            MINIO_UPDATE="off",
            HOME=self.directory,
        )
