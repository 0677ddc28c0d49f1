"""SQLite through a given `aiosqlite.Connection`: one hop per statement, public interface only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import aiosqlite

from stepvault._core.plan import Batch, Mode, Op, Stmt, arun
from stepvault._drivers.gate import HybridGate
from stepvault._drivers.sqlite_errors import translated
from stepvault.errors import ConfigurationError

T = TypeVar("T")


class AiosqliteDriver:
    """Runs operations on a connection that its owner opens and closes.

    One at a time: an aiosqlite connection has one transaction, and its statements queue on one thread anyway.
    """

    def __init__(self, connection: aiosqlite.Connection) -> None:
        if not isinstance(connection, aiosqlite.Connection):
            raise ConfigurationError(
                f"Pass an aiosqlite.Connection, a sqlite3.Connection or a path, not {type(connection).__name__}."
            )
        self._connection = connection
        self._gate = HybridGate()
        self._ready = False

    async def arun(self, op: Op[T]) -> T:
        """Drive an operation."""
        return await arun(op, self)

    async def aclose(self) -> None:
        """Nothing: a given connection is its owner's to close."""

    async def execute(self, batch: Batch) -> list[Any]:
        """Run a batch in one transaction."""
        async with self.session("write") as session:
            return await session.execute(batch)

    @asynccontextmanager
    async def session(self, mode: Mode) -> AsyncIterator[_Session]:
        """Hold the connection and one transaction; a refused or failed batch takes back what came before it."""
        await self._gate.aacquire()
        try:
            with translated(None):
                await self._prepare()
                await self._run("BEGIN IMMEDIATE" if mode == "write" else "BEGIN")
                session = _Session(self._connection)
                try:
                    yield session
                    await self._run("ROLLBACK" if session.refused else "COMMIT")
                except BaseException:
                    if self._connection.in_transaction:
                        await self._run("ROLLBACK")
                    raise
        finally:
            self._gate.release()

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
            await self._run("PRAGMA journal_mode = WAL")
        self._ready = True


class _Session:
    """One transaction."""

    __slots__ = ("_connection", "refused")

    def __init__(self, connection: aiosqlite.Connection) -> None:
        if not isinstance(connection, aiosqlite.Connection):
            raise ConfigurationError(
                f"Pass an aiosqlite.Connection, a sqlite3.Connection or a path, not {type(connection).__name__}."
            )
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
            cursor = await self._connection.execute(statement.sql, statement.args)
            rows = [tuple(row) for row in await cursor.fetchall()]
            if cursor.description is None and cursor.rowcount > 0:
                rows = [()]
            await cursor.close()
            replies.append(rows)
            if statement.guard and not rows:
                self.refused = True
                break
        return replies

    @asynccontextmanager
    async def session(self, mode: Mode) -> AsyncIterator[_Session]:
        yield self
