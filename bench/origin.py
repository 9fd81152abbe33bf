#!/usr/bin/python3
"""The benchmarks' origin: a directory of buckets as S3, as cheaply as can be, and counted.

nginx sends the objects, by sendfile(2) from the page cache or through TLS, so that the link, the processors and the client
are what a benchmark measures. What a file server doesn't know, listings and errors in XML, it hands on to the small server
in here. Neither checks a signature. GET /-/counters at the small server tells what was asked for, and how many bytes of
bodies were sent: of a request when it has ended, also when it was cut.

usage: origin.py DIR [--address ADDRESS] [--tls CERTIFICATE KEY]

Prints {"port": …, "counters": …}, the ports of nginx and of the small server, and serves until its standard input closes.
What nginx writes is kept beside DIR until then.
"""
import argparse
import contextlib
import ctypes
import datetime
import http.server
import json
import os
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from xml.sax.saxutils import escape

WORKERS = 2
START_TRIES = 3  # a free port may be taken before nginx has it
PR_SET_PDEATHSIG = 1

CONFIG = """
daemon off;
user root;
worker_processes {workers};
pid {scratch}/pid;
error_log {scratch}/errors warn;
events {{ worker_connections 1024; }}
http {{
	client_body_temp_path {scratch}/body;
	proxy_temp_path {scratch}/proxy;
	fastcgi_temp_path {scratch}/fastcgi;
	uwsgi_temp_path {scratch}/uwsgi;
	scgi_temp_path {scratch}/scgi;
	default_type binary/octet-stream;
	sendfile on;
	keepalive_requests 1000000;
	keepalive_timeout 600;
	log_format counted "$request_method $body_bytes_sent";
	access_log off;
	server {{
		listen {address}:{port} {tls};
		root {root};
		location ~ ^/[^/]*/?$ {{ proxy_pass http://{small}; }}
		location / {{
			access_log {scratch}/counted counted;
			output_buffers 2 512k;
			error_page 403 404 = @small;
		}}
		location @small {{ proxy_pass http://{small}; }}
	}}
}}
"""


class Nginx:
    """small: ADDRESS:PORT of the small server; tls: the certificate's and the key's file, or None."""

    def __init__(self, stack, root, address, tls, small):
        program = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
        if not program:
            sys.exit("origin.py: nginx is not installed: scripts/setup.sh bench")
        self.scratch = tempfile.mkdtemp(prefix="nginx-", dir=os.path.dirname(root))
        stack.callback(shutil.rmtree, self.scratch, ignore_errors=True)
        self.counts, self.read_to = {"get": 0, "head": 0, "bytes": 0}, 0
        self.lock = threading.Lock()  # of the counts
        words = f"ssl; ssl_certificate {tls[0]}; ssl_certificate_key {tls[1]}" if tls else ""
        for _ in range(START_TRIES):
            self.port = free_port(address)
            with open(f"{self.scratch}/conf", "w", encoding="utf-8") as file:
                file.write(CONFIG.format(workers=WORKERS, scratch=self.scratch, address=address, port=self.port, tls=words,
                                         root=root, small=small))
            self.process = subprocess.Popen([program, "-e", f"{self.scratch}/errors", "-c", f"{self.scratch}/conf"],
                                            stdin=subprocess.DEVNULL, preexec_fn=end_with_parent)
            stack.callback(self.stop)
            if self.answers(address):
                return
        with open(f"{self.scratch}/errors", encoding="utf-8", errors="replace") as file:
            sys.exit(f"origin.py: nginx did not start: {file.read()[-1000:]}")

    def answers(self, address):
        while self.process.poll() is None:
            try:
                socket.create_connection((address, self.port)).close()
                return True
            except ConnectionRefusedError:
                time.sleep(0.01)
        return False

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def counters(self):
        """Of the requests that have ended: nginx writes their lines at once."""
        with self.lock:
            with open(f"{self.scratch}/counted", "rb") as file:
                file.seek(self.read_to)
                text = file.read()
            for line in text[:text.rfind(b"\n") + 1].splitlines(keepends=True):
                method, size = line.split()
                self.counts["head" if method == b"HEAD" else "get"] += 1
                self.counts["bytes"] += int(size)
                self.read_to += len(line)
            return dict(self.counts)


def free_port(address):
    with socket.socket() as s:
        s.bind((address, 0))
        return s.getsockname()[1]


def end_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def etag(st):
    """As nginx makes it."""
    return f'"{int(st.st_mtime):x}-{st.st_size:x}"'


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", kind="application/xml"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def error(self, status, code):
        self.answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

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
            counts = {**self.server.nginx.counters(), "list": self.server.lists}
            self.answer(200, body=json.dumps(counts).encode(), kind="application/json")
        elif not path.startswith(self.server.root + "/"):
            self.error(404, "NoSuchBucket")
        elif key:
            self.error(404, "NoSuchKey")
        elif not os.path.isdir(path):
            self.error(404, "NoSuchBucket")
        elif self.command == "HEAD" or "location" in query:
            self.answer(200, body=b"<LocationConstraint/>")
        else:
            self.server.lists += 1
            self.answer(200, body=listing(bucket, path, query).encode())


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
    return datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000Z")


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, root, address):
        super().__init__((address, 0), Handler)
        self.root = os.path.realpath(root)
        self.nginx = None
        self.lists = 0

    def handle_error(self, *_):
        """A client that closes in the middle of an answer is its own business."""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", metavar="DIR")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--tls", nargs=2, metavar=("CERTIFICATE", "KEY"))
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        server = Server(options.directory, options.address)
        port = server.server_address[1]
        server.nginx = Nginx(stack, server.root, options.address, options.tls, f"{options.address}:{port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(json.dumps({"port": server.nginx.port, "counters": port}), flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            sys.stdin.read()


if __name__ == "__main__":
    main()
