"""Rows with bytes changed where they are really stored."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Any

import psycopg
import redis

from stepvault._core.ids import id_key
from stepvault._core.rows import Loaded, Query
from tests.contract.matrix import Database


def flipped(body: bytes) -> bytes:
    """The same length, with the bits of a few bytes after the first turned over: no payload of any codec begins so."""
    return body[:1] + bytes(byte ^ 0xFF for byte in body[1:9]) + body[9:]


def body_of(saver: Any, thread_id: str, checkpoint_id: str) -> bytes:
    """The body of a checkpoint as it is stored."""
    return bytes(_stored(saver, thread_id, id_key("checkpoint_id", checkpoint_id)).checkpoints[0].body)


def chunk_of(saver: Any, thread_id: str) -> bytes:
    """The body of the first row of elements of the head as it is stored."""
    return bytes(_stored(saver, thread_id, None).chunks[0].body)


def _stored(saver: Any, thread_id: str, checkpoint: bytes | None) -> Loaded:
    dialect, key = saver._core.dialect, saver._scope.key(thread_id)
    read = getattr(dialect, "unopened", dialect.page)
    ((_, loaded),) = saver._run(read(Query(key.tenant, key.thread, checkpoint=checkpoint, limit=1)))
    return loaded


def replace_stored(database: Database, body: bytes, other: bytes) -> None:
    """Put other bytes in place of a stored body, behind the saver's back."""
    if database.name.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(database.url)) as connection, connection:
            for table in ("stepvault_checkpoint", "stepvault_chunk"):
                connection.execute(f"UPDATE {table} SET body = ? WHERE body = ?", (other, body))
    elif database.name.startswith("postgres"):
        with psycopg.connect(database.url) as connection:
            tables = connection.execute(
                "SELECT table_name FROM information_schema.columns WHERE column_name = 'body' "
                "AND table_name ~ '^stepvault_(checkpoint|chunk)$'"
            ).fetchall()
            for (table,) in tables:
                connection.execute(f"UPDATE {table} SET body = %s WHERE body = %s", (other, body))
    else:
        for node in database._nodes():  # type: ignore[attr-defined]
            with node:
                _replace_in_hashes(node, body, other)


def _replace_in_hashes(node: redis.Redis, body: bytes, other: bytes) -> None:
    for key in node.scan_iter(count=1000):
        if node.type(key) == b"hash":
            for field, value in node.hgetall(key).items():
                if body in value:
                    node.hset(key, field, value.replace(body, other))
