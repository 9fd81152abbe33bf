"""Services that give credentials, as far as a client sees them. Real ones can't be had in a test."""

import json
import threading
import time
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs


def expiry(life_s):
    return (datetime.now(timezone.utc) + timedelta(seconds=life_s)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Issuer:
    """Gives access keys that live life_s seconds, each once; where(request) in a rule of the scripted origin knows
    the expired ones. Thread safe."""

    def __init__(self, life_s):
        self.life_s = life_s
        self._lock = threading.Lock()
        self._ends = {}

    def issue(self):
        """(access key, secret, token, expiration)"""
        now = datetime.now(timezone.utc)
        with self._lock:
            key = f"KEY{len(self._ends)}"
            self._ends[key] = now + timedelta(seconds=self.life_s)
        return key, "secret-of-" + key, "token-of-" + key, expiry(self.life_s)

    def issued(self):
        with self._lock:
            return len(self._ends)

    def revoke(self):
        """All that were issued end now, whatever was said of their life."""
        now = datetime.now(timezone.utc)
        with self._lock:
            self._ends = {key: min(end, now) for key, end in self._ends.items()}

    def valid(self, headers):
        """Whether a request of these headers is signed with a key that lives, and has its token."""
        key = headers.get("authorization", "").partition("Credential=")[2].partition("/")[0]
        with self._lock:
            end = self._ends.get(key)
        return (end is not None and datetime.now(timezone.utc) < end
                and headers.get("x-amz-security-token") == "token-of-" + key)


class Sso:
    """IAM Identity Center: a portal that gives a role's keys for an access token, and the service that renews tokens,
    each by a refresh token that is good once. cache: the file that a login leaves, written by login()."""

    def __init__(self, issuer, cache, life_s):
        self.issuer = issuer
        self.cache = cache
        self.life_s = life_s
        self.renewals = 0
        self._lock = threading.Lock()
        self._access = self._refresh = self._ends = None

    def login(self, left_s=None):
        self.cache.parent.mkdir(parents=True, exist_ok=True)
        token = self._next()
        self.cache.write_text(json.dumps({
            "startUrl": "https://start.example", "region": "eu-west-1", "accessToken": token["accessToken"],
            "expiresAt": expiry(self.life_s if left_s is None else left_s), "refreshToken": token["refreshToken"], "clientId": "client",
            "clientSecret": "client-secret", "registrationExpiresAt": expiry(3600)}))

    def _next(self):
        with self._lock:
            self.renewals += 1
            self._access = f"token-of-sso-{self.renewals}"
            self._refresh = f"token-of-refresh-{self.renewals}"
            self._ends = time.monotonic() + self.life_s
            return {"accessToken": self._access, "refreshToken": self._refresh, "expiresIn": self.life_s,
                    "tokenType": "Bearer"}

    def answer(self, method, path, headers, body):
        if (method, path) == ("POST", "/token"):
            asked = json.loads(body)
            right = (asked["clientId"], asked["clientSecret"], asked["grantType"], asked["refreshToken"]) == (
                "client", "client-secret", "refresh_token", self._refresh)
            return (200, json.dumps(self._next())) if right else (400, '{"error": "invalid_grant"}')
        place, _, query = path.partition("?")
        if (method, place, parse_qs(query)) != ("GET", "/federation/credentials",
                                                {"account_id": ["1"], "role_name": ["reader"]}):
            return 404, "{}"
        if headers.get("x-amz-sso_bearer_token") != self._access or time.monotonic() > self._ends:
            return 401, '{"message": "Session token not found or invalid"}'
        key, secret, token, _ = self.issuer.issue()
        end_ms = int((time.time() + self.issuer.life_s) * 1000)
        return 200, json.dumps({"roleCredentials": {"accessKeyId": key, "secretAccessKey": secret,
                                                    "sessionToken": token, "expiration": end_ms}})


class Service:
    """An HTTP server on the loopback; answer(method, path, headers, body) gives (status, text)."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                headers = {k.lower(): v for k, v in self.headers.items()}
                service.asked.append((self.command, self.path))
                status, text = service.answer(self.command, self.path, headers, body)
                data = text.encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_PUT = do_GET

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _json(issuer):
    key, secret, token, expiration = issuer.issue()
    return json.dumps({"Code": "Success", "AccessKeyId": key, "SecretAccessKey": secret, "Token": token,
                       "Expiration": expiration})


def token_service(issuer, accepts):
    """STS. accepts(form, headers): whether this caller may have the role."""

    def answer(method, _path, headers, body):
        form = {name: values[0] for name, values in parse_qs(body).items()}
        if method != "POST" or not accepts(form, headers):
            return 403, "<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>"
        key, secret, token, expiration = issuer.issue()
        return 200, (f"<R><Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>"
                     f"<SessionToken>{token}</SessionToken><Expiration>{expiration}</Expiration></Credentials></R>")

    return Service(answer)


def container_endpoint(issuer, token_file):
    """ECS or EKS Pod Identity: asks for what the token's file has now."""

    def answer(method, path, headers, _body):
        if method != "GET" or path != "/v1/credentials" or headers.get("authorization") != token_file.read_text():
            return 403, "{}"
        return 200, _json(issuer)

    return Service(answer)


def instance_service(issuer):
    """IMDS, version 2 only."""

    def answer(method, path, headers, _body):
        if (method, path) == ("PUT", "/latest/api/token"):
            return (200, "imds") if "x-aws-ec2-metadata-token-ttl-seconds" in headers else (400, "")
        if headers.get("x-aws-ec2-metadata-token") != "imds":
            return 401, ""
        if path == "/latest/meta-data/iam/security-credentials/":
            return 200, "node-role"
        return (200, _json(issuer)) if path.endswith("/node-role") else (404, "")

    return Service(answer)
