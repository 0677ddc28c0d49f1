"""Memory in Redis or Valkey: core commands only, one server, Sentinel or a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import Self

from stepvault.errors import MissingDependencyError
from stepvault.stores._options import StoreOptions
from stepvault.stores._store import SyncManners

try:
    from stepvault._drivers.redis import RedisDriver
    from stepvault.stores.redis.dialect import RedisDialect
    from stepvault.stores.redis.scripts import SCRIPTS
except ModuleNotFoundError as exc:
    if exc.name != "redis":
        raise
    raise MissingDependencyError('Redis needs an extra: pip install "stepvault[redis]".') from exc

if TYPE_CHECKING:
    import redis
    import redis.asyncio

__all__ = ["RedisStore"]

_DRIVER_OPTIONS = ("cluster_mode", "wait_replicas", "wait_timeout")


class RedisStore(SyncManners):
    """A store on Redis or Valkey, sync and async in one object. Nothing needs to be created first.

    Args:
        conn: A URL (`redis://`, `rediss://`, `unix://`, `redis+sentinel://`, `redis+cluster://`), which connects on
            first use and serves sync and async calls; or a client of redis-py, which serves its kind and stays open.
        index: `{"dims": ..., "embed": ..., "fields": [...], "distance_type": "cosine"}` for vector search, exact and
            in this process.
        ttl: `{"default_ttl": minutes, "refresh_on_read": True, "sweep_interval_minutes": 5}`.
        redis_url: Another name for `conn`, like `redis_client`.
        redis_client: Another name for `conn`.
        connection_args: Further arguments of each connection (`socket_timeout`, `max_connections`, TLS, ...).
        prefix: What every key begins with; `store_prefix` is the official name of this argument.
        serde: Another serializer; ours if None.
        tenant: Whose items this store sees.
        options: `cluster_mode`, `wait_replicas`, `wait_timeout`, `allow_eviction`, `cache_bytes`, `text`,
            `compression`, `types` and others, see docs/stores.md.

    Raises:
        ConfigurationError: An argument is wrong; the message says which.
    """

    def __init__(
        self,
        conn: str | redis.Redis | redis.RedisCluster | redis.asyncio.Redis | redis.asyncio.RedisCluster | None = None,
        *,
        index: Mapping[str, Any] | None = None,
        ttl: Mapping[str, Any] | None = None,
        redis_url: str | None = None,
        redis_client: Any = None,
        connection_args: dict[str, Any] | None = None,
        prefix: str = "stepvault",
        serde: SerializerProtocol | None = None,
        tenant: str = "",
        **options: Any,
    ) -> None:
        given = next((one for one in (conn, redis_url, redis_client) if one is not None), None)
        driver, dialect = make_parts(given, connection_args, prefix, options)
        super().__init__(
            driver,
            dialect,
            index=index,
            ttl=ttl,
            serde=serde,
            tenant=tenant,
            options=StoreOptions.take(options),
        )

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> Self:
        """A store on a URL; connects on first use.

        Usable with `with` and `async with`, or without and `close()`.
        """
        return cls(conn_string, **options)


def make_parts(
    conn: Any, connection_args: dict[str, Any] | None, prefix: str, options: dict[str, Any]
) -> tuple[RedisDriver, RedisDialect]:
    """The driver and the dialect of a store."""
    driving = {name: options.pop(name) for name in _DRIVER_OPTIONS if name in options}
    prefix = options.pop("store_prefix", prefix)
    options.pop("vector_prefix", None)  # vectors lie with their items
    eviction = options.pop("allow_eviction", False)
    dialect = RedisDialect(prefix, StoreOptions.take(options).cache_bytes, allow_eviction=eviction)
    target: dict[str, Any] = {"url": conn} if isinstance(conn, str) else {"client": conn}
    return RedisDriver(SCRIPTS, arguments=connection_args, **target, **driving), dialect
