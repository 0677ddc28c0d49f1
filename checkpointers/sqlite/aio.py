"""`AsyncSqliteSaver`, under the name and with the manners of the official one."""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import Self

from stepvault._drivers.loop import LoopDriver
from stepvault._drivers.sqlite import path_of
from stepvault._drivers.sqlite_aio import AiosqliteDriver
from stepvault.checkpointers._options import StorageOptions
from stepvault.checkpointers._shells import AsyncSetup
from stepvault.checkpointers.sqlite import DRIVER_OPTIONS, make_driver
from stepvault.checkpointers.sqlite.dialect import SqliteDialect

if TYPE_CHECKING:
    import aiosqlite

__all__ = ["AsyncSqliteSaver"]


class AsyncSqliteSaver(AsyncSetup):
    """A checkpointer on SQLite for one event loop.

    `SqliteSaver` does all of this and the sync half too; this class is here so that only an import changes. Its
    sync methods work from other threads and raise `EventLoopError` from the loop's own.

    Args:
        conn: An `aiosqlite.Connection`, a `sqlite3.Connection` made with `check_same_thread=False`, or a path.
        serde: Another serializer; ours if None.
        tenant: Whose threads this saver sees.
        options: As `SqliteSaver`.
    """

    def __init__(
        self,
        conn: aiosqlite.Connection | sqlite3.Connection | str | os.PathLike[str],
        *,
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
        super().__init__(
            LoopDriver(inner),
            SqliteDialect(),
            serde=serde,
            tenant=tenant,
            options=StorageOptions.take(options),
        )

    @classmethod
    def from_conn_string(cls, conn_string: str | os.PathLike[str], **options: Any) -> Self:
        """A saver on a file path, `":memory:"` or a `sqlite:///` URL; use it with `async with`."""
        return cls(path_of(conn_string), **options)
