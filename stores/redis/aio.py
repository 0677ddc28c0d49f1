"""`AsyncRedisStore`, under the name and with the manners of the official one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import Self

from stepvault._drivers.loop import LoopDriver
from stepvault.stores._options import StoreOptions
from stepvault.stores._store import AsyncManners
from stepvault.stores.redis import make_parts

if TYPE_CHECKING:
    import redis.asyncio

__all__ = ["AsyncRedisStore"]


class AsyncRedisStore(AsyncManners):
    """A store on Redis or Valkey for one event loop.

    `RedisStore` does all of this and the sync half too; this class is here so that only an import changes. Its
    sync methods work from other threads and raise `EventLoopError` from the loop's own.

    Args:
        redis_url: Where to connect on first use.
        redis_client: An async client of redis-py to use instead; it stays open.
        index: As `RedisStore`, like everything that follows.
        connection_args: Further arguments of each connection.
        ttl: Time to live.
        prefix: What every key begins with.
        serde: Another serializer.
        tenant: Whose items this store sees.
        options: As `RedisStore`.
    """

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        redis_client: redis.asyncio.Redis | redis.asyncio.RedisCluster | None = None,
        index: Mapping[str, Any] | None = None,
        connection_args: dict[str, Any] | None = None,
        ttl: Mapping[str, Any] | None = None,
        prefix: str = "stepvault",
        serde: SerializerProtocol | None = None,
        tenant: str = "",
        **options: Any,
    ) -> None:
        driver, dialect = make_parts(redis_url or redis_client, connection_args, prefix, options)
        super().__init__(
            LoopDriver(driver),
            dialect,
            index=index,
            ttl=ttl,
            serde=serde,
            tenant=tenant,
            options=StoreOptions.take(options),
        )

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> Self:
        """A store on a URL; use it with `async with`."""
        return cls(conn_string, **options)
