"""Who runs. Adding a saver is one entry in `CONTENDERS`; one whose package is missing sits out, and is named."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Any

from benchmarks.backends import Place
from benchmarks.limits import postgres_limit, redis_limit, sqlite_limit

Open = Callable[..., AbstractContextManager[Any]]  # ours takes options too
AsyncOpen = Callable[[Place], AbstractAsyncContextManager[Any]]

EVERYTHING = frozenset(("chat", "raw", "async", "manage"))


@dataclass(frozen=True)
class Contender:
    """A saver in a role; ratios are taken against roles, see `targets.py`."""

    role: str
    backend: str
    open: Open
    aopen: AsyncOpen | None = None
    workloads: frozenset[str] = EVERYTHING

    @property
    def name(self) -> str:
        return f"{self.role} ({self.backend})" if self.backend != "memory" else self.role


# -- ours: one class, both ways


@contextlib.contextmanager
def _ours(place: Place, backend: str, **options: Any) -> Iterator[Any]:
    with _our_class(backend).from_conn_string(place.address, **options) as saver:
        saver.setup()
        yield saver


@contextlib.asynccontextmanager
async def _ours_async(place: Place, backend: str) -> AsyncIterator[Any]:
    async with _our_class(backend).from_conn_string(place.address) as saver:
        await saver.asetup()
        yield saver


def _our_class(backend: str) -> Any:
    if backend == "sqlite":
        from stepvault.checkpointers.sqlite import SqliteSaver

        return SqliteSaver
    if backend == "postgres":
        from stepvault.checkpointers.postgres import PostgresSaver

        return PostgresSaver
    from stepvault.checkpointers.redis import RedisSaver

    return RedisSaver


def _our_entries(backend: str) -> list[Contender]:
    return [
        Contender(
            "ours",
            backend,
            lambda place, **options: _ours(place, backend, **options),
            lambda place: _ours_async(place, backend),
            EVERYTHING | {"ttl", "erase"},
        ),
        Contender(
            "uncompressed",
            backend,
            lambda place: _ours(place, backend, compression=None),
            workloads=frozenset(("chat",)),
        ),
    ]


# -- memory


@contextlib.contextmanager
def _memory(place: Place) -> Iterator[Any]:
    from langgraph.checkpoint.memory import InMemorySaver

    yield InMemorySaver()


@contextlib.asynccontextmanager
async def _memory_async(place: Place) -> AsyncIterator[Any]:
    from langgraph.checkpoint.memory import InMemorySaver

    yield InMemorySaver()


# -- the official savers


@contextlib.contextmanager
def _sqlite(place: Place, synchronous: str) -> Iterator[Any]:
    from langgraph.checkpoint.sqlite import SqliteSaver

    with SqliteSaver.from_conn_string(place.address) as saver:
        saver.setup()
        saver.conn.execute(f"PRAGMA synchronous = {synchronous}")
        yield saver


@contextlib.asynccontextmanager
async def _sqlite_async(place: Place, synchronous: str) -> AsyncIterator[Any]:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async with AsyncSqliteSaver.from_conn_string(place.address) as saver:
        await saver.setup()
        await saver.conn.execute(f"PRAGMA synchronous = {synchronous}")
        yield saver


@contextlib.contextmanager
def _postgres(place: Place) -> Iterator[Any]:
    from langgraph.checkpoint.postgres import PostgresSaver

    with PostgresSaver.from_conn_string(place.address) as saver:
        saver.setup()
        yield saver


@contextlib.asynccontextmanager
async def _postgres_async(place: Place) -> AsyncIterator[Any]:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

    async with AsyncPostgresSaver.from_conn_string(place.address) as saver:
        await saver.setup()
        yield saver


@contextlib.asynccontextmanager
async def _postgres_pool(place: Place) -> AsyncIterator[Any]:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    kwargs = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(place.address, min_size=10, max_size=10, open=False, kwargs=kwargs) as pool:
        saver = AsyncPostgresSaver(pool)  # type: ignore[arg-type]
        await saver.setup()
        yield saver


@contextlib.contextmanager
def _redis(place: Place) -> Iterator[Any]:
    from langgraph.checkpoint.redis import RedisSaver

    with _needs_modules(), RedisSaver.from_conn_string(place.address) as saver:
        saver.setup()
        yield saver


@contextlib.asynccontextmanager
async def _redis_async(place: Place) -> AsyncIterator[Any]:
    from langgraph.checkpoint.redis.aio import AsyncRedisSaver

    arguments = {"max_connections": 1000}  # with the default, 64 tasks meet "Too many connections"
    with _needs_modules():
        async with AsyncRedisSaver.from_conn_string(place.address, connection_args=arguments) as saver:
            await saver.asetup()
            yield saver


@contextlib.contextmanager
def _needs_modules() -> Iterator[None]:
    from redis import ResponseError

    try:
        yield
    except ResponseError as exc:
        if "unknown command" not in str(exc):
            raise
        raise ImportError("needs a Redis Stack, see benchmarks/redis_stack.py") from exc


@contextlib.contextmanager
def _plainredis(place: Place) -> Iterator[Any]:
    from langgraph_checkpoint_plainredis import RedisSaver

    with contextlib.closing(RedisSaver(url=place.address)) as saver:
        yield saver


@contextlib.asynccontextmanager
async def _plainredis_async(place: Place) -> AsyncIterator[Any]:
    import redis.asyncio
    from langgraph_checkpoint_plainredis import AsyncRedisSaver

    client = redis.asyncio.from_url(place.address, protocol=2, max_connections=1000)
    async with client:
        yield AsyncRedisSaver(client)


def _never(place: Place) -> Any:
    raise NotImplementedError


_RAW, _ASYNC = frozenset(("raw",)), frozenset(("async",))

CONTENDERS = [
    Contender("memory", "memory", _memory, _memory_async, frozenset(("chat", "raw", "async"))),
    *_our_entries("sqlite"),
    Contender("official", "sqlite", lambda p: _sqlite(p, "NORMAL"), lambda p: _sqlite_async(p, "NORMAL")),
    Contender("default", "sqlite", lambda p: _sqlite(p, "FULL"), lambda p: _sqlite_async(p, "FULL")),
    Contender("limit", "sqlite", sqlite_limit, workloads=_RAW),
    *_our_entries("postgres"),
    Contender("official", "postgres", _postgres, _postgres_async),
    Contender("pool", "postgres", _never, _postgres_pool, _ASYNC),
    Contender("limit", "postgres", postgres_limit, workloads=_RAW),
    *_our_entries("redis"),
    Contender("official", "redis", _redis, _redis_async),
    Contender("plain", "redis", _plainredis, _plainredis_async),
    Contender("limit", "redis", redis_limit, workloads=_RAW),
]
