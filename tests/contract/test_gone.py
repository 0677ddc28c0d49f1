"""A thread deleted under a running graph stays deleted: the run is told, nothing comes back."""

from __future__ import annotations

import asyncio
import operator
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import pytest
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from stepvault.errors import ThreadGoneError
from tests.contract.building import config, put, whole
from tests.contract.matrix import Database

ELSEWHERE = """
import sys
from tests.contract.matrix import saver_elsewhere
with saver_elsewhere(*sys.argv[1:]) as saver:
    saver.delete_thread("t")
"""


class State(TypedDict):
    log: Annotated[list[str], operator.add]


Step = Callable[[], Awaitable[Any]]


def graph_with(saver: Any, mode: str, disturb: Step) -> Any:
    """Two nodes; `disturb` runs in the first."""

    async def first(state: State) -> Any:
        await disturb()
        return {"log": ["first" * 200]}

    def sync_first(state: State) -> Any:
        return asyncio.run(first(state))

    builder = StateGraph(State)
    builder.add_node("first", sync_first if mode == "sync" else first)
    builder.add_node("second", lambda state: {"log": ["second"]})
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    builder.add_edge("second", END)
    return builder.compile(checkpointer=saver)


async def invoke(graph: Any, mode: str, value: Any, **options: Any) -> Any:
    if mode == "sync":
        return await asyncio.to_thread(graph.invoke, value, config(), **options)
    return await graph.ainvoke(value, config(), **options)


async def quiet() -> None:
    pass


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("loaded", [True, False], ids=["a thread it loaded", "a thread it made"])
async def test_a_run_whose_thread_is_deleted_is_told(database: Database, durability: str, loaded: bool) -> None:
    raw = await database.raw()
    saver = database.under_async_names(raw)
    if loaded:
        await invoke(graph_with(raw, database.mode, quiet), database.mode, {"log": ["before"]})

    async def delete() -> None:
        await wait_until_made()
        await saver.adelete_thread("t")

    async def wait_until_made() -> None:
        """With durability="async" the thread may be stored after its first node began."""
        while not loaded and durability == "async" and not await saver.aget_tuple(config()):
            await asyncio.sleep(0.005)

    run = invoke(graph_with(raw, database.mode, delete), database.mode, {"log": ["x"]}, durability=durability)
    if durability == "exit" and not loaded:
        await run  # nothing was stored before, so nothing was deleted
        assert len(await whole(saver)) == 1
        return
    with pytest.raises(ThreadGoneError, match="'t' was deleted"):
        await run

    assert await whole(saver) == []
    assert len(await saver.athreads()) == 0


@pytest.mark.parametrize("where", ["another saver", "another process"])
async def test_wherever_it_was_deleted(database: Database, where: str) -> None:
    raw = await database.raw()
    other = await database.saver()
    await invoke(graph_with(raw, database.mode, quiet), database.mode, {"log": ["before"]})

    async def delete() -> None:
        if where == "another saver":
            await other.adelete_thread("t")
        else:
            await asyncio.to_thread(delete_elsewhere, database)

    with pytest.raises(ThreadGoneError):
        await invoke(graph_with(raw, database.mode, delete), database.mode, {"log": ["x"]}, durability="sync")

    assert await whole(other) == []


def delete_elsewhere(database: Database) -> None:
    """In a process of its own."""
    words = [sys.executable, "-c", ELSEWHERE, database.name, database.url]
    subprocess.run(words, check=True, timeout=60)


async def test_a_thread_made_anew_under_a_run_is_not_touched_by_it(database: Database) -> None:
    raw = await database.raw()
    saver, other = database.under_async_names(raw), await database.saver()
    await invoke(graph_with(raw, database.mode, quiet), database.mode, {"log": ["old"]})

    async def replace() -> None:
        await other.adelete_thread("t")
        await put(other, {"log": ["new"]})

    with pytest.raises(ThreadGoneError):
        await invoke(graph_with(raw, database.mode, replace), database.mode, {"log": ["x"]}, durability="sync")

    (found,) = await whole(saver)
    assert found.checkpoint["channel_values"] == {"log": ["new"]}
    assert found.pending_writes == []


async def test_the_next_run_starts_afresh(database: Database) -> None:
    raw = await database.raw()
    saver = database.under_async_names(raw)
    graph = graph_with(raw, database.mode, quiet)
    await invoke(graph, database.mode, {"log": ["old"]})
    await saver.adelete_thread("t")

    assert (await invoke(graph, database.mode, {"log": ["new"]}))["log"][0] == "new"
    assert len(await whole(saver)) == 4


async def test_a_prune_under_a_run_does_not_stop_it(database: Database) -> None:
    raw = await database.raw()
    other = await database.saver()
    await invoke(graph_with(raw, database.mode, quiet), database.mode, {"log": ["old" * 200]})

    async def prune() -> None:
        await other.aprune(["t"])

    done = await invoke(graph_with(raw, database.mode, prune), database.mode, {"log": ["x"]}, durability="sync")

    assert done["log"] == ["old" * 200, "first" * 200, "second", "x", "first" * 200, "second"]
    assert (await other.aget_tuple(config())).checkpoint["channel_values"]["log"] == done["log"]


async def test_delete_for_runs_knows_a_run_by_the_id_of_its_config(database: Database) -> None:
    raw = await database.raw()
    saver = database.under_async_names(raw)
    graph = graph_with(raw, database.mode, quiet)
    runs = ["11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"]
    for run in runs:
        named = {**config(), "run_id": run}
        if database.mode == "sync":
            await asyncio.to_thread(graph.invoke, {"log": [run]}, named)
        else:
            await graph.ainvoke({"log": [run]}, named)
    before = await whole(saver)

    await saver.adelete_for_runs([runs[1]])

    assert await whole(saver) == before[4:]
    await saver.adelete_for_runs(runs)
    assert len(await saver.athreads()) == 0
