"""`AsyncSqliteStore`, under the name and with the manners of the official one."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import Self

from stepvault._drivers.loop import LoopDriver
from stepvault._drivers.sqlite import path_of
from stepvault._drivers.sqlite_aio import AiosqliteDriver
from stepvault.stores._options import StoreOptions
from stepvault.stores._store import AsyncManners
from stepvault.stores.sqlite import DRIVER_OPTIONS, make_driver
from stepvault.stores.sqlite.dialect import SqliteDialect

if TYPE_CHECKING:
    import aiosqlite

__all__ = ["AsyncSqliteStore"]


class AsyncSqliteStore(AsyncManners):
    """A store on SQLite for one event loop.

    `SqliteStore` does all of this and the sync half too; this class is here so that only an import changes. Its
    sync methods work from other threads and raise `EventLoopError` from the loop's own.

    Args:
        conn: An `aiosqlite.Connection`, a `sqlite3.Connection` made with `check_same_thread=False`, or a path.
        index: As `SqliteStore`.
        ttl: As `SqliteStore`.
        serde: Another serializer; ours if None.
        tenant: Whose items this store sees.
        options: As `SqliteStore`.
    """

    def __init__(
        self,
        conn: aiosqlite.Connection | sqlite3.Connection | str | os.PathLike[str],
        *,
        index: Mapping[str, Any] | None = None,
        ttl: Mapping[str, Any] | None = None,
        serde: SerializerProtocol | None = None,
        tenant: str = "",
        **options: Any,
    ) -> None:
        chosen = {name: options.pop(name) for name in DRIVER_OPTIONS if name in options}
        inner = (
            make_driver(conn, chosen)
            if isinstance(conn, (sqlite3.Connection, str, os.PathLike))
            else AiosqliteDriver(conn)
        )
        taken = StoreOptions.take(options)
        super().__init__(
            LoopDriver(inner),
            SqliteDialect(taken.cache_bytes),
            index=index,
            ttl=ttl,
            serde=serde,
            tenant=tenant,
            options=taken,
        )

    @classmethod
    def from_conn_string(cls, conn_string: str | os.PathLike[str], **options: Any) -> Self:
        """A store on a file path, `":memory:"` or a `sqlite:///` URL; use it with `async with`."""
        return cls(path_of(conn_string), **options)
