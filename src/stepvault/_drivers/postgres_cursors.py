"""Cursors that read and send values in one way, whatever adapters a connection or its process has registered.

Lists travel in binary: a list of chunk bodies as text costs 25 times the work, twice the bytes, and backslashes that a
server with `standard_conforming_strings = off` reads as something else. Text is UTF-8, also where the server does not
say so (SQL_ASCII): what these tables hold as text are names and numbers.
"""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Loader
from psycopg.postgres import register_default_adapters, types
from psycopg.pq import Format
from psycopg.rows import tuple_row
from psycopg.types.array import ListBinaryDumper

from stepvault._core.plan import Row


class _Utf8(Loader):
    def load(self, data: Buffer) -> str:
        return str(data, "utf-8")


class _Utf8Binary(_Utf8):
    format = Format.BINARY


class _Adapters:
    """A context of psycopg's own adapters, then of ours."""

    connection = None

    def __init__(self) -> None:
        self.adapters = AdaptersMap(types=types)
        register_default_adapters(self)
        self.adapters.register_dumper(list, ListBinaryDumper)
        for name in ("text", "varchar", "name"):
            self.adapters.register_loader(name, _Utf8)
            self.adapters.register_loader(name, _Utf8Binary)


_ADAPTERS = _Adapters().adapters


class _Cursor(Cursor[Row]):
    @property
    def adapters(self) -> AdaptersMap:
        return _ADAPTERS


class _AsyncCursor(AsyncCursor[Row]):
    @property
    def adapters(self) -> AdaptersMap:
        return _ADAPTERS


def cursor(connection: Connection[Any]) -> Cursor[Row]:
    """A cursor over tuples."""
    return _Cursor(connection, row_factory=tuple_row)


def async_cursor(connection: AsyncConnection[Any]) -> AsyncCursor[Row]:
    """A cursor over tuples."""
    return _AsyncCursor(connection, row_factory=tuple_row)
