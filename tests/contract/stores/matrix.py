"""The backends, and the two ways to call a store, for every test that is written once and runs over all.

Servers are shared, so each test gets its own place on them: a file, a schema, a key prefix.
"""

from __future__ import annotations

import asyncio
import importlib
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar

import pytest

from tests.contract.matrix import KEYRING
from tests.servers import fresh_database

MODES = ("sync", "async")


class AsAsync:
    """A store's sync methods under their async names, each in a thread, as a sync application calls them."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def thread_scope(self, thread_id: Any) -> Any:
        return self.store.thread_scope(thread_id)

    def for_tenant(self, tenant: str) -> AsAsync:
        return AsAsync(self.store.for_tenant(tenant))


def _in_thread(name: str) -> Any:
    async def method(self: AsAsync, *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(getattr(self.store, name), *args, **kwargs)

    return method


for _name in (
    *("batch", "get", "put", "delete", "search", "list_namespaces", "setup", "close"),
    *("delete_namespace", "delete_thread_scope", "reindex", "sweep_ttl"),
):
    setattr(AsAsync, f"a{_name}", _in_thread(_name))


class Stores:
    """One empty place on a backend, and the stores a test has opened on it."""

    name: ClassVar[str]
    module: ClassVar[str]
    store_class: ClassVar[str]

    def __init__(self, mode: str, url: str, *, sealed: bool, **options: Any) -> None:
        self.mode = mode
        self.url = url
        self.sealed = sealed
        self.options = options
        self._opened: list[Any] = []

    def raw(self, **options: Any) -> Any:
        """A store as an application makes it, without `setup`."""
        factory = getattr(importlib.import_module(self.module), self.store_class)
        store = factory.from_conn_string(self.url, **self.options, **options)
        self._opened.append(store)
        return store

    async def open(self, **options: Any) -> Any:
        """A store with its tables, under its async names."""
        store = self.named(self.raw(**options))
        await store.asetup()
        return store

    def named(self, store: Any) -> Any:
        return AsAsync(store) if self.mode == "sync" else store

    async def close(self) -> None:
        for store in self._opened:
            await store.aclose()  # of both halves: tests of one mode use the other one beside it


class SqliteStores(Stores):
    name, module, store_class = "sqlite", "stepvault.stores.sqlite", "SqliteStore"


class PostgresStores(Stores):
    name, module, store_class = "postgres", "stepvault.stores.postgres", "PostgresStore"


class RedisStores(Stores):
    name, module, store_class = "redis", "stepvault.stores.redis", "RedisStore"


class RedisClusterStores(Stores):
    name, module, store_class = "redis-cluster", "stepvault.stores.redis", "RedisStore"


BACKENDS: tuple[type[Stores], ...] = (SqliteStores, PostgresStores, RedisStores, RedisClusterStores)


def _params() -> Iterator[Any]:
    """Every backend in both modes, and once more with everything sealed, names too."""
    for cls in BACKENDS:
        for sealed in (False, True):
            for mode in MODES:  # tests of one server share it, so they run in one process
                marks = [] if cls is SqliteStores else [pytest.mark.xdist_group(cls.name)]
                name = f"{cls.name}-sealed" if sealed else cls.name
                yield pytest.param((cls, mode, sealed), id=f"{name}-{mode}", marks=marks)


@pytest.fixture(scope="module")
def postgres_database(_postgres: Any) -> Iterator[str]:
    """One database for the tests of a module; each takes a schema of its own."""
    with fresh_database(_postgres.heal().url) as url:
        yield url


@pytest.fixture(params=list(_params()))
async def stores(request: pytest.FixtureRequest, tmp_path: Any) -> AsyncIterator[Stores]:
    """An empty place, and one of the two ways to call the stores on it."""
    cls, mode, sealed = request.param
    url, options = _place(cls, request, tmp_path)
    if sealed:
        keys_url = f"sqlite:///{tmp_path / 'keys.db'}"
        options |= {"keyring": KEYRING, "keys_url": keys_url, "pseudonymise_ids": True}
    made = cls(mode, url, sealed=sealed, **options)
    yield made
    await made.close()


def _place(cls: type[Stores], request: pytest.FixtureRequest, folder: Any) -> tuple[str, dict[str, Any]]:
    name = f"t{uuid.uuid4().hex[:12]}"
    if cls is SqliteStores:
        return str(folder / "memory.db"), {}
    if cls is PostgresStores:
        return request.getfixturevalue("postgres_database"), {"schema": name}
    if cls is RedisStores:
        return request.getfixturevalue("redis_url"), {"prefix": name}
    return request.getfixturevalue("redis_cluster").url, {"prefix": name, "cluster_mode": True}


@pytest.fixture
async def store(stores: Stores) -> Any:
    """A store in an empty place, under its async names."""
    return await stores.open()
