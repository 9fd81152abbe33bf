#!/usr/bin/python3
"""A bucket of one directory with many keys, for the benchmark of listings, and the bare client beside it.

Pages are made from a template, so that a page costs the server little more than sending it. GET /-/counters tells how
many were sent.

usage: lister.py serve KEYS DELAY_MS    (prints "port N" and serves until its standard input closes; each page is
                                         answered DELAY_MS late, as a server that works for it does)
       lister.py pages URL              (asks for all pages of URL, one after the other, and counts the keys)
"""
import http.client
import http.server
import json
import socketserver
import sys
import threading
import time
import urllib.parse

PAGE_KEYS = 1000
DIRECTORY = "train/"
MARK = b"@@@@@@"
HEAD = (b'<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        b"<Name>bench</Name><Prefix>train/</Prefix>%s<KeyCount>%d</KeyCount><MaxKeys>1000</MaxKeys>"
        b"<Delimiter>/</Delimiter><EncodingType>url</EncodingType><IsTruncated>%s</IsTruncated>")
ROW = (b"<Contents><Key>train/@@@@@@%03d.JPEG</Key><LastModified>2024-03-01T12:00:00.000Z</LastModified>"
       b"<ETag>&quot;%032x&quot;</ETag><Size>%d</Size><StorageClass>STANDARD</StorageClass></Contents>")
ROWS = b"".join(ROW % (n, n * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128, 100000 + n) for n in range(PAGE_KEYS))
ROW_SIZE = len(ROWS) // PAGE_KEYS
EMPTY = HEAD % (b"", 0, b"false") + b"</ListBucketResult>"
ROOT = (EMPTY[:-len(b"</ListBucketResult>")] +
        b"<CommonPrefixes><Prefix>train/</Prefix></CommonPrefixes></ListBucketResult>")


def page(number, pages):
    more = number + 1 < pages
    token = b"<NextContinuationToken>%d</NextContinuationToken>" % (number + 1) if more else b""
    return b"".join((HEAD % (token, PAGE_KEYS, b"true" if more else b"false"), ROWS.replace(MARK, b"%06d" % number),
                     b"</ListBucketResult>"))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if url.path == "/-/counters":
            self.answer(json.dumps({"list": self.server.lists}).encode())
        elif query.get("prefix", "") == "":
            self.answer(ROOT)
        elif query["prefix"] != DIRECTORY:
            self.answer(EMPTY)
        else:
            with self.server.lock:
                self.server.lists += 1
            if self.server.delay_s:
                time.sleep(self.server.delay_s)
            self.answer(page(int(query.get("continuation-token", "0")), self.server.pages))


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, keys, delay_ms):
        super().__init__(("127.0.0.1", 0), Handler)
        self.pages, self.delay_s = keys // PAGE_KEYS, delay_ms / 1000
        self.lock, self.lists = threading.Lock(), 0

    def handle_error(self, *_):
        """A client that closes in the middle of an answer is its own business."""


def serve(keys, delay_ms):
    server = Server(keys, delay_ms)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"port {server.server_address[1]}", flush=True)
    sys.stdin.read()


def ask_for_pages(url):
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port)
    query = {"delimiter": "/", "encoding-type": "url", "list-type": "2", "prefix": DIRECTORY}
    keys = 0
    while True:
        connection.request("GET", f"{parts.path}?{urllib.parse.urlencode(query)}")
        body = connection.getresponse().read()
        keys += body.count(b"<Contents>")
        start = body.find(b"<NextContinuationToken>", 0, 2000)
        if start < 0:
            break
        start += len(b"<NextContinuationToken>")
        query["continuation-token"] = body[start:body.index(b"<", start)].decode()
    connection.close()
    return keys


def main():
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]), float(sys.argv[3]))
    else:
        print(ask_for_pages(sys.argv[2]))


if __name__ == "__main__":
    main()
