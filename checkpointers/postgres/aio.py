"""`AsyncPostgresSaver`, under the name and with the manners of the official one."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from psycopg import AsyncPipeline, Pipeline
from typing_extensions import Self

from stepvault._drivers.loop import LoopDriver
from stepvault.checkpointers._options import StorageOptions
from stepvault.checkpointers._shells import AsyncSetup
from stepvault.checkpointers.postgres.making import Conn, make_dialect, make_driver, schema_of, take_options

__all__ = ["AsyncPostgresSaver"]


class AsyncPostgresSaver(AsyncSetup):
    """A checkpointer on Postgres for one event loop.

    `PostgresSaver` does all of this and the sync half too; this class is here so that only an import changes. Its
    sync methods work from other threads and raise `EventLoopError` from the loop's own.

    Args:
        conn: A URL, an `AsyncConnection` or an `AsyncConnectionPool`.
        pipe: As `PostgresSaver`, like everything that follows.
        serde: Another serializer; ours if None.
        schema: Where the tables are.
        table_prefix: What their names begin with.
        prepare_threshold: Executions after which a statement is prepared.
        tenant: Whose threads this saver sees.
        options: As `PostgresSaver`.
    """

    def __init__(
        self,
        conn: Conn,
        pipe: Pipeline | AsyncPipeline | None = None,
        serde: SerializerProtocol | None = None,
        *,
        schema: str | None = None,
        table_prefix: str = "stepvault_",
        prepare_threshold: int | None = None,
        tenant: str = "",
        **options: Any,
    ) -> None:
        chosen = take_options(options, prepare_threshold)
        super().__init__(
            LoopDriver(make_driver(conn, pipe, chosen)),
            make_dialect(schema, table_prefix, chosen),
            serde=serde,
            tenant=tenant,
            options=StorageOptions.take(options),
        )

    @classmethod
    def from_conn_string(cls, conn_string: str, *, pipeline: bool = False, **options: Any) -> Self:
        """A saver on a URL; use it with `async with`. `pipeline` is accepted as the official saver does."""
        return cls(conn_string, **options)

    @classmethod
    def ddl(cls, *, schema: str | None = None, table_prefix: str = "stepvault_", partitions: int = 0) -> str:
        """What `setup()` runs on an empty database, for Alembic and for roles that may not create tables."""
        return schema_of(schema, table_prefix, partitions).ddl()
