"""The driver for whatever a constructor was given: a URL, a connection or a pool."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

from psycopg import AsyncConnection, Connection
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from stepvault._core.numbers import check_seconds
from stepvault._drivers.borrowed import BorrowedDriver
from stepvault._drivers.postgres import PostgresDriver
from stepvault._drivers.postgres_connections import (
    GivenAsyncConnection,
    GivenAsyncPool,
    GivenConnection,
    GivenPool,
    Missing,
)
from stepvault._drivers.postgres_pools import PoolOptions, UrlPool, UrlPools
from stepvault.errors import ConfigurationError

Conn: TypeAlias = "str | Connection[Any] | ConnectionPool[Any] | AsyncConnection[Any] | AsyncConnectionPool[Any]"

_SYNC_ONLY = "Only a sync {} was given: await the async methods with an {}, or pass a URL, which serves both."
_ASYNC_ONLY = "Only an {} was given: call the sync methods with a {}, or pass a URL, which serves both."
_KINDS = {True: ("Connection", "AsyncConnection"), False: ("ConnectionPool", "AsyncConnectionPool")}


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """How connections are made and waited for.

    Attributes:
        pool_config: Arguments of psycopg_pool's pools, for a URL: `min_size` (1), `max_size` (10), `kwargs`, ...
        connect_timeout: Seconds to wait for a new connection, for a URL.
        pool_timeout: Seconds to wait for a free connection, for a URL.
        statement_timeout: Seconds to wait for an answer, on any connection.
        prepare_threshold: Executions after which a statement is prepared, for a URL; None: never behind a pooler.
    """

    pool_config: dict[str, Any] = field(default_factory=dict)
    connect_timeout: float = 10.0
    pool_timeout: float = 10.0
    statement_timeout: float = 60.0
    prepare_threshold: int | None = None

    @classmethod
    def take(cls, options: dict[str, Any]) -> ConnectionOptions:
        """Take these options out of the keywords.

        Raises:
            ConfigurationError: A timeout that is no number of seconds.
        """
        names = {known.name for known in fields(cls)} & options.keys()
        chosen = {name: options.pop(name) for name in names}
        if chosen.get("pool_config", {}) is None:
            del chosen["pool_config"]
        for name in ("connect_timeout", "pool_timeout", "statement_timeout"):
            check_seconds(name, chosen.get(name, 1), above=True)
        return cls(**chosen)


def make_driver(conn: Any, pipe: object, options: ConnectionOptions) -> PostgresDriver | BorrowedDriver:
    """The driver for a URL, a connection or a pool; a driver stays its owner's.

    Raises:
        ConfigurationError: None of these, or a pipeline of no connection.
    """
    given, timeout = "the given connection", options.statement_timeout
    if pipe is not None and not isinstance(conn, (Connection, AsyncConnection)):
        raise ConfigurationError("A pipeline goes with a single connection, not with a pool or a URL.")
    if isinstance(conn, PostgresDriver):  # a vault's
        return BorrowedDriver(conn)
    if isinstance(conn, str):
        pools = PoolOptions(
            conn, options.pool_config, options.connect_timeout, options.pool_timeout, options.prepare_threshold
        )
        return PostgresDriver(UrlPool(pools), UrlPools(pools), where=pools.where(), statement_timeout=timeout)
    if isinstance(conn, (Connection, ConnectionPool)):
        missing = Missing(_SYNC_ONLY.format(*_KINDS[isinstance(conn, Connection)]))
        sync_half = GivenConnection(conn) if isinstance(conn, Connection) else GivenPool(conn)
        return PostgresDriver(sync_half, missing, where=given, statement_timeout=timeout)
    if isinstance(conn, (AsyncConnection, AsyncConnectionPool)):
        missing = Missing(_ASYNC_ONLY.format(*reversed(_KINDS[isinstance(conn, AsyncConnection)])))
        lender = GivenAsyncConnection(conn) if isinstance(conn, AsyncConnection) else GivenAsyncPool(conn)
        return PostgresDriver(missing, lender, where=given, statement_timeout=timeout)
    raise ConfigurationError(f"Pass a URL or a psycopg connection or pool, sync or async, not {type(conn).__name__}.")
