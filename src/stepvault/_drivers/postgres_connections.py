"""Where connections come from when they are given: one connection, or a pool. `postgres_pools` makes its own."""

from __future__ import annotations

import asyncio
import select
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any, ClassVar, Protocol

from psycopg import AsyncConnection, Connection, OperationalError
from psycopg.pq import ConnStatus
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from stepvault.errors import ConfigurationError, StorageUnavailableError

_DEAD = "The given Postgres connection is closed and only its owner can replace it; pass a URL or a pool instead."


class Connections(Protocol):
    """Lends connections to threads."""

    def connection(self) -> AbstractContextManager[Connection[Any]]: ...
    def close(self) -> None: ...


class AsyncConnections(Protocol):
    """Lends connections to tasks."""

    def connection(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]: ...
    def close(self) -> None: ...
    async def aclose(self) -> None: ...


def is_alive(connection: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Whether the server has not ended this idle connection, as far as its socket knows; costs no round trip."""
    try:
        for _ in range(3):  # a farewell may be waiting to be read, then the end of the stream
            if connection.closed:
                return False
            if not _readable(connection.fileno()):
                return True
            connection.pgconn.consume_input()
    except OperationalError:
        return False
    return connection.pgconn.status == ConnStatus.OK


def _readable(descriptor: int) -> bool:
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([descriptor], [], [], 0)[0])


class GivenConnection:
    """One connection, lent to one thread at a time, whoever shares it."""

    _locks: ClassVar[weakref.WeakKeyDictionary[Connection[Any], threading.Lock]] = weakref.WeakKeyDictionary()

    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection
        self._lock = self._locks.setdefault(connection, threading.Lock())

    @contextmanager
    def connection(self) -> Iterator[Connection[Any]]:
        """The connection, alone."""
        with self._lock:
            if not is_alive(self._connection):
                raise StorageUnavailableError(_DEAD)
            yield self._connection

    def close(self) -> None:
        """Nothing: it is its owner's to close."""


class GivenAsyncConnection:
    """One connection, lent to one task at a time, whoever shares it."""

    _locks: ClassVar[weakref.WeakKeyDictionary[AsyncConnection[Any], asyncio.Lock]] = weakref.WeakKeyDictionary()

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._connection = connection
        self._lock = self._locks.setdefault(connection, asyncio.Lock())

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[Any]]:
        """The connection, alone."""
        async with self._lock:
            if not is_alive(self._connection):
                raise StorageUnavailableError(_DEAD)
            yield self._connection

    def close(self) -> None:
        """Nothing: it is its owner's to close."""

    async def aclose(self) -> None:
        """Nothing: it is its owner's to close."""


def living(pool: ConnectionPool[Any]) -> Connection[Any]:
    """Take a living connection out of a pool; dead ones go back and are replaced by it."""
    while True:
        connection: Connection[Any] = pool.getconn()
        if is_alive(connection):
            return connection
        connection.close()
        pool.putconn(connection)


async def aliving(pool: AsyncConnectionPool[Any]) -> AsyncConnection[Any]:
    """Async version of `living`."""
    while True:
        connection: AsyncConnection[Any] = await pool.getconn()
        if is_alive(connection):
            return connection
        await connection.close()
        await pool.putconn(connection)


@contextmanager
def lent(pool: ConnectionPool[Any]) -> Iterator[Connection[Any]]:
    """A living connection of a pool."""
    connection = living(pool)
    try:
        yield connection
    finally:
        pool.putconn(connection)


@asynccontextmanager
async def alent(pool: AsyncConnectionPool[Any]) -> AsyncIterator[AsyncConnection[Any]]:
    """Async version of `lent`."""
    connection = await aliving(pool)
    try:
        yield connection
    finally:
        await pool.putconn(connection)


class GivenPool:
    """A pool that its owner opens and closes."""

    def __init__(self, pool: ConnectionPool[Any]) -> None:
        self._pool = pool

    def connection(self) -> AbstractContextManager[Connection[Any]]:
        """A connection of the pool."""
        return lent(self._pool)

    def close(self) -> None:
        """Nothing: it is its owner's to close."""


class GivenAsyncPool:
    """A pool that its owner opens and closes."""

    def __init__(self, pool: AsyncConnectionPool[Any]) -> None:
        self._pool = pool

    def connection(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]:
        """A connection of the pool."""
        return alent(self._pool)

    def close(self) -> None:
        """Nothing: it is its owner's to close."""

    async def aclose(self) -> None:
        """Nothing: it is its owner's to close."""


class Missing:
    """The half that a given connection or pool cannot serve."""

    def __init__(self, message: str) -> None:
        self._message = message

    def connection(self) -> Any:
        """Refuse, saying what to pass."""
        raise ConfigurationError(self._message)

    def close(self) -> None:
        """Nothing is open."""

    async def aclose(self) -> None:
        """Nothing is open."""
