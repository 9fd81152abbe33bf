"""Listings: names as they come, many directories at once, and every way in which a LIST goes wrong: all names, each
once, or one clear error."""

import errno
import itertools
import os
import threading
from xml.sax.saxutils import escape

import pytest

from lib import child, reads
from lib.origins import FaultyOrigin

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"


def put_many(faulty, count, directory="dir"):
    names = [f"{n:05}" for n in range(count)]
    for name in names:
        faulty.put(f"{directory}/{name}", b"x")
    return names


def page_xml(names, token=None, truncated=None):
    """A page of dir/ with these names."""
    truncated = token is not None if truncated is None else truncated
    rows = "".join(f"<Contents><Key>dir/{escape(name)}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>"
                   f'<ETag>"{name}"</ETag><Size>1</Size></Contents>' for name in names)
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token is not None else ""
    return (f'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="{NAMESPACE}"><Prefix>dir/</Prefix>'
            f"<KeyCount>{len(names)}</KeyCount><IsTruncated>{'true' if truncated else 'false'}</IsTruncated>{more}"
            f"{rows}</ListBucketResult>").encode()


def script(faulty, *pages):
    """dir/ lists as these pages, each (names, token of the next or None), whatever its objects are. Tokens are
    hexadecimal digits, as the origin makes them."""
    faulty.put("dir/there", b"")
    for (names, token), asked_with in zip(pages, [None] + [token for _, token in pages]):
        faulty.rule(op="list", where=with_token(asked_with), body=page_xml(names, token))


def script_endless(faulty, make_page):
    """Each page of dir/ is made by make_page(number)."""
    numbers = itertools.count()
    lock = threading.Lock()

    def edit(_body):
        with lock:
            number = next(numbers)
        return make_page(number)

    faulty.put("dir/there", b"")
    faulty.rule(op="list", where=of_directory(), edit=edit)


def of_directory(directory="dir/"):
    return lambda request: request.query.get("prefix") == directory


def with_token(token):
    return lambda request: request.query.get("prefix") == "dir/" and request.query.get("continuation-token") == token


def later_pages(request):
    return request.query.get("prefix") == "dir/" and "continuation-token" in request.query


def names_until_error(path):
    """What readdir gives, and the errno that it ends with; 0 for an end."""
    names = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                names.append(entry.name)
    except OSError as e:
        return names, e.errno
    return names, 0


# Names as they come

def test_names_come_before_the_listing_is_whole(cache, faulty):
    """Also by a second stream, from its beginning, and places in the first can be gone back to."""
    names = put_many(faulty, 3000)
    held = faulty.rule(op="list", where=later_pages, after=1, stall_at=-1)
    mounted = cache.mount_origin(FaultyOrigin(faulty))
    with os.scandir(mounted / "dir") as entries:
        seen = [next(entries).name for _ in range(1500)]
        with os.scandir(mounted / "dir") as others:
            assert [next(others).name for _ in range(100)] == names[:100]
        assert held.hits == 1 and not held.released
        assert (mounted / "dir" / names[7]).read_bytes() == b"x"
        held.release()
        seen += [entry.name for entry in entries]
    assert seen == names
    assert os.listdir(mounted / "dir") == names
    assert faulty.count("head") == 0
    assert faulty.count("list", where=of_directory()) == 3


@pytest.mark.parametrize("place_lost", [False, True])
def test_a_daemon_that_dies_while_names_come(cache, faulty, place_lost):
    """Its successor lists anew and goes on behind the name where the stream was. Without that name it can't say what
    was given before, and says so."""
    names = put_many(faulty, 3000)
    held = faulty.rule(op="list", where=later_pages, after=1, stall_at=-1)
    mounted = cache.mount_origin(FaultyOrigin(faulty))
    with os.scandir(mounted / "dir") as entries:
        seen = [next(entries).name for _ in range(1500)]
        held.wait_hits(1)
        # The kernel has read some more than we have.
        for name in names[1499:2000] if place_lost else names[2500:2600]:
            faulty.delete(f"dir/{name}")
        cache.kill_daemon()
        held.remove()
        try:
            seen += [entry.name for entry in entries]
            error = 0
        except OSError as e:
            error = e.errno
    if place_lost:
        assert error == errno.ESTALE and seen == names[:len(seen)]
    else:
        assert error == 0 and seen == names[:2500] + names[2600:]
    assert len(os.listdir(mounted / "dir")) == (2499 if place_lost else 2900)


@pytest.mark.parametrize("how, wanted", [
    ({"status": 503, "code": "SlowDown"}, errno.EIO),
    ({"status": 403, "code": "AccessDenied"}, errno.EACCES),
    ({"status": 404, "code": "NoSuchKey"}, errno.EIO),
    ({"status": 500}, errno.EIO),
    ({"cut_at": 100}, errno.EIO),
])
def test_names_are_followed_by_the_error(cache, faulty, how, wanted):
    """Never by an end; and once the fault is over all names are there."""
    names = put_many(faulty, 500)
    faulty.listing.page_size = 100
    broken = faulty.rule(op="list", where=later_pages, after=2, **how)
    mounted = cache.mount_origin(FaultyOrigin(faulty), "timeout=2s")
    seen, error = names_until_error(mounted / "dir")
    assert error == wanted and seen == names[:len(seen)] and len(seen) < len(names)
    assert broken.hits >= 1
    broken.remove()
    assert os.listdir(mounted / "dir") == names
    assert faulty.count("head") == 0


def test_a_stream_that_is_closed_ends_the_listing(cache, faulty):
    put_many(faulty, 5000)
    held = faulty.rule(op="list", where=later_pages, after=1, stall_at=-1)
    mounted = cache.mount_origin(FaultyOrigin(faulty))
    with os.scandir(mounted / "dir") as entries:
        next(entries)
        held.wait_hits(1)
    held.release()
    # Whoever comes next begins a listing of their own behind it.
    assert len(os.listdir(mounted / "dir")) == 5000
    assert faulty.count("list", where=of_directory()) <= 3 + 5


# Faults of one page

def broken_once_or_for_ever():
    def half(body):
        return body[:len(body) // 2]

    def error_document(_body):
        return b'<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>slow</Message></Error>'

    return [pytest.param({"edit": half}, id="cut XML"),
            pytest.param({"edit": error_document}, id="error after 200"),
            pytest.param({"cut_at": 300}, id="cut connection"),
            pytest.param({"cut_at": -1, "reset": True}, id="reset"),
            pytest.param({"edit": lambda body: b"<html>hello</html>"}, id="a proxy's page"),
            pytest.param({"edit": lambda body: b""}, id="nothing"),
            pytest.param({"status": 503, "code": "SlowDown"}, id="503"),
            pytest.param({"status": 429, "code": "TooManyRequests"}, id="429")]


@pytest.mark.parametrize("fault", broken_once_or_for_ever())
@pytest.mark.parametrize("page", [0, 1])
def test_a_page_that_fails_once_is_asked_for_again(cache, faulty, fault, page):
    names = put_many(faulty, 250)
    faulty.listing.page_size = 100
    rule = faulty.rule(op="list", where=of_directory(), after=page, times=1, **fault)
    mounted = cache.mount_origin(FaultyOrigin(faulty))
    assert os.listdir(mounted / "dir") == names
    assert rule.hits == 1
    assert faulty.count("list", where=of_directory()) == 4
    assert faulty.count("head") == 0


@pytest.mark.parametrize("fault", broken_once_or_for_ever())
def test_a_page_that_fails_for_ever(cache, faulty, fault):
    put_many(faulty, 250)
    faulty.listing.page_size = 100
    faulty.rule(op="list", where=of_directory(), **fault)
    mounted = cache.mount_origin(FaultyOrigin(faulty), "timeout=1s")
    with pytest.raises(OSError) as caught:
        os.listdir(mounted / "dir")
    assert caught.value.errno == errno.EIO
    with pytest.raises(OSError) as caught:
        os.stat(mounted / "dir" / "00001")
    assert caught.value.errno == errno.EIO


def test_a_page_that_stalls_ends_in_an_error(cache, faulty):
    put_many(faulty, 250)
    faulty.listing.page_size = 100
    faulty.rule(op="list", where=later_pages, stall_at=-1)
    mounted = cache.mount_origin(FaultyOrigin(faulty), "timeout=2s")
    seen, error = names_until_error(mounted / "dir")
    assert error == errno.EIO and len(seen) <= 100


# Listings that make no sense

def test_a_token_that_is_missing(cache, faulty):
    faulty.put("dir/there", b"")
    faulty.rule(op="list", where=of_directory(), body=page_xml(["a", "b"], truncated=True))
    mounted = cache.mount_origin(FaultyOrigin(faulty), "timeout=2s")
    assert names_until_error(mounted / "dir") == ([], errno.EIO)


@pytest.mark.parametrize("advancing", [False, True])
def test_a_token_that_comes_again(cache, faulty, advancing):
    """For ever: with the same keys, and with others."""
    script_endless(faulty, lambda number: page_xml([f"{number if advancing else 1:05}"], "abcd"))
    mounted = cache.mount_origin(FaultyOrigin(faulty), "timeout=2s")
    names, error = names_until_error(mounted / "dir")
    assert error == errno.EIO and len(names) <= 4
    assert faulty.count("list", where=of_directory()) <= 8


def test_keys_that_come_again_under_new_tokens(cache, faulty):
    script_endless(faulty, lambda number: page_xml(["a", "b", "c"], f"{number:08x}"))
    mounted = cache.mount_origin(FaultyOrigin(faulty), "timeout=2s")
    names, error = names_until_error(mounted / "dir")
    assert error == errno.EIO and len(names) <= 3
    assert faulty.count("list", where=of_directory()) <= 8


def test_a_page_that_overlaps_the_one_before(cache, faulty):
    """The last key comes again at the head of the next page: each name once."""
    script(faulty, (["a", "b"], "01"), (["b", "c"], "02"), (["c", "d"], None))
    mounted = cache.mount_origin(FaultyOrigin(faulty))
    assert os.listdir(mounted / "dir") == ["a", "b", "c", "d"]


def test_pages_out_of_order(cache, faulty):
    """Who was given names gets an error after them; from then on the listing is waited for, and put in order."""
    script(faulty, (["d", "e"], "01"), (["a", "b"], "02"), (["c", "f"], None))
    mounted = cache.mount_origin(FaultyOrigin(faulty))
    names, error = names_until_error(mounted / "dir")
    assert error == errno.EIO and names == ["d", "e"][:len(names)]
    assert os.listdir(mounted / "dir") == ["a", "b", "c", "d", "e", "f"]


def test_a_page_without_order(cache, faulty):
    """As directory buckets give them: nobody is given a name before all are there."""
    script(faulty, (["d", "a"], "01"), (["c", "b"], None))
    mounted = cache.mount_origin(FaultyOrigin(faulty))
    assert os.listdir(mounted / "dir") == ["a", "b", "c", "d"]


@pytest.mark.timeout(120)
def test_more_names_than_memory_holds(cache, faulty):
    """One clear error, in the log and in the status too; memory stays under its ceiling, and names are read."""
    script_endless(faulty, lambda number: page_xml(
        [f"{number:05}{n:03}".ljust(1000, "x") for n in range(1000)], f"{number:08x}"))
    faulty.put("dir/one", b"content")
    mounted = cache.mount_origin(FaultyOrigin(faulty))
    with pytest.raises(OSError) as caught:
        child.call(reads.count_names, mounted / "dir")
    assert caught.value.errno == errno.EFBIG
    assert "listing_refused" in cache.log.read_text()
    assert cache.volume(mounted)["listings_refused"] == 1
    assert cache.rss_peak_bytes() < 512 << 20
    assert (mounted / "dir" / "one").read_bytes() == b"content"


# Many directories

def put_tree(faulty, count, files):
    for d in range(count):
        for n in range(files):
            faulty.put(f"{d:03}/{n:04}", b"x")
    return {f"{d:03}/{n:04}" for d in range(count) for n in range(files)}


@pytest.mark.parametrize("files", [3, 250])
def test_a_walk_has_many_lists_in_flight(cache, faulty, files):
    """Children beyond the first few are answered only when eight are asked for at once."""
    wanted = put_tree(faulty, 40, files)
    faulty.listing.page_size = 100
    held = faulty.rule(op="list", where=lambda r: r.query.get("prefix", "") >= "010/", stall_at=-1)
    mounted = cache.mount_origin(FaultyOrigin(faulty))
    walker = child.Child(reads.paths, mounted)
    held.wait_hits(8)
    held.release()
    assert set(walker.result()) == wanted
    pages = (files + 99) // 100
    assert faulty.count("list", where=lambda r: r.query.get("prefix")) == 40 * pages
    assert faulty.count("head") == 0


def test_a_walk_that_stops(cache, faulty):
    """What was asked for in vain is no more than what was walked."""
    put_tree(faulty, 100, 1)
    mounted = cache.mount_origin(FaultyOrigin(faulty))
    os.listdir(mounted)
    for d in range(5):
        assert os.listdir(mounted / f"{d:03}") == ["0000"]
    assert faulty.count("list", where=lambda r: r.query.get("prefix")) <= 2 * 5


def test_no_walk(cache, faulty):
    """ls in one directory, again and again, and in one of its children: nothing is asked for ahead."""
    put_tree(faulty, 20, 1)
    mounted = cache.mount_origin(FaultyOrigin(faulty))
    for _ in range(5):
        assert len(os.listdir(mounted)) == 20
        assert os.listdir(mounted / "007") == ["0000"]
    assert faulty.count("list", where=lambda r: r.query.get("prefix")) == 1


