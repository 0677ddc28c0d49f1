"""What only SQLite does: files, given connections, aiosqlite."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

from stepvault._drivers.sqlite import SqliteDriver
from stepvault.errors import ConfigurationError, EventLoopError
from stepvault.stores.sqlite import SqliteStore
from stepvault.stores.sqlite.aio import AsyncSqliteStore

NS = ("a", "b")


def test_a_given_connection_stays_open() -> None:
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    store = SqliteStore(connection, ttl={"default_ttl": 10})
    store.setup()
    store.put(NS, "k", {"v": 1})
    store.close()
    assert connection.execute("SELECT count(*) FROM stepvault_item").fetchone() == (1,)
    connection.close()


def test_urls_and_wrong_arguments(tmp_path: Path) -> None:
    with SqliteStore.from_conn_string(f"sqlite:///{tmp_path}/m.db", busy_timeout=1.0, synchronous="FULL") as store:
        store.put(NS, "k", {"v": 1})
    assert (tmp_path / "m.db").exists()
    with pytest.raises(ConfigurationError, match="SqliteStore takes"):
        SqliteStore(object())  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"Unknown option 'pool_size'; .*docs/stores\.md"):
        SqliteStore(":memory:", pool_size=3)


def test_beside_checkpoints_in_one_file(tmp_path: Path) -> None:
    from stepvault.checkpointers.sqlite import SqliteSaver

    path = str(tmp_path / "both.db")
    with SqliteSaver.from_conn_string(path) as saver, SqliteStore.from_conn_string(path) as store:
        saver.setup()
        store.setup()
        store.put(NS, "k", {"v": 1})
        assert list(saver.list(None)) == []
        assert store.get(NS, "k") is not None


def test_over_a_driver_of_another() -> None:
    driver = SqliteDriver(":memory:")
    with SqliteStore(driver) as store:
        store.put(NS, "k", {"v": 1})
    assert SqliteStore(driver).get(NS, "k") is not None
    driver.close()


async def test_an_aiosqlite_connection() -> None:
    async with aiosqlite.connect(":memory:") as connection:
        store = AsyncSqliteStore(connection, ttl={"default_ttl": 10})
        await store.setup()
        await store.aput(NS, "k", {"v": 1, "text": "word"})
        assert (await store.aget(NS, "k")).value["v"] == 1
        assert len(await store.asearch(NS, query="word")) == 1
        task = await store.start_ttl_sweeper()
        assert not task.done()
        assert await store.sweep_ttl() == 0
        assert await store.stop_ttl_sweeper(10)
        await store.aclose()


async def test_sync_calls_of_the_async_store() -> None:
    async with AsyncSqliteStore.from_conn_string(":memory:") as store:
        await store.setup()
        for call in (lambda: store.put(NS, "k", {}), lambda: store.get(NS, "k"), lambda: store.delete_namespace(NS)):
            with pytest.raises(EventLoopError):
                call()
        await asyncio.to_thread(store.put, NS, "k", {"v": 2})
        assert (await asyncio.to_thread(store.get, NS, "k")).value == {"v": 2}
        assert (await asyncio.to_thread(store.delete_namespace, ("a",))).items == 1


def test_no_text_and_no_vector_is_left_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    index = {"dims": 4, "embed": lambda texts: [[1.5, 2.5, 3.5, 4.5] for _ in texts], "fields": ["text"]}
    with SqliteStore.from_conn_string(str(path), index=index, compression=None) as store:
        for number in range(50):
            store.put(("users", "ada"), f"k{number}", {"text": f"xylophone{number} quetzal"})
        store.put(("users", "bob"), "k", {"text": "something"})
        store.delete_namespace(("users", "ada"))
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = connection.serialize() if hasattr(connection, "serialize") else path.read_bytes()
    connection.close()
    assert b"something" in content
    assert b"quetzal" not in content
    assert content.count(b"\x00\x00\xc0\x3f\x00\x00\x20\x40") == 1


def test_vectors_beyond_the_cache() -> None:
    calls: list[Any] = []

    def embed(texts: Any) -> Any:
        calls.append(texts)
        return [[float(len(text)), 1.0] for text in texts]

    index = {"dims": 2, "embed": embed, "fields": ["text"], "distance_type": "l2"}
    with SqliteStore.from_conn_string(":memory:", index=index, cache_bytes=64) as store:
        for number in range(1, 40):
            store.put(NS, f"k{number}", {"text": "x" * number})
        for _ in range(3):
            assert [item.key for item in store.search(NS, query="x" * 20, limit=1)] == ["k20"]
            assert len(store.search(NS, query="x", limit=100)) == 39


def test_vectors_of_removed_items_leave_the_process() -> None:
    def embed(texts: Any) -> list[list[float]]:
        return [[1.0, 0.0] for _ in texts]

    with SqliteStore.from_conn_string(":memory:", index={"dims": 2, "embed": embed}) as store:
        for person in ("ann", "bob"):
            store.put(("users", person), "k", {"likes": "tea"})
        assert len(store.search(("users",), query="tea")) == 2
        cache = store._scope.core.dialect._cache  # type: ignore[attr-defined]
        store.delete_namespace(("users", "nobody"))
        assert len(cache._entries) == 2
        store.delete_namespace(("users", "ann"))
        assert not cache._entries
