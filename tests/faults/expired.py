"""Expired threads by the hundred thousand: one is written, the others are its copies, row by row or field by field."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import redis

from stepvault._core.knowledge import ThreadKey
from stepvault.checkpointers._ops import expiry
from stepvault.checkpointers._ops.spaces import space
from stepvault.checkpointers.redis.keys import Keys, member_of
from stepvault.checkpointers.redis.packing import identity
from tests.contract.building import checkpoint, config

_THREAD = "tenant, uid, rev, extents, subjects, created_at, updated_at"
_COPIED = {
    "checkpoint": "ns, id, parent, run, source, step, created_at, refs, body",
    "write": "ns, checkpoint, task, k, run, created_at, refs, body",
    "chunk": "no, n, body",
    "note": "key, body",
}
TABLES = ("thread", *_COPIED, "meta", "doc")


def fill(saver: Any, backend: str, url: str, threads: int) -> None:
    """So many threads of eight rows, with the saver's time to live."""
    at: Any = config("0", user_id="ann")
    for step in range(2):
        made = checkpoint({"a": "x" * 600, "b": step})
        at = saver.put(at, made, {"source": "loop", "step": step}, made["channel_versions"])
        saver.put_writes(at, [("a", "y" * 300)], "task")
    (doc,) = saver._run(saver._core.dialect.docs(space(saver._scope, expiry.SPACE), b"", b"", 2))
    docs = ((doc.key[:8] + _short(b"%d" % n), doc.version, b"%d" % n) for n in range(1, threads))
    {"sqlite": _sqlite, "postgres": _postgres, "redis": _redis}[backend](
        url, threads, space(saver._scope, "expiry"), docs
    )


def _short(thread: bytes) -> bytes:
    return hashlib.blake2b(thread, digest_size=8).digest()


def _sqlite(url: str, threads: int, where: bytes, docs: Iterator[tuple[bytes, bytes, bytes]]) -> None:
    with sqlite3.connect(url) as db:
        db.execute("CREATE TEMP TABLE number (n INTEGER PRIMARY KEY)")
        db.executemany("INSERT INTO number VALUES (?)", ((n,) for n in range(1, threads)))
        db.execute(
            f"INSERT INTO stepvault_thread (thread, {_THREAD}) SELECT CAST(n AS BLOB), {_THREAD} "
            "FROM stepvault_thread, number WHERE thread = CAST('0' AS BLOB)"
        )
        for table, names in _COPIED.items():
            db.execute(
                f"INSERT INTO stepvault_{table} (t, {names}) SELECT other, {names} FROM stepvault_{table} "
                "CROSS JOIN (SELECT rowid AS other FROM stepvault_thread WHERE rowid > 1) WHERE t = 1"
            )
        insert = "INSERT INTO stepvault_doc (space, key, version, body) VALUES (?, ?, ?, ?)"
        db.executemany(insert, ((where, *doc) for doc in docs))


def _postgres(url: str, threads: int, where: bytes, docs: Iterator[tuple[bytes, bytes, bytes]]) -> None:
    with psycopg.connect(url) as db:
        db.execute(
            f"INSERT INTO stepvault_thread (thread, {_THREAD}) SELECT convert_to(n::text, 'UTF8'), {_THREAD} "
            f"FROM stepvault_thread, generate_series(1, {threads - 1}) n"  # type: ignore[arg-type]
        )
        for table, names in _COPIED.items():
            db.execute(
                f"INSERT INTO stepvault_{table} (t, {names}) SELECT other, {names} FROM stepvault_{table} "
                "CROSS JOIN (SELECT no AS other FROM stepvault_thread WHERE thread <> '0') x "
                "WHERE t = (SELECT no FROM stepvault_thread WHERE thread = '0')"  # type: ignore[arg-type]
            )
        with db.cursor().copy("COPY stepvault_doc (space, key, version, body) FROM STDIN") as copy:
            for doc in docs:
                copy.write_row((where, *doc))


def _redis(url: str, threads: int, where: bytes, docs: Iterator[tuple[bytes, bytes, bytes]]) -> None:
    keys = Keys("stepvault")
    with contextlib.closing(redis.from_url(url)) as client:
        fields: dict[Any, Any] = client.hgetall(keys.thread(member_of(ThreadKey(b"", b"0"))))  # type: ignore[assignment]
        pipe = client.pipeline(transaction=False)
        for key, version, thread in docs:
            named = ThreadKey(b"", thread)
            member = member_of(named)
            pipe.hset(keys.thread(member), mapping={**fields, b"id": identity(named)})
            pipe.zadd(keys.index(b"", member), {member: float(fields[b"i"])})
            framed = key.replace(b"\0", b"\0\xff") + b"\0" + len(version).to_bytes(2, "big") + version + thread
            pipe.zadd(keys.space(where), {framed: 0})
            if len(pipe) >= 1500:
                pipe.execute()
        pipe.execute()


def left(backend: str, url: str) -> int:
    """Rows or keys that are there."""
    if backend == "redis":
        with contextlib.closing(redis.from_url(url)) as client:
            return int(client.dbsize())  # type: ignore[arg-type]
    connect: Any = sqlite3.connect if backend == "sqlite" else psycopg.connect
    with contextlib.closing(connect(url)) as db:
        return sum(db.execute(f"SELECT count(*) FROM stepvault_{table}").fetchone()[0] for table in TABLES)


def size(backend: str, url: str) -> int:
    """Bytes on the disk, or in the server's memory."""
    if backend == "sqlite":
        with sqlite3.connect(url) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return Path(url).stat().st_size
    if backend == "postgres":
        with psycopg.connect(url) as connection:
            tables = "relname LIKE 'stepvault%' AND relkind = 'r'"
            query = f"SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE {tables}"
            (total,) = connection.execute(query).fetchone() or (0,)
            return int(total)
    with contextlib.closing(redis.from_url(url)) as client:
        return int(client.info("memory")["used_memory"])  # type: ignore[index]
