"""A private certificate authority and a server certificate for the loopback, by the openssl program."""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificates:
    ca: Path
    cert: Path
    key: Path


def make(directory, names=("DNS:localhost", "DNS:*.localhost", "IP:127.0.0.1"), ca=None, days=30):
    """Makes ca.crt, public.crt and private.key in directory; the certificate holds for names, so many days (a negative
    number: it is past). ca: of other certificates, which signs these too."""
    d = Path(directory)
    d.mkdir(parents=True, exist_ok=True)

    def openssl(*argv):
        subprocess.run(["openssl", *map(str, argv)], cwd=d, check=True, capture_output=True)

    ec = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    if ca:
        for name in ("ca.crt", "ca.key"):
            (d / name).write_bytes((ca.ca.parent / name).read_bytes())
    else:
        openssl("req", "-x509", *ec, "-days", 30, "-subj", "/CN=test CA", "-keyout", "ca.key", "-out", "ca.crt")
    openssl("req", *ec, "-subj", "/CN=localhost", "-keyout", "private.key", "-out", "server.csr")
    (d / "names").write_text("subjectAltName=" + ",".join(names) + "\n")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", days, "-extfile", "names", "-out", "public.crt")
    return Certificates(d / "ca.crt", d / "public.crt", d / "private.key")
