"""Credentials that expire while a volume is read, from each kind of source; the origin accepts only those that live."""

import contextlib
import errno
import hashlib
import json
import os
import subprocess
import sys
import threading
import time

import pytest

from lib import child, data, fakes, reads
from lib.data import MIB
from lib.origins import FaultyOrigin, S3Origin

LIFE_S = 3
READING_S = 10  # several lives
SIZE = MIB
MOST_AT_ONCE = 4  # requests of one reader that meet the same end


class Guarded:
    """The scripted origin with an Issuer's keys."""

    def __init__(self, faulty, issuer):
        self.faulty = faulty
        self.source = f"s3://{faulty.bucket}"
        self.options = (f"endpoint={faulty.endpoint}", f"region={faulty.region}", "addressing=path")
        self.expired = faulty.rule(where=lambda r: not issuer.valid(r.headers), status=403, code="ExpiredToken")


@pytest.fixture
def issuer():
    return fakes.Issuer(LIFE_S)


@pytest.fixture
def guarded(faulty, issuer):
    return Guarded(faulty, issuer)


def read_for(cache, faulty, mounted, duration_s=READING_S):
    """Reads cold objects one after another; every byte must be right."""
    end = time.monotonic() + duration_s
    number = 0
    while time.monotonic() < end:
        name = f"object-{number}"
        content = data.make(name, SIZE)
        faulty.put(name, content)
        assert reads.sha256(mounted / name) == data.digest(content), cache.log_end()
        number += 1
        time.sleep(0.05)


def no_secrets(cache):
    shown = cache.log.read_text(errors="replace") + cache.run("status", "--json").stdout
    assert "secret-of-" not in shown and "token-of-" not in shown


class Sources:
    """Each kind of source, set up for the daemon by a context manager that gives the options of mount."""

    def __init__(self, cache, issuer):
        self.cache = cache
        self.issuer = issuer

    def config(self, text):
        (self.cache.directory / ".aws").mkdir(exist_ok=True)
        (self.cache.directory / ".aws" / "config").write_text(text)

    @contextlib.contextmanager
    def file(self):
        """Somebody else replaces it, in time or when its keys were revoked."""
        path = self.cache.directory / "keys"

        def replace():
            key, secret, token, _ = self.issuer.issue()
            new = path.with_suffix(".new")
            new.write_text(f"[default]\naws_access_key_id={key}\naws_secret_access_key={secret}\n"
                           f"aws_session_token={token}\n")
            os.replace(new, path)

        def replace_always():
            while not done.wait(LIFE_S - 1):
                replace()

        done = threading.Event()
        replace()
        self.replace = replace
        thread = threading.Thread(target=replace_always)
        if self.issuer.life_s == LIFE_S:
            thread.start()
        try:
            yield (f"credentials={path}",)
        finally:
            done.set()
            if thread.ident:
                thread.join()

    @contextlib.contextmanager
    def process(self):
        """It asks a service; it is slow, and nobody waits for it but the first."""
        with fakes.instance_service(self.issuer) as service:
            script = self.cache.directory / "give keys"
            script.write_text(f"""#!/usr/bin/python3
import json, time, urllib.request
request = urllib.request.Request("{service.url}/node-role", headers={{"X-aws-ec2-metadata-token": "imds"}})
keys = json.load(urllib.request.urlopen(request))
time.sleep(0.3)
print(json.dumps({{"Version": 1, "SessionToken": keys.pop("Token"), **keys}}))
""")
            script.chmod(0o755)
            self.config(f"[profile p]\ncredential_process = '{script}'\n")
            yield ("aws_profile=p",)

    @contextlib.contextmanager
    def web_identity(self):
        """As a service account's role in EKS: the token is rotated, too."""
        token = self.cache.directory / "token"
        token.write_text("first")

        def accepts(form, _headers):
            given = form.get("WebIdentityToken")
            right = form["RoleArn"] == "arn:aws:iam::1:role/r" and given == token.read_text()
            token.write_text(given + "+")
            return right and form["Action"] == "AssumeRoleWithWebIdentity"

        with fakes.token_service(self.issuer, accepts) as service:
            self.cache.env.update(AWS_ENDPOINT_URL_STS=service.url, AWS_WEB_IDENTITY_TOKEN_FILE=str(token),
                                  AWS_ROLE_ARN="arn:aws:iam::1:role/r")
            yield ()

    @contextlib.contextmanager
    def role(self):
        """By keys of another profile, which last."""
        def accepts(form, headers):
            return form["Action"] == "AssumeRole" and "Credential=BASE/" in headers["authorization"]

        with fakes.token_service(self.issuer, accepts) as service:
            self.config("[profile job]\nrole_arn = r\nsource_profile = base\n[profile base]\n"
                        "aws_access_key_id = BASE\naws_secret_access_key = secret-of-base\n")
            self.cache.env["AWS_ENDPOINT_URL_STS"] = service.url
            yield ("aws_profile=job",)

    @contextlib.contextmanager
    def sso(self):
        """Token and keys live as long as each other; the file of the login is written anew each time."""
        name = hashlib.sha1(b"corp").hexdigest() + ".json"
        sso = fakes.Sso(self.issuer, self.cache.directory / ".aws" / "sso" / "cache" / name, self.issuer.life_s)
        with fakes.Service(sso.answer) as service:
            self.config("[profile s]\nsso_session = corp\nsso_account_id = 1\nsso_role_name = reader\n"
                        "[sso-session corp]\nsso_region = eu-west-1\nsso_start_url = https://start.example\n")
            sso.login()
            self.cache.env.update(AWS_ENDPOINT_URL_SSO=service.url, AWS_ENDPOINT_URL_SSO_OIDC=service.url)
            yield ("aws_profile=s",)
            assert self.issuer.life_s > LIFE_S or sso.renewals >= READING_S // LIFE_S

    @contextlib.contextmanager
    def pod_identity(self):
        token = self.cache.directory / "token"
        token.write_text("pod-token")
        with fakes.container_endpoint(self.issuer, token) as service:
            self.cache.env.update(AWS_CONTAINER_CREDENTIALS_FULL_URI=f"{service.url}/v1/credentials",
                                  AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=str(token))
            yield ()

    @contextlib.contextmanager
    def instance_role(self):
        with fakes.instance_service(self.issuer) as service:
            del self.cache.env["AWS_EC2_METADATA_DISABLED"]
            self.cache.env["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = service.url
            yield ()


SOURCES = ["file", "process", "web_identity", "role", "sso", "pod_identity", "instance_role"]


@pytest.mark.parametrize("kind", SOURCES)
def test_expired_and_replaced(cache, guarded, issuer, kind):
    """Case 15: reads go on over several lives of the keys. Nearly all of them end unseen: the next ones were there."""
    with getattr(Sources(cache, issuer), kind)() as options:
        mounted = cache.mount(guarded.source, *guarded.options, *options, "ttl=100ms", "negative_ttl=0s",
                              "timeout=20s")
        read_for(cache, guarded.faulty, mounted)
    assert issuer.issued() >= READING_S // LIFE_S
    assert guarded.expired.hits <= issuer.issued() * MOST_AT_ONCE
    no_secrets(cache)


@pytest.mark.parametrize("kind", SOURCES)
def test_revoked_before_their_time(cache, faulty, kind):
    """The origin says ExpiredToken of keys that should last for an hour: they are fetched anew, once."""
    issuer = fakes.Issuer(3600)
    guarded = Guarded(faulty, issuer)
    for name in ("a", "b", "c"):
        faulty.put(name, data.make(name, SIZE))
    sources = Sources(cache, issuer)
    with getattr(sources, kind)() as options:
        mounted = cache.mount(guarded.source, *guarded.options, *options, "timeout=20s")
        assert reads.sha256(mounted / "a") == data.digest(data.make("a", SIZE))
        before = issuer.issued()
        assert guarded.expired.hits == 0
        issuer.revoke()
        if kind == "file":
            sources.replace()
        assert reads.sha256(mounted / "b") == data.digest(data.make("b", SIZE))
        assert reads.sha256(mounted / "c") == data.digest(data.make("c", SIZE))
        assert issuer.issued() == before + 1
        assert guarded.expired.hits <= MOST_AT_ONCE
    no_secrets(cache)


def test_a_login_shared_with_the_aws_tools(cache, guarded, issuer):
    """What botocore renewed is taken, and what was renewed here botocore takes; each by its own reading of the file."""
    program = "import botocore.session as b; print(b.Session(profile='s').get_credentials().access_key)"

    def by_botocore():
        env = {**cache.env, "AWS_ENDPOINT_URL_SSO": service.url, "AWS_ENDPOINT_URL_SSO_OIDC": service.url}
        return subprocess.run([sys.executable, "-c", program], env=env, check=True, capture_output=True, text=True,
                              timeout=60).stdout.strip()

    issuer.life_s = 3600
    for name in ("a", "b"):
        guarded.faulty.put(name, data.make(name, SIZE))
    cache_file = cache.directory / ".aws" / "sso" / "cache" / (hashlib.sha1(b"corp").hexdigest() + ".json")
    sso = fakes.Sso(issuer, cache_file, 1000)  # either side renews when less than 900 s are left
    Sources(cache, issuer).config("[profile s]\nsso_session = corp\nsso_account_id = 1\nsso_role_name = reader\n"
                                  "[sso-session corp]\nsso_region = eu-west-1\n"
                                  "sso_start_url = https://start.example\n")
    with fakes.Service(sso.answer) as service:
        cache.env.update(AWS_ENDPOINT_URL_SSO=service.url, AWS_ENDPOINT_URL_SSO_OIDC=service.url)
        sso.login(left_s=100)
        assert by_botocore() == "KEY0" and sso.renewals == 2
        mounted = cache.mount(guarded.source, *guarded.options, "aws_profile=s", "timeout=20s")
        assert reads.sha256(mounted / "a") == data.digest(data.make("a", SIZE))
        assert sso.renewals == 2
        sso.login(left_s=100)
        issuer.revoke()
        assert reads.sha256(mounted / "b") == data.digest(data.make("b", SIZE))
        assert sso.renewals == 4
        before = issuer.issued()
        assert by_botocore() == f"KEY{before}" and sso.renewals == 4


def test_many_readers_fetch_once(cache, faulty):
    """Twice with mount's own look at the origin."""
    issuer = fakes.Issuer(3600)
    guarded = Guarded(faulty, issuer)
    with fakes.instance_service(issuer) as service:
        del cache.env["AWS_EC2_METADATA_DISABLED"]
        cache.env["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = service.url
        wanted = {}
        for i in range(32):
            content = data.make(f"o{i}", SIZE)
            faulty.put(f"o{i}", content)
            wanted[f"o{i}"] = data.digest(content)
        mounted = cache.mount(guarded.source, *guarded.options)
        assert reads.tree(mounted) == wanted
    assert issuer.issued() <= 2 and guarded.expired.hits == 0


def test_a_source_that_fails_for_a_while(cache, faulty):
    """Cold reads wait for credentials within their time, then fail with a clear reason; it recovers by itself."""
    issuer = fakes.Issuer(2)
    guarded = Guarded(faulty, issuer)
    well = threading.Event()
    well.set()
    for name in ("a", "b", "c"):
        faulty.put(name, data.make(name, SIZE))
    with fakes.instance_service(issuer) as service:
        right = service.answer
        service.answer = lambda *request: right(*request) if well.is_set() else (503, "")
        del cache.env["AWS_EC2_METADATA_DISABLED"]
        cache.env["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = service.url
        mounted = cache.mount(guarded.source, *guarded.options, "timeout=14s")
        assert reads.sha256(mounted / "a") == data.digest(data.make("a", SIZE))
        cache.wait_warm(mounted / "a")
        well.clear()
        time.sleep(2.5)
        with pytest.raises(OSError) as caught:
            child.call(reads.sha256, mounted / "b")
        assert caught.value.errno == errno.EIO
        error = cache.volume(mounted)["origin"]["last_error"]
        assert "the instance metadata service answers HTTP 503" in error
        assert reads.sha256(mounted / "a") == data.digest(data.make("a", SIZE))
        threading.Timer(1.0, well.set).start()
        assert reads.sha256(mounted / "c") == data.digest(data.make("c", SIZE))


def test_what_is_refused_is_told_by_mount(cache, guarded, issuer):
    path = cache.directory / "m"
    path.mkdir()
    token = cache.directory / "token"
    token.write_text("x")
    with fakes.token_service(issuer, lambda *_: False) as service:
        cache.env.update(AWS_ENDPOINT_URL_STS=service.url, AWS_WEB_IDENTITY_TOKEN_FILE=str(token), AWS_ROLE_ARN="r")
        result = cache.run("mount", "-o", ",".join(guarded.options), guarded.source, path, check=False)
    assert result.returncode == 1 and "answers HTTP 403 AccessDenied: no" in result.stderr


def test_the_order_ends_with_the_instance(cache, guarded):
    """Nobody answers there: what is missing is said."""
    path = cache.directory / "m"
    path.mkdir()
    del cache.env["AWS_EC2_METADATA_DISABLED"]
    cache.env["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = "http://127.0.0.1:1"
    result = cache.run("mount", "-o", ",".join(guarded.options), guarded.source, path, check=False)
    assert result.returncode == 1 and "no credentials found" in result.stderr


def test_a_real_token_service(cache, minio):
    """MinIO's AssumeRole, signed by keys of a source profile; its S3 then checks key, signature and session token."""
    origin = S3Origin(minio)
    try:
        content = data.make("a", 3 * MIB)
        origin.put("a", content)
        (cache.directory / ".aws").mkdir()
        (cache.directory / ".aws" / "config").write_text(
            "[profile job]\nrole_arn = arn:minio:iam:::role/any\nsource_profile = base\nduration_seconds = 900\n")
        (cache.directory / ".aws" / "credentials").write_text(
            f"[base]\naws_access_key_id = {minio.access_key}\naws_secret_access_key = {minio.secret_key}\n")
        cache.env["AWS_ENDPOINT_URL_STS"] = minio.endpoint
        mounted = cache.mount(origin.source, *origin.options, "aws_profile=job")
        assert reads.sha256(mounted / "a") == data.digest(content)
    finally:
        origin.close()


def test_a_web_servers_token(cache, web):
    """Replaced in its file while the server wants another."""
    token = cache.directory / "token"
    wanted = ["Bearer one"]
    web.rule(where=lambda r: r.headers.get("authorization") != wanted[0], status=401, code="Unauthorized")
    for name in ("a", "b"):
        web.put(name, data.make(name, SIZE))
    token.write_text("Bearer one\n")
    origin = FaultyOrigin(web)
    mounted = cache.mount(origin.source, f"credentials={token}", "ttl=100ms")
    assert reads.sha256(mounted / "a") == data.digest(data.make("a", SIZE))
    wanted[0] = "Bearer two"
    token.write_text("Bearer two\n")
    assert reads.sha256(mounted / "b") == data.digest(data.make("b", SIZE))
    assert "Bearer" not in cache.log.read_text(errors="replace") + json.dumps(cache.status())
