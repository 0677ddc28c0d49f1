"""What erasing a person costs beside raw DELETEs of the same rows, and whether it takes memory that grows."""

from __future__ import annotations

import contextlib
import gc
import os
import sqlite3
import statistics
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.backends import Place
from benchmarks.contenders import Contender
from benchmarks.lifetime import fill

_Cost: TypeAlias = tuple[float, float]
_OTHERS = 20  # threads that stay
_FEW = 5  # the smaller person has a fifth of the threads
_PAIRS = 5
_CHILDREN = ("chunk", "checkpoint", "write", "meta", "note")


def erasing(contender: Contender, place: Place, quick: bool) -> dict[str, float]:
    """Every part of an erasure counts: request, tombstone, deletion, purge, verification and receipt.

    Both remove the very same rows: they are put in once, and brought back each time.
    """
    threads = 500 if quick else 5000
    with contender.open(place) as saver:
        fill(saver, _OTHERS, "others", user_id="others")
        fill(saver, 10, "first", user_id="first")
        _peak(saver, "first", 10)  # what is cached
        fill(saver, threads // _FEW, "few", user_id="few")
        few = _peak(saver, "few", threads // _FEW)
        fill(saver, threads, "erased", user_id="erased")
        delete = _RAW[contender.backend](place.address, saver, b"erased", threads)
    with place.kept() as bring_back:
        pairs = [_pair(contender, place, bring_back, delete) for _ in range(1 if quick else _PAIRS)]
        bring_back()
        with contender.open(place) as saver:
            peak = _peak(saver, "erased", threads)
    return {
        "threads_per_s": threads / statistics.median(erased[0] for erased, _ in pairs),
        "per_delete": statistics.median(erased[0] / raw[0] for erased, raw in pairs),
        "cpu_per_delete": statistics.median(erased[1] / raw[1] for erased, raw in pairs),
        "peak": peak,
        "peak_growth": peak / few,
    }


def _pair(contender: Contender, place: Place, bring_back: Any, delete: Any) -> tuple[_Cost, _Cost]:
    """What an erasure takes, and what a raw DELETE does, one after the other."""
    from stepvault.checkpointers._erasure import Erasure

    bring_back()
    raw = _took(delete)
    bring_back()
    with contender.open(place) as another:  # as a nightly job: what writers have in mind is not its concern
        erased = _took(lambda: Erasure(another).erase("erased"))
        assert len(another.threads(limit=1000)) == _OTHERS
    return erased, raw


def _took(call: Callable[[], Any]) -> _Cost:
    """Seconds, and those that this process and the servers it started were at work."""
    gc.collect()  # what was filled in before is nobody's cost
    before, start = _cpu(), time.perf_counter()
    call()
    seconds = time.perf_counter() - start
    time.sleep(0.5)  # a server's process ends a little after its connection
    return seconds, _cpu() - before


def _cpu() -> float:
    """Seconds at work, this process and all below it, ended ones too; without /proc this process alone."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
            ticks[int(stat.parent.name)] = sum(map(int, fields[11:15]))
    below = [os.getpid()]
    for process in below:
        below += children.get(process, [])
    found = sum(ticks.get(process, 0) for process in below) / os.sysconf("SC_CLK_TCK")
    return found or time.process_time()


def _peak(saver: Any, person: str, threads: int) -> float:
    """Bytes that the erasure of so many threads takes at most."""
    from stepvault.checkpointers._erasure import Erasure

    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    try:
        request = Erasure(saver).erase(person)
        assert request.counts["threads"] == threads
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def _hints(saver: Any, name: bytes) -> tuple[bytes, bytes]:
    """The space of the hints to a person's threads, and what their keys begin with."""
    from stepvault.checkpointers._ops.spaces import space
    from stepvault.checkpointers._ops.subjects import SUBJECTS, token

    return space(saver._scope, SUBJECTS), token(saver._scope, name.decode())


def _delete_sqlite(path: str, saver: Any, name: bytes, threads: int) -> Callable[[], None]:
    hints = _hints(saver, name)

    def delete() -> None:
        with contextlib.closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("BEGIN IMMEDIATE")
            theirs = f"SELECT no FROM stepvault_thread WHERE substr(thread, 1, {len(name)}) = ?"
            for child in _CHILDREN:
                connection.execute(f"DELETE FROM stepvault_{child} WHERE t IN ({theirs})", (name,))
            connection.execute(f"DELETE FROM stepvault_thread WHERE no IN ({theirs})", (name,))
            connection.execute("DELETE FROM stepvault_doc WHERE space = ? AND substr(key, 1, 16) = ?", hints)
            connection.execute("COMMIT")

    return delete


def _delete_postgres(url: str, saver: Any, name: bytes, threads: int) -> Callable[[], None]:
    import psycopg

    hints = _hints(saver, name)

    def delete() -> None:
        with psycopg.connect(url) as connection:
            theirs = f"SELECT no FROM stepvault_thread WHERE substring(thread FROM 1 FOR {len(name)}) = %s"
            for child in _CHILDREN:
                connection.execute(f"DELETE FROM stepvault_{child} WHERE t IN ({theirs})", (name,))  # type: ignore[arg-type]
            connection.execute(f"DELETE FROM stepvault_thread WHERE no IN ({theirs})", (name,))  # type: ignore[arg-type]
            query = "DELETE FROM stepvault_doc WHERE space = %s AND substring(key FROM 1 FOR 16) = %s"
            connection.execute(query, hints)

    return delete


def _delete_redis(url: str, saver: Any, name: bytes, threads: int) -> Callable[[], None]:
    """Which threads is known beforehand; their keys are made from their ids, as a WHERE finds rows by theirs."""
    import redis

    from stepvault.checkpointers.redis.keys import member_of

    keys, (space, mark) = saver._core.dialect.keys, _hints(saver, name)
    ids = [saver._scope.key(f"{name.decode()}{number}") for number in range(threads)]

    def delete() -> None:
        with contextlib.closing(redis.from_url(url)) as client:
            docs = [doc for doc in client.zrange(keys.space(space), 0, -1) if doc.startswith(mark)]
            index: dict[bytes, list[bytes]] = {}
            for at in range(0, len(ids), 500):
                members = [member_of(key) for key in ids[at : at + 500]]
                for member in members:
                    index.setdefault(keys.index(saver._scope.tenant, member), []).append(member)
                client.unlink(*map(keys.thread, members))
                client.zrem(keys.space(space), *docs[at : at + 500])
            for key, gone in index.items():
                client.zrem(key, *gone)

    return delete


_RAW = {"sqlite": _delete_sqlite, "postgres": _delete_postgres, "redis": _delete_redis}
