"""A scripted HTTP origin: S3's LIST, HEAD and GET (or a plain web server's) over objects in memory. Tests change the
objects and the rules while it runs, and read afterwards what was asked and what was sent."""

import bisect
import hashlib
import os
import socket
import ssl
import struct
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Optional
from urllib.parse import parse_qsl, quote, unquote_to_bytes
from xml.sax.saxutils import escape

from lib import listing
from lib.rules import Rule

BLOCK = 1 << 18
EPOCH = datetime(2024, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Object:
    data: memoryview
    etag: str  # with its quotes; "" for none
    modified: datetime
    headers: dict


@dataclass
class Request:
    number: int
    method: str
    op: str
    key: str  # undecodable bytes as surrogates
    first: Optional[int]  # of the range asked for
    last: Optional[int]
    headers: dict
    query: dict
    status: int = 0
    sent: int = 0  # bytes of the body that went out
    rule: Optional[Rule] = None
    turn: int = 0  # which one of its connection, from 0


@dataclass
class Listing:
    """How the origin lists. v2: "yes", "ignored" (the parameter is unknown: answers as V1) or "refused"."""

    v2: str = "yes"
    page_size: int = 1000
    index: bool = True  # a plain web server shows directories


def _bytes(text):
    return text.encode("utf-8", "surrogateescape")


def _text(raw):
    return raw.decode("utf-8", "surrogateescape")


class Faulty:
    """bucket=None: a plain web server whose paths are the keys. Use with `with`, or start() and stop()."""

    def __init__(self, bucket="bucket", certificates=None, region="us-east-1"):
        self.bucket = bucket
        self.certificates = certificates
        self.region = region
        self.listing = Listing()
        self.condition = threading.Condition()  # guards everything below; never held while sending
        self.stopping = False
        self.cut_connections = 0  # so many more end before the first byte, or the handshake
        self.running = 0  # requests that are being answered
        self.most_at_once = 0
        self._objects = {}
        self._keys = []  # sorted
        self._rules = []
        self._log = []
        self._links = set()
        self._server = None
        self._thread = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def start(self):
        self._server = _Listener(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="faulty", daemon=True)
        self._thread.start()
        return self

    def stop(self):
        with self.condition:
            self.stopping = True
            self.condition.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.drop_connections()

    def drop_connections(self):
        """Ends every open connection, as a restarted server would."""
        with self.condition:
            links = list(self._links)
        for link in links:
            try:
                link.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def show(self, certificates):
        """The certificate of every later connection; no session is resumed."""
        self._server.show(certificates)
        self.drop_connections()

    @property
    def port(self):
        return self._server.server_address[1]

    @property
    def endpoint(self):
        return f"{'https' if self.certificates else 'http'}://127.0.0.1:{self.port}"

    # Objects

    def put(self, key, data, etag=None, headers=None, modified=EPOCH):
        """Adds or replaces; etag: None for the MD5, "" for none. Returns the ETag."""
        data = memoryview(data).cast("B")
        if etag is None:
            etag = f'"{hashlib.md5(data).hexdigest()}"'
        name = _bytes(key)
        with self.condition:
            if name not in self._objects:
                bisect.insort(self._keys, name)
            self._objects[name] = Object(data, etag, modified, dict(headers or {}))
        return etag

    def delete(self, key):
        name = _bytes(key)
        with self.condition:
            del self._objects[name]
            self._keys.remove(name)

    # Rules and the log

    def rule(self, **what):
        """Switches a Rule on, behind those that are on already."""
        rule = Rule(self, **what)
        with self.condition:
            self._rules.append(rule)
        return rule

    def remove_rule(self, rule):
        with self.condition:
            if rule in self._rules:
                self._rules.remove(rule)

    def clear_rules(self):
        with self.condition:
            rules = list(self._rules)
        for rule in rules:
            rule.remove()

    def requests(self, op=None, key=None, where=None):
        """What was asked since the start or clear_log(), in order of arrival."""
        with self.condition:
            log = list(self._log)
        return [r for r in log
                if (op is None or r.op == op) and (key is None or r.key == key) and (where is None or where(r))]

    def count(self, op=None, key=None, where=None):
        return len(self.requests(op, key, where))

    def sent(self, op="get", key=None):
        """Bytes of bodies that went out."""
        return sum(r.sent for r in self.requests(op, key))

    def clear_log(self):
        with self.condition:
            self._log.clear()

    def wait_for(self, condition, timeout_s=30.0, what="the condition"):
        """condition: called with self.condition held, again after each request and each change."""
        with self.condition:
            if not self.condition.wait_for(condition, timeout_s):
                raise TimeoutError(f"{what} did not come within {timeout_s} s")

    def wait_requests(self, count, timeout_s=30.0, **which):
        self.wait_for(lambda: self.count(**which) >= count, timeout_s, f"{count} requests {which}")

    # For the connections' threads

    def admit(self, request):
        """Logs the request and finds its rule and its object."""
        with self.condition:
            request.number = len(self._log)
            self._log.append(request)
            request.rule = next((r for r in self._rules if r.matches(request)), None)
            found = self._objects.get(_bytes(request.key))
            self.running += 1
            self.most_at_once = max(self.most_at_once, self.running)
            self.condition.notify_all()
        return found

    def cuts(self):
        with self.condition:
            if not self.cut_connections:
                return False
            self.cut_connections -= 1
            return True

    def leave(self):
        with self.condition:
            self.running -= 1

    def hold(self, rule):
        """Waits for the rule's release; False when the origin stops meanwhile."""
        with self.condition:
            self.condition.wait_for(lambda: rule.released or self.stopping)
            return not self.stopping

    def progress(self, request, sent):
        with self.condition:
            request.sent += sent
            self.condition.notify_all()

    def track(self, link, there):
        with self.condition:
            (self._links.add if there else self._links.discard)(link)

    def page(self, query, v2):
        limit = min(int(query.get("max-keys", 1000)), self.listing.page_size)
        if v2:
            token = query.get("continuation-token")
            after = bytes.fromhex(token) if token else _bytes(query.get("start-after", ""))
        else:
            after = _bytes(query.get("marker", ""))
        with self.condition:
            keys, objects = list(self._keys), dict(self._objects)
        result = listing.page(keys, _bytes(query.get("prefix", "")), _bytes(query.get("delimiter", "")), after, limit)

        def describe(key):
            o = objects[key]
            return len(o.data), o.etag, o.modified.strftime("%Y-%m-%dT%H:%M:%S.000Z")

        return listing.to_xml(result, describe, query, self.bucket, v2, limit)

    def index(self, path):
        """A directory as web servers show it; None when there is none."""
        prefix = _bytes(path)
        with self.condition:
            result = listing.page(list(self._keys), prefix, b"/", b"", 1 << 30)
        if not result.keys and not result.prefixes:
            return None
        names = [n[len(prefix):] for n in result.prefixes + result.keys if n != prefix]
        links = "".join(f'<a href="{quote(n)}">{escape(n.decode("utf-8", "replace"))}</a>\n' for n in names)
        return f"<html><head><title>Index of /{escape(path)}</title></head><body>\n{links}</body></html>\n".encode()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, origin):
        self.origin = origin
        self.tls = None
        if origin.certificates:
            self.show(origin.certificates)
        super().__init__(("127.0.0.1", 0), _Connection)

    def show(self, certificates):
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(certificates.cert, certificates.key)

    def finish_request(self, request, client_address):
        if self.origin.cuts():
            return
        if self.tls:  # here, in the connection's own thread, so that a slow client stops nobody else
            request = self.tls.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, request, client_address):
        pass  # a client that went away is no news


@dataclass
class _Answer:
    status: int
    body: memoryview = memoryview(b"")
    headers: dict = field(default_factory=dict)


def _error(status, code):
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{code}</Message></Error>'
    return _Answer(status, memoryview(body.encode()), {"Content-Type": "application/xml"})


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    turns = 0  # requests that came in it

    def log_message(self, *_):
        pass

    def handle(self):
        self.server.origin.track(self.connection, True)
        try:
            super().handle()
        finally:
            self.server.origin.track(self.connection, False)

    def do_GET(self):
        origin = self.server.origin
        request = self._read_request()
        found = origin.admit(request)
        try:
            self._serve(request, found)
        finally:
            origin.leave()

    def _serve(self, request, found):
        origin = self.server.origin
        rule = request.rule
        if rule and rule.stall_at == -1 and not origin.hold(rule):
            return self._cut(False)
        if rule and rule.late:
            time.sleep(rule.late)
        if rule and rule.cut_at == -1:
            return self._cut(rule.reset)
        answer = _error(rule.status, rule.code) if rule and rule.status else self._answer(request, found)
        self._send(request, answer)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def _read_request(self):
        origin = self.server.origin
        target, _, raw_query = self.path.partition("?")
        query = dict(parse_qsl(raw_query, keep_blank_values=True, errors="surrogateescape"))
        path = _text(unquote_to_bytes(target.encode("latin-1")))[1:]
        key, op = path, "other"
        whole_bucket = False
        if origin.bucket is not None and not self.headers.get("Host", "").startswith(origin.bucket + "."):
            bucket, slash, key = path.partition("/")
            if bucket != origin.bucket:
                key = path
                query["no-such-bucket"] = bucket
        if origin.bucket is not None:
            whole_bucket = key == ""
        if self.command == "HEAD":
            op = "head"
        elif self.command == "GET":
            op = "get"
            if whole_bucket:
                op = "other" if "location" in query else "list"
            elif origin.bucket is None and (key == "" or key.endswith("/")):
                op = "index"
        length = int(self.headers.get("Content-Length") or 0)
        if length:
            self.rfile.read(length)
        first, last = self._range()
        headers = {k.lower(): v for k, v in self.headers.items()}
        turn, self.turns = self.turns, self.turns + 1
        return Request(0, self.command, op, key, first, last, headers, query, turn=turn)

    def _range(self):
        unit, _, text = self.headers.get("Range", "").partition("=")
        first, dash, last = text.partition("-")
        if unit != "bytes" or not dash or "," in text:
            return None, None
        if not first:
            return -int(last), None
        return int(first), int(last) if last else None

    def _answer(self, request, found):
        origin = self.server.origin
        if "no-such-bucket" in request.query:
            return _error(404, "NoSuchBucket")
        if request.op == "list":
            return self._list(request)
        if request.op == "index":
            body = origin.index(request.key) if origin.listing.index else None
            return _Answer(200, memoryview(body), {"Content-Type": "text/html"}) if body else _error(404, "NoSuchKey")
        if request.op == "other" and "location" in request.query:
            body = f'<LocationConstraint xmlns="{listing.NAMESPACE}">{origin.region}</LocationConstraint>'
            return _Answer(200, memoryview(body.encode()), {"Content-Type": "application/xml"})
        if request.method not in ("GET", "HEAD"):
            return _error(405, "MethodNotAllowed")
        if request.method == "HEAD" and origin.bucket is not None and request.key == "":
            return _Answer(200, headers={"x-amz-bucket-region": origin.region})
        if found is None:
            return _error(404, "NoSuchKey")
        return self._object(request, found)

    def _list(self, request):
        origin = self.server.origin
        v2 = request.query.get("list-type") == "2"
        if v2 and origin.listing.v2 == "refused":
            return _error(501, "NotImplemented")
        body = origin.page(request.query, v2 and origin.listing.v2 == "yes")
        return _Answer(200, memoryview(body), {"Content-Type": "application/xml"})

    def _object(self, request, found):
        headers = {"Last-Modified": format_datetime(found.modified, usegmt=True), "Accept-Ranges": "bytes",
                   "Content-Type": "application/octet-stream"}
        if found.etag:
            headers["ETag"] = found.etag
        headers.update(found.headers)
        wanted = request.headers.get("if-match")
        if wanted is not None and wanted != "*":
            # a weak ETag never matches here (RFC 9110, 13.1.1)
            if found.etag.startswith("W/") or found.etag not in [t.strip() for t in wanted.split(",")]:
                return _error(412, "PreconditionFailed")
        if request.headers.get("if-none-match") == found.etag and found.etag:
            return _Answer(304, headers=headers)
        size = len(found.data)
        if request.first is None or (request.rule and request.rule.whole):
            return _Answer(200, found.data, headers)
        first = request.first if request.first >= 0 else max(0, size + request.first)
        last = size - 1 if request.last is None else min(request.last, size - 1)
        if first >= size or last < first:
            refused = _error(416, "InvalidRange")
            refused.headers["Content-Range"] = f"bytes */{size}"
            return refused
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        return _Answer(206, found.data[first:last + 1], headers)

    def _send(self, request, answer):
        rule = request.rule
        if rule and rule.body is not None:
            answer.body = memoryview(rule.body)
        if rule and rule.edit:
            answer.body = memoryview(rule.edit(bytes(answer.body)))
        chunked = bool(rule and rule.chunked)
        framing = {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(len(answer.body))}
        headers = {**framing, **answer.headers}
        for name, value in (rule.headers if rule else {}).items():
            headers[name] = value(request) if callable(value) else value
        request.status = answer.status
        self.send_response(answer.status)
        for name, value in headers.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        if request.method != "HEAD" and answer.status != 304:
            self._send_body(request, answer.body, chunked)

    def _send_body(self, request, body, chunked):
        origin, rule = self.server.origin, request.rule
        at = 0
        while True:
            if rule and rule.stall_at == at and not origin.hold(rule):
                return self._cut(False)
            if rule and rule.cut_at == at:
                return self._cut(rule.reset)
            if at >= len(body):
                break
            stops = [len(body), at + (rule.trickle[0] if rule and rule.trickle else BLOCK)]
            if rule:
                stops += [s for s in (rule.stall_at, rule.cut_at) if s is not None and s > at]
            end = min(stops)
            piece = body[at:end]
            self.wfile.write(b"%x\r\n%b\r\n" % (end - at, bytes(piece)) if chunked else piece)
            origin.progress(request, end - at)
            if rule and rule.trickle and end < len(body):
                time.sleep(rule.trickle[1])
            at = end
        if chunked:
            self.wfile.write(b"0\r\n\r\n")
        promised = rule.headers.get("Content-Length") if rule else None
        if promised is not None and not callable(promised) and int(promised) > len(body):
            self.close_connection = True  # the client waits for what was said

    def _cut(self, reset):
        self.close_connection = True
        if not reset:
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.server.origin.track(self.connection, False)
        os.close(self.connection.detach())  # a plain close would wait for the file objects on it
