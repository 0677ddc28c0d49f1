"""Memory in SQLite: one file, many threads and processes."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import Self

from stepvault._drivers.borrowed import BorrowedDriver
from stepvault._drivers.sqlite import SqliteDriver, path_of
from stepvault.errors import ConfigurationError
from stepvault.stores._options import StoreOptions
from stepvault.stores._store import SyncManners
from stepvault.stores.sqlite.dialect import SqliteDialect

__all__ = ["SqliteStore"]

DRIVER_OPTIONS = ("busy_timeout", "synchronous")


class SqliteStore(SyncManners):
    """A store on SQLite, sync and async in one object.

    Args:
        conn: An open `sqlite3.Connection` (made with `check_same_thread=False` if several threads use it), or the
            path of a file to open on first use. A given connection is not closed.
        index: `{"dims": ..., "embed": ..., "fields": [...], "distance_type": "cosine"}` for vector search.
        ttl: `{"default_ttl": minutes, "refresh_on_read": True, "sweep_interval_minutes": 5}`.
        serde: Another serializer; ours if None.
        tenant: Whose items this store sees.
        options: `busy_timeout` (seconds, 30), `synchronous` (`"NORMAL"` for files it opens), `text`,
            `compression`, `types` and others, see docs/stores.md.
    """

    def __init__(
        self,
        conn: sqlite3.Connection | SqliteDriver | str,
        *,
        index: Mapping[str, Any] | None = None,
        ttl: Mapping[str, Any] | None = None,
        serde: SerializerProtocol | None = None,
        tenant: str = "",
        **options: Any,
    ) -> None:
        chosen = {name: options.pop(name) for name in DRIVER_OPTIONS if name in options}
        taken = StoreOptions.take(options)
        super().__init__(
            make_driver(conn, chosen),
            SqliteDialect(taken.cache_bytes),
            index=index,
            ttl=ttl,
            serde=serde,
            tenant=tenant,
            options=taken,
        )

    @classmethod
    def from_conn_string(cls, conn_string: str | os.PathLike[str], **options: Any) -> Self:
        """A store on a file path, `":memory:"` or a `sqlite:///` URL; opened on first use.

        Usable with `with` and `async with`, or without and `close()`.
        """
        return cls(path_of(conn_string), **options)


def make_driver(conn: Any, options: dict[str, Any]) -> SqliteDriver | BorrowedDriver:
    """The driver for a connection or a path.

    Raises:
        ConfigurationError: Neither of the two.
    """
    if isinstance(conn, SqliteDriver):  # a vault's
        return BorrowedDriver(conn)
    if isinstance(conn, sqlite3.Connection):
        return SqliteDriver(connection=conn, **options)
    if isinstance(conn, (str, os.PathLike)):
        return SqliteDriver(os.fspath(conn), **options)
    raise ConfigurationError(
        f"SqliteStore takes a sqlite3.Connection or a path, not {type(conn).__name__}; "
        "an aiosqlite connection goes to stepvault.stores.sqlite.aio.AsyncSqliteStore."
    )
