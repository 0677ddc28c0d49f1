"""The parts of a saver from what its constructor was given."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from inspect import signature
from typing import Any, TypeAlias

from psycopg import AsyncConnection, Connection
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from stepvault._core.numbers import check_seconds
from stepvault._drivers.postgres import PostgresDriver
from stepvault._drivers.postgres_connections import (
    GivenAsyncConnection,
    GivenAsyncPool,
    GivenConnection,
    GivenPool,
    Missing,
)
from stepvault._drivers.postgres_pools import PoolOptions, UrlPool, UrlPools
from stepvault.checkpointers.postgres.dialect import PostgresDialect
from stepvault.checkpointers.postgres.names import Names
from stepvault.checkpointers.postgres.schema import Schema
from stepvault.errors import ConfigurationError

Conn: TypeAlias = "str | Connection[Any] | ConnectionPool[Any] | AsyncConnection[Any] | AsyncConnectionPool[Any]"

_POOL_ARGUMENTS = signature(ConnectionPool).parameters.keys() - {"conninfo", "open"}
_SYNC_ONLY = "This saver was given a sync {}: await its async methods with an {}, or pass a URL, which serves both."
_ASYNC_ONLY = "This saver was given an {}: call its sync methods with a {}, or pass a URL, which serves both."


@dataclass(frozen=True, slots=True)
class PostgresOptions:
    """Options of this backend.

    Attributes:
        pool_config: Arguments of psycopg_pool's pools, for a URL: `min_size` (1), `max_size` (10), `kwargs`, ...
        connect_timeout: Seconds to wait for a new connection, for a URL.
        pool_timeout: Seconds to wait for a free connection, for a URL.
        statement_timeout: Seconds to wait for an answer, on any connection.
        prepare_threshold: See `PostgresSaver`.
        partitions: Hash partitions that `setup()` creates each big table with; 0: none.
        automatic_setup: Whether `setup()` runs before the first operation.
    """

    pool_config: dict[str, Any] = field(default_factory=dict)
    connect_timeout: float = 10.0
    pool_timeout: float = 10.0
    statement_timeout: float = 60.0
    prepare_threshold: int | None = None
    partitions: int = 0
    automatic_setup: bool = False


def take_options(options: dict[str, Any], prepare_threshold: int | None) -> PostgresOptions:
    """Take the options of this backend out of the keywords."""
    names = {known.name for known in fields(PostgresOptions)} & options.keys()
    chosen = {name: options.pop(name) for name in names}
    for name in ("connect_timeout", "pool_timeout", "statement_timeout"):
        check_seconds(name, chosen.get(name, 1), above=True)
    unknown = sorted(set(chosen.get("pool_config") or {}) - _POOL_ARGUMENTS)
    if unknown:
        raise ConfigurationError(f"pool_config has no {unknown[0]!r}; known are {', '.join(sorted(_POOL_ARGUMENTS))}.")
    return PostgresOptions(**chosen, prepare_threshold=prepare_threshold)


def schema_of(schema: str | None, table_prefix: str, partitions: int) -> Schema:
    """The tables of a saver."""
    return Schema(Names(schema, table_prefix), partitions)


def make_dialect(schema: str | None, table_prefix: str, options: PostgresOptions) -> PostgresDialect:
    """The statements of a saver."""
    names = Names(schema, table_prefix)
    return PostgresDialect(names, Schema(names, options.partitions), automatic_setup=options.automatic_setup)


def make_driver(conn: Any, pipe: object, options: PostgresOptions) -> PostgresDriver:
    """The driver for a URL, a connection or a pool.

    Raises:
        ConfigurationError: None of these, or a pipeline of no connection.
    """
    given, timeout = "the given connection", options.statement_timeout
    if pipe is not None and not isinstance(conn, (Connection, AsyncConnection)):
        raise ConfigurationError("A pipeline goes with a single connection, not with a pool or a URL.")
    if isinstance(conn, str):
        pools = PoolOptions(
            conn, options.pool_config, options.connect_timeout, options.pool_timeout, options.prepare_threshold
        )
        return PostgresDriver(UrlPool(pools), UrlPools(pools), where=pools.where(), statement_timeout=timeout)
    if isinstance(conn, (Connection, ConnectionPool)):
        single = isinstance(conn, Connection)
        async_half = Missing(_SYNC_ONLY.format(*_KINDS[single]))
        sync_half = GivenConnection(conn) if isinstance(conn, Connection) else GivenPool(conn)
        return PostgresDriver(sync_half, async_half, where=given, statement_timeout=timeout)
    if isinstance(conn, (AsyncConnection, AsyncConnectionPool)):
        single = isinstance(conn, AsyncConnection)
        missing = Missing(_ASYNC_ONLY.format(*reversed(_KINDS[single])))
        lender = GivenAsyncConnection(conn) if isinstance(conn, AsyncConnection) else GivenAsyncPool(conn)
        return PostgresDriver(missing, lender, where=given, statement_timeout=timeout)
    raise ConfigurationError(
        f"PostgresSaver takes a URL or a psycopg connection or pool, sync or async, not {type(conn).__name__}."
    )


_KINDS = {True: ("Connection", "AsyncConnection"), False: ("ConnectionPool", "AsyncConnectionPool")}
