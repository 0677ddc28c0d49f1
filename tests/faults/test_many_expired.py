"""Expired threads by the hundred thousand: swept with the memory of a few, and the file gets small again.

STEPVAULT_SOAK_THREADS says how many the soak sweeps, a million if it is not set.
"""

from __future__ import annotations

import hashlib
import os
import resource
import sqlite3
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepvault.checkpointers.sqlite import SqliteSaver
from tests.contract.building import checkpoint, config

_COPIED = {
    "checkpoint": "ns, id, parent, run, source, step, created_at, refs, body",
    "write": "ns, checkpoint, task, k, run, created_at, refs, body",
    "chunk": "no, n, body",
    "note": "key, body",
}


def fill(path: str, threads: int) -> SqliteSaver:
    """A saver on a database with so many expired threads: one is written, the others are its copies row by row."""
    saver = SqliteSaver.from_conn_string(path, ttl={"default_ttl": 0.001})
    saver.setup()
    at: Any = config("0", user_id="ann")
    for step in range(2):
        made = checkpoint({"a": "x" * 600, "b": step})
        at = saver.put(at, made, {"source": "loop", "step": step}, made["channel_versions"])
        saver.put_writes(at, [("a", "y" * 300)], "task")
    with sqlite3.connect(path) as db:
        columns = "tenant, uid, rev, extents, subjects, created_at, updated_at"
        db.execute("CREATE TEMP TABLE number (n INTEGER PRIMARY KEY)")
        db.executemany("INSERT INTO number VALUES (?)", ((n,) for n in range(1, threads)))
        db.execute(
            f"INSERT INTO stepvault_thread (thread, {columns}) SELECT CAST(n AS BLOB), {columns} "
            "FROM stepvault_thread, number WHERE thread = CAST('0' AS BLOB)"
        )
        for table, names in _COPIED.items():
            db.execute(
                f"INSERT INTO stepvault_{table} (t, {names}) SELECT other, {names} FROM stepvault_{table} "
                "CROSS JOIN (SELECT rowid AS other FROM stepvault_thread WHERE rowid > 1) WHERE t = 1"
            )
        ((space, key, version),) = db.execute(
            "SELECT space, key, version FROM stepvault_doc WHERE hex(space) LIKE '65787069727900%'"
        )
        docs = ((space, key[:8] + _short(n), version, b"%d" % n) for n in range(1, threads))
        db.executemany("INSERT INTO stepvault_doc (space, key, version, body) VALUES (?, ?, ?, ?)", docs)
    return saver


def _short(number: int) -> bytes:
    return hashlib.blake2b(b"%d" % number, digest_size=8).digest()


def rows(path: str) -> Iterator[tuple[str, int]]:
    with sqlite3.connect(path) as db:
        for table in ("thread", "checkpoint", "write", "chunk", "meta", "note", "doc"):
            yield table, db.execute(f"SELECT count(*) FROM stepvault_{table}").fetchone()[0]


def size(path: str) -> int:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Path(path).stat().st_size


def test_a_sweep_of_many_takes_the_memory_of_few(tmp_path: Path) -> None:
    peaks = []
    for threads in (300, 1800):
        path = str(tmp_path / f"{threads}.db")
        with fill(path, threads) as saver:
            time.sleep(0.1)
            before = size(path)
            tracemalloc.start()
            assert saver.sweep().threads == threads
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert {count for _, count in rows(path)} == {0}
    assert peaks[1] < 1.5 * peaks[0]
    assert size(path) < before / 4  # the file shrinks


@pytest.mark.soak
def test_expired_threads_by_the_million(tmp_path: Path) -> None:
    threads = int(os.environ.get("STEPVAULT_SOAK_THREADS", "1000000"))
    path = str(tmp_path / "many.db")
    with fill(path, threads) as saver:
        time.sleep(0.1)
        before = size(path)
        saver.sweep(limit=threads // 20)
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began, used = time.perf_counter(), time.process_time()
        report = saver.sweep()
        took, cpu = time.perf_counter() - began, time.process_time() - used
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident
        print(f"{report}; {took:.0f} s, {cpu:.0f} s of CPU; {before} bytes before; {grown} KB more memory")
    assert report.threads == threads - threads // 20
    assert {count for _, count in rows(path)} == {0}
    assert grown < 32 << 10
    assert size(path) < before / 50
