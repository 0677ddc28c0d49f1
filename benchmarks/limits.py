"""The raw limit: what the same bytes cost through ormsgpack and the database's own client, without any history.

Each looks like a saver to the workload `raw`: `put` stores the changed channels, `get_tuple` loads all of them.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Any

import ormsgpack

from benchmarks.backends import Place


class Limit:
    """Packs and unpacks; a backend stores rows `(thread, channel) -> bytes`."""

    def save(self, thread: str, rows: list[tuple[str, bytes]]) -> None:
        raise NotImplementedError

    def load(self, thread: str) -> list[bytes]:
        raise NotImplementedError

    def get_next_version(self, current: int | None, channel: None) -> int:
        return (current or 0) + 1

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: dict[str, int]) -> Any:
        values = checkpoint["channel_values"]
        thread = config["configurable"]["thread_id"]
        self.save(thread, [(name, ormsgpack.packb(values[name])) for name in new_versions])
        return config

    def put_writes(self, config: Any, writes: list[tuple[str, Any]], task_id: str) -> None:
        self.save("w" + config["configurable"]["thread_id"], [(task_id, ormsgpack.packb(writes))])

    def get_tuple(self, config: Any) -> list[Any]:
        return [ormsgpack.unpackb(value) for value in self.load(config["configurable"]["thread_id"])]


class SqliteLimit(Limit):
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("CREATE TABLE raw (thread TEXT, name TEXT, value BLOB, PRIMARY KEY (thread, name))")

    def save(self, thread: str, rows: list[tuple[str, bytes]]) -> None:
        with self._connection as connection:
            connection.executemany("INSERT OR REPLACE INTO raw VALUES (?, ?, ?)", [(thread, *row) for row in rows])

    def load(self, thread: str) -> list[bytes]:
        found = self._connection.execute("SELECT value FROM raw WHERE thread = ?", (thread,))
        return [row[0] for row in found]


class PostgresLimit(Limit):
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        connection.execute("CREATE TABLE raw (thread text, name text, value bytea, PRIMARY KEY (thread, name))")

    def save(self, thread: str, rows: list[tuple[str, bytes]]) -> None:
        sql = (
            "INSERT INTO raw SELECT %s, * FROM unnest(%s::text[], %s::bytea[]) "
            "ON CONFLICT (thread, name) DO UPDATE SET value = excluded.value"
        )
        self._connection.execute(sql, (thread, [row[0] for row in rows], [row[1] for row in rows]), binary=True)

    def load(self, thread: str) -> list[bytes]:
        found = self._connection.execute("SELECT value FROM raw WHERE thread = %s", (thread,), binary=True)
        return [row[0] for row in found]


class RedisLimit(Limit):
    def __init__(self, client: Any) -> None:
        self._client = client

    def save(self, thread: str, rows: list[tuple[str, bytes]]) -> None:
        self._client.hset(thread, mapping=dict(rows))

    def load(self, thread: str) -> list[bytes]:
        return list(self._client.hgetall(thread).values())


@contextlib.contextmanager
def sqlite_limit(place: Place) -> Iterator[SqliteLimit]:
    with contextlib.closing(sqlite3.connect(place.address)) as connection:
        yield SqliteLimit(connection)


@contextlib.contextmanager
def postgres_limit(place: Place) -> Iterator[PostgresLimit]:
    import psycopg

    with psycopg.connect(place.address, autocommit=True, prepare_threshold=0) as connection:
        yield PostgresLimit(connection)


@contextlib.contextmanager
def redis_limit(place: Place) -> Iterator[RedisLimit]:
    import redis

    with contextlib.closing(redis.from_url(place.address)) as client:
        yield RedisLimit(client)
