"""A scripted Hugging Face hub with the host that it redirects to, as far as huggingface_hub 2.4.0 sees them
(hf_api.py, file_download.py, utils/_http.py); test_hub.py has the real client list and download from it."""

import functools
import hashlib
import itertools
import json
import re
import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Optional
from urllib.parse import parse_qs, parse_qsl, quote, unquote, urlencode

LFS = (".safetensors", ".bin", ".gguf", ".parquet")
HUB, CDN = "127.0.0.1", "127.0.0.2"  # two hosts on the loopback


@dataclass
class Asked:
    host: str  # "hub" or "cdn"
    method: str
    op: str  # revision, tree, paths, resolve, cache, cdn, other
    path: str  # of the URL, decoded
    query: dict
    headers: dict
    raw: str  # the target as it came
    status: int = 0


@dataclass
class Answer:
    status: int = 200
    body: bytes = b""
    headers: dict = field(default_factory=dict)
    cut: Optional[int] = None  # the connection ends after so many bytes of the body


def refusal(status, code="", message=""):
    headers = {}
    if code:
        headers["X-Error-Code"] = code
    if message:
        headers["X-Error-Message"] = message
    return Answer(status, json.dumps({"error": message or code}).encode(), headers)


def rate_limited(seconds):
    return Answer(429, b"{}", {"RateLimit": f'"api";r=0;t={seconds}',
                               "RateLimit-Policy": '"fixed window";"api";q=500;w=300'})


@functools.lru_cache(1024)
def sha256(data):
    return hashlib.sha256(data).hexdigest()


@functools.lru_cache(1024)
def blob_id(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def is_lfs(path):
    return path.endswith(LFS)


class Repo:
    """kind: "models", "datasets" or "spaces". readers: tokens that may read, None: everybody. gated: names are for
    everybody who may read, bytes only for `accepted` tokens."""

    def __init__(self, kind, name):
        self.kind = kind
        self.name = name
        self.readers = None
        self.gated = False
        self.accepted = set()
        self.commits = {}
        self.branches = {}

    def commit(self, changes, branch="main", remove=()):
        """{path: bytes} on top of the branch; returns the commit's id."""
        files = dict(self.commits.get(self.branches.get(branch), {}))
        files.update(changes)
        for path in remove:
            del files[path]
        text = repr((branch, len(self.commits), sorted((p, blob_id(d)) for p, d in files.items())))
        sha = hashlib.sha1(text.encode()).hexdigest()
        self.commits[sha] = files
        self.branches[branch] = sha
        return sha

    def resolve(self, revision):
        """The commit's id or None; an abbreviated id will do."""
        if revision in self.branches:
            return self.branches[revision]
        found = [sha for sha in self.commits if len(revision) >= 7 and sha.startswith(revision)]
        return found[0] if len(found) == 1 else None

    def entry(self, path, data):
        entry = {"type": "file", "oid": blob_id(data), "size": len(data), "path": path}
        if is_lfs(path):
            digest = sha256(data)
            entry["lfs"] = {"oid": digest, "size": len(data), "pointerSize": 134}
            entry["oid"] = blob_id(digest.encode())
            entry["xetHash"] = sha256(b"xet" + digest.encode())
        return entry

    def directory(self, sha, path):
        return {"type": "directory", "oid": hashlib.sha1((sha + path).encode()).hexdigest(), "size": 0, "path": path}

    def tree(self, sha, directory, recursive):
        """The entries; None when there is no such directory."""
        start = directory + "/" if directory else ""
        found = {}
        for path, data in sorted(self.commits[sha].items()):
            if not path.startswith(start):
                continue
            parts = path[len(start):].split("/")
            for depth in range(1, len(parts)) if recursive else [1] if len(parts) > 1 else []:
                above = start + "/".join(parts[:depth])
                found.setdefault(above, self.directory(sha, above))
            if recursive or len(parts) == 1:
                found[path] = self.entry(path, data)
        return list(found.values()) if found or not directory else None


class Hub:
    """Use with `with`. Tests change it while it runs, and read afterwards what was asked. With certificates the hub has
    TLS; the host that it redirects to has none."""

    def __init__(self, certificates=None):
        self.certificates = certificates
        self.repos = {}
        self.moved = {}  # {"models/old/name": "models/new/name"}
        self.tokens = set()  # known ones
        self.page_size = 1000
        self.cache_redirects = True  # small files are answered after a redirect to the hub itself
        self.linked = True  # that redirect has X-Linked-ETag
        self.condition = threading.Condition()  # guards what follows
        self.asked = []
        self._faults = []
        self._signed = itertools.count()
        self._oldest = 0  # signed URLs below this number have expired
        self._servers = [_Listener(self, "hub", HUB, certificates), _Listener(self, "cdn", CDN)]
        self._threads = [threading.Thread(target=s.serve_forever, args=(0.05,), daemon=True) for s in self._servers]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        for server, thread in zip(self._servers, self._threads):
            server.shutdown()
            server.server_close()
            thread.join()

    @property
    def endpoint(self):
        return f"http{'s' if self.certificates else ''}://{HUB}:{self._servers[0].server_address[1]}"

    @property
    def cdn(self):
        return f"http://{CDN}:{self._servers[1].server_address[1]}"

    def repo(self, name, kind="models"):
        repo = Repo(kind, name)
        self.repos[f"{kind}/{name}"] = repo
        return repo

    def expire_urls(self):
        """Every URL signed so far is refused from now on."""
        with self.condition:
            self._oldest = next(self._signed) + 1

    def fault(self, where, answer, times=None):
        """Requests for which where(asked) holds get answer, an Answer or a function of (asked, the right Answer)."""
        with self.condition:
            self._faults.append([where, answer, times])

    def mend(self):
        with self.condition:
            self._faults.clear()

    def requests(self, op=None, host=None, **which):
        with self.condition:
            return [a for a in self.asked if (op is None or a.op == op) and (host is None or a.host == host)
                    and all(getattr(a, k) == v for k, v in which.items())]

    def clear_log(self):
        with self.condition:
            self.asked.clear()

    # Answers

    def answer(self, asked, form, byte_range):
        right = self._cdn(asked, byte_range) if asked.host == "cdn" else self._hub(asked, form, byte_range)
        with self.condition:
            self.asked.append(asked)
            fault = next((f for f in self._faults if f[2] != 0 and f[0](asked)), None)
            if fault and fault[2] is not None:
                fault[2] -= 1
        answer = right
        if fault:
            answer = fault[1](asked, right) if callable(fault[1]) else fault[1]
        asked.status = answer.status
        return answer

    def _token(self, asked):
        kind, _, token = asked.headers.get("authorization", "").partition(" ")
        return token if kind == "Bearer" else None

    def _hub(self, asked, form, byte_range):
        token = self._token(asked)
        if token is not None and token not in self.tokens:
            return refusal(401, message="Invalid credentials in Authorization header")
        path = asked.raw.partition("?")[0]  # its parts are decoded one by one: a revision may have a slash
        found = re.fullmatch(r"/api/resolve-cache/(models|datasets|spaces)/([^/]+/[^/]+)/([0-9a-f]{40})/(.+)", path)
        if found:
            asked.op = "cache"
            return self._file(asked, *found.groups(), byte_range, token)
        found = re.fullmatch(r"/api/(models|datasets|spaces)/([^/]+/[^/]+)(?:/(revision|tree|paths-info)/(.+))?", path)
        if found:
            kind, name, what, rest = found.groups()
            asked.op = {"paths-info": "paths", None: "revision"}.get(what, what)
            return self._api(asked, kind, name, what or "revision", rest or "main", form, token)
        found = re.fullmatch(r"/(?:(datasets|spaces)/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if found and asked.method in ("GET", "HEAD"):
            asked.op = "resolve"
            return self._file(asked, found[1] or "models", found[2], found[3], found[4], byte_range, token)
        return refusal(404, message="Sorry, we can't find the page you are looking for.")

    def _find(self, asked, kind, name, revision, token):
        """(repo, commit) or an Answer that refuses."""
        moved = self.moved.get(f"{kind}/{name}")
        if moved:
            target = asked.raw.replace(name, moved.partition("/")[2], 1)
            return Answer(307, b"", {"Location": target})
        repo = self.repos.get(f"{kind}/{name}")
        if repo is None or (repo.readers is not None and token not in repo.readers):
            # who says who they are is told "not found", others are told to
            return refusal(401 if token is None else 404, "RepoNotFound", "Repository not found")
        sha = repo.resolve(unquote(revision))
        if sha is None:
            return refusal(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return repo, sha

    def _api(self, asked, kind, name, what, rest, form, token):
        revision, _, path = rest.partition("/")
        found = self._find(asked, kind, name, revision, token)
        if isinstance(found, Answer):
            return found
        repo, sha = found
        if what == "revision":
            info = {"_id": "0" * 24, "id": name, "sha": sha}
            if "expand" not in asked.query:
                info.update(author=name.split("/")[0], private=repo.readers is not None, downloads=0, likes=0, tags=[],
                            siblings=[{"rfilename": p} for p in repo.commits[sha]])
            return _json(info)
        if what == "paths-info":
            if asked.method != "POST":
                return refusal(405)
            return _json([e for p in form.get("paths", []) for e in [self._entry(repo, sha, p)] if e])
        return self._tree(asked, repo, sha, revision, unquote(path))

    def _entry(self, repo, sha, path):
        if path in repo.commits[sha]:
            return repo.entry(path, repo.commits[sha][path])
        return repo.directory(sha, path) if repo.tree(sha, path, False) else None

    def _tree(self, asked, repo, sha, revision, directory):
        entries = repo.tree(sha, directory, asked.query.get("recursive") == "true")
        if entries is None:
            return refusal(404, "EntryNotFound", f"{directory} does not exist on {revision}")
        size = min(int(asked.query.get("limit", self.page_size)), self.page_size)
        first = int(asked.query.get("cursor", "0"))
        answer = _json(entries[first:first + size])
        if first + size < len(entries):
            query = urlencode({**asked.query, "limit": size, "cursor": first + size})
            answer.headers["Link"] = f'<{self.endpoint}{asked.raw.partition("?")[0]}?{query}>; rel="next"'
        return answer

    def _file(self, asked, kind, name, revision, path, byte_range, token):
        found = self._find(asked, kind, name, revision, token)
        if isinstance(found, Answer):
            return found
        repo, sha = found
        path = unquote(path)
        if repo.gated and token not in repo.accepted:
            return refusal(401 if token is None else 403, "GatedRepo",
                           f"Access to {name} is restricted. You must have access to it and be authenticated.")
        data = repo.commits[sha].get(path)
        if data is None:
            answer = refusal(404, "EntryNotFound", "Entry not found")
            answer.headers["X-Repo-Commit"] = sha
            return answer
        if is_lfs(path):
            return self._signed_redirect(sha, data)
        etag = f'"{blob_id(data)}"'
        if asked.op == "resolve" and self.cache_redirects:
            target = f"/api/resolve-cache/{kind}/{name}/{sha}/{quote(path)}?{urlencode({'etag': etag})}"
            linked = {"X-Linked-ETag": etag, "X-Linked-Size": str(len(data))} if self.linked else {}
            return Answer(307, b"", {"Location": target, "X-Repo-Commit": sha, **linked})
        return _content(data, byte_range, {"ETag": etag, "X-Repo-Commit": sha})

    def _signed_redirect(self, sha, data):
        digest = sha256(data)
        with self.condition:
            number = next(self._signed)
        url = f"{self.cdn}/xet-bridge-us/{digest}?Expires={number}&Signature={_signature(digest, number)}"
        return Answer(302, b"Found", {"Location": url, "X-Repo-Commit": sha, "X-Linked-Size": str(len(data)),
                                      "X-Linked-ETag": f'"{digest}"', "Accept-Ranges": "bytes"})

    def _cdn(self, asked, byte_range):
        asked.op = "cdn"
        digest = asked.path.rpartition("/")[2]
        number = int(asked.query.get("Expires", -1))
        if asked.query.get("Signature") != _signature(digest, number) or number < self._oldest:
            return Answer(403, b"<Error><Code>AccessDenied</Code></Error>", {"Content-Type": "application/xml"})
        for repo in self.repos.values():
            for files in repo.commits.values():
                for path, data in files.items():
                    if is_lfs(path) and sha256(data) == digest:
                        return _content(data, byte_range, {"ETag": f'"{digest[:32]}-2"'})  # as S3 makes them
        return Answer(404)


def _signature(digest, number):
    return hashlib.sha256(f"secret {digest} {number}".encode()).hexdigest()


def _json(value):
    return Answer(200, json.dumps(value).encode(), {"Content-Type": "application/json; charset=utf-8"})


def _content(data, byte_range, headers):
    headers = {"Accept-Ranges": "bytes", "Content-Type": "application/octet-stream", **headers}
    if byte_range is None:
        return Answer(200, data, headers)
    first, last = byte_range[0], min(byte_range[1], len(data) - 1)
    if first > last:
        return Answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
    return Answer(206, data[first:last + 1], {**headers, "Content-Range": f"bytes {first}-{last}/{len(data)}"})


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, hub, host, address, certificates=None):
        self.hub = hub
        self.host = host
        self.tls = None
        if certificates:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(certificates.cert, certificates.key)
        super().__init__((address, 0), _Connection)

    def finish_request(self, request, client_address):
        if self.tls:
            request = self.tls.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, request, client_address):
        pass  # a client that went away


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_GET(self):
        path, _, query = self.path.partition("?")
        headers = {k.lower(): v for k, v in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        asked = Asked(self.server.host, self.command, "other", unquote(path), dict(parse_qsl(query)), headers, self.path)
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("range", ""))
        byte_range = (int(found[1]), int(found[2] or 1 << 62)) if found else None
        answer = self.server.hub.answer(asked, parse_qs(body.decode()), byte_range)
        self.send_response(answer.status)
        for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body[:answer.cut])
        if answer.cut is not None:
            self.close_connection = True

    do_HEAD = do_POST = do_GET
