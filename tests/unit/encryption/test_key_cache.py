from __future__ import annotations

import threading

import pytest

from stepvault._core.key_cache import KeyCache
from stepvault._core.keys import KeyChain
from stepvault.errors import ConfigurationError
from tests.unit.encryption.making import Clock, sealing_key

KEY = sealing_key()


def chain(owner: bytes) -> KeyChain:
    return KeyChain(owner, {KEY.id: KEY}, KEY, frozenset())


def test_keys_are_fresh_for_the_time_to_live_and_no_longer() -> None:
    clock = Clock()
    cache = KeyCache(clock, ttl=60)
    cache.put(chain(b"a"), cache.ticket())
    clock.now += 59.9
    assert cache.get(b"a") is not None
    clock.now += 0.1
    assert cache.get(b"a") is None
    assert len(cache) == 0


def test_the_time_counts_from_before_the_load() -> None:
    clock = Clock()
    cache = KeyCache(clock, ttl=60)
    ticket = cache.ticket()
    clock.now += 50
    cache.put(chain(b"a"), ticket)
    clock.now += 10
    assert cache.get(b"a") is None


@pytest.mark.parametrize("ttl", [60.1, 3600, -1, float("nan")])
def test_a_minute_is_the_most(ttl: float) -> None:
    with pytest.raises(ConfigurationError, match="0 to 60"):
        KeyCache(Clock(), ttl=ttl)


def test_what_was_used_longest_ago_goes_first() -> None:
    cache = KeyCache(Clock(), limit=3)
    for owner in (b"a", b"b", b"c"):
        cache.put(chain(owner), cache.ticket())
    assert cache.get(b"a")
    cache.put(chain(b"d"), cache.ticket())
    assert [owner for owner in (b"a", b"b", b"c", b"d") if cache.get(owner)] == [b"a", b"c", b"d"]


def test_a_purge_beats_a_load_that_began_before_it() -> None:
    cache = KeyCache(Clock())
    cache.put(chain(b"a"), cache.ticket())
    ticket = cache.ticket()
    cache.purge([b"a"])
    cache.put(chain(b"a"), ticket)
    assert cache.get(b"a") is None
    cache.put(chain(b"b"), cache.ticket())
    cache.clear()
    assert len(cache) == 0


def test_absent_and_shredded_keys_are_asked_for_again() -> None:
    cache = KeyCache(Clock())
    cache.put(KeyChain(b"a", {}, None, frozenset()), cache.ticket())
    cache.put(KeyChain(b"b", {}, None, frozenset((b"gone",))), cache.ticket())
    assert len(cache) == 0


def test_threads_share_it() -> None:
    cache = KeyCache(Clock(), limit=50)
    failures = []

    def work(start: int) -> None:
        try:
            for number in range(start, start + 2000):
                owner = b"%d" % (number % 97)
                found = cache.get(owner)
                assert found is None or found.owner == owner
                cache.put(chain(owner), cache.ticket())
                if number % 50 == 0:
                    cache.purge([owner])
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(cache) <= 50
