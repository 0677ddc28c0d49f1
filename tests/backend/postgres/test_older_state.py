"""A failover or a restore puts an older state under a live writer: what it knew is no longer so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from langgraph.graph import START, MessagesState, StateGraph

from stepvault.checkpointers.postgres import PostgresSaver
from stepvault.errors import ThreadGoneError
from tests.backend.postgres.both_ways import WAYS, Caller
from tests.contract.building import config

TABLES = ("thread", "chunk", "checkpoint", "write", "meta", "note", "doc")


@pytest_asyncio.fixture(params=WAYS)
async def caller(request: pytest.FixtureRequest, postgres_url: str) -> AsyncIterator[Caller]:
    saver = PostgresSaver.from_conn_string(postgres_url)
    await saver.asetup()
    caller = Caller(saver, request.param)
    yield caller
    await caller.close()
    await saver.aclose()


def dump(url: str) -> dict[str, bytes]:
    """The content of every table."""
    content = {}
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        for table in TABLES:
            with cursor.copy(f"COPY stepvault_{table} TO STDOUT (FORMAT binary)".encode()) as copy:
                content[table] = b"".join(copy)
    return content


def restore(url: str, content: dict[str, bytes]) -> None:
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(f"DELETE FROM stepvault_{table}".encode())
            with cursor.copy(f"COPY stepvault_{table} FROM STDIN (FORMAT binary)".encode()) as copy:
                copy.write(content[table])


def words(count: int) -> list[str]:
    return [f"element {number} " * 40 for number in range(count)]


async def everything(url: str) -> list[Any]:
    """Every checkpoint as a process that knows nothing reads it: nothing may dangle."""
    saver = PostgresSaver.from_conn_string(url)
    found = [entry async for entry in saver.alist(None)]
    await saver.aclose()
    return found


async def test_a_writer_goes_on_from_the_older_state(caller: Caller, postgres_url: str) -> None:
    for count in (10, 20, 30):
        await caller.put(words(count))
    older = dump(postgres_url)
    for count in (70, 140, 200):
        await caller.put(words(count))

    restore(postgres_url, older)

    await caller.put(words(210))
    assert await caller.get() == words(210)
    found = await everything(postgres_url)
    assert [len(entry.checkpoint["channel_values"]["value"]) for entry in found] == [210, 30, 20, 10]


async def test_writers_while_it_happens(caller: Caller, postgres_url: str) -> None:
    await asyncio.gather(*(caller.put(words(10), f"t{i}") for i in range(4)))
    older = dump(postgres_url)
    stop = asyncio.Event()

    async def write(thread: str) -> None:
        count = 10
        while not stop.is_set():
            count = count % 200 + 7
            await caller.put(words(count), thread)

    writing = [asyncio.create_task(write(f"t{i}")) for i in range(4)]
    for _ in range(3):
        await asyncio.sleep(0.2)
        await asyncio.to_thread(restore_under_writers, postgres_url, older)
    stop.set()
    await asyncio.gather(*writing)
    for entry in await everything(postgres_url):
        value = entry.checkpoint["channel_values"]["value"]
        assert value == words(len(value))


def restore_under_writers(url: str, content: dict[str, bytes]) -> None:
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        tables = ", ".join(f"stepvault_{table}" for table in TABLES)
        cursor.execute(f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE".encode())
        for table in TABLES:
            cursor.execute(f"DELETE FROM stepvault_{table}".encode())
            with cursor.copy(f"COPY stepvault_{table} FROM STDIN (FORMAT binary)".encode()) as copy:
                copy.write(content[table])


async def test_a_run_whose_thread_the_older_state_lacks(caller: Caller, postgres_url: str) -> None:
    older = dump(postgres_url)

    async def node(state: Any) -> Any:
        await asyncio.to_thread(restore, postgres_url, older)
        return {"messages": ["more"]}

    graph = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile(checkpointer=caller.saver)
    with pytest.raises(ThreadGoneError):
        await graph.ainvoke({"messages": ["hello"]}, config("t"), durability="sync")
    assert await everything(postgres_url) == []
