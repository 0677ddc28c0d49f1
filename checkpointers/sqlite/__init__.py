"""Checkpoints in SQLite: one file, many threads and processes."""

from __future__ import annotations

import os
import sqlite3
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import Self

from stepvault._drivers.sqlite import SqliteDriver, path_of
from stepvault.checkpointers._options import StorageOptions
from stepvault.checkpointers._shells import SyncSetup
from stepvault.checkpointers.sqlite.dialect import SqliteDialect
from stepvault.errors import ConfigurationError

__all__ = ["SqliteSaver"]

DRIVER_OPTIONS = ("busy_timeout", "synchronous")


class SqliteSaver(SyncSetup):
    """A checkpointer on SQLite, sync and async in one object.

    Args:
        conn: An open `sqlite3.Connection` (made with `check_same_thread=False` if several threads use it), or the
            path of a file to open on first use. A given connection is not closed.
        serde: Another serializer; ours if None.
        tenant: Whose threads this saver sees.
        options: `busy_timeout` (seconds, 30), `synchronous` (`"NORMAL"` for files it opens), `compression`,
            `cache_bytes`, `types` and others, see docs/options.md.
    """

    def __init__(
        self,
        conn: sqlite3.Connection | str | os.PathLike[str],
        *,
        serde: SerializerProtocol | None = None,
        tenant: str = "",
        **options: Any,
    ) -> None:
        chosen = {name: options.pop(name) for name in DRIVER_OPTIONS if name in options}
        super().__init__(
            make_driver(conn, chosen),
            SqliteDialect(),
            serde=serde,
            tenant=tenant,
            options=StorageOptions.take(options),
        )

    @classmethod
    def from_conn_string(cls, conn_string: str | os.PathLike[str], **options: Any) -> Self:
        """A saver on a file path, `":memory:"` or a `sqlite:///` URL; opened on first use.

        Usable with `with` and `async with`, or without and `close()`.
        """
        return cls(path_of(conn_string), **options)


def make_driver(conn: Any, options: dict[str, Any]) -> SqliteDriver:
    """The driver for a connection or a path.

    Raises:
        ConfigurationError: Neither of the two.
    """
    if isinstance(conn, sqlite3.Connection):
        return SqliteDriver(connection=conn, **options)
    if isinstance(conn, (str, os.PathLike)):
        return SqliteDriver(os.fspath(conn), **options)
    raise ConfigurationError(
        f"SqliteSaver takes a sqlite3.Connection or a path, not {type(conn).__name__}; "
        "an aiosqlite connection goes to stepvault.checkpointers.sqlite.aio.AsyncSqliteSaver."
    )
