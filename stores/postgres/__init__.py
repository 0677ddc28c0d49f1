"""Memory in PostgreSQL 14 or newer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import Self

from stepvault.errors import MissingDependencyError

try:
    import psycopg_pool  # noqa: F401
    from psycopg import AsyncPipeline, Pipeline
except ImportError as exc:
    raise MissingDependencyError('Postgres needs an extra: pip install "stepvault[postgres]".') from exc

from stepvault._drivers.postgres_making import Conn, ConnectionOptions, make_driver
from stepvault.stores._options import StoreOptions
from stepvault.stores._store import SyncManners
from stepvault.stores.postgres.dialect import PostgresDialect
from stepvault.stores.postgres.naming import Names
from stepvault.stores.postgres.schema import Schema
from stepvault.stores.postgres.vectors import AnnSettings

__all__ = ["PostgresStore"]


class PostgresStore(SyncManners):
    """A store on Postgres, sync and async in one object.

    Call `setup()` once before first use, as with the official store.

    Args:
        conn: A URL, which opens pools of our own on first use; or a psycopg connection or pool, sync or async, which
            its owner opens and closes and which serves that half only.
        pipe: Accepted as the official store does; nothing of ours stays in a pipeline.
        index: `{"dims": ..., "embed": ..., "fields": [...], "distance_type": "cosine", "ann_index_config":
            {"kind": "hnsw"}}` for vector search with pgvector.
        ttl: `{"default_ttl": minutes, "refresh_on_read": True, "sweep_interval_minutes": 5}`.
        serde: Another serializer; ours if None.
        schema: Where the tables are; None leaves it to the role's `search_path`.
        table_prefix: What their names begin with.
        tenant: Whose items this store sees.
        options: `pool_config`, `connect_timeout`, `pool_timeout`, `statement_timeout` (seconds),
            `prepare_threshold`, `automatic_setup`, `text`, `compression`, `types` and others, see docs/stores.md.
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
            make_driver(conn, pipe, connecting),
            make_dialect(schema, table_prefix, index, automatic_setup),
            index=index,
            ttl=ttl,
            serde=serde,
            tenant=tenant,
            options=StoreOptions.take(options),
        )

    @classmethod
    def from_conn_string(cls, conn_string: str, *, pipeline: bool = False, **options: Any) -> Self:
        """A store on a URL; connections are opened on first use.

        Usable with `with` and `async with`, or without and `close()`. `pipeline` is accepted as the official store
        does; a batch is one round trip without it.
        """
        return cls(conn_string, **options)

    @classmethod
    def ddl(cls, *, schema: str | None = None, table_prefix: str = "stepvault_") -> str:
        """What `setup()` runs on an empty database without an `index=`, for Alembic and for reviews."""
        return Schema(Names(schema, table_prefix)).ddl()


def make_dialect(
    schema: str | None, table_prefix: str, index: Mapping[str, Any] | None, automatic_setup: bool
) -> PostgresDialect:
    """The statements of a store."""
    ann = AnnSettings.of((index or {}).get("ann_index_config"))
    return PostgresDialect(Names(schema, table_prefix), ann, automatic_setup=automatic_setup)
