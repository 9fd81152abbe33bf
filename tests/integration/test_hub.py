"""hf:// against the scripted hub, and the scripted hub against the client that it stands in for."""

import errno
import hashlib
import os
import random
import subprocess
import sys
import time

import pytest

from lib import child, formats, process, wait
from lib.hub import Answer, Hub, rate_limited, refusal
from lib.mount import CommandError

MIB = 1 << 20
SIZES = {
    "config.json": 700,
    ".gitattributes": 12,
    "empty.txt": 0,
    "model-00001.safetensors": 5 * MIB + 77,
    "onnx/model.bin": 2 * MIB,
    "onnx/README.md": 40,
    "data/a b/\u00fc+%25.parquet": 3000,
    "data/a b/#?&=.txt": 9,
}


def make(seed, sizes=None):
    return {path: random.Random(f"{seed}{path}").randbytes(size) for path, size in (sizes or SIZES).items()}


def environment(hub, **more):
    return {"HF_ENDPOINT": hub.endpoint, **more}


def mount(cache, hub, source="hf://org/model", *options, name="m", **env):
    cache.env.update(environment(hub, **env))
    return cache.mount(source, *options, name=name)


def found_below(root):
    return {os.path.relpath(os.path.join(folder, name), root)
            for folder, _, names in os.walk(root) for name in names}


def same(root, content):
    assert found_below(root) == set(content)
    for path, data in content.items():
        assert (root / path).stat().st_size == len(data), path
        assert hashlib.sha256((root / path).read_bytes()).digest() == hashlib.sha256(data).digest(), path


def nothing_secret_elsewhere(hub):
    assert hub.requests(host="cdn")
    assert not [a for a in hub.requests(host="cdn") if "authorization" in a.headers]


def last_error(cache, root):
    return cache.volume(root)["origin"]["last_error"]


# The scripted hub itself

CLIENT = """
import os, sys
from huggingface_hub import HfApi, snapshot_download
name, kind, revision, to = sys.argv[1:]
api = HfApi()
for entry in api.list_repo_tree(name, recursive=True, repo_type=kind, revision=revision):
    if hasattr(entry, "size") and hasattr(entry, "blob_id"):
        print(entry.size, entry.lfs.sha256 if entry.lfs else entry.blob_id, entry.path, sep="\\t")
one, = api.get_paths_info(name, ["onnx"], repo_type=kind, revision=revision)
assert type(one).__name__ == "RepoFolder"
assert not api.get_paths_info(name, ["nowhere"], repo_type=kind, revision=revision)
snapshot_download(name, repo_type=kind, revision=revision, local_dir=to)
"""


@pytest.mark.parametrize("kind", ["model", "dataset"])
@pytest.mark.parametrize("redirects", [True, False])
def test_real_client_reads_the_scripted_hub(hub, workdir, kind, redirects):
    """Else the tests below would only show that two things of ours agree."""
    content = make("first")
    repo = hub.repo("org/thing", kind + "s")
    sha = repo.commit(content)
    repo.commit({"config.json": b"newer"})
    repo.readers = {"hf_reader"}
    hub.tokens.add("hf_reader")
    hub.page_size = 3
    hub.cache_redirects = redirects
    env = process.environment(HF_ENDPOINT=hub.endpoint, HF_HOME=workdir / "home", HF_TOKEN="hf_reader",
                              HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_TELEMETRY="1", HOME=workdir)
    result = subprocess.run([sys.executable, "-c", CLIENT, "org/thing", kind, sha, workdir / "got"], env=env,
                            capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 0, result.stderr
    listed = dict(reversed(line.rsplit("\t", 1)) for line in result.stdout.splitlines())
    assert {path: int(line.split("\t")[0]) for path, line in listed.items()} == SIZES
    assert listed["onnx/model.bin"].split("\t")[1] == hashlib.sha256(content["onnx/model.bin"]).hexdigest()
    for path, data in content.items():
        assert (workdir / "got" / path).read_bytes() == data, path
    nothing_secret_elsewhere(hub)


# Names and bytes

@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("redirects", [True, False])
def test_list_stat_read(cache, hub, redirects, linked):
    content = make("first")
    hub.repo("org/model").commit(content)
    hub.cache_redirects, hub.linked = redirects, linked
    hub.page_size = 2
    root = mount(cache, hub)
    same(root, content)
    for path in content:
        cache.wait_warm(root / path)
    fetched = cache.counters()["origin_bytes"]
    same(root, content)
    assert cache.counters()["origin_bytes"] == fetched
    assert not hub.requests(method="HEAD")
    with pytest.raises(FileNotFoundError):
        (root / "nothing").stat()


def test_few_requests_of_the_hub(cache, hub):
    """Its rate limits count them: bytes come from where the hub has sent the first range."""
    content = make("big", {"model.safetensors": 48 * MIB})
    hub.repo("org/model").commit(content)
    root = mount(cache, hub, "hf://org/model", "connections=8")
    same(root, content)
    assert len(hub.requests("cdn")) >= 3
    assert len(hub.requests("resolve")) < len(hub.requests("cdn"))
    assert len(hub.requests("resolve")) <= 8, "not more than ranges that began at once"
    assert all("expand" in a.query for a in hub.requests("revision"))


def test_walk_asks_for_the_commit_now_and_then(cache, hub):
    """A hub allows some hundred calls of its API in five minutes: one a directory, and few for the revision."""
    content = {f"{n:02}/{m}/x.txt": b"%d" % m for n in range(20) for m in range(3)}
    hub.repo("org/model").commit(content)
    root = mount(cache, hub)
    hub.clear_log()
    began = time.monotonic()
    assert found_below(root) == set(content)
    assert len(hub.requests("tree")) <= 1 + 20 + 60
    assert len(hub.requests("revision")) <= 3 + (time.monotonic() - began) / 5
    assert not hub.requests("paths")


def test_dataset_revisions_and_subdirectory(cache, hub):
    repo = hub.repo("org/data", "datasets")
    first = make("first")
    repo.commit(first)
    branch = repo.commit({"onnx/model.bin": b"of the branch"}, branch="feature/x")
    request = repo.commit({"onnx/README.md": b"of the request"}, branch="refs/pr/7")
    assert branch != request
    below = {path[5:]: data for path, data in first.items() if path.startswith("onnx/")}
    root = mount(cache, hub, "hf://datasets/org/data/onnx", name="main")
    same(root, below)
    root = mount(cache, hub, "hf://datasets/org/data@feature%2Fx", name="branch")
    assert (root / "onnx/model.bin").read_bytes() == b"of the branch"
    root = mount(cache, hub, "hf://datasets/org/data@refs/pr/7/onnx", name="request")
    assert (root / "README.md").read_bytes() == b"of the request"
    root = mount(cache, hub, "hf://datasets/org/data", "subdir=data/a b", name="subdir")
    assert found_below(root) == {"\u00fc+%25.parquet", "#?&=.txt"}


def test_safetensors_by_their_own_library(cache, hub, workdir):
    local = workdir / "local"
    local.mkdir()
    child.call(formats.make_safetensors, local)
    hub.repo("org/model").commit({"model.safetensors": (local / "model.safetensors").read_bytes()})
    root = mount(cache, hub)
    assert child.call(formats.compare_safetensors, local, root) == 24
    cache.wait_warm(root / "model.safetensors")
    assert child.call(formats.compare_safetensors, local, root) == 24


def test_renamed_repository(cache, hub):
    content = make("first")
    hub.repo("new/model").commit(content)
    hub.moved["models/org/model"] = "models/new/model"
    hub.tokens.add("hf_reader")
    same(mount(cache, hub, HF_TOKEN="hf_reader"), content)
    nothing_secret_elsewhere(hub)


# Commits

def test_branch_moves(cache, hub):
    """A listing after the ttl is of the new commit, what did not change is not fetched again, and who has a file open
    goes on reading what he opened, also what was never fetched."""
    repo = hub.repo("org/model")
    before = make("first", {"changes.safetensors": 24 * MIB, "stays.bin": 2 * MIB, "goes.bin": 24 * MIB, "a.txt": 5})
    repo.commit(before)
    root = mount(cache, hub, "hf://org/model", "ttl=1s", "negative_ttl=1s")
    assert (root / "stays.bin").read_bytes() == before["stays.bin"]
    cache.wait_warm(root / "stays.bin")
    with (open(root / "changes.safetensors", "rb", buffering=0) as changes,
          open(root / "goes.bin", "rb", buffering=0) as goes):
        assert os.pread(changes.fileno(), 100, 0) == before["changes.safetensors"][:100]
        assert os.pread(goes.fileno(), 100, 0) == before["goes.bin"][:100]
        after = {"changes.safetensors": make("second", {"x": 24 * MIB})["x"], "new.txt": b"new"}
        repo.commit(after, remove=["goes.bin"])
        hub.expire_urls()
        wait.until(lambda: "new.txt" in os.listdir(root), 30, "the new commit")
        assert "goes.bin" not in os.listdir(root)
        assert os.pread(changes.fileno(), MIB, 23 * MIB) == before["changes.safetensors"][23 * MIB:]
        assert os.pread(goes.fileno(), MIB, 23 * MIB) == before["goes.bin"][23 * MIB:]
    assert (root / "changes.safetensors").read_bytes() == after["changes.safetensors"]
    digest = hashlib.sha256(before["stays.bin"]).hexdigest()
    hub.clear_log()
    assert (root / "stays.bin").read_bytes() == before["stays.bin"]
    assert not [a for a in hub.requests("cdn") if digest in a.path]
    with pytest.raises(FileNotFoundError):
        open(root / "goes.bin", "rb")


def test_commit_is_pinned(cache, hub):
    repo = hub.repo("org/model")
    before = make("first")
    sha = repo.commit(before)
    root = mount(cache, hub, f"hf://org/model@{sha}", "ttl=1s")
    assert found_below(root) == set(before)
    repo.commit(make("second"), remove=["config.json"])
    for _ in range(3):
        same(root, before)
    assert not hub.requests("revision")


def test_pages_of_one_listing_are_of_one_commit(cache, hub):
    repo = hub.repo("org/model")
    before = {f"{n:03}.txt": b"%d" % n for n in range(40)}
    repo.commit(before)
    hub.page_size = 10
    root = mount(cache, hub)
    hub.clear_log()
    moved = []

    def move(asked, right):
        if not moved:
            moved.append(repo.commit({f"{n:03}.txt": b"moved" for n in range(20, 60)}, remove=["039.txt"]))
        return right

    hub.fault(lambda a: a.op == "tree" and a.query.get("cursor") == "10", move)
    same(root, before)
    assert moved


@pytest.mark.parametrize("name", ["w.bin", "w.txt"])
def test_version_that_no_commit_has(cache, hub, name):
    """The hub says with its redirect that the content is another: not a byte of it is given."""
    repo = hub.repo("org/model")
    repo.commit({name: b"A" * MIB})
    root = mount(cache, hub)
    assert found_below(root) == {name}
    repo.commits[repo.branches["main"]][name] = b"B" * MIB  # history was rewritten
    with open(root / name, "rb", buffering=0) as f:
        with pytest.raises(OSError) as e:
            f.read(100)
    assert e.value.errno == errno.ESTALE
    assert wait.until(lambda: _read(root / name), 20, "the new version") == b"B" * MIB


def _read(path):
    try:
        return path.read_bytes()
    except OSError as e:
        assert e.errno == errno.ESTALE
        return None


def test_place_that_gives_other_bytes(cache, hub):
    """ETag and size of what the hub sends to are those of the first answer; what differs is not taken."""
    content = make("first", {"w.bin": 40 * MIB})
    hub.repo("org/model").commit(content)

    def other(asked, right):
        right.headers["ETag"] = '"other"'
        right.body = bytes(len(right.body))
        return right

    root = mount(cache, hub, "hf://org/model", "timeout=20s")
    with open(root / "w.bin", "rb", buffering=0) as f:
        assert f.read(100) == content["w.bin"][:100]
        hub.fault(lambda a: a.op == "cdn" and a.status == 0, other, times=1)
        assert os.pread(f.fileno(), MIB, 30 * MIB) == content["w.bin"][30 * MIB:31 * MIB]
    assert (root / "w.bin").read_bytes() == content["w.bin"]


# Signed URLs

def test_expired_url_is_asked_for_again(cache, hub):
    content = make("first", {"w.bin": 128 * MIB})
    hub.repo("org/model").commit(content)
    root = mount(cache, hub)
    with open(root / "w.bin", "rb", buffering=0) as f:
        for at in (0, 112, 48, 80, 16):
            at *= MIB
            assert os.pread(f.fileno(), 100000, at) == content["w.bin"][at:at + 100000]
            hub.expire_urls()
    assert (root / "w.bin").read_bytes() == content["w.bin"]
    assert [a for a in hub.requests("cdn") if a.status == 403], "no URL has expired"
    assert last_error(cache, root) == ""


def test_place_that_always_refuses(cache, hub):
    hub.repo("org/model").commit({"w.bin": b"x" * MIB})
    hub.fault(lambda a: a.op == "cdn", Answer(403))
    root = mount(cache, hub, "hf://org/model", "timeout=3s")
    with open(root / "w.bin", "rb", buffering=0) as f:
        with pytest.raises(OSError) as e:
            f.read(10)
    assert e.value.errno == errno.EIO
    assert "403" in last_error(cache, root) and "Signature" not in cache.log.read_text()
    hub.mend()
    assert (root / "w.bin").read_bytes() == b"x" * MIB


def test_redirects_without_end(cache, hub):
    hub.repo("org/model").commit({"w.txt": b"x" * 100})
    hub.fault(lambda a: a.op in ("resolve", "cache"), lambda a, right: Answer(302, b"", {"Location": a.raw + "&x"}))
    root = mount(cache, hub, "hf://org/model", "timeout=10s")
    with pytest.raises(OSError) as e:
        (root / "w.txt").read_bytes()
    assert e.value.errno == errno.EIO
    assert len(hub.requests("resolve") + hub.requests("cache")) <= 20


def test_redirect_out_of_tls(cache, certificates):
    """What the hub itself serves is read by TLS; nothing is asked of a place without it."""
    content = make("first", {"small.txt": 5000, "w.bin": MIB})
    with Hub(certificates) as hub:
        hub.repo("org/model").commit(content)
        hub.tokens.add("hf_reader")
        root = mount(cache, hub, "hf://org/model", f"ca={certificates.ca}", "timeout=5s", HF_TOKEN="hf_reader")
        assert (root / "small.txt").read_bytes() == content["small.txt"]
        with pytest.raises(OSError) as e:
            (root / "w.bin").read_bytes()
        assert e.value.errno == errno.EIO
        assert "without TLS" in last_error(cache, root)
        assert not hub.requests(host="cdn")


# Tokens

def private(hub):
    repo = hub.repo("org/model")
    content = make("first")
    repo.commit(content)
    repo.readers = {"hf_reader"}
    hub.tokens |= {"hf_reader", "hf_other"}
    return content


def test_token_of_the_environment(cache, hub):
    content = private(hub)
    same(mount(cache, hub, HF_TOKEN="hf_reader"), content)
    nothing_secret_elsewhere(hub)
    assert "hf_reader" not in cache.log.read_text()


@pytest.mark.parametrize("text", ["hf_reader\n", "Bearer hf_reader"])
def test_token_of_an_option(cache, hub, workdir, text):
    content = private(hub)
    (workdir / "token").write_text(text)
    same(mount(cache, hub, "hf://org/model", f"credentials={workdir}/token", HF_TOKEN="hf_other"), content)
    nothing_secret_elsewhere(hub)


@pytest.mark.parametrize("place", [".cache/huggingface/token", "HF_HOME", "HF_TOKEN_PATH"])
def test_token_where_the_login_left_it(cache, hub, place):
    content = private(hub)
    path = cache.directory / (place if place.startswith(".") else "elsewhere/token")
    path.parent.mkdir(parents=True)
    path.write_text("hf_reader")
    env = {"HF_HOME": {"HF_HOME": path.parent}, "HF_TOKEN_PATH": {"HF_TOKEN_PATH": path}}.get(place, {})
    same(mount(cache, hub, **env), content)
    nothing_secret_elsewhere(hub)


def test_token_that_is_replaced(cache, hub, workdir):
    content = private(hub)
    token = workdir / "token"
    token.write_text("hf_reader")
    root = mount(cache, hub, "hf://org/model", f"credentials={token}", "ttl=1s")
    assert found_below(root) == set(content)
    hub.repos["models/org/model"].readers = {"hf_next"}
    hub.tokens = {"hf_next"}
    token.write_text("hf_next")
    same(root, content)


def test_token_that_is_none(cache, hub, workdir):
    private(hub)
    (workdir / "token").write_text("two words\n")
    with pytest.raises(CommandError) as e:
        mount(cache, hub, "hf://org/model", f"credentials={workdir}/token")
    assert "has no token" in e.value.stderr and "words" not in e.value.stderr


# Refusals

@pytest.mark.parametrize("source, token, words", [
    ("hf://org/nothing", "hf_other", "RepoNotFound: there is no org/nothing"),
    ("hf://org/model", "hf_other", "RepoNotFound: there is no org/model, or it is private"),
    ("hf://org/model", "", "RepoNotFound: there is no org/model, or it is private"),
    ("hf://org/model", "hf_unknown", "Invalid credentials in Authorization header"),
    ("hf://org/model@nothing", "hf_reader", "org/model has no revision nothing"),
    ("hf://org/model/nothing", "hf_reader", "nothing below this path"),
    ("hf://model", "", "names no repository"),
    ("hf://org/model@", "", "is no revision"),
])
def test_mount_and_doctor_say_why(cache, hub, source, token, words):
    private(hub)
    with pytest.raises(CommandError) as e:
        mount(cache, hub, source, HF_TOKEN=token)
    assert words in e.value.stderr
    said = cache.run("doctor", source, check=False)
    assert words in said.stdout + said.stderr and said.returncode != 0


def test_doctor_of_a_hub_that_answers(cache, hub):
    private(hub)
    cache.env.update(environment(hub, HF_TOKEN="hf_reader"))
    said = cache.run("doctor", "hf://org/model", check=False)
    assert "hf://org/model" in said.stdout and "answers to HF_TOKEN" in said.stdout


def test_gated_repository(cache, hub):
    """Its names are for everybody; bytes are refused with the reason, and come once the conditions are accepted."""
    content = private(hub)
    repo = hub.repos["models/org/model"]
    repo.gated = True
    root = mount(cache, hub, HF_TOKEN="hf_reader")
    assert found_below(root) == set(content)
    with pytest.raises(PermissionError):
        (root / "onnx/model.bin").read_bytes()
    assert "org/model is gated: accept its conditions" in last_error(cache, root)
    repo.accepted.add("hf_reader")
    same(root, content)


# Faults

def test_rate_limit(cache, hub):
    content = make("first")
    hub.repo("org/model").commit(content)
    for op in ("revision", "tree", "resolve"):
        hub.fault(lambda a, op=op: a.op == op, rate_limited(1), times=1)
    root = mount(cache, hub)
    same(root, content)
    assert len([a for a in hub.requests() if a.status == 429]) == 3


def test_connections_that_are_cut(cache, hub):
    """Each kind of answer ends early twice."""
    content = make("first")
    hub.repo("org/model").commit(content)
    root = mount(cache, hub)

    def cut(asked, right):
        right.cut = len(right.body) // 2
        return right

    for op in ("revision", "tree", "resolve", "cache", "cdn"):
        hub.fault(lambda a, op=op: a.op == op, cut, times=2)
    same(root, content)


def test_rate_limit_beyond_the_budget(cache, hub):
    hub.repo("org/model").commit({"a.txt": b"a"})
    root = mount(cache, hub, "hf://org/model", "timeout=5s")
    hub.fault(lambda a: a.op == "resolve", rate_limited(250))
    with pytest.raises(OSError) as e:
        (root / "a.txt").read_bytes()
    assert e.value.errno == errno.EIO
    assert len(hub.requests("resolve")) <= 2, "a limit that outlasts the budget is not tried again"  # the kernel asks twice


@pytest.mark.parametrize("answer", [Answer(404), Answer(503), refusal(500), Answer(200, b"<html>"), Answer(200, b"[{}]"),
                                    Answer(200, b'[{"type":"file","path":"x/y","size":1,"oid":"00"}]')],
                         ids=["404", "503", "500", "html", "odd", "elsewhere"])
def test_odd_answers_are_never_missing_files(cache, hub, answer):
    content = make("first")
    hub.repo("org/model").commit(content)
    root = mount(cache, hub, "hf://org/model", "timeout=3s")
    hub.fault(lambda a: a.op == "tree", answer)
    with pytest.raises(OSError) as e:
        (root / "onnx/model.bin").stat()
    assert e.value.errno == errno.EIO
    hub.mend()
    same(root, content)


@pytest.mark.parametrize("link", ['<{0}?cursor=10&limit=10>; rel="next"', '<{0}>; rel="next"'],
                         ids=["repeats", "no query"])
def test_listing_that_does_not_end(cache, hub, link):
    hub.repo("org/model").commit({f"d/{n:03}.txt": b"%d" % n for n in range(40)})
    hub.page_size = 10
    root = mount(cache, hub, "hf://org/model", "timeout=5s")

    def loop(asked, right):
        right.headers["Link"] = link.format(hub.endpoint + asked.raw.partition("?")[0])
        return right

    hub.clear_log()
    hub.fault(lambda a: a.op == "tree", loop)
    with pytest.raises(OSError) as e:
        os.listdir(root / "d")
    assert e.value.errno == errno.EIO
    assert len(hub.requests("tree")) <= 12
    hub.mend()
    assert len(os.listdir(root / "d")) == 40


def test_link_to_another_host_gets_no_token(cache, hub):
    """A mirror passes on links of the hub that it mirrors: the pages are asked of the mirror."""
    repo = hub.repo("org/model")
    repo.commit({f"{n:03}.bin": b"%d" % n for n in range(30)})
    repo.readers = {"hf_reader"}
    hub.tokens.add("hf_reader")
    hub.page_size = 10

    def abroad(asked, right):
        if "Link" in right.headers:
            right.headers["Link"] = right.headers["Link"].replace(hub.endpoint, hub.cdn)
        return right

    hub.fault(lambda a: a.op == "tree", abroad)
    root = mount(cache, hub, HF_TOKEN="hf_reader")
    assert len(os.listdir(root)) == 30
    assert not hub.requests(host="cdn")


def test_daemon_is_killed_while_a_file_is_read(cache, hub):
    """The next daemon has asked for no commit yet."""
    content = make("first", {"w.bin": 40 * MIB, "a.txt": 4000})
    hub.repo("org/model").commit(content)
    root = mount(cache, hub)
    with open(root / "w.bin", "rb", buffering=0) as f:
        assert f.read(100) == content["w.bin"][:100]
        cache.kill_daemon()
        assert os.pread(f.fileno(), MIB, 38 * MIB) == content["w.bin"][38 * MIB:39 * MIB]
    same(root, content)


def test_commands_take_a_source(cache, hub):
    content = make("first")
    hub.repo("org/model").commit(content)
    root = mount(cache, hub)
    same(root, content)
    cache.wait_warm(root / "onnx/model.bin")
    cache.run("pin", "hf://org/model/onnx")
    assert cache.status(root / "onnx/model.bin")["pinned"]
    assert not cache.status(root / "config.json")["pinned"]
    cache.run("unpin", "hf://org/model")
    assert not cache.status(root / "onnx/model.bin")["pinned"]
