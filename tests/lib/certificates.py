"""A private certificate authority and a server certificate for the loopback, by the openssl program."""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificates:
    ca: Path
    cert: Path
    key: Path


def make(directory, names=("DNS:localhost", "DNS:*.localhost", "IP:127.0.0.1")):
    """Makes ca.crt, public.crt and private.key in directory; the certificate holds for names."""
    d = Path(directory)
    d.mkdir(parents=True, exist_ok=True)

    def openssl(*argv):
        subprocess.run(["openssl", *map(str, argv)], cwd=d, check=True, capture_output=True)

    ec = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *ec, "-days", 30, "-subj", "/CN=test CA", "-keyout", "ca.key", "-out", "ca.crt")
    openssl("req", *ec, "-subj", "/CN=localhost", "-keyout", "private.key", "-out", "server.csr")
    (d / "names").write_text("subjectAltName=" + ",".join(names) + "\n")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", 30, "-extfile", "names", "-out", "public.crt")
    return Certificates(d / "ca.crt", d / "public.crt", d / "private.key")
