"""Ranges that fall behind the others of their origin: asked for again elsewhere, within a twentieth of all bytes, and
the reader gets every byte once."""

import threading

import pytest

from lib import data, reads
from lib.data import MIB
from lib.origins import FaultyOrigin

PEERS = 24
PEER_SIZE = 2 * MIB
SLOW = data.make("straggler", 2 * MIB)


@pytest.fixture
def scripted(faulty):
    for number in range(PEERS):
        faulty.put(f"peers/{number}", data.make(f"peer {number}", PEER_SIZE))
    faulty.put("slow", SLOW)
    return FaultyOrigin(faulty)


def read_peers(mounted):
    for number in range(PEERS):
        assert reads.sha256(mounted / f"peers/{number}") == data.digest(data.make(f"peer {number}", PEER_SIZE))


def origin_of(cache, mounted):
    return cache.volume(mounted)["origin"]


def test_one_that_trickles_is_asked_for_again(cache, scripted):
    mounted = cache.mount_origin(scripted)
    read_peers(mounted)
    rule = scripted.faulty.rule(op="get", key="slow", times=1, trickle=(512, 0.05))
    assert reads.sha256(mounted / "slow") == data.digest(SLOW)
    assert rule.hits == 1
    origin = origin_of(cache, mounted)
    assert origin["hedges"] == 1
    assert origin["moves"] == 0
    assert origin["retries"] == 0
    assert not origin["last_error"]
    asked = scripted.faulty.requests(op="get", key="slow")
    # The second request is for what the first one owes, of the same version.
    first = asked[0]
    hedge = next(r for r in asked[1:] if r.last == first.last)
    assert first.first < hedge.first <= first.last
    assert hedge.headers["if-match"] == first.headers["if-match"]
    # Beyond the object's size only what came twice, which is at most a twentieth of everything.
    assert origin["hedge_bytes"] <= (PEERS * PEER_SIZE + len(SLOW)) / 20
    assert scripted.faulty.sent() <= (PEERS * PEER_SIZE + len(SLOW)) * 1.05


def test_without_a_strong_version_nothing_is_asked_twice(cache, faulty):
    for number in range(PEERS):
        faulty.put(f"peers/{number}", data.make(f"peer {number}", PEER_SIZE))
    small = data.make("weak", MIB + 9)
    faulty.put("slow", small, etag='W/"1"')
    mounted = cache.mount_origin(FaultyOrigin(faulty))
    read_peers(mounted)
    faulty.rule(op="get", key="slow", times=1, trickle=(1 << 15, 0.1))
    assert reads.sha256(mounted / "slow") == data.digest(small)
    assert origin_of(cache, mounted)["hedges"] == 0


def test_a_slow_origin_has_no_stragglers(cache, scripted):
    """All are as slow: none is asked for twice."""
    mounted = cache.mount_origin(scripted)
    scripted.faulty.rule(op="get", trickle=(1 << 18, 0.05))
    read_peers(mounted)
    assert reads.sha256(mounted / "slow") == data.digest(SLOW)
    assert origin_of(cache, mounted)["hedges"] == 0


def test_a_silent_one_is_moved_while_others_get_bytes(cache, scripted):
    for number in range(5000):
        scripted.faulty.put(f"more/{number}", b"x" * 1000)
    mounted = cache.mount_origin(scripted)
    read_peers(mounted)
    rule = scripted.faulty.rule(op="get", key="slow", times=1, stall_at=-1)
    result = []
    reader = threading.Thread(target=lambda: result.append(reads.sha256(mounted / "slow")))
    reader.start()
    rule.wait_hits(1)
    for number in range(5000):
        assert (mounted / f"more/{number}").read_bytes() == b"x" * 1000
        if origin_of(cache, mounted)["moves"]:
            break
    reader.join()
    assert result == [data.digest(SLOW)]
    origin = origin_of(cache, mounted)
    assert origin["moves"] == 1
    assert origin["state"] == "reachable"
    assert not origin["last_error"]
    rule.release()


def test_alone_a_silent_one_is_waited_for(cache, scripted):
    """When nobody gets anything, nothing says that another connection would."""
    mounted = cache.mount_origin(scripted)
    read_peers(mounted)
    rule = scripted.faulty.rule(op="get", key="slow", stall_at=-1)
    result = []
    reader = threading.Thread(target=lambda: result.append(reads.sha256(mounted / "slow")))
    reader.start()
    rule.wait_hits(1)
    reader.join(4)
    asked = [r.first for r in scripted.faulty.requests(op="get", key="slow")]
    assert len(asked) == len(set(asked))
    rule.release()
    reader.join()
    assert result == [data.digest(SLOW)]
    assert origin_of(cache, mounted)["moves"] == 0


def test_a_throttling_origin_is_asked_for_less(cache, scripted):
    mounted = cache.mount_origin(scripted, "connections=16")
    before = origin_of(cache, mounted)["limit"]
    scripted.faulty.rule(op="get", times=2, status=503, code="SlowDown")
    read_peers(mounted)
    assert origin_of(cache, mounted)["limit"] < before


def test_connections_that_become_slow_are_not_used_again(cache, faulty):
    """As on a long way that loses packets: the first answer of each connection is fast. GETs are short then, and have
    connections of their own but for a trial now and then."""
    content = data.make("aging", 96 * MIB)
    faulty.put("x", content)
    faulty.put("y", content)
    faulty.rule(op="get", where=lambda r: r.turn == 0, late=0.02, trickle=(MIB, 0.02))
    faulty.rule(op="get", where=lambda r: r.turn > 0, late=0.02, trickle=(MIB // 4, 0.15))
    mounted = cache.mount_origin(FaultyOrigin(faulty), "connections=4")
    assert reads.sha256(mounted / "x") == data.digest(content)
    faulty.clear_log()
    assert reads.sha256(mounted / "y") == data.digest(content)
    asked = faulty.requests(op="get", key="y")
    long = [r for r in asked if r.last - r.first >= MIB]
    assert sum(r.turn == 0 for r in long) >= 0.75 * len(long) >= 0.5 * len(asked)
    assert all(r.last - r.first < 2 * MIB for r in asked)
    assert faulty.sent(key="y") <= 1.05 * len(content)
