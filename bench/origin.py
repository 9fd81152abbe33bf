#!/usr/bin/python3
"""The benchmarks' origin: serves a directory of buckets as S3 on loopback, as cheaply as it can, and counts.

Bodies go out by sendfile(2) from the page cache, so that the client is what a benchmark measures. It checks no
signature. GET /-/counters tells what was asked for and how many body bytes were sent.

usage: origin.py DIR [ADDRESS]    (127.0.0.1; prints "port N" and serves until its standard input closes)
"""
import http.server
import json
import os
import socketserver
import sys
import threading
import urllib.parse
from email.utils import formatdate
from xml.sax.saxutils import escape

SLICE_BYTES = 1 << 20  # of one sendfile: bytes are counted as they go, also of a cut connection


class Counters:
    def __init__(self):
        self._lock = threading.Lock()
        self._counts = {"get": 0, "head": 0, "list": 0, "bytes": 0}

    def add(self, name, count=1):
        with self._lock:
            self._counts[name] += count

    def get(self):
        with self._lock:
            return dict(self._counts)


def etag(st):
    """Strong, and no MD5: it changes with the file, and clients can't take it for a digest of the content."""
    return f'"{st.st_ino:x}-{st.st_mtime_ns:x}-{st.st_size:x}-1"'


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def answer(self, status, headers=(), body=b"", kind="application/xml"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def error(self, status, code, headers=()):
        self.answer(status, headers, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def do_HEAD(self):
        self.serve()

    def do_GET(self):
        self.serve()

    def serve(self):
        url = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(url.query, keep_blank_values=True)
        bucket, _, key = urllib.parse.unquote(url.path).lstrip("/").partition("/")
        path = os.path.realpath(os.path.join(self.server.root, bucket, key))
        if bucket == "-" and key == "counters":
            self.answer(200, body=json.dumps(self.server.counters.get()).encode(), kind="application/json")
        elif not path.startswith(self.server.root + "/"):
            self.error(404, "NoSuchBucket")
        elif key:
            self.serve_object(path)
        elif not os.path.isdir(path):
            self.error(404, "NoSuchBucket")
        elif self.command == "HEAD" or "location" in query:
            self.answer(200, body=b"<LocationConstraint/>")
        else:
            self.server.counters.add("list")
            self.answer(200, body=listing(bucket, path, query).encode())

    def serve_object(self, path):
        try:
            fd = os.open(path, os.O_RDONLY)
        except OSError:
            return self.error(404, "NoSuchKey")
        try:
            if os.path.isdir(path):
                return self.error(404, "NoSuchKey")
            self.serve_file(fd, os.fstat(fd))
        finally:
            os.close(fd)

    def serve_file(self, fd, st):
        wanted = self.headers.get("If-Match")
        if wanted and wanted not in (etag(st), "*"):
            return self.error(412, "PreconditionFailed")
        first, last, status = 0, st.st_size - 1, 200
        asked = self.headers.get("Range", "")
        if asked.startswith("bytes=") and "," not in asked:
            low, _, high = asked[len("bytes="):].partition("-")
            first = int(low) if low else max(st.st_size - int(high), 0)
            last = min(int(high), last) if low and high else last
            status = 206
            if first >= st.st_size or last < first:
                return self.error(416, "InvalidRange", [("Content-Range", f"bytes */{st.st_size}")])
        self.send_response(status)
        self.send_header("Content-Type", "binary/octet-stream")
        self.send_header("Content-Length", str(last - first + 1))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", etag(st))
        self.send_header("Last-Modified", formatdate(st.st_mtime, usegmt=True))
        if status == 206:
            self.send_header("Content-Range", f"bytes {first}-{last}/{st.st_size}")
        self.end_headers()
        if self.command == "HEAD":
            return self.server.counters.add("head")
        self.server.counters.add("get")
        self.wfile.flush()
        return self.send_range(fd, first, last + 1)

    def send_range(self, fd, at, end):
        while at < end:
            sent = os.sendfile(self.connection.fileno(), fd, at, min(end - at, SLICE_BYTES))
            if sent == 0:  # the file became shorter: the client must not take this for its end
                self.close_connection = True
                return
            at += sent
            self.server.counters.add("bytes", sent)


def listing(bucket, path, query):
    """All keys below a prefix in one page: the benchmarks' buckets hold few."""
    prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
    contents, common = [], set()
    for folder, _, names in os.walk(path):
        for name in names:
            full = os.path.join(folder, name)
            key = os.path.relpath(full, path)
            rest = key[len(prefix):]
            if not key.startswith(prefix):
                continue
            if delimiter and delimiter in rest:
                common.add(prefix + rest.split(delimiter)[0] + delimiter)
            else:
                contents.append((key, os.stat(full)))
    quote = urllib.parse.quote if query.get("encoding-type") == ["url"] else escape
    rows = [f"<Contents><Key>{quote(key)}</Key><Size>{st.st_size}</Size><ETag>{escape(etag(st))}</ETag>"
            f"<LastModified>{formatdate_iso(st.st_mtime)}</LastModified><StorageClass>STANDARD</StorageClass></Contents>"
            for key, st in sorted(contents)]
    rows += [f"<CommonPrefixes><Prefix>{quote(name)}</Prefix></CommonPrefixes>" for name in sorted(common)]
    encoding = "<EncodingType>url</EncodingType>" if quote is urllib.parse.quote else ""
    return ('<?xml version="1.0" encoding="UTF-8"?>'
            '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{bucket}</Name><Prefix>{quote(prefix)}</Prefix><Delimiter>{quote(delimiter)}</Delimiter>"
            f"<MaxKeys>1000</MaxKeys>{encoding}<KeyCount>{len(rows)}</KeyCount><IsTruncated>false</IsTruncated>"
            + "".join(rows) + "</ListBucketResult>")


def formatdate_iso(seconds):
    import datetime
    return datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000Z")


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, root, address):
        super().__init__((address, 0), Handler)
        self.root = os.path.realpath(root)
        self.counters = Counters()

    def handle_error(self, *_):
        """A client that closes in the middle of an answer is its own business."""


def main():
    server = Server(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"port {server.server_address[1]}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
