"""The async half of the Redis driver."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import redis
import redis.asyncio
from redis.exceptions import ResponseError

from stepvault._core.plan import Batch, Command, Mode, Op, arun
from stepvault._drivers.redis_connect import Endpoint, cluster_of, open_async
from stepvault._drivers.redis_errors import translated
from stepvault._drivers.redis_settings import (
    OF_EACH_NODE,
    Settings,
    apart,
    is_unknown_script,
    key_of,
    scan_reply,
    scan_words,
    unknown_in,
)
from stepvault.errors import StorageUnavailableError

T = TypeVar("T")


class _Loop:
    """What belongs to one event loop: a client, and turns for its connections."""

    def __init__(self, client: Any, limit: int) -> None:
        self.client = client
        self.opening = asyncio.Lock()
        self.turns = asyncio.Semaphore(limit)
        self.direct: dict[str, Any] = {}  # clients of single nodes of a cluster, for WAIT


class AsyncRedis:
    """Runs batches from tasks; each event loop has connections of its own."""

    def __init__(self, settings: Settings, endpoint: Endpoint | None, client: Any, cluster_mode: bool | None) -> None:
        self._settings = settings
        self._endpoint = endpoint
        self._given = client
        self._cluster_mode = cluster_mode
        self._closed = False
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop] = weakref.WeakKeyDictionary()

    async def arun(self, op: Op[T]) -> T:
        """Drive an operation."""
        return await arun(op, self)

    @asynccontextmanager
    async def session(self, mode: Mode) -> AsyncIterator[AsyncRedis]:
        """There are no transactions to hold: every write checks the revision it relies on."""
        yield self

    async def _loop(self) -> _Loop:
        running = asyncio.get_running_loop()
        loop = self._loops.get(running)
        if loop is None:
            await self._drop_ended()
            loop = self._loops.get(running)
        if loop is None:
            loop = self._loops[running] = _Loop(self._given, self._settings.limit)
        if loop.client is None:
            async with loop.opening:
                if self._closed:
                    raise StorageUnavailableError("This saver or store is closed; open a new one.")
                if loop.client is None:
                    loop.client = await self._open()
        return loop

    async def _drop_ended(self) -> None:
        """Let go of loops that have ended: their connections hold them, so nobody else would."""
        for ended in [loop for ref in self._loops.keyrefs() if (loop := ref()) and loop.is_closed()]:
            held = self._loops.pop(ended, None)
            if held is not None and self._given is None and held.client is not None:
                await _let_go(held.client)

    async def _open(self) -> Any:
        assert self._endpoint is not None
        endpoint = cluster_of(self._endpoint) if self._cluster_mode else self._endpoint
        client = open_async(endpoint)
        if endpoint.kind == "server" and self._cluster_mode is None and await _is_cluster_node(client):
            await client.aclose()
            client = open_async(cluster_of(endpoint))
        if isinstance(client, redis.asyncio.RedisCluster):
            await client.initialize()  # once, before many tasks do it at once
        return client

    async def execute(self, batch: Batch) -> list[Any]:
        """Run a batch; every statement is tried, the first failure is raised."""
        with translated(self._settings.where, key_of(batch)):
            loop = await self._loop()
            async with loop.turns:
                replies = await self._send(loop.client, batch)
                for written in self._settings.written(batch, lambda key: _node_of(loop.client, key)):
                    self._settings.check(await self._wait(loop, written))
        return replies

    async def _send(self, client: Any, batch: Batch) -> list[Any]:
        if len(batch.statements) == 1 or isinstance(client, redis.asyncio.RedisCluster):
            return [await self._one(client, statement) for statement in batch.statements]
        replies = await self._piped(client, batch.statements)
        first, again = unknown_in(batch.statements, replies)
        for i in first:
            replies[i] = await client.execute_command(*self._settings.words(batch.statements[i], text=True))
        if again:
            for i, reply in zip(again, await self._piped(client, [batch.statements[i] for i in again]), strict=True):
                replies[i] = reply
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    async def _piped(self, client: Any, statements: Sequence[Any]) -> list[Any]:
        pipeline = client.pipeline(transaction=False)
        for statement in statements:
            pipeline.execute_command(*self._settings.words(statement))
        return list(await pipeline.execute(raise_on_error=False))

    async def _one(self, client: Any, statement: Any) -> Any:
        clustered = isinstance(client, redis.asyncio.RedisCluster)
        calls = apart(statement) if clustered else None
        if calls is not None:
            return [entry for call in calls for entry in await self._one(client, call)]
        if isinstance(statement, Command) and clustered:
            if statement.args[0] == "SCAN":
                return await _scan(client, statement)
            if statement.args[0] in OF_EACH_NODE:
                return [await client.execute_command(*statement.args, target_nodes=n) for n in client.get_primaries()]
        try:
            return await client.execute_command(*self._settings.words(statement))
        except ResponseError as exc:
            if not is_unknown_script(exc):
                raise
            return await client.execute_command(*self._settings.words(statement, text=True))

    async def _wait(self, loop: _Loop, key: bytes) -> int:
        """See the sync half."""
        client = loop.client
        if isinstance(client, redis.asyncio.RedisCluster):
            node = client.get_node_from_key(key.decode())
            assert node is not None
            client = loop.direct.get(node.name)
            if client is None:
                pool = redis.asyncio.ConnectionPool(connection_class=node.connection_class, **node.connection_kwargs)
                client = loop.direct[node.name] = redis.asyncio.Redis.from_pool(pool)
        pipeline = client.pipeline(transaction=False)
        pipeline.execute_command("PING")
        pipeline.execute_command(*self._settings.wait)
        return int((await pipeline.execute())[1])

    def close(self) -> None:
        """Accept no more work; connections end with `aclose` or with their loop."""
        self._closed = True

    async def aclose(self) -> None:
        """Close what this driver opened in the running loop."""
        self._closed = True
        loop = self._loops.pop(asyncio.get_running_loop(), None)
        if loop is None:
            return
        for client in loop.direct.values():
            await client.aclose()
        if self._given is None and loop.client is not None:
            await loop.client.aclose()


async def _is_cluster_node(client: Any) -> bool:
    try:
        return bool((await client.info("cluster")).get("cluster_enabled"))
    except ResponseError:  # INFO is not permitted
        return False


def _node_of(client: Any, key: bytes) -> str:
    if not isinstance(client, redis.asyncio.RedisCluster):
        return ""
    node = client.get_node_from_key(key.decode())
    return node.name if node is not None else ""


async def _scan(client: redis.asyncio.RedisCluster, statement: Command) -> tuple[int, Any]:
    primaries = sorted(client.get_primaries(), key=lambda node: str(node.name))
    node, words = scan_words(statement.args, len(primaries))
    reply = await client.execute_command(*words, target_nodes=primaries[node])
    return scan_reply(reply, node, len(primaries))


async def _let_go(client: Any) -> None:
    """Close what belongs to a loop that has ended: connections say goodbye in their loop, so each raises."""
    cluster = isinstance(client, redis.asyncio.RedisCluster)
    nodes = [*client.get_nodes(), *client.nodes_manager.startup_nodes.values()] if cluster else []
    for close in (*(node.disconnect for node in nodes), client.aclose):
        with contextlib.suppress(RuntimeError):
            await close()
