"""One connection that an application shares between a saver, a store and itself."""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

from stepvault._core.rows import DocChange
from stepvault.checkpointers.sqlite import SqliteSaver
from stepvault.checkpointers.sqlite.aio import AsyncSqliteSaver
from stepvault.errors import StorageUnavailableError
from stepvault.stores.sqlite import SqliteStore
from stepvault.stores.sqlite.aio import AsyncSqliteStore
from tests.contract.building import config, put

MANY = 40


@pytest.fixture(params=["sqlite3", "aiosqlite"])
def connection(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "sqlite3":
        return sqlite3.connect(tmp_path / "app.db", check_same_thread=False)
    return aiosqlite.connect(tmp_path / "app.db")


async def settled(call: Any) -> Any:
    """What a call of a sqlite3 or an aiosqlite connection returns."""
    return await call if hasattr(call, "__await__") else call


async def count(connection: Any, table: str) -> int:
    cursor = await settled(connection.execute(f"SELECT count(*) FROM {table}"))
    ((found,),) = await settled(cursor.fetchall())
    return int(found)


async def test_a_saver_and_a_store_wait_for_each_other(connection: Any) -> None:
    saver, store = AsyncSqliteSaver(connection), AsyncSqliteStore(connection)
    await saver.setup()
    await store.setup()

    async def turn(number: int) -> None:
        at = await put(saver, {"x": number}, at=config(f"t{number % 4}"))
        await store.aput(("n",), f"{number}", {"v": number})
        await saver.aput_writes(at, [("x", number)], "task")

    await asyncio.gather(*map(turn, range(MANY)))
    assert [await count(connection, f"stepvault_{table}") for table in ("checkpoint", "write", "item")] == [MANY] * 3
    await settled(connection.close())


def test_so_do_those_of_threads(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "app.db", check_same_thread=False)
    saver, store = SqliteSaver(connection), SqliteStore(connection)
    saver.setup()
    store.setup()

    def turn(number: int) -> None:
        at = asyncio.run(put(saver, {"x": number}, at=config(f"t{number % 4}")))
        store.put(("n",), f"{number}", {"v": number})
        saver.put_writes(at, [("x", number)], "task")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(turn, range(MANY)))
    tables = ("checkpoint", "write", "item")
    found = [connection.execute(f"SELECT count(*) FROM stepvault_{table}").fetchone()[0] for table in tables]
    assert found == [MANY] * 3
    connection.close()


async def test_what_its_owner_has_begun_is_committed_along(connection: Any, tmp_path: Path) -> None:
    saver = AsyncSqliteSaver(connection)
    await saver.setup()
    await settled(connection.execute("CREATE TABLE theirs (x)"))
    await settled(connection.execute("INSERT INTO theirs VALUES (1)"))
    assert connection.in_transaction
    await put(saver, {"x": 1})
    assert not connection.in_transaction
    with sqlite3.connect(tmp_path / "app.db") as other:
        assert other.execute("SELECT x FROM theirs").fetchall() == [(1,)]
    other.close()
    assert (await saver.aget_tuple(config())).checkpoint["channel_values"] == {"x": 1}
    await settled(connection.close())


async def test_one_that_was_closed_is_named(connection: Any) -> None:
    saver = AsyncSqliteSaver(connection)
    await put(saver, {"x": 1})
    await settled(connection.close())
    with pytest.raises(StorageUnavailableError, match="closed"):
        await saver.aget_tuple(config())
    with pytest.raises(StorageUnavailableError, match="closed"):
        await put(saver, {"x": 2})


async def test_what_must_outlast_a_power_loss_is_synced_and_only_that(connection: Any) -> None:
    saver = AsyncSqliteSaver(connection)
    traced: list[str] = []
    await saver.setup()
    await settled(connection.execute("PRAGMA synchronous = NORMAL"))
    await settled(connection.set_trace_callback(traced.append))
    await put(saver, {"x": 1})
    assert "COMMIT" in traced
    assert not [text for text in traced if "synchronous" in text]
    change = DocChange(b"key", b"body", b"version")
    assert await saver._driver.arun(saver._core.dialect.write_docs(b"space\x00", [change], durable=True))
    full, back = traced.index("PRAGMA synchronous = FULL"), traced.index("PRAGMA synchronous = 1")
    assert full < len(traced) - 1 - traced[::-1].index("COMMIT") < back
    await settled(connection.close())
