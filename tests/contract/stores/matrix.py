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
    sealed: ClassVar[bool] = False

    def __init__(self, mode: str, url: str, **options: Any) -> None:
        self.mode = mode
        self.url = url
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


class SealedStores(SqliteStores):
    """The whole suite once more with everything sealed, names too."""

    name = "sqlite-sealed"
    sealed = True


class PostgresStores(Stores):
    name, module, store_class = "postgres", "stepvault.stores.postgres", "PostgresStore"


class RedisStores(Stores):
    name, module, store_class = "redis", "stepvault.stores.redis", "RedisStore"


def _params() -> Iterator[Any]:
    for cls in (SqliteStores, PostgresStores, RedisStores):
        for mode in MODES:  # tests of one server share it, so they run in one process
            marks = [] if cls is SqliteStores else [pytest.mark.xdist_group(cls.name)]
            yield pytest.param((cls, mode), id=f"{cls.name}-{mode}", marks=marks)
    yield pytest.param((SealedStores, "async"), id="sqlite-sealed-async")


@pytest.fixture(scope="module")
def postgres_database(_postgres: Any) -> Iterator[str]:
    """One database for the tests of a module; each takes a schema of its own."""
    with fresh_database(_postgres.heal().url) as url:
        yield url


@pytest.fixture(params=list(_params()))
async def stores(request: pytest.FixtureRequest, tmp_path: Any) -> AsyncIterator[Stores]:
    """An empty place, and one of the two ways to call the stores on it."""
    cls, mode = request.param
    place = f"t{uuid.uuid4().hex[:12]}"
    if cls is SqliteStores:
        made: Stores = cls(mode, str(tmp_path / "memory.db"))
    elif cls is SealedStores:
        keys = {"keyring": KEYRING, "keys_url": f"sqlite:///{tmp_path / 'keys.db'}"}
        made = cls(mode, str(tmp_path / "memory.db"), **keys, pseudonymise_ids=True)
    elif cls is PostgresStores:
        made = cls(mode, request.getfixturevalue("postgres_database"), schema=place)
    else:
        made = cls(mode, request.getfixturevalue("redis_url"), prefix=place)
    yield made
    await made.close()


@pytest.fixture
async def store(stores: Stores) -> Any:
    """A store in an empty place, under its async names."""
    return await stores.open()
