"""Names: every key that can be one is one, exactly once; no key leaves the volume; listings are whole and cheap."""

import os
import subprocess

import botocore.exceptions
import pytest

from lib import child, reads, wait
from lib.origins import DirectoryOrigin, FaultyOrigin, S3Origin

# Names within a directory that any S3 server has to take.
PLAIN = ["plain", "with space", " leading", "trailing ", "plus+plus", "per%cent", "%2F", "%25", "what?", "hash#tag",
         "am&p", "le<ss", "quo\"te", "apo'strophe", "semi;colon", "equal=sign", "tilde~", "star*", "dollar$", "at@",
         "comma,", "back`tick", "pi|pe", "brace{}", "bracket[]", "caret^", "\u00fcmlaut", "\u4e2d\u6587",
         "\U0001f600", "e\u0301", "dot.", ".hidden", "...", "-dash", "a" * 255]
# What only some take.
HARD = ["new\nline", "tab\tbed", "cr\rlf", "back\\slash", "esc\x1b[31m", "del\x7f", "a" * 1000]
NOT_TEXT = ["\udcff\udcfe", "half\udcc3", "latin\udce9"]


def listed(path):
    """Names by `ls -la`'s way: one readdir and a stat of each."""
    return child.call(reads.names_and_sizes, path)


def as_hex(name):
    return os.fsencode(name).hex()


def check_ls(path):
    """`ls -la` shows no ????? and no name twice."""
    result = subprocess.run(["ls", "-laR", "--quoting-style=c", path], capture_output=True, text=True, timeout=60,
                            check=True)
    assert "?????" not in result.stdout and not result.stderr
    for block in result.stdout.split("\n\n"):
        names = [line.split(None, 8)[8] for line in block.splitlines() if line[:1] in "-dl" and len(line.split()) > 8]
        assert len(names) == len(set(names)), block


def put_what_it_takes(origin, names):
    """The names that the origin took, each the content of a key below dir/."""
    taken = []
    for name in names:
        try:
            origin.put(f"dir/{name}", name.encode("utf-8", "surrogateescape"))
            taken.append(name)
        except (botocore.exceptions.ClientError, botocore.exceptions.ParamValidationError, OSError, UnicodeError):
            pass
    return taken


def test_odd_names(cache, origin):
    names = PLAIN + HARD
    if origin.kind in ("file", "faulty"):
        names = names + NOT_TEXT
    if origin.kind == "versitygw":
        names.remove("esc\x1b[31m")  # it stores such a key and lists another
    if origin.kind == "file":
        names = [name for name in names if len(os.fsencode(name)) < 250]
    taken = put_what_it_takes(origin, names)
    assert set(PLAIN) - {"a" * 255, "with space", " leading", "trailing ", "...", "dot."} <= set(taken)
    if origin.kind in ("file", "faulty"):
        assert taken == names
    mounted = cache.mount_origin(origin)
    found = listed(mounted / "dir")
    assert sorted(found) == sorted([as_hex(name), len(os.fsencode(name))] for name in taken)
    for name in taken:
        assert (mounted / "dir" / name).read_bytes() == os.fsencode(name)
    check_ls(mounted)
    assert cache.volume(mounted)["hidden_keys"] == 0
    for name in taken:
        assert cache.status(mounted / "dir" / name)["size"] == len(os.fsencode(name))


def test_links_of_a_directory(cache, workdir):
    """A walk ends, and what is not shown is not called a name that can't be."""
    origin = DirectoryOrigin(workdir / "origin")
    origin.put("a/x", b"x")
    origin.put("b/y", b"y")
    for name, target in {"a/here": ".", "a/top": "..", "a/b": "../b", "b/a": "../a", "b/none": "none"}.items():
        (origin.directory / name).symlink_to(target)
    mounted = cache.mount_origin(origin)
    found = subprocess.run(["find", "."], cwd=mounted, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    assert sorted(found.stdout.split()) == [".", "./a", "./a/b", "./a/b/y", "./a/x", "./b", "./b/a", "./b/a/x", "./b/y"]
    assert "links out, to nowhere or back, and special files" in cache.run("status").stdout
    assert "can't be names" not in cache.run("status").stdout


def test_keys_that_are_no_paths(cache, faulty, workdir):
    """The rule for each: what can't be a name is hidden and counted; of a file and a directory of one name the
    directory is shown."""
    (workdir / "outside").write_text("outside")
    for key in ["a//b", "a//", "x", "x/y", "d/", "e/f/", "a/../b", "../outside", "./here", "a/./c", "a/seen", "/", "//",
                "..", ".", "f/..", "long/" + "n" * 1019, "n" * 1024, "deep/" + "/".join("d" * 200 for _ in range(5))]:
        faulty.put(key, key.encode())
    faulty.put("d/", b"")
    faulty.put("e/f/", b"")
    mounted = cache.mount_origin(FaultyOrigin(faulty))
    check_ls(mounted)
    assert sorted(os.listdir(mounted)) == ["a", "d", "deep", "e", "f", "long", "x"]
    assert os.listdir(mounted / "a") == ["seen"]
    assert os.listdir(mounted / "x") == ["y"]
    assert os.listdir(mounted / "d") == [] == os.listdir(mounted / "e" / "f")
    assert os.listdir(mounted / "e") == ["f"]
    assert os.listdir(mounted / "long") == ["n" * 1019]
    assert (mounted / "long" / ("n" * 1019)).read_bytes() == b"long/" + b"n" * 1019
    deep = mounted / "deep" / "/".join("d" * 200 for _ in range(5))
    assert deep.read_bytes() == str(deep.relative_to(mounted)).encode()
    assert (mounted / "a" / "seen").read_bytes() == b"a/seen"
    assert not (mounted / "a" / "b").exists() and not (mounted / "b").exists() and not (mounted / "here").exists()
    assert cache.volume(mounted)["hidden_keys"] >= 8
    assert "hidden" in cache.run("status").stdout


def test_a_file_and_a_directory_of_one_name(cache, faulty):
    """The directory is shown, whichever way the name is asked for first."""
    faulty.put("dir/x", b"file")
    faulty.put("dir/x/y", b"in it")
    for n in range(1200):
        faulty.put(f"many/{n:04}", b"")
    faulty.put("many/x", b"file")
    faulty.put("many/x/y", b"in it")
    mounted = cache.mount_origin(FaultyOrigin(faulty))
    for directory in ("dir", "many"):
        assert (mounted / directory / "x" / "y").read_bytes() == b"in it"
        assert (mounted / directory / "x").is_dir()
        assert os.listdir(mounted / directory).count("x") == 1
        check_ls(mounted / directory)


@pytest.mark.parametrize("server", ["versitygw", "minio"])
def test_markers_of_directories(cache, server, request):
    origin = S3Origin(request.getfixturevalue(server))
    try:
        origin.put("d/", b"")
        origin.put("e/f", b"content")
        mounted = cache.mount_origin(origin)
        assert sorted(os.listdir(mounted)) == ["d", "e"]
        assert os.listdir(mounted / "d") == []
        check_ls(mounted)
    finally:
        origin.close()


def test_a_web_server_s_index(cache, web):
    names = [name for name in PLAIN + HARD[1:2] if "/" not in name and len(name) < 256]
    for name in names:
        web.put(f"dir/{name}", name.encode())
    mounted = cache.mount_origin(FaultyOrigin(web))
    assert sorted(name for name, _ in listed(mounted / "dir")) == sorted(as_hex(name) for name in names)
    for name in names:
        assert (mounted / "dir" / name).read_bytes() == name.encode()
    web.listing.index = False
    assert (mounted / "dir" / "plain").read_bytes() == b"plain"


def test_a_web_server_without_an_index(cache, web):
    web.put("models/a.bin", b"content")
    web.listing.index = False
    mounted = cache.mount(f"{web.endpoint}/models/")
    assert (mounted / "a.bin").read_bytes() == b"content"
    assert not (mounted / "b.bin").exists()
    assert os.listdir(mounted) == []


def test_a_web_server_whose_index_leaves_out_names(cache, web):
    """And one that refuses the index of a directory: what is asked for by its path is read all the same."""
    web.put("models/a.bin", b"content")
    web.put("models/secret.bin", b"more")
    index = b'<html><body><a href="a.bin">a.bin</a></body></html>'
    rule = web.rule(op="index", key="models/", body=index)
    mounted = cache.mount(f"{web.endpoint}/", "negative_ttl=100ms", "ttl=100ms")
    assert os.listdir(mounted / "models") == ["a.bin"]
    assert (mounted / "models" / "secret.bin").read_bytes() == b"more"
    assert not (mounted / "models" / "missing").exists()
    rule.remove()
    rule = web.rule(op="index", key="models/", status=403)

    def refused():
        try:
            os.listdir(mounted / "models")
            return False
        except PermissionError:
            return True

    wait.until(refused, 30, "the refusal")
    assert (mounted / "models" / "a.bin").read_bytes() == b"content"
    assert not (mounted / "models" / "missing").exists()


# Large directories

@pytest.mark.parametrize("v2", ["yes", "ignored", "refused"])
@pytest.mark.parametrize("count", [1500, 2000])
def test_a_listing_costs_a_few_requests(cache, faulty, count, v2):
    for n in range(count):
        faulty.put(f"dir/{n:06}", b"x" * (n % 7))
    faulty.listing.v2 = v2
    mounted = cache.mount_origin(FaultyOrigin(faulty))
    faulty.clear_log()
    result = subprocess.run(["ls", "-l", mounted / "dir"], capture_output=True, text=True, timeout=60, check=True)
    lines = result.stdout.splitlines()[1:]
    assert [(line.split()[8], int(line.split()[4])) for line in lines] == [(f"{n:06}", n % 7) for n in range(count)]
    assert faulty.count("head") == 0 and faulty.count("get") == 0
    assert faulty.count("list") <= 6
    requests = faulty.count()
    subprocess.run(["ls", "-l", mounted / "dir"], capture_output=True, timeout=60, check=True)
    assert faulty.count() == requests


@pytest.mark.timeout(200)
@pytest.mark.parametrize("v2", ["yes", "refused"])
def test_150000_keys(cache, faulty, v2):
    for n in range(150000):
        faulty.put(f"dir/{n:06}", b"")
    faulty.put("dir/sub/x", b"x")
    faulty.listing.v2 = v2
    mounted = cache.mount_origin(FaultyOrigin(faulty))
    faulty.clear_log()
    found = child.call(reads.names_and_sizes, mounted / "dir")
    assert len(found) == 150001
    assert {name for name, _ in found} == {as_hex(f"{n:06}") for n in range(150000)} | {as_hex("sub")}
    assert faulty.count("head") == 0
    assert faulty.count("list") <= 155
    assert (mounted / "dir" / "149999").stat().st_size == 0
    assert faulty.count("head") == 0
    assert cache.rss_peak_bytes() < 512 << 20


@pytest.mark.parametrize("server", ["versitygw", "minio"])
def test_1500_keys_on_real_servers(cache, server, request):
    origin = S3Origin(request.getfixturevalue(server))
    try:
        for n in range(1500):
            origin.put(f"dir/{n:06}", b"")
        mounted = cache.mount_origin(origin)
        assert [name for name, _ in sorted(listed(mounted / "dir"))] == [as_hex(f"{n:06}") for n in range(1500)]
        assert cache.counters()["origin_heads"] == 0
    finally:
        origin.close()


def test_find_and_du(cache, origin):
    sizes = {f"{a}/{b}/{c}.bin": 1000 * c for a in "xyz" for b in range(4) for c in range(1, 6)}
    for key, size in sizes.items():
        origin.put(key, b"x" * size)
    mounted = cache.mount_origin(origin)
    found = subprocess.run(["find", ".", "-type", "f", "-printf", "%P %s\\n"], cwd=mounted, capture_output=True,
                           text=True, timeout=60, check=True).stdout
    assert dict(line.split() for line in found.splitlines()) == {key: str(size) for key, size in sizes.items()}
    directories = subprocess.run(["find", ".", "-type", "d"], cwd=mounted, capture_output=True, text=True, timeout=60,
                                 check=True).stdout
    assert len(directories.splitlines()) == 1 + 3 + 12
    du = subprocess.run(["du", "-s", "--apparent-size", "-B1", "."], cwd=mounted, capture_output=True, text=True,
                        timeout=60, check=True).stdout
    assert sum(sizes.values()) <= int(du.split()[0]) <= sum(sizes.values()) + (1 << 20)
    assert cache.counters()["origin_heads"] == 0
    inodes = {os.stat(mounted / key).st_ino for key in sizes}
    assert len(inodes) == len(sizes)


def test_inode_numbers_last(cache, workdir):
    origin = DirectoryOrigin(workdir / "origin")
    for key in ("a", "d/b"):
        origin.put(key, b"x")
    before = None
    for _ in range(2):
        mounted = cache.mount_origin(origin)
        numbers = [os.stat(mounted / name).st_ino for name in ("", "a", "d", "d/b")]
        assert before in (None, numbers)
        before = numbers
        cache.umount(mounted)
        wait.until(lambda: not cache.processes(), 30, "the daemon's end")


def test_reading_a_directory_while_it_changes(cache, faulty):
    """One opendir has one listing: names that were there all the time come exactly once."""
    for n in range(3000):
        faulty.put(f"dir/{n:05}", b"")
    mounted = cache.mount_origin(FaultyOrigin(faulty), "ttl=10ms")
    for change in range(5):
        with os.scandir(mounted / "dir") as entries:
            seen = [next(entries).name for _ in range(500)]
            for n in range(change, 3000, 50):
                faulty.delete(f"dir/{n:05}")
                faulty.put(f"dir/{n:05}-new{change}", b"")
            assert len(os.listdir(mounted / "dir")) == 3000
            seen += [entry.name for entry in entries]
        assert len(seen) == len(set(seen)) == 3000
        for n in range(change, 3000, 50):
            faulty.delete(f"dir/{n:05}-new{change}")
            faulty.put(f"dir/{n:05}", b"")
        wait.until(lambda: sorted(os.listdir(mounted / "dir")) == [f"{n:05}" for n in range(3000)], 30, "the old names")


def test_a_page_that_changes_between_pages(cache, faulty):
    """Keys come and go while the listing is fetched; those that stay are all there."""
    for n in range(1000):
        faulty.put(f"dir/{n:05}", b"")
    faulty.listing.page_size = 100
    mounted = cache.mount_origin(FaultyOrigin(faulty))
    reader = child.Child(reads.names_and_sizes, mounted / "dir")
    for n in range(0, 1000, 10):
        faulty.put(f"dir/{n:05}-more", b"")
        faulty.delete(f"dir/{n:05}")
    names = [bytes.fromhex(name).decode() for name, _ in reader.result()]
    assert len(names) == len(set(names))
    assert {f"{n:05}" for n in range(1000) if n % 10} <= set(names)


def test_the_tree_is_the_origin_s(cache, origin):
    wanted = {}
    for n in range(60):
        key = f"{n % 3}/{n % 5}/{n}"
        origin.put(key, key.encode())
        wanted[key] = key
    mounted = cache.mount_origin(origin)
    assert set(reads.tree(mounted)) == set(wanted)
