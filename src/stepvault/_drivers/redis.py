"""Redis: batches of commands and scripts over one server, Sentinel or a cluster; this module has the sync half."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import redis
import redis.asyncio
from redis.exceptions import ResponseError

from stepvault._core.plan import Batch, Command, Mode, Op, run
from stepvault._drivers.redis_aio import AsyncRedis
from stepvault._drivers.redis_connect import Endpoint, check_options, cluster_of, endpoint_of, open_sync
from stepvault._drivers.redis_errors import translated
from stepvault._drivers.redis_settings import (
    OF_EACH_NODE,
    ScriptText,
    Settings,
    apart,
    is_unknown_script,
    key_of,
    scan_reply,
    scan_words,
    unknown_in,
)
from stepvault.errors import ConfigurationError, StorageUnavailableError

T = TypeVar("T")

_PATIENCE = 30.0  # seconds a thread waits for its turn


class SyncRedis:
    """Runs batches from threads.

    A batch is one pipeline where all goes to one server; in a cluster its statements go one by one, each to its node.
    """

    def __init__(self, settings: Settings, endpoint: Endpoint | None, client: Any, cluster_mode: bool | None) -> None:
        self._settings = settings
        self._endpoint = endpoint
        self._given = client
        self._client: Any = client
        self._cluster_mode = cluster_mode
        self._closed = False
        self._lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(settings.limit)

    def run(self, op: Op[T]) -> T:
        """Drive an operation."""
        return run(op, self)

    @contextmanager
    def session(self, mode: Mode) -> Iterator[SyncRedis]:
        """There are no transactions to hold: every write checks the revision it relies on."""
        yield self

    def client(self) -> Any:
        """The client; opened on first use."""
        if self._client is None:
            with self._lock:
                if self._closed:
                    raise StorageUnavailableError("This saver or store is closed; open a new one.")
                if self._client is None:
                    self._client = self._open()
        return self._client

    def _open(self) -> Any:
        assert self._endpoint is not None
        endpoint = cluster_of(self._endpoint) if self._cluster_mode else self._endpoint
        client = open_sync(endpoint)
        if endpoint.kind == "server" and self._cluster_mode is None and _is_cluster_node(client):
            client.close()
            client = open_sync(cluster_of(endpoint))
        return client

    def execute(self, batch: Batch) -> list[Any]:
        """Run a batch; every statement is tried, the first failure is raised."""
        with translated(self._settings.where, key_of(batch)):
            client = self.client()
            if not self._turns.acquire(timeout=_PATIENCE):
                raise StorageUnavailableError(
                    f"{self._settings.where}: no connection was free for {_PATIENCE:g} s; raise max_connections."
                )
            try:
                replies = self._send(client, batch)
                for written in self._settings.written(batch, lambda key: _node_of(client, key)):
                    self._settings.check(_wait(client, written, self._settings.wait))
            finally:
                self._turns.release()
        return replies

    def _send(self, client: Any, batch: Batch) -> list[Any]:
        if len(batch.statements) == 1 or _is_cluster(client):
            return [self._one(client, statement) for statement in batch.statements]
        replies = self._piped(client, batch.statements)
        first, again = unknown_in(batch.statements, replies)
        for i in first:
            replies[i] = client.execute_command(*self._settings.words(batch.statements[i], text=True))
        if again:
            for i, reply in zip(again, self._piped(client, [batch.statements[i] for i in again]), strict=True):
                replies[i] = reply
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    def _piped(self, client: Any, statements: Sequence[Any]) -> list[Any]:
        pipeline = client.pipeline(transaction=False)
        for statement in statements:
            pipeline.execute_command(*self._settings.words(statement))
        return list(pipeline.execute(raise_on_error=False))

    def _one(self, client: Any, statement: Any) -> Any:
        calls = apart(statement) if _is_cluster(client) else None
        if calls is not None:
            return [entry for call in calls for entry in self._one(client, call)]
        if isinstance(statement, Command) and _is_cluster(client):
            if statement.args[0] == "SCAN":
                return _scan(client, statement)
            if statement.args[0] in OF_EACH_NODE:
                return [client.execute_command(*statement.args, target_nodes=n) for n in client.get_primaries()]
        try:
            return client.execute_command(*self._settings.words(statement))
        except ResponseError as exc:
            if not is_unknown_script(exc):
                raise
            return client.execute_command(*self._settings.words(statement, text=True))

    def close(self) -> None:
        """Close what this driver opened."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None and self._given is None:
            client.close()


def _is_cluster(client: Any) -> bool:
    return isinstance(client, redis.RedisCluster)


def _node_of(client: Any, key: bytes) -> str:
    return str(client.get_node_from_key(key).name) if _is_cluster(client) else ""


def _is_cluster_node(client: Any) -> bool:
    try:
        return bool(client.info("cluster").get("cluster_enabled"))
    except ResponseError:  # INFO is not permitted
        return False


def _wait(client: Any, key: bytes, words: tuple[Any, ...]) -> int:
    """How many replicas have all that a node had written when this was called.

    WAIT asks for what its own connection has seen, so a PING on the same connection goes first.
    """
    if _is_cluster(client):
        client = client.get_redis_connection(client.get_node_from_key(key))
    pipeline = client.pipeline(transaction=False)
    pipeline.execute_command("PING")
    pipeline.execute_command(*words)
    return int(pipeline.execute()[1])


def _scan(client: Any, statement: Command) -> tuple[int, Any]:
    primaries = sorted(client.get_primaries(), key=lambda node: str(node.name))
    node, words = scan_words(statement.args, len(primaries))
    reply = client.execute_command(*words, target_nodes=primaries[node])
    return scan_reply(reply, node, len(primaries))


class RedisDriver:
    """Both halves: what a URL leads to can be used from threads and tasks, a given client only as what it is.

    Args:
        scripts: Lua scripts by name.
        url: Where to connect on first use.
        client: A client to use in place of a URL; it stays its owner's to close.
        arguments: Further arguments of each connection.
        cluster_mode: Whether the URL leads to a cluster; None asks the server.
        wait_replicas: Replicas that must confirm each write.
        wait_timeout: Seconds they have for it.
    """

    def __init__(
        self,
        scripts: Mapping[str, ScriptText],
        *,
        url: str | None = None,
        client: Any = None,
        arguments: dict[str, Any] | None = None,
        cluster_mode: bool | None = None,
        wait_replicas: int = 0,
        wait_timeout: float = 1.0,
    ) -> None:
        if (url is None) == (client is None):
            raise ConfigurationError("Pass either redis_url= or redis_client=.")
        endpoint = endpoint_of(url, arguments) if url is not None else None
        where = endpoint.where if endpoint else "the given Redis client"
        limit = endpoint.limit if endpoint else _limit_of(client)
        settings = Settings(scripts, where, limit, wait_replicas, wait_timeout)
        sync, task = (client, client) if endpoint is None else (None, None)
        self._sync = None if _is_async(client) else SyncRedis(settings, endpoint, sync, cluster_mode)
        self._async = (
            None if client is not None and not _is_async(client) else AsyncRedis(settings, endpoint, task, cluster_mode)
        )

    def run(self, op: Op[T]) -> T:
        """Drive an operation from a thread."""
        if self._sync is None:
            op.close()
            raise ConfigurationError(
                "An async Redis client cannot serve sync calls; pass redis_url= for both, or a redis.Redis client."
            )
        return self._sync.run(op)

    async def arun(self, op: Op[T]) -> T:
        """Drive an operation from a task."""
        if self._async is None:
            op.close()
            raise ConfigurationError(
                "A sync Redis client cannot serve async calls; pass redis_url= for both, or a redis.asyncio client."
            )
        return await self._async.arun(op)

    def close(self) -> None:
        """Close what this driver opened for threads; connections of other loops are dropped with their loop."""
        if self._sync is not None:
            self._sync.close()
        if self._async is not None:
            self._async.close()

    async def aclose(self) -> None:
        """Close all this driver opened, the running loop's connections included."""
        if self._sync is not None:
            self._sync.close()
        if self._async is not None:
            await self._async.aclose()


def _is_async(client: Any) -> bool:
    return isinstance(client, redis.asyncio.Redis | redis.asyncio.RedisCluster)


def _limit_of(client: Any) -> int:
    """How many commands a given client can have at work.

    Raises:
        ConfigurationError: It is no Redis client, or one that decodes what it reads.
    """
    if not isinstance(client, redis.Redis | redis.RedisCluster | redis.asyncio.Redis | redis.asyncio.RedisCluster):
        raise ConfigurationError(f"redis_client must be a client of redis-py, not {type(client).__name__}.")
    pool = getattr(client, "connection_pool", None)
    if pool is not None:
        check_options(pool.connection_kwargs)
        return max(1, min(int(pool.max_connections), 100))
    encoder = client.encoder if isinstance(client, redis.asyncio.RedisCluster) else client.get_encoder()
    check_options({"decode_responses": encoder.decode_responses})
    return 50
