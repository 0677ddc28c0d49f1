"""Pools over a URL, opened on first use: one for threads, one per event loop."""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from psycopg import AsyncConnection, Connection, IsolationLevel, OperationalError, ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from stepvault._drivers.postgres_connections import aliving, living
from stepvault.errors import ConfigurationError, StorageUnavailableError

_CLOSED = "This saver or store is closed; open a new one."
# A pool waits longer after each attempt that fails, for minutes in the end. One that has given up begins anew with the
# next call, so a server that is there again after an hour is found at once.
_TRIES = 2.0
_WHO = "SELECT pg_backend_pid()"  # a pooler answers with another process than the one it said we talk to
_SQLALCHEMY = re.compile(r"^(postgres(?:ql)?)\+\w+://")


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """How connections are made.

    Attributes:
        url: A libpq URL or connection string; what it says wins over the settings here.
        pool_config: Arguments of psycopg_pool's pools: `min_size` (1), `max_size` (10), `max_idle`, `kwargs`, ...
        connect_timeout: Seconds to wait for a new connection.
        pool_timeout: Seconds to wait for a free connection.
        prepare_threshold: Executions after which a statement is prepared. None: at once where the server itself
            answers, never where a pooler does.
    """

    url: str
    pool_config: Mapping[str, Any] = field(default_factory=dict)
    connect_timeout: float = 10.0
    pool_timeout: float = 10.0
    prepare_threshold: int | None = None

    def conninfo(self) -> str:
        """The URL as libpq takes it.

        Raises:
            ConfigurationError: It is none.
        """
        url = _SQLALCHEMY.sub(r"\1://", self.url)
        try:
            conninfo_to_dict(url)
        except ProgrammingError as exc:
            raise ConfigurationError(
                "This is no Postgres URL; the form is postgresql://user:password@host:5432/database."
            ) from exc
        return url

    def connection_arguments(self) -> dict[str, Any]:
        """Keywords of `connect`."""
        defaults = {"connect_timeout": max(2, round(self.connect_timeout)), "keepalives_idle": 60}
        named = conninfo_to_dict(self.conninfo())
        ours = {name: value for name, value in defaults.items() if name not in named}
        return {**ours, **(self.pool_config.get("kwargs") or {}), "autocommit": True}

    def pool_arguments(self, direct: bool) -> dict[str, Any]:
        """Keywords of a pool."""
        threshold = self.prepare_threshold
        if threshold is None and direct:
            threshold = 0
        return {
            "min_size": 1,
            "max_size": 10,
            "timeout": self.pool_timeout,
            "reconnect_timeout": _TRIES,
            **self.pool_config,
            "kwargs": {"prepare_threshold": threshold, **self.connection_arguments()},
            "open": False,
        }

    def where(self) -> str:
        """The database as messages name it, without user and password."""
        named = conninfo_to_dict(self.conninfo())
        return f"Postgres {named.get('host', 'localhost')}:{named.get('port', 5432)}/{named.get('dbname', '')}"

    def unreachable(self, exc: OperationalError) -> StorageUnavailableError:
        """Why there is no connection, in the words of the server or the network."""
        reason = str(exc).strip().split("\n")[0].rstrip(".")
        full = "connection slots" in reason or "too many" in reason
        advice = " Make pools smaller, raise max_connections, or put a pooler in front." if full else ""
        return StorageUnavailableError(f"{self.where()} gives no connection: {reason}.{advice}")


class UrlPool:
    """The pool that threads use."""

    def __init__(self, options: PoolOptions) -> None:
        self._options = options
        self._pool: ConnectionPool[Any] | None = None
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._closed = False

    @contextmanager
    def connection(self) -> Iterator[Connection[Any]]:
        """A connection of the pool."""
        if self._pid != os.getpid():  # neither threads nor connections survive a fork: leave the parent's alone
            self._pool, self._lock, self._pid = None, threading.Lock(), os.getpid()
        pool = self._pool or self._open()
        connection = self._living(pool)
        try:
            yield connection
        finally:
            pool.putconn(connection)

    def _living(self, pool: ConnectionPool[Any]) -> Connection[Any]:
        try:
            return living(pool)
        except PoolTimeout:
            self._connect().close()  # the pool hides why it has none; this says it, if it is not its size
            if not has_given_up(pool):
                raise
        return living(pool)  # the server is there again; asked anew, the pool tries at once

    def _open(self) -> ConnectionPool[Any]:
        with self._lock:
            if self._closed:
                raise StorageUnavailableError(_CLOSED)
            if self._pool is None:
                with self._connect() as connection:
                    direct = connection.execute(_WHO).fetchone() == (connection.info.backend_pid,)
                options = self._options
                arguments = options.pool_arguments(direct)
                configure = arguments.pop("configure", None)
                pool = ConnectionPool(options.conninfo(), configure=partial(_made, configure), **arguments)
                pool.open()
                _await_first(pool, min(1.0, options.pool_timeout))
                self._pool = pool
            return self._pool

    def _connect(self) -> Connection[Any]:
        try:
            return Connection.connect(self._options.conninfo(), **self._options.connection_arguments())
        except OperationalError as exc:
            raise self._options.unreachable(exc) from exc

    def close(self) -> None:
        """Close the pool; idempotent."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None and self._pid == os.getpid():
            pool.close()


def has_given_up(pool: ConnectionPool[Any] | AsyncConnectionPool[Any]) -> bool:
    """Whether a pool has no connection, and tries to make none until it is asked for one."""
    return not pool.get_stats().get("pool_size")


def _made(configure: Callable[[Connection[Any]], None] | None, connection: Connection[Any]) -> None:
    """What a new connection needs; said in BEGIN, the isolation costs no round trip of its own."""
    connection.isolation_level = IsolationLevel.READ_COMMITTED
    if configure is not None:
        configure(connection)


def _await_first(pool: ConnectionPool[Any], seconds: float) -> None:
    """Wait for the first connection: a caller that finds none makes the pool grow, and its callers then alternate."""
    end = time.monotonic() + seconds
    while pool.min_size and not pool.get_stats()["pool_available"] and time.monotonic() < end:
        time.sleep(0.002)


class UrlPools:
    """The pools that tasks use, one per event loop."""

    def __init__(self, options: PoolOptions) -> None:
        self._options = options
        self._pools: dict[asyncio.AbstractEventLoop, asyncio.Task[_LoopPool]] = {}
        self._pid = os.getpid()
        self._closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[Any]]:
        """A connection of this loop's pool."""
        pool = (await self._of_this_loop()).pool
        connection = await self._living(pool)
        try:
            yield connection
        finally:
            await pool.putconn(connection)

    async def _living(self, pool: AsyncConnectionPool[Any]) -> AsyncConnection[Any]:
        try:
            return await aliving(pool)
        except PoolTimeout:
            await (await self._connect()).close()  # as in UrlPool
            if not has_given_up(pool):
                raise
        return await aliving(pool)

    async def _of_this_loop(self) -> _LoopPool:
        loop = asyncio.get_running_loop()
        if self._pid != os.getpid():
            self._pools, self._pid = {}, os.getpid()
        opening = self._pools.get(loop)
        if opening is None:
            if self._closed:
                raise StorageUnavailableError(_CLOSED)
            self._drop_dead_loops()
            opening = self._pools[loop] = loop.create_task(self._open())
        try:
            return await asyncio.shield(opening)  # whoever waits first may be cancelled, the others go on
        except BaseException:
            if _failed(opening):
                self._pools.pop(loop, None)
            raise

    async def _open(self) -> _LoopPool:
        async with await self._connect() as connection:
            found = await (await connection.execute(_WHO)).fetchone()
            direct = found == (connection.info.backend_pid,)
        pool = _LoopPool(self._options, direct)
        await pool.open()
        return pool

    async def _connect(self) -> AsyncConnection[Any]:
        try:
            return await AsyncConnection.connect(self._options.conninfo(), **self._options.connection_arguments())
        except OperationalError as exc:
            raise self._options.unreachable(exc) from exc

    def _drop_dead_loops(self) -> None:
        """A pool cannot be closed without its loop; end the connections that are left of it."""
        for loop in [loop for loop in self._pools if loop.is_closed()]:
            self._hang_up(loop)

    def _hang_up(self, loop: asyncio.AbstractEventLoop) -> None:
        opening = self._pools.pop(loop)
        if opening.done() and not _failed(opening):
            opening.result().hang_up()

    def close(self) -> None:
        """Close from another thread; a loop that runs here closes its pool when it comes to it."""
        self._closed = True
        for loop in list(self._pools):
            if loop.is_running():
                asyncio.run_coroutine_threadsafe(self._close(loop), loop)
            else:
                self._hang_up(loop)

    async def aclose(self) -> None:
        """Close the pool of this loop; those of others as `close` does."""
        self._closed = True
        await self._close(asyncio.get_running_loop())
        self.close()

    async def _close(self, loop: asyncio.AbstractEventLoop) -> None:
        opening = self._pools.pop(loop, None)
        if opening is not None:
            try:
                pool = await opening
            except StorageUnavailableError:
                return
            await pool.close()


def _failed(task: asyncio.Task[Any]) -> bool:
    return task.cancelled() or (task.done() and task.exception() is not None)


class _LoopPool:
    """The pool of one loop, kept by a task of its own.

    `asyncio.run` cancels what is left of a loop. The pool's own tasks can miss that (Python < 3.12 may swallow a
    cancellation in `wait_for`), and `asyncio.run` would wait for them for ever; the keeper tells them to stop.
    """

    def __init__(self, options: PoolOptions, direct: bool) -> None:
        arguments = options.pool_arguments(direct)
        self._configure = arguments.pop("configure", None)
        self._connections: weakref.WeakSet[AsyncConnection[Any]] = weakref.WeakSet()
        self.pool = AsyncConnectionPool(options.conninfo(), configure=self._made, **arguments)
        self._end = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    async def _made(self, connection: AsyncConnection[Any]) -> None:
        self._connections.add(connection)
        await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
        if self._configure is not None:
            await self._configure(connection)

    async def open(self) -> None:
        self._keeper = asyncio.get_running_loop().create_task(self._keep())
        await self.pool.open()

    async def _keep(self) -> None:
        try:
            await self._end.wait()
            await self.pool.close()
        except asyncio.CancelledError:
            try:
                await self.pool.close()
            finally:
                self.hang_up()
            raise

    async def close(self) -> None:
        """Close the pool; connections in use are closed when they are given back."""
        self._end.set()
        if self._keeper is not None:
            await self._keeper

    def hang_up(self) -> None:
        """End the connections of a pool that cannot be closed any more."""
        for connection in list(self._connections):
            connection.pgconn.finish()
