"""`AsyncPostgresStore`, under the name and with the manners of the official one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from psycopg import AsyncPipeline, Pipeline
from typing_extensions import Self

from stepvault._drivers.loop import LoopDriver
from stepvault._drivers.postgres_making import Conn, ConnectionOptions, make_driver
from stepvault.stores._options import StoreOptions
from stepvault.stores._store import AsyncManners
from stepvault.stores.postgres import make_dialect
from stepvault.stores.postgres.naming import Names
from stepvault.stores.postgres.schema import Schema

__all__ = ["AsyncPostgresStore"]


class AsyncPostgresStore(AsyncManners):
    """A store on Postgres for one event loop.

    `PostgresStore` does all of this and the sync half too; this class is here so that only an import changes. Its
    sync methods work from other threads and raise `EventLoopError` from the loop's own.

    Args:
        conn: A URL, an `AsyncConnection` or an `AsyncConnectionPool`.
        pipe: As `PostgresStore`, like everything that follows.
        index: Vector search.
        ttl: Time to live.
        serde: Another serializer.
        schema: Where the tables are.
        table_prefix: What their names begin with.
        tenant: Whose items this store sees.
        automatic_setup: Whether `setup()` runs before the first operation.
        options: As `PostgresStore`.
    """

    def __init__(
        self,
        conn: Conn,
        *,
        pipe: Pipeline | AsyncPipeline | None = None,
        index: Mapping[str, Any] | None = None,
        ttl: Mapping[str, Any] | None = None,
        serde: SerializerProtocol | None = None,
        schema: str | None = None,
        table_prefix: str = "stepvault_",
        tenant: str = "",
        automatic_setup: bool = False,
        **options: Any,
    ) -> None:
        connecting = ConnectionOptions.take(options)
        super().__init__(
            LoopDriver(make_driver(conn, pipe, connecting)),
            make_dialect(schema, table_prefix, index, automatic_setup),
            index=index,
            ttl=ttl,
            serde=serde,
            tenant=tenant,
            options=StoreOptions.take(options),
        )

    @classmethod
    def from_conn_string(cls, conn_string: str, *, pipeline: bool = False, **options: Any) -> Self:
        """A store on a URL; use it with `async with`. `pipeline` is accepted as the official store does."""
        return cls(conn_string, **options)

    @classmethod
    def ddl(cls, *, schema: str | None = None, table_prefix: str = "stepvault_") -> str:
        """What `setup()` runs on an empty database without an `index=`, for Alembic and for reviews."""
        return Schema(Names(schema, table_prefix)).ddl()
