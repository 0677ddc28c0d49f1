"""Checkpoints in Redis or Valkey: core commands only, one server, Sentinel or a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import Self

from stepvault.checkpointers._options import StorageOptions
from stepvault.checkpointers._saver import BaseSaver
from stepvault.checkpointers._shells import SyncSetup
from stepvault.checkpointers.redis.dialect import RedisDialect
from stepvault.errors import MissingDependencyError
from stepvault.ttl import ThreadTtl

try:
    from stepvault._drivers.redis import RedisDriver
    from stepvault.checkpointers.redis.scripts import SCRIPTS
except ModuleNotFoundError as exc:
    if exc.name != "redis":
        raise
    raise MissingDependencyError('Redis needs an extra: pip install "stepvault[redis]".') from exc

if TYPE_CHECKING:
    import redis
    import redis.asyncio

__all__ = ["RedisSaver"]

DRIVER_OPTIONS = ("cluster_mode", "wait_replicas", "wait_timeout")


class RedisSaver(SyncSetup, BaseSaver):
    """A checkpointer on Redis or Valkey, sync and async in one object. Nothing needs to be created first.

    Args:
        redis_url: Where to connect on first use: `redis://`, `rediss://`, `unix://`, `redis+sentinel://` or
            `redis+cluster://`, see docs/redis.md. Serves sync and async calls.
        redis_client: A client of redis-py to use instead, sync or async; serves only calls of its kind and stays open.
        connection_args: Further arguments of each connection (`socket_timeout`, `max_connections`, TLS, ...).
        ttl: When threads expire, see docs/options.md.
        prefix: What every key begins with; `checkpoint_prefix` is the official name of this argument.
        cluster_mode: Whether `redis_url` leads to a cluster; None asks the server.
        wait_replicas: Replicas that must confirm each write.
        tenant: Whose threads this saver sees.
        serde: Another serializer; ours if None.
        options: `wait_timeout` (seconds), `allow_eviction`, `compression`, `cache_bytes` and others, see
            docs/options.md.

    Raises:
        ConfigurationError: An argument is wrong; the message says which.
    """

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        redis_client: redis.Redis | redis.RedisCluster | redis.asyncio.Redis | redis.asyncio.RedisCluster | None = None,
        connection_args: dict[str, Any] | None = None,
        ttl: dict[str, Any] | None = None,
        prefix: str = "stepvault",
        cluster_mode: bool | None = None,
        wait_replicas: int = 0,
        tenant: str = "",
        serde: SerializerProtocol | None = None,
        **options: Any,
    ) -> None:
        driver, dialect = make_parts(
            redis_url, redis_client, connection_args, prefix, options,
            ThreadTtl.of(ttl), cluster_mode=cluster_mode, wait_replicas=wait_replicas,
        )  # fmt: skip
        self._dialect = dialect
        super().__init__(
            driver, dialect, serde=serde, tenant=tenant, options=StorageOptions.take({**options, "ttl": ttl})
        )

    @classmethod
    def from_conn_string(cls, redis_url: str | None = None, **options: Any) -> Self:
        """A saver on a URL; connects on first use.

        Usable with `with` and `async with`, or without and `close()`.
        """
        return cls(redis_url, **options)

    def rebuild_indexes(self) -> int:
        """Put back index entries that a failover or a partial restore lost; returns how many.

        Reads every thread of this prefix, of all tenants.
        """
        return self._run(self._dialect.rebuild())

    async def arebuild_indexes(self) -> int:
        """Async version of `rebuild_indexes`."""
        return await self._arun(self._dialect.rebuild())


def make_parts(
    url: str | None,
    client: Any,
    arguments: dict[str, Any] | None,
    prefix: str,
    options: dict[str, Any],
    ttl: ThreadTtl,
    **chosen: Any,
) -> tuple[RedisDriver, RedisDialect]:
    """Driver and dialect of a saver; takes their options out of `options`."""
    eviction = options.pop("allow_eviction", False)
    prefix = options.pop("checkpoint_prefix", prefix)
    options.pop("checkpoint_write_prefix", None)  # writes lie with their checkpoints
    dialect = RedisDialect(prefix, allow_eviction=eviction, grace=ttl.native_grace_minutes)
    if "wait_timeout" in options:
        chosen["wait_timeout"] = options.pop("wait_timeout")
    return RedisDriver(SCRIPTS, url=url, client=client, arguments=arguments, **chosen), dialect
