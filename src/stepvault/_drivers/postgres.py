"""Postgres: batches and transactions over whatever lends connections, for threads and for tasks."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor, Error, IsolationLevel, Rollback
from psycopg.pq import TransactionStatus
from typing_extensions import LiteralString

from stepvault._core.plan import Batch, Mode, Op, Row, Stmt, arun, run
from stepvault._drivers import postgres_cursors
from stepvault._drivers.postgres_connections import AsyncConnections, Connections
from stepvault._drivers.postgres_errors import ROLLED_BACK, UNPREPARED, error_of, was_lost
from stepvault._drivers.postgres_watch import Watch

T = TypeVar("T")

_REPEATS = 4
_ROLLED_BACK_REPEATS = 20
# Of this transaction alone; a stronger setting stays.
_DURABLE: LiteralString = (
    "SELECT set_config('synchronous_commit', 'on', true) "
    "WHERE current_setting('synchronous_commit') IN ('off', 'local')"
)
# Whatever the role's default: what follows a lock must see what the lock waited for, a read must see one moment.
_ISOLATION: Mapping[Mode, Batch] = {
    "read": Batch([Stmt("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")]),
    "write": Batch([Stmt("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")]),
}


class PostgresDriver:
    """Drives operations on one database.

    Args:
        sync: Lends connections to threads.
        asynchronous: Lends connections to tasks.
        where: The database as messages name it.
        statement_timeout: Seconds to wait for the answer to one batch.
    """

    def __init__(
        self, sync: Connections, asynchronous: AsyncConnections, *, where: str, statement_timeout: float
    ) -> None:
        self._sync = sync
        self._async = asynchronous
        manners = _Manners(where, Watch(statement_timeout))
        self._threads = ThreadHalf(sync, manners)
        self._tasks = TaskHalf(asynchronous, manners)

    def run(self, op: Op[T]) -> T:
        """Drive an operation."""
        return run(op, self._threads)

    async def arun(self, op: Op[T]) -> T:
        """Drive an operation."""
        return await arun(op, self._tasks)

    def close(self) -> None:
        """Close what was opened here; idempotent."""
        self._sync.close()
        self._async.close()

    async def aclose(self) -> None:
        """Async version of `close`."""
        await self._async.aclose()
        await asyncio.get_running_loop().run_in_executor(None, self._sync.close)


class _Manners:
    """What both halves share: how long they wait, when they repeat, and whether statements are prepared."""

    def __init__(self, where: str, watch: Watch) -> None:
        self.where = where
        self.watch = watch
        self.prepare: bool | None = None  # None: as the connection says

    def pause(self, exc: Error, batch: Batch, attempt: int) -> float | None:
        """Seconds after which to run a failed batch again; None: not at all."""
        if exc.sqlstate in ROLLED_BACK:  # whoever was first is done soon; a role may have asked for serializable
            return random.random() * 0.01 * attempt if attempt <= _ROLLED_BACK_REPEATS else None
        if exc.sqlstate in UNPREPARED:
            self.prepare = False
        elif not (batch.retry and was_lost(exc)):
            return None
        return 0.0 if attempt <= _REPEATS else None


class ThreadHalf:
    """The sync side."""

    def __init__(self, connections: Connections, manners: _Manners) -> None:
        self._connections = connections
        self._manners = manners

    def execute(self, batch: Batch) -> list[Any]:
        """Run a batch: one statement by itself, several in a transaction."""
        attempt = 0
        while True:
            ours = True
            try:
                with self._connections.connection() as connection:
                    ours = _is_idle(connection)
                    if ours and connection.autocommit and len(batch.statements) == 1 and not batch.durable:
                        return _Session(connection, self._manners, self._manners.prepare).execute(batch)
                    with _transaction(connection, "write", self._manners) as session:
                        return session.execute(batch)
            except Error as exc:
                attempt += 1
                pause = self._manners.pause(exc, batch, attempt) if ours else None
                if pause is None:
                    raise error_of(exc, self._manners.where) from exc
                time.sleep(pause)

    @contextmanager
    def session(self, mode: Mode) -> Iterator[_Session]:
        """Hold one connection and one transaction; inside a transaction of the caller's, a savepoint."""
        try:
            with (
                self._connections.connection() as connection,
                _transaction(connection, mode, self._manners) as session,
            ):
                yield session
        except Error as exc:
            raise error_of(exc, self._manners.where) from exc


class _Session:
    """One connection at work."""

    __slots__ = ("_connection", "_manners", "_prepare", "refused")

    def __init__(self, connection: Connection[Any], manners: _Manners, prepare: bool | None = False) -> None:
        self._connection = connection
        self._manners = manners
        self._prepare = prepare  # not in transactions: those could not be repeated without
        self.refused = False

    def execute(self, batch: Batch) -> list[Any]:
        replies: list[Any] = []
        cursor = postgres_cursors.cursor(self._connection)
        with self._manners.watch.over(self._connection):
            if batch.durable:
                cursor.execute(_DURABLE)
            for statement in batch.statements:
                assert isinstance(statement, Stmt)
                replies.append(self._run(cursor, statement))
                if statement.guard and not replies[-1]:
                    self.refused = True
                    break
        return replies

    def _run(self, cursor: Cursor[Row], statement: Stmt) -> list[Row]:
        if statement.many:
            cursor.executemany(statement.sql, statement.args)
            return []
        cursor.execute(statement.sql, statement.args, prepare=self._prepare, binary=True)
        if self._connection.pgconn.pipeline_status:
            with self._connection.pipeline() as pipeline:
                pipeline.sync()  # the caller's pipeline: nothing of ours stays in it
        return cursor.fetchall() if cursor.rownumber is not None else []

    @contextmanager
    def session(self, mode: Mode) -> Iterator[_Session]:
        yield self


@contextmanager
def _transaction(connection: Connection[Any], mode: Mode, manners: _Manners) -> Iterator[_Session]:
    """One transaction, or a savepoint in the caller's; a refused batch takes back what came before it."""
    watch = manners.watch
    outermost = _is_idle(connection)
    transaction = connection.transaction()
    session = _Session(connection, manners)
    with watch.over(connection):
        transaction.__enter__()
    try:
        if outermost and not _is_said(connection, mode):
            session.execute(_ISOLATION[mode])
        yield session
        if session.refused:
            raise Rollback
    except BaseException as exc:
        with watch.over(connection):
            if not transaction.__exit__(type(exc), exc, exc.__traceback__):
                raise
    else:
        with watch.over(connection):
            transaction.__exit__(None, None, None)


class TaskHalf:
    """The async side."""

    def __init__(self, connections: AsyncConnections, manners: _Manners) -> None:
        self._connections = connections
        self._manners = manners

    async def execute(self, batch: Batch) -> list[Any]:
        """Run a batch: one statement by itself, several in a transaction."""
        attempt = 0
        while True:
            ours = True
            try:
                async with self._connections.connection() as connection:
                    ours = _is_idle(connection)
                    if ours and connection.autocommit and len(batch.statements) == 1 and not batch.durable:
                        return await _AsyncSession(connection, self._manners, self._manners.prepare).execute(batch)
                    async with _atransaction(connection, "write", self._manners) as session:
                        return await session.execute(batch)
            except Error as exc:
                attempt += 1
                pause = self._manners.pause(exc, batch, attempt) if ours else None
                if pause is None:
                    raise error_of(exc, self._manners.where) from exc
                await asyncio.sleep(pause)

    @asynccontextmanager
    async def session(self, mode: Mode) -> AsyncIterator[_AsyncSession]:
        """Hold one connection and one transaction; inside a transaction of the caller's, a savepoint."""
        try:
            async with (
                self._connections.connection() as connection,
                _atransaction(connection, mode, self._manners) as session,
            ):
                yield session
        except Error as exc:
            raise error_of(exc, self._manners.where) from exc


class _AsyncSession:
    """One connection at work."""

    __slots__ = ("_connection", "_manners", "_prepare", "refused")

    def __init__(self, connection: AsyncConnection[Any], manners: _Manners, prepare: bool | None = False) -> None:
        self._connection = connection
        self._manners = manners
        self._prepare = prepare  # not in transactions: those could not be repeated without
        self.refused = False

    async def execute(self, batch: Batch) -> list[Any]:
        replies: list[Any] = []
        cursor = postgres_cursors.async_cursor(self._connection)
        with self._manners.watch.over_task(self._connection):
            if batch.durable:
                await cursor.execute(_DURABLE)
            for statement in batch.statements:
                assert isinstance(statement, Stmt)
                replies.append(await self._run(cursor, statement))
                if statement.guard and not replies[-1]:
                    self.refused = True
                    break
        return replies

    async def _run(self, cursor: AsyncCursor[Row], statement: Stmt) -> list[Row]:
        if statement.many:
            await cursor.executemany(statement.sql, statement.args)
            return []
        await cursor.execute(statement.sql, statement.args, prepare=self._prepare, binary=True)
        if self._connection.pgconn.pipeline_status:
            async with self._connection.pipeline() as pipeline:
                await pipeline.sync()  # the caller's pipeline: nothing of ours stays in it
        return await cursor.fetchall() if cursor.rownumber is not None else []

    @asynccontextmanager
    async def session(self, mode: Mode) -> AsyncIterator[_AsyncSession]:
        yield self


@asynccontextmanager
async def _atransaction(
    connection: AsyncConnection[Any], mode: Mode, manners: _Manners
) -> AsyncIterator[_AsyncSession]:
    """One transaction, or a savepoint in the caller's; a refused batch takes back what came before it."""
    watch = manners.watch
    outermost = _is_idle(connection)
    transaction = connection.transaction()
    session = _AsyncSession(connection, manners)
    with watch.over_task(connection):
        await transaction.__aenter__()
    try:
        if outermost and not _is_said(connection, mode):
            await session.execute(_ISOLATION[mode])
        yield session
        if session.refused:
            raise Rollback
    except BaseException as exc:
        with watch.over_task(connection):
            if not await transaction.__aexit__(type(exc), exc, exc.__traceback__):
                raise
    else:
        with watch.over_task(connection):
            await transaction.__aexit__(None, None, None)


def _is_idle(connection: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Whether no transaction of the caller's is open on it."""
    return connection.pgconn.transaction_status == TransactionStatus.IDLE


def _is_said(connection: Connection[Any] | AsyncConnection[Any], mode: Mode) -> bool:
    """Whether its BEGIN names the isolation that is wanted, as that of our own connections does for writes."""
    return mode == "write" and connection.isolation_level == IsolationLevel.READ_COMMITTED
