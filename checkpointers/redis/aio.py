"""`AsyncRedisSaver`, under the name and with the manners of the official one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import Self

from stepvault._drivers.loop import LoopDriver
from stepvault.checkpointers._options import StorageOptions
from stepvault.checkpointers._shells import AsyncSetup
from stepvault.checkpointers.redis import make_parts
from stepvault.ttl import ThreadTtl

if TYPE_CHECKING:
    import redis.asyncio

__all__ = ["AsyncRedisSaver"]


class AsyncRedisSaver(AsyncSetup):
    """A checkpointer on Redis or Valkey for one event loop.

    `RedisSaver` does all of this and the sync half too; this class is here so that only an import changes. Its sync
    methods work from other threads and raise `EventLoopError` from the loop's own.

    Args:
        redis_url: As `RedisSaver`.
        redis_client: A client of `redis.asyncio`.
        connection_args: As `RedisSaver`.
        ttl: As `RedisSaver`.
        prefix: As `RedisSaver`.
        cluster_mode: As `RedisSaver`.
        wait_replicas: As `RedisSaver`.
        tenant: As `RedisSaver`.
        serde: As `RedisSaver`.
        options: As `RedisSaver`.
    """

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        redis_client: redis.asyncio.Redis | redis.asyncio.RedisCluster | None = None,
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
            LoopDriver(driver),
            dialect,
            serde=serde,
            tenant=tenant,
            options=StorageOptions.take({**options, "ttl": ttl}),
        )

    @classmethod
    def from_conn_string(cls, redis_url: str | None = None, **options: Any) -> Self:
        """A saver on a URL; use it with `async with`."""
        return cls(redis_url, **options)

    def rebuild_indexes(self) -> int:
        """Put back index entries that a failover or a partial restore lost, from another thread; returns how many."""
        return self._run(self._dialect.rebuild())

    async def arebuild_indexes(self) -> int:
        """Put back index entries that a failover or a partial restore lost; returns how many."""
        return await self._arun(self._dialect.rebuild())
