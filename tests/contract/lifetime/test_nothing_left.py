"""Every row and key of a vault before a thread with everything a thread can have, and after its time."""

from __future__ import annotations

import asyncio
import contextlib
import io
import operator
import sqlite3
from collections.abc import AsyncIterator
from typing import Annotated, Any

import psycopg
import pytest
from langgraph.graph import START, StateGraph
from langgraph.store.base import BaseStore
from langgraph.types import interrupt
from typing_extensions import TypedDict

from stepvault import Vault
from tests.contract.building import config, put
from tests.contract.lifetime.building import later
from tests.contract.matrix import Database, PostgresDatabase, SqliteDatabase

THREAD, FACTS, MORTAL = "thread-77ac", ("facts",), 50  # minutes
AT = config(THREAD, user_id=["ann-77ac", "bob-77ac"])


class State(TypedDict):
    log: Annotated[list[str], operator.add]


async def rows(database: Database) -> dict[str, Any]:
    """Everything there is, by what it is called."""
    return await asyncio.to_thread(_rows, database)


def _rows(database: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if isinstance(database, (SqliteDatabase, PostgresDatabase)):
        connect: Any = sqlite3.connect if isinstance(database, SqliteDatabase) else psycopg.connect
        names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'stepvault%'"
        if isinstance(database, PostgresDatabase):
            names = "SELECT tablename FROM pg_tables WHERE tablename LIKE 'stepvault%'"
        with contextlib.closing(connect(database.url)) as connection:
            for (table,) in connection.execute(names).fetchall():
                for row in connection.execute(f"SELECT * FROM {table}").fetchall():
                    found[f"{table}: {row}"] = row
        return found
    for node in database._nodes():
        with node:
            for key in node.scan_iter(count=1000):
                kind = node.type(key)
                members = (
                    node.zrange(key, 0, -1) if kind == b"zset" else node.smembers(key) if kind == b"set" else [b""]
                )
                found |= {f"{key}: {member}": kind for member in members}
    return found


def stays(name: str) -> bool:
    """The number of the last event, what words are kept in, and of sealed data the tombstones of keys."""
    counter = (r"(b'inbox\x00', b'\x00',", r": b'\x00\xff\x00", r': b"\x00\xff\x00')
    return any(
        part in name
        for part in (*counter, "stepvault_text_data: (1,", "stepvault_text_data: (10,", "stepvault_doc: (b'keys',")
    )


def graph(vault: Vault) -> Any:
    """It reads memory and writes its own, pays, and asks in a subgraph."""

    async def ask(state: State, *, store: BaseStore) -> Any:
        assert await store.aget(FACTS, "fact") is not None
        await store.aput((*vault.store.thread_scope(THREAD), "notes"), "own", {"text": "memory-77ac"})
        await vault.effects.aonce("pay", paid)
        return {"log": [interrupt("question-77ac")]}

    async def die(state: State) -> Any:
        await vault.effects.aonce("again", fails)
        return {}

    inner = StateGraph(State).add_node("ask", ask).add_edge(START, "ask").compile()
    builder = StateGraph(State).add_node("sub", inner).add_node("die", die)
    builder.add_edge(START, "sub").add_edge("sub", "die")
    return builder.compile(checkpointer=vault.checkpointer, store=vault.store)


async def paid() -> int:
    return 1


async def fails() -> None:
    raise RuntimeError("no answer")


async def answered(vault: Vault) -> Any:
    """Asked, amended, decided, in doubt of a payment; the graph."""
    app = graph(vault)
    await app.ainvoke({"log": ["a"]}, AT)
    (question,) = await vault.inbox.alist()
    await vault.inbox.aamend(question.id, external_ref="reference-77ac")
    decision = await vault.inbox.adecide(question.id, "yes", by="decider-77ac")
    with contextlib.suppress(RuntimeError):
        await app.ainvoke(decision.command, {"configurable": {**AT["configurable"], **decision.config["configurable"]}})
    return app


async def lived(vault: Vault) -> None:
    """Answered, asked again, tagged, copied, compared."""
    app = await answered(vault)
    await app.ainvoke({"log": ["b"]}, AT)
    await vault.checkpointer.atag((await app.aget_state(AT)).config, "tag-77ac")
    await vault.checkpointer.acopy_thread(THREAD, "copy-77ac")
    assert (await vault.alineage(THREAD)).items


@pytest.fixture
async def vault(async_database: Database) -> AsyncIterator[Vault]:
    """A vault in which something was made and removed before: what is made once, is there."""
    prefix = "sqlite:///" if isinstance(async_database, SqliteDatabase) else ""
    ttl = {"default_ttl": 30, "pin_interrupted": False}
    async with Vault.open(f"{prefix}{async_database.url}", ttl=ttl, **async_database.options) as vault:
        await vault.asetup()
        for name in ("other", "gone"):
            await put(vault.checkpointer, {"a": 1}, at=config(name, stepvault_ttl=None))
            await vault.store.aput(FACTS, "fact", {"n": 1}, ttl=MORTAL)
        await vault.checkpointer.adelete_thread("gone")
        await vault.store.adelete(FACTS, "fact")
        await vault.asweep()
        yield vault


async def exported(vault: Vault, subject: str) -> str:
    file = io.StringIO()
    await vault.erasure.aexport(subject, file)
    return file.getvalue()


async def test_no_row_of_an_expired_thread_is_left(vault: Vault, async_database: Database) -> None:
    before = await rows(async_database)
    await vault.store.aput(FACTS, "fact", {"n": 1}, ttl=MORTAL)
    await lived(vault)
    assert len(await rows(async_database)) > len(before) + 10
    assert all([THREAD in await exported(vault, name) for name in ("ann-77ac", "decider-77ac")])
    later(vault.checkpointer, 31)
    assert not any([THREAD in await exported(vault, name) for name in ("ann-77ac", "decider-77ac")])
    assert (await vault.asweep()).threads == 2
    await vault.store.adelete(FACTS, "fact")
    await vault.asweep()
    assert [name for name in await rows(async_database) if name not in before and not stays(name)] == []
