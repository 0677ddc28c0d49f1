"""A process that ends between any two of its calls: nothing half visible, nothing unindexed, nothing left for ever."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import redis

from stepvault.checkpointers.redis import RedisSaver
from tests.backend.redis.building import checkpoint_id, config, ids, put
from tests.backend.redis.conftest import CrashError, Crashing

BIG = {"text": "".join(f"{n:07d}\n" for n in range(300_000)), "items": [f"item {n} " * 60 for n in range(3000)]}


def crash_after_each_call(server: Any, prepare: Callable[[RedisSaver], None], do: Callable[[RedisSaver], None]) -> Any:
    """Yield a fresh saver after a crash at every point; the last one saw no crash."""
    for calls in itertools.count():
        server.flush()
        with RedisSaver(server.url) as healthy, RedisSaver(server.url) as doomed:
            prepare(healthy)
            doomed._driver = Crashing(doomed._driver, calls)
            try:
                do(doomed)
            except CrashError:
                yield healthy, False
            else:
                yield healthy, True
                return


def assert_indexed(server: Any, saver: RedisSaver) -> None:
    """Every thread that can be read is in the overview and in lists over all threads."""
    with redis.Redis.from_url(server.url) as client:
        known = {info.thread_id for info in saver.threads()}
        listed = {entry.config["configurable"]["thread_id"] for entry in saver.list(None)}
        for key in client.scan_iter("stepvault:ck:*"):
            identity, uid, provisional = client.hmget(key, "id", "u", "y")
            if uid and not provisional:
                assert identity[2:].decode() in known
                assert identity[2:].decode() in listed or client.hget(key, "n") == b"0"
            else:
                assert client.pttl(key) > 0  # it goes by itself


def test_first_put(any_server: Any) -> None:
    do = lambda saver: put(saver, "t", 1, metadata={"run_id": "r"}, items=[1, 2])  # noqa: E731
    for saver, done in crash_after_each_call(any_server, lambda saver: None, do):
        assert (saver.get_tuple(config("t")) is not None) is done
        assert_indexed(any_server, saver)
        put(saver, "t", 2, metadata={"run_id": "r"}, items=[1, 2, 3])
        saver.delete_for_runs(["r"])
        assert ids(saver, None) == []


@pytest.mark.parametrize("existing", [False, True])
def test_staged_upload(valkey_server: Any, client: redis.Redis, existing: bool) -> None:
    def prepare(saver: RedisSaver) -> None:
        if existing:
            put(saver, "t", 1, items=["small"] * 3)

    number = 2 if existing else 1
    for saver, done in crash_after_each_call(valkey_server, prepare, lambda s: put(s, "t", number, **BIG)):
        stored = checkpoint_id(number) in ids(saver, "t")
        assert stored or not done
        assert ids(saver, "t") == [checkpoint_id(n) for n in range(number, 0, -1)][0 if stored else 1 :]
        assert_indexed(valkey_server, saver)
        put(saver, "t", 3, items=["after"])
        found = saver.get_tuple(config("t"))
        assert found is not None
        assert found.checkpoint["channel_values"] == {"items": ["after"]}
        if stored:
            found = saver.get_tuple(config("t", checkpoint_id(number)))
            assert found is not None
            assert found.checkpoint["channel_values"] == BIG
        else:
            for more in range(4, 40):  # each write clears a part of what was abandoned
                put(saver, "t", more, items=["after"])
            (key,) = client.keys("stepvault:ck:*")
            assert client.memory_usage(key, samples=0) < 100_000


def test_delete(any_server: Any) -> None:
    def prepare(saver: RedisSaver) -> None:
        put(saver, "t", 1, metadata={"run_id": "r"})
        put(saver, "other", 1, metadata={"run_id": "r"})

    for saver, _ in crash_after_each_call(any_server, prepare, lambda saver: saver.delete_thread("t")):
        found = saver.get_tuple(config("t"))
        assert (found is None) is ("t" not in {info.thread_id for info in saver.threads()})
        assert_indexed(any_server, saver)
        saver.delete_for_runs(["r"])
        assert ids(saver, None) == []
        saver.delete_thread("t")
        saver.delete_thread("other")
        with RedisSaver(any_server.url) as last:
            assert list(last.threads()) == []


def test_copy(any_server: Any) -> None:
    def prepare(saver: RedisSaver) -> None:
        for number in range(1, 4):
            put(saver, "t", number, metadata={"run_id": "r"}, items=list(range(number)))

    for saver, done in crash_after_each_call(any_server, prepare, lambda saver: saver.copy_thread("t", "new")):
        assert ids(saver, "new") in ([], ids(saver, "t"))
        assert_indexed(any_server, saver)
        if not ids(saver, "new"):
            assert not done
            saver.copy_thread("t", "new")
        assert ids(saver, "new") == ids(saver, "t")
        saver.delete_for_runs(["r"])
        assert ids(saver, None) == []


def test_prune(valkey_server: Any) -> None:
    def prepare(saver: RedisSaver) -> None:
        for number in range(1, 300):
            put(saver, "t", number, items=[f"{n} " * 50 for n in range(number % 90)])

    for saver, done in crash_after_each_call(valkey_server, prepare, lambda saver: saver.prune(["t"])):
        left = ids(saver, "t")
        assert left[0] == checkpoint_id(299)
        assert (len(left) == 1) or not done
        for entry in saver.list(config("t"), limit=200):
            number = entry.metadata["step"]
            assert entry.checkpoint["channel_values"]["items"] == [f"{n} " * 50 for n in range(number % 90)]
        saver.prune(["t"])
        assert ids(saver, "t") == [checkpoint_id(299)]


def test_sweeper_and_creator_in_every_order(valkey_server: Any, client: redis.Redis) -> None:
    """An entry that points nowhere is removed while its thread comes into being: it is indexed in the end."""
    for before, between in itertools.product(range(4), repeat=2):
        valkey_server.flush()
        with RedisSaver(valkey_server.url) as saver, RedisSaver(valkey_server.url) as other:
            creator, sweeper = _steps(saver, lambda s: put(s, "t", 1)), _steps(other, lambda s: list(s.threads()))
            _advance(creator, before)
            _advance(sweeper, between)
            _advance(creator, 99)
            _advance(sweeper, 99)
            assert [info.thread_id for info in saver.threads()] == ["t"]


def test_rebuild_puts_back_what_was_lost(any_server: Any) -> None:
    with RedisSaver(any_server.url) as saver, redis.Redis.from_url(any_server.url) as client:
        for number in range(1, 20):
            put(saver, f"t{number}", 1, metadata={"run_id": f"r{number % 3}"})
        nodes = getattr(any_server, "nodes", None) or [any_server]
        for node in nodes:
            with redis.Redis.from_url(node.url) as client:
                for key in client.scan_iter("stepvault:ix:*"):
                    client.delete(key)
        assert list(saver.threads()) == []
        assert saver.rebuild_indexes() == 38
        assert saver.rebuild_indexes() == 0
        assert len(saver.threads()) == 19
        saver.delete_for_runs(["r0", "r1", "r2"])
        assert list(saver.threads()) == []


def test_first_write_of_a_process_heals_the_index(saver: RedisSaver, valkey_server: Any, client: redis.Redis) -> None:
    put(saver, "t", 1)
    client.delete(*client.keys("stepvault:ix:*"))
    with RedisSaver(valkey_server.url) as other:
        put(other, "t", 2)
        assert [info.thread_id for info in other.threads()] == ["t"]


def _steps(saver: RedisSaver, do: Callable[[RedisSaver], Any]) -> Any:
    """The operation as a generator that stops before each of its calls."""
    found: list[Any] = []

    class Stepping:
        def run(self, op: Any) -> Any:
            found.append(op)
            raise CrashError

    inner = saver._driver
    saver._driver = Stepping()  # type: ignore[assignment]
    with pytest.raises(CrashError):
        do(saver)
    saver._driver = inner
    return {"op": found[0], "driver": inner, "request": None, "ended": False}


def _advance(state: Any, steps: int) -> None:
    for _ in range(steps):
        if state["ended"]:
            return
        try:
            if state["request"] is None:
                state["request"] = next(state["op"])
            reply = state["driver"].run(_ask(state["request"]))
            state["request"] = state["op"].send(reply)
        except StopIteration:
            state["ended"] = True


def _ask(request: Any) -> Any:
    return (yield request)


def test_a_killed_server_keeps_what_it_acknowledged(valkey_server: Any) -> None:
    stored: dict[str, list[str]] = {"a": [], "b": []}
    number = 0
    for _ in range(5):
        with RedisSaver(valkey_server.url) as saver:
            for _ in range(30):
                number += 1
                thread = "ab"[number % 2]
                put(saver, thread, number, items=[f"{n}" for n in range(number % 80)])
                stored[thread].insert(0, checkpoint_id(number))
            valkey_server.kill()
            valkey_server.restart()
            for thread, expected in stored.items():
                assert ids(saver, thread) == expected
            assert_indexed(valkey_server, saver)


HOSTILE = ("", "\0", "a:b", "{a}", "}{", "*", "line\nbreak", "\ud800", "x" * 2000, "stepvault:ck:{t}", "'; DROP")


def test_any_text_is_an_id(any_server: Any) -> None:
    with RedisSaver(any_server.url) as saver:
        for text in HOSTILE:
            put(saver, text, 1, ns=text[:500], metadata={"run_id": text[:200]}, **{"items": [text], f"c{text}": text})
            saver.put_writes(config(text, checkpoint_id(1), text[:500]), [(f"c{text}", text)], text[:250], text)
        assert {info.thread_id for info in saver.threads()} == set(HOSTILE)
        for text in HOSTILE:
            found = saver.get_tuple(config(text, None, text[:500]))
            assert found is not None
            assert found.checkpoint["channel_values"] == {"items": [text], f"c{text}": text}
            assert found.pending_writes == [(text[:250], f"c{text}", text)]
            assert [e.config["configurable"]["thread_id"] for e in saver.list(config(text, None, text[:500]))] == [text]
        for text in HOSTILE:
            saver.delete_thread(text)
        for node in getattr(any_server, "nodes", None) or [any_server]:
            with redis.Redis.from_url(node.url) as client:
                assert client.keys("*:ck:*") + client.keys("*:ix:*") == []
