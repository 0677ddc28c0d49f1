"""`PostgresSaver`: checkpoints in PostgreSQL 14 or newer."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import Self

from stepvault.errors import MissingDependencyError

try:
    import psycopg_pool  # noqa: F401
    from psycopg import AsyncPipeline, Pipeline
except ImportError as exc:
    raise MissingDependencyError('Postgres needs an extra: pip install "stepvault[postgres]".') from exc

from stepvault.checkpointers._options import StorageOptions
from stepvault.checkpointers._shells import SyncSetup
from stepvault.checkpointers.postgres.making import Conn, make_dialect, make_driver, schema_of, take_options

__all__ = ["PostgresSaver"]


class PostgresSaver(SyncSetup):
    """A checkpointer on Postgres, sync and async in one object.

    Call `setup()` once before first use, as with the official saver.

    Args:
        conn: A URL, which opens pools of our own on first use; or a psycopg connection or pool, sync or async, which
            its owner opens and closes and which serves that half only. Inside a transaction of the connection's
            owner every write is a savepoint, and theirs to commit.
        pipe: Accepted as the official saver does; nothing of ours stays in a pipeline.
        serde: Another serializer; ours if None.
        schema: Where the tables are; None leaves it to the role's `search_path`.
        table_prefix: What their names begin with.
        prepare_threshold: Executions after which a statement is prepared, on connections from a URL. None: at once on
            a direct connection, never behind a pooler.
        tenant: Whose threads this saver sees.
        options: `pool_config`, `connect_timeout`, `pool_timeout`, `statement_timeout` (seconds), `partitions`,
            `automatic_setup`, `compression`, `cache_bytes`, `types` and others, see docs/options.md.
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
            make_driver(conn, pipe, chosen),
            make_dialect(schema, table_prefix, chosen),
            serde=serde,
            tenant=tenant,
            options=StorageOptions.take(options),
        )

    @classmethod
    def from_conn_string(cls, conn_string: str, *, pipeline: bool = False, **options: Any) -> Self:
        """A saver on a URL; connections are opened on first use.

        Usable with `with` and `async with`, or without and `close()`. `pipeline` is accepted as the official saver
        does; a write is one round trip without it.
        """
        return cls(conn_string, **options)

    @classmethod
    def ddl(cls, *, schema: str | None = None, table_prefix: str = "stepvault_", partitions: int = 0) -> str:
        """What `setup()` runs on an empty database, for Alembic and for roles that may not create tables."""
        return schema_of(schema, table_prefix, partitions).ddl()
