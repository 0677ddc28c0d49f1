"""SQLite through a given `aiosqlite.Connection`: one hop per statement, public interface only."""

from __future__ import annotations

import asyncio
import sqlite3
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, ClassVar, TypeVar

import aiosqlite

from stepvault._core.plan import Batch, Mode, Op, Stmt, arun
from stepvault._drivers.gate import HybridGate
from stepvault._drivers.sqlite import mode_of
from stepvault._drivers.sqlite_errors import translated
from stepvault.errors import ConfigurationError, StorageUnavailableError

T = TypeVar("T")


class AiosqliteDriver:
    """Runs operations on a connection that its owner opens and closes.

    One at a time, whoever shares it: an aiosqlite connection has one transaction, and its statements queue on one
    thread anyway.
    """

    _gates: ClassVar[weakref.WeakKeyDictionary[aiosqlite.Connection, HybridGate]] = weakref.WeakKeyDictionary()

    def __init__(self, connection: aiosqlite.Connection) -> None:
        if not isinstance(connection, aiosqlite.Connection):
            raise ConfigurationError(
                f"Pass an aiosqlite.Connection, a sqlite3.Connection or a path, not {type(connection).__name__}."
            )
        self._connection = connection
        self._gate = self._gates.setdefault(connection, HybridGate())
        self._ready = False

    async def arun(self, op: Op[T]) -> T:
        """Drive an operation; a cancelled caller still waits for its end, as the connection's thread does not stop."""
        work = asyncio.ensure_future(arun(op, self))
        cancelled = None
        while not work.done():
            try:
                await asyncio.wait([work])
            except asyncio.CancelledError as exc:
                cancelled = exc
        if cancelled is None:
            return work.result()
        if not work.cancelled():
            work.exception()  # nobody else takes it
        raise cancelled

    async def aclose(self) -> None:
        """Nothing: a given connection is its owner's to close."""

    async def execute(self, batch: Batch) -> list[Any]:
        """Run a batch in one transaction; one that only reads waits for no writer, a query alone needs none."""
        if batch.outside:
            return await self._outside(batch)
        async with self._transaction(mode_of(batch), durable=batch.durable) as session:
            return await session.execute(batch)

    @asynccontextmanager
    async def session(self, mode: Mode) -> AsyncIterator[_Session]:
        """Hold the connection and one transaction; a refused or failed batch takes back what came before it."""
        async with self._transaction(mode) as session:
            yield session

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        await self._gate.aacquire()
        try:
            with _translated():
                await self._prepare()
                yield
        finally:
            self._gate.release()

    @asynccontextmanager
    async def _transaction(self, mode: Mode | None, *, durable: bool = False) -> AsyncIterator[_Session]:
        """One transaction; `mode` None: none but the one every statement has by itself."""
        async with self._alone():
            session = _Session(self._connection)
            nested = self._connection.in_transaction  # its owner's: theirs to keep, ours to commit
            if mode is None and not nested:
                yield session
                return
            level = None
            try:
                if durable and not nested:
                    ((level,),), _ = await _rows(self._connection, Stmt("PRAGMA synchronous"))
                    await self._run("PRAGMA synchronous = FULL")
                await self._run("SAVEPOINT stepvault" if nested else "BEGIN IMMEDIATE" if mode == "write" else "BEGIN")
                yield session
                if session.refused:
                    await self._roll_back(nested)
                else:
                    await self._run("COMMIT")
            except BaseException:
                await self._roll_back(nested)
                raise
            finally:
                if level is not None:
                    await self._run(f"PRAGMA synchronous = {level}")

    async def _roll_back(self, nested: bool) -> None:
        with suppress(sqlite3.Error, ValueError):  # broken or closed: there is nothing left to roll back
            if nested:
                await self._run("ROLLBACK TO stepvault")
                await self._run("RELEASE stepvault")
            elif self._connection.in_transaction:
                await self._run("ROLLBACK")

    async def _outside(self, batch: Batch) -> list[Any]:
        """Run statements by themselves; inside a transaction of the connection's owner nothing: replies are empty."""
        async with self._alone():
            if self._connection.in_transaction:
                return [[] for _ in batch.statements]
            replies: list[Any] = []
            for statement in batch.statements:
                assert isinstance(statement, Stmt)
                if statement.many:
                    await (await self._connection.executescript(statement.sql)).close()
                    replies.append([])
                else:
                    replies.append((await _rows(self._connection, statement))[0])
            return replies

    async def _run(self, sql: str) -> None:
        await (await self._connection.execute(sql)).close()

    async def _prepare(self) -> None:
        if self._ready:
            return
        try:
            await self._run("SELECT 1")
        except ValueError:  # made by aiosqlite.connect() and not awaited yet; the official saver starts it too
            await self._connection
        await self._run("PRAGMA secure_delete = ON")
        if not self._connection.in_transaction:
            try:
                await self._run("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as exc:
                if "readonly" not in str(exc):
                    raise
        self._ready = True


class _Session:
    """One transaction."""

    __slots__ = ("_connection", "refused")

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection
        self.refused = False

    async def execute(self, batch: Batch) -> list[Any]:
        replies: list[Any] = []
        for statement in batch.statements:
            assert isinstance(statement, Stmt)
            if statement.many:
                await (await self._connection.executemany(statement.sql, statement.args)).close()
                replies.append([])
                continue
            rows, changed = await _rows(self._connection, statement)
            replies.append(rows or [()] * changed)
            if statement.guard and not replies[-1]:
                self.refused = True
                break
        return replies

    @asynccontextmanager
    async def session(self, mode: Mode) -> AsyncIterator[_Session]:
        yield self


async def _rows(connection: aiosqlite.Connection, statement: Stmt) -> tuple[list[tuple[Any, ...]], bool]:
    """The rows of a statement as tuples, whatever the connection's row factory; and whether one without changed any."""
    cursor = await connection.execute(statement.sql, statement.args)
    rows = [tuple(row) for row in await cursor.fetchall()]
    changed = cursor.description is None and cursor.rowcount > 0
    await cursor.close()
    return rows, changed


@contextmanager
def _translated() -> Iterator[None]:
    """Raise ours for the errors of sqlite3, and for those of an aiosqlite connection that was closed."""
    try:
        with translated(None):
            yield
    except (ValueError, RuntimeError) as exc:
        if "no active connection" not in str(exc) and "threads can only be started once" not in str(exc):
            raise
        raise StorageUnavailableError("The given SQLite connection was closed; open another saver or store.") from exc
