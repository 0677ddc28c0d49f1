"""What a time to live costs at each put and get, and how fast sweeps are beside one raw DELETE of the same rows."""

from __future__ import annotations

import contextlib
import sqlite3
import statistics
import time
from typing import Any

from benchmarks.backends import Place
from benchmarks.contenders import Contender
from benchmarks.data import steps

MINUTES = 60


def lifetime(contender: Contender, place: Place, quick: bool) -> dict[str, float]:
    threads, count = (6, 20) if quick else (16, 40)
    with contender.open(place) as plain, contender.open(place, ttl={"default_ttl": MINUTES}) as mortal:
        puts: dict[str, list[float]] = {"plain": [], "ttl": []}
        gets: dict[str, list[float]] = {"plain": [], "ttl": []}
        savers = {"plain": plain, "ttl": mortal}
        for thread in range(threads):
            _take_turns(savers, thread, count, puts, gets)
        numbers = {
            "put": _pairwise(puts["ttl"], puts["plain"]),
            "get": _pairwise(gets["ttl"], gets["plain"]),
        }
        return numbers | _sweep(mortal, place, contender.backend, 60 if quick else 400)


def _pairwise(times: list[float], others: list[float]) -> float:
    """The median ratio of calls that were made one after the other, so that noise meets both alike."""
    return statistics.median(one / other for one, other in zip(times, others, strict=True))


def _take_turns(savers: Any, thread: int, count: int, puts: Any, gets: Any) -> None:
    """The same thread by both savers, step by step, each first in turn."""
    at: dict[str, Any] = {
        name: {"configurable": {"thread_id": f"{name}{thread}", "checkpoint_ns": ""}} for name in savers
    }
    heads = dict(at)
    versions: dict[str, Any] = {}
    for step, (checkpoint, changed) in enumerate(steps(thread, count, 10)):
        for channel in changed:
            versions[channel] = savers["plain"].get_next_version(versions.get(channel), None)
        checkpoint["channel_versions"] = dict(versions)
        checkpoint["versions_seen"] = {"n": dict(versions)}
        new = {channel: versions[channel] for channel in changed}
        for name in list(savers) if step % 2 else list(savers)[::-1]:
            start = time.perf_counter()
            at[name] = savers[name].put(at[name], dict(checkpoint), {"source": "loop", "step": step}, new)
            middle = time.perf_counter()
            savers[name].get_tuple(heads[name])
            gets[name].append(time.perf_counter() - middle)
            if step:  # the first one also announces the thread to the sweeps
                puts[name].append(middle - start)


def _sweep(saver: Any, place: Place, backend: str, threads: int) -> dict[str, float]:
    """Seconds for threads of three checkpoints: swept, and deleted by the shortest way the database has."""
    for thread in [row.thread_id for row in saver.threads(limit=1000)]:
        saver.delete_thread(thread)
    fill(saver, threads)
    _expire(saver)
    start = time.perf_counter()
    assert saver.sweep().threads == threads
    swept = time.perf_counter() - start
    fill(saver, threads)
    start = time.perf_counter()
    _DELETE[backend](place.address)
    deleted = time.perf_counter() - start
    return {"threads_per_s": threads / swept, "raw_per_s": threads / deleted, "per_delete": swept / deleted}


def fill(saver: Any, threads: int, name: str = "old", **configurable: Any) -> None:
    """Threads of three checkpoints, each with a write."""
    for thread in range(threads):
        at: Any = {"configurable": {"thread_id": f"{name}{thread}", "checkpoint_ns": "", **configurable}}
        for step, (checkpoint, changed) in enumerate(steps(thread, 3, 4)):
            checkpoint["channel_versions"] = {f"ch{i}": "00000001" for i in range(4)}
            checkpoint["channel_versions"].update(dict.fromkeys(changed, f"{step + 1:08x}"))
            new = {channel: checkpoint["channel_versions"][channel] for channel in changed}
            at = saver.put(at, checkpoint, {"source": "loop", "step": step}, new)
            at["configurable"].update(configurable)
            saver.put_writes(at, [("ch0", {"step": step})], f"task{step}")


def _expire(saver: Any) -> None:
    """From now on the database tells this saver a time after every deadline."""
    core = saver._core
    real = core.dialect.now

    def now() -> Any:
        return (yield from real()) + 2 * MINUTES * 60_000

    core.dialect.now = now
    core.clock.at = float("-inf")


_OWN = "stepvault_migration"  # what is no data


def _delete_sqlite(path: str) -> None:
    with contextlib.closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA secure_delete = ON")
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        connection.execute("BEGIN IMMEDIATE")
        for table in tables:
            if table.startswith("stepvault_") and table != _OWN:
                connection.execute(f"DELETE FROM {table} WHERE 1 = random() OR true")  # row by row, as a sweep must
        connection.execute("COMMIT")


def _delete_postgres(url: str) -> None:
    import psycopg

    with psycopg.connect(url) as connection:
        query = "SELECT tablename FROM pg_tables WHERE tablename LIKE 'stepvault_%'"
        for (table,) in connection.execute(query).fetchall():
            if table != _OWN:
                connection.execute(f"DELETE FROM {table}")  # type: ignore[arg-type]


def _delete_redis(url: str) -> None:
    import redis

    with contextlib.closing(redis.from_url(url)) as client:
        keys = list(client.scan_iter(count=1000))
        for at in range(0, len(keys), 500):
            client.unlink(*keys[at : at + 500])


_DELETE = {"sqlite": _delete_sqlite, "postgres": _delete_postgres, "redis": _delete_redis}
