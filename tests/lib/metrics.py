"""/metrics as Prometheus's own parser takes it."""

import http.client
import socket

from prometheus_client.parser import text_string_to_metric_families


class Link(http.client.HTTPConnection):
    """HTTP over the daemon's control socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=30)
        self._path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def text(cache):
    link = Link(cache.control)
    link.request("GET", "/metrics")
    answer = link.getresponse()
    body = answer.read().decode()
    link.close()
    assert answer.status == 200, body
    return body


def families(body):
    """Each once, by name; a counter's without _total."""
    found = {}
    for family in text_string_to_metric_families(body):
        assert family.name not in found, family.name
        found[family.name] = family
    return found


def value(body, name, **labels):
    """The sum of all samples of this name that have these labels."""
    samples = [s for family in families(body).values() for s in family.samples
               if s.name == name and labels.items() <= s.labels.items()]
    assert samples, (name, labels)
    return sum(s.value for s in samples)
