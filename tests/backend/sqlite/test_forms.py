"""The forms in which the official savers and stores are made, and what is none of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

from stepvault.checkpointers.sqlite import SqliteSaver
from stepvault.checkpointers.sqlite.aio import AsyncSqliteSaver
from stepvault.errors import ConfigurationError
from stepvault.stores.sqlite import SqliteStore
from stepvault.stores.sqlite.aio import AsyncSqliteStore
from tests.contract.building import config, put

FORMS: dict[str, Callable[[Path], Any]] = {
    "connection": lambda path: sqlite3.connect(path, check_same_thread=False),
    "autocommit": lambda path: sqlite3.connect(path, check_same_thread=False, isolation_level=None),
    "file name": str,
    "path": lambda path: path,
    "memory": lambda path: ":memory:",
    "memory of its owner": lambda path: sqlite3.connect(":memory:", check_same_thread=False),
    "uri": lambda path: f"file:{path}?mode=rwc",
}
STRINGS: dict[str, Callable[[Path], Any]] = {
    "file name": str,
    "path": lambda path: path,
    "url": lambda path: f"sqlite:///{path}",
    "memory": lambda path: ":memory:",
}


def rows_as_something_else(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.row_factory, connection.text_factory = sqlite3.Row, bytes
    return connection


FORMS["connection with factories"] = rows_as_something_else


async def works(saver: Any) -> None:
    stored = await put(saver, {"x": [1, 2]})
    await saver.aput_writes(stored, [("x", 3)], "task")
    found = await saver.aget_tuple(config())
    assert found.checkpoint["channel_values"] == {"x": [1, 2]}
    assert found.pending_writes == [("task", "x", 3)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [SqliteSaver, AsyncSqliteSaver])
async def test_a_saver_of_every_form(kind: Any, form: str, tmp_path: Path) -> None:
    given = FORMS[form](tmp_path / "app.db")
    async with kind(given) as saver:
        await works(saver)
    if isinstance(given, sqlite3.Connection):
        assert given.execute("SELECT count(*) FROM stepvault_write").fetchone()[0] == 1  # it is its owner's to close
        given.close()


@pytest.mark.parametrize("awaited", [True, False])
async def test_a_saver_of_an_aiosqlite_connection(awaited: bool, tmp_path: Path) -> None:
    connection = aiosqlite.connect(tmp_path / "app.db")
    if awaited:
        await connection
    await works(AsyncSqliteSaver(connection))
    await connection.close()


@pytest.mark.parametrize("form", STRINGS)
@pytest.mark.parametrize("kind", [SqliteSaver, AsyncSqliteSaver])
async def test_a_saver_of_a_string(kind: Any, form: str, tmp_path: Path) -> None:
    async with kind.from_conn_string(STRINGS[form](tmp_path / "app.db")) as saver:
        await works(saver)


@pytest.mark.parametrize("form", STRINGS)
@pytest.mark.parametrize("kind", [SqliteStore, AsyncSqliteStore])
async def test_a_store_of_a_string(kind: Any, form: str, tmp_path: Path) -> None:
    async with kind.from_conn_string(STRINGS[form](tmp_path / "app.db")) as store:
        await store.aput(("a",), "k", {"v": 1})
        found = await store.aget(("a",), "k")
        assert found.value == {"v": 1}


@pytest.mark.parametrize("given", [None, b"app.db", 5, object], ids=repr)
@pytest.mark.parametrize("kind", [SqliteSaver, AsyncSqliteSaver, SqliteStore, AsyncSqliteStore])
def test_what_is_no_form_is_named(kind: Any, given: Any) -> None:
    with pytest.raises(ConfigurationError, match=type(given).__name__):
        kind(given)
    with pytest.raises(ConfigurationError):
        kind.from_conn_string(given)
