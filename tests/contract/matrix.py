"""The backends, and the two ways to call a saver, for every test that is written once and runs over all.

A test takes `saver` (one of them, under its async names) or `database` (to open several on the same data).
To add a backend, add a `Database` to `DATABASES`. A backend whose saver class is not written yet has no
tests; a server that does not start fails them. While at work on one, `STEPVAULT_TEST_BACKENDS=sqlite,redis` leaves
the others out.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import aiosqlite
import psycopg
import pytest
import redis
import redis.asyncio
from langgraph.checkpoint.base import BaseCheckpointSaver
from psycopg.rows import dict_row

from stepvault.encryption import Keyring

KEYRING = Keyring({"test": bytes(range(32))})
MODES = ("sync", "async")  # of one saver object
AIO = "aio"  # the async half under its official name
GIVEN = "given"  # the same, on a connection that the application has opened


class AsAsync(BaseCheckpointSaver[Any]):
    """A saver's sync methods under their async names, each in a thread, as a sync application calls them."""

    def __init__(self, saver: Any) -> None:
        super().__init__(serde=saver.serde)
        self.saver = saver

    async def alist(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        entries = await asyncio.to_thread(self.saver.list, *args, **kwargs)
        while (entry := await asyncio.to_thread(next, entries, None)) is not None:
            yield entry

    def get_next_version(self, current: Any, channel: None = None) -> Any:
        return self.saver.get_next_version(current, channel)

    def for_tenant(self, tenant: str) -> AsAsync:
        return AsAsync(self.saver.for_tenant(tenant))

    def with_allowlist(self, extra_allowlist: Any) -> AsAsync:
        return AsAsync(self.saver.with_allowlist(extra_allowlist))


def _in_thread(name: str) -> Any:
    async def method(self: AsAsync, *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(getattr(self.saver, name), *args, **kwargs)

    return method


for _name in (
    *("get_tuple", "put", "put_writes", "get_delta_channel_history"),
    *("delete_thread", "delete_for_runs", "copy_thread", "prune", "threads", "setup", "close"),
    *("sweep", "apply_ttl", "rebuild_deadlines", "tag", "untag", "tags", "compact_thread"),
):
    setattr(AsAsync, f"a{_name}", _in_thread(_name))


class InThreads:
    """The sync methods of an object under their async names, each in a thread."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def __getattr__(self, name: str) -> Any:
        return functools.partial(asyncio.to_thread, getattr(self._of, name.removeprefix("a")))


class Database:
    """One empty database of a backend, and the savers a test has opened on it."""

    name: ClassVar[str]
    module: ClassVar[str]
    saver_class: ClassVar[str]
    fixture: ClassVar[str]  # gives an empty database
    server: ClassVar[bool] = True
    options: ClassVar[dict[str, Any]] = {}
    modes: ClassVar[Sequence[str]] = (*MODES, AIO, GIVEN)
    given_as: ClassVar[str] = "conn"
    sealed: ClassVar[bool] = False

    def __init__(self, mode: str, url: str) -> None:
        self.mode = mode
        self.url = url
        self._opened: list[Any] = []
        self._connections: list[Any] = []

    @classmethod
    def exists(cls) -> bool:
        """Whether the backend is written."""
        return hasattr(importlib.import_module(cls.module), cls.saver_class)

    def unprepared(self, **options: Any) -> Any:
        """A saver as an application makes it, without `setup`."""
        saver = self._factory().from_conn_string(self.url, **self.options, **options)
        self._opened.append(saver)
        return saver

    def _factory(self) -> Any:
        module, name = self.module, self.saver_class
        if self.mode in (AIO, GIVEN):
            module, name = f"{module}.aio", f"Async{name}"
        return getattr(importlib.import_module(module), name)

    async def _given(self, **options: Any) -> Any:
        connection = await self.connection()
        self._connections.append(connection)
        return self._factory()(**{self.given_as: connection}, **self.options, **options)

    async def connection(self) -> Any:
        """A connection as an application opens it."""
        raise NotImplementedError

    async def raw(self, **options: Any) -> Any:
        """A saver with its tables, for graphs."""
        saver = await self._given(**options) if self.mode == GIVEN else self.unprepared(**options)
        await self.under_async_names(saver).asetup()
        return saver

    async def saver(self, **options: Any) -> Any:
        """A saver with its tables, under its async names."""
        return self.under_async_names(await self.raw(**options))

    def under_async_names(self, saver: Any) -> Any:
        return AsAsync(saver) if self.mode == "sync" else saver

    async def close(self) -> None:
        while self._opened:
            await self.under_async_names(self._opened.pop()).aclose()
        while self._connections:
            connection = self._connections.pop()
            await (connection.aclose() if hasattr(connection, "aclose") else connection.close())

    def content(self) -> bytes:
        """Everything that is stored, as it is stored: to look for what must not be there."""
        raise NotImplementedError

    def size(self) -> int:
        """Bytes of everything that is stored."""
        raise NotImplementedError


class SqliteDatabase(Database):
    name = "sqlite"
    module = "stepvault.checkpointers.sqlite"
    saver_class = "SqliteSaver"
    fixture = "sqlite_file"
    server = False

    async def connection(self) -> Any:
        return await aiosqlite.connect(self.url)

    def content(self) -> bytes:
        with contextlib.closing(sqlite3.connect(self.url)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            if hasattr(connection, "serialize"):  # from Python 3.11 on
                return connection.serialize()
        return Path(self.url).read_bytes()

    def size(self) -> int:
        with contextlib.closing(sqlite3.connect(self.url)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return os.path.getsize(self.url)


class SealedSqliteDatabase(SqliteDatabase):
    """The whole suite once more with everything sealed; what only sealing does is in `tests/contract/sealed`."""

    name = "sqlite-sealed"
    options: ClassVar[dict[str, Any]] = {"keyring": KEYRING}
    modes = ("async",)
    sealed = True


class PostgresDatabase(Database):
    name = "postgres"
    module = "stepvault.checkpointers.postgres"
    saver_class = "PostgresSaver"
    fixture = "postgres_clean_url"

    async def connection(self) -> Any:
        return await psycopg.AsyncConnection.connect(self.url, autocommit=True, row_factory=dict_row)

    def content(self) -> bytes:
        with psycopg.connect(self.url) as connection:
            tables = [name.encode() for name in _tables(connection)]
            rows = [connection.execute(b"SELECT x::text FROM %s x" % name).fetchall() for name in tables]
        texts = [text for table in rows for (text,) in table]
        return b"".join(text.encode("utf-8", "replace") + _bytea_in(text) for text in texts)

    def size(self) -> int:
        with psycopg.connect(self.url) as connection:
            query = "SELECT pg_total_relation_size(%s::regclass)"
            rows = [connection.execute(query, (table,)).fetchone() for table in _tables(connection)]
        return sum(row[0] for row in rows if row)


class RedisDatabase(Database):
    name = "redis"
    module = "stepvault.checkpointers.redis"
    saver_class = "RedisSaver"
    fixture = "redis_url"
    given_as = "redis_client"

    async def connection(self) -> Any:
        return redis.asyncio.Redis.from_url(self.url)

    def _nodes(self) -> Sequence[redis.Redis]:
        return [redis.Redis.from_url(self.url)]

    def content(self) -> bytes:
        found = [value for node in self._nodes() for value in _redis_values(node)]
        return b"\n".join(found)

    def size(self) -> int:
        total = 0
        for node in self._nodes():
            with node:
                total += sum(node.memory_usage(key, samples=0) or 0 for key in node.scan_iter(count=1000))
        return total


class RedisClusterDatabase(RedisDatabase):
    name = "redis-cluster"
    fixture = "redis_cluster"
    modes = (*MODES, AIO) if os.environ.get("STEPVAULT_TEST_ALL") else ("async",)  # the code is that of `redis`
    options: ClassVar[dict[str, Any]] = {"cluster_mode": True}

    def __init__(self, mode: str, cluster: Any) -> None:
        super().__init__(mode, cluster.url)
        self._urls = [node.url for node in cluster.nodes]

    def _nodes(self) -> Sequence[redis.Redis]:
        return [redis.Redis.from_url(url) for url in self._urls]


class SealedPostgresDatabase(PostgresDatabase):
    name = "postgres-sealed"
    options: ClassVar[dict[str, Any]] = {"keyring": KEYRING}
    modes = ("async",)
    sealed = True


class SealedRedisDatabase(RedisDatabase):
    name = "redis-sealed"
    options: ClassVar[dict[str, Any]] = {"keyring": KEYRING}
    modes = ("async",)
    sealed = True


DATABASES: tuple[type[Database], ...] = (
    SqliteDatabase,
    SealedSqliteDatabase,
    PostgresDatabase,
    SealedPostgresDatabase,
    RedisDatabase,
    SealedRedisDatabase,
    RedisClusterDatabase,
)


def saver_elsewhere(name: str, url: str, **options: Any) -> Any:
    """A saver on a database of a test, in a process that the test has started."""
    cls = next(cls for cls in DATABASES if cls.name == name)
    factory = getattr(importlib.import_module(cls.module), cls.saver_class)
    return factory.from_conn_string(url, **cls.options, **options)


WANTED = os.environ.get("STEPVAULT_TEST_BACKENDS", ",".join(cls.name for cls in DATABASES)).split(",")


def matrix(modes: Sequence[str] = MODES) -> list[Any]:
    """Parameters for `database`: tests of one server share it, so they run in one process."""
    return [
        pytest.param(
            (cls, mode), id=f"{cls.name}-{mode}", marks=pytest.mark.xdist_group(cls.name) if cls.server else ()
        )
        for cls in DATABASES
        if cls.name in WANTED and cls.exists()
        for mode in modes
        if mode in cls.modes
    ]


def everywhere(*, cluster: Sequence[Any] = ()) -> list[Any]:
    """One parameter for each backend, for what other processes do to it; `cluster`: marks of that one."""
    found = [param for param in matrix(("sync",)) if param.values[0][0] is not RedisClusterDatabase]
    if RedisClusterDatabase.name in WANTED:
        marks = [pytest.mark.xdist_group(RedisClusterDatabase.name), *cluster]
        found.append(pytest.param((RedisClusterDatabase, "sync"), id=RedisClusterDatabase.name, marks=marks))
    return found


@pytest.fixture
def sqlite_file(tmp_path: Any) -> str:
    return str(tmp_path / "stepvault.db")


@contextlib.asynccontextmanager
async def opened(request: pytest.FixtureRequest, cls: type[Database], mode: str) -> AsyncIterator[Database]:
    """An empty database, and one of the ways to call the savers on it."""
    database = cls(mode, request.getfixturevalue(cls.fixture))
    yield database
    await database.close()


@pytest.fixture(params=matrix())
async def database(request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    """An empty database of each backend, with each way to call it."""
    async with opened(request, *request.param) as database:
        yield database


@pytest.fixture
async def saver(database: Database) -> Any:
    """A saver on an empty database, under its async names."""
    return await database.saver()


def _tables(connection: psycopg.Connection[Any]) -> list[str]:
    query = "SELECT tablename FROM pg_tables WHERE tablename LIKE 'stepvault%'"
    return [name for (name,) in connection.execute(query).fetchall()]


def _bytea_in(text: str) -> bytes:
    """The bytes of the bytea columns of a row as text."""
    parts = [part.strip('\\"()') for part in text.split(",")]
    return b"".join(bytes.fromhex(part[1:]) for part in parts if part[:1] == "x" and len(part) % 2)


def _redis_values(node: redis.Redis) -> Iterator[bytes]:
    with node:
        for key in node.scan_iter(count=1000):
            yield key
            kind = node.type(key)
            if kind == b"hash":
                yield from (part for pair in node.hgetall(key).items() for part in pair)
            elif kind == b"zset":
                yield from node.zrange(key, 0, -1)
            elif kind == b"set":
                yield from node.smembers(key)
            elif kind == b"string":
                yield node.get(key) or b""
