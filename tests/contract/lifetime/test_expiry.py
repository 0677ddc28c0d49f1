"""Threads expire whole: unseen from their deadline on, whatever the sweeps, and gone after one."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from stepvault.errors import ConfigurationError, ThreadGoneError
from tests.contract.building import config, ids, listed, put
from tests.contract.matrix import Database

SHORT = {"default_ttl": 0.8 / 60}
PAST = 1.0  # seconds, beyond SHORT


class State(TypedDict):
    log: Annotated[list[str], operator.add]


async def names(saver: Any) -> list[str]:
    return [thread.thread_id for thread in (await saver.athreads()).threads]


async def test_an_expired_thread_is_nowhere_before_any_sweep(database: Database) -> None:
    saver = await database.saver(ttl=SHORT)
    stored = await put(saver, {"a": "x" * 500})
    await put(saver, {"a": 1}, at=config("lives", stepvault_ttl=60))
    await asyncio.sleep(PAST)
    assert await saver.aget_tuple(stored) is None
    assert await saver.aget_tuple(config()) is None
    assert await listed(saver, config()) == []
    assert {entry.config["configurable"]["thread_id"] for entry in await listed(saver)} == {"lives"}
    assert await names(saver) == ["lives"]


async def test_other_savers_do_not_see_it_either(database: Database) -> None:
    saver, other = await database.saver(ttl=SHORT), await database.saver()
    await put(saver, {"a": 1})
    assert await ids(other, config())
    await asyncio.sleep(PAST)
    assert await other.aget_tuple(config()) is None
    assert await listed(other) == []
    assert await names(other) == []


async def test_a_sweep_leaves_nothing_of_it(database: Database) -> None:
    saver = await database.saver(ttl=SHORT)
    marker = "marker-1f8a0c7e93"
    at = await put(saver, {"a": marker * 50}, at=config(user_id="ann"))
    await saver.aput_writes(at, [("a", marker)], "task")
    await asyncio.sleep(PAST)
    report = await saver.asweep(dry_run=True)
    assert (report.threads, await saver.asweep(dry_run=True) == report) in ((1, True), (1, False))
    report = await saver.asweep()
    assert (report.threads, report.checkpoints, report.more) == (1, 1, False)
    assert (await saver.asweep()).threads == 0
    assert marker.encode() not in database.content()


async def test_activity_moves_the_deadline(database: Database) -> None:
    saver = await database.saver(ttl=SHORT)
    await put(saver, {"a": 1})
    for _ in range(3):
        await asyncio.sleep(0.4)
        assert await saver.aget_tuple(config()) is not None  # reading counts
    assert (await saver.asweep()).threads == 0


async def test_reading_does_not_count_unless_it_is_to(database: Database) -> None:
    saver = await database.saver(ttl={**SHORT, "refresh_on_read": False})
    await put(saver, {"a": 1})
    for _ in range(3):
        await asyncio.sleep(0.4)
        await saver.aget_tuple(config())
    assert await saver.aget_tuple(config()) is None


async def test_a_new_thread_takes_the_place_of_an_expired_one(database: Database) -> None:
    saver = await database.saver(ttl=SHORT)
    old = await put(saver, {"a": "old"})
    await asyncio.sleep(PAST)
    new = await put(saver, {"a": "new"})
    assert await ids(saver, config()) == [new["configurable"]["checkpoint_id"]]
    assert await saver.aget_tuple(old) is None


async def test_a_database_filled_before_gets_deadlines_by_command(database: Database) -> None:
    before = await database.saver()
    for n in range(3):
        await put(before, {"a": n}, at=config(f"t{n}"))
    saver = await database.saver(ttl=SHORT)
    assert await saver.aapply_ttl() == 3
    assert await saver.aapply_ttl() == 0
    await asyncio.sleep(PAST)
    assert (await saver.asweep()).threads == 3


async def test_a_thread_may_live_without_end(database: Database) -> None:
    saver = await database.saver(ttl=SHORT)
    await put(saver, {"a": 1}, at=config(stepvault_ttl=None))
    await asyncio.sleep(PAST)
    assert await saver.aget_tuple(config()) is not None
    assert (await saver.asweep()).threads == 0


async def test_a_sweep_stops_at_its_limit_and_goes_on(database: Database) -> None:
    saver = await database.saver(ttl=SHORT)
    for n in range(5):
        await put(saver, {"a": n}, at=config(f"t{n}"))
    await asyncio.sleep(PAST)
    report = await saver.asweep(limit=2)
    assert (report.threads, report.more) == (2, True)
    assert (await saver.asweep()).threads == 3


async def test_two_sweeps_at_once_remove_each_thread_once(database: Database) -> None:
    one, two = await database.saver(ttl=SHORT), await database.saver(ttl=SHORT)
    for n in range(20):
        await put(one, {"a": n}, at=config(f"t{n}"))
    await asyncio.sleep(PAST)
    reports = await asyncio.gather(one.asweep(), two.asweep())
    assert sum(report.threads for report in reports) == 20


@pytest.mark.parametrize("ttl", [{"default_ttl": 0}, {"default_ttl": -1}, {"default_ttl": "1"}, {"minutes": 1}, 5])
async def test_what_is_no_time_is_refused(ttl: Any, database: Database) -> None:
    with pytest.raises(ConfigurationError):
        database.unprepared(ttl=ttl)


def slow_graph(saver: Any, disturb: Any) -> Any:
    async def node(state: State) -> Any:
        await disturb()
        return {"log": ["x"]}

    return StateGraph(State).add_node("n", node).add_edge(START, "n").compile(checkpointer=saver)


@pytest.mark.parametrize("swept", [False, True])
async def test_a_run_revives_what_it_loaded_unless_it_was_swept(swept: bool, async_database: Database) -> None:
    saver = await async_database.raw(ttl=SHORT)
    other = await async_database.saver(ttl=SHORT)

    async def nothing() -> None:
        pass

    async def sleep() -> None:
        await asyncio.sleep(PAST)
        if swept:
            assert (await other.asweep()).threads == 1

    await slow_graph(saver, nothing).ainvoke({"log": ["a"]}, config())
    late = slow_graph(saver, sleep)
    if swept:
        with pytest.raises(ThreadGoneError):
            await late.ainvoke({"log": ["b"]}, config())
        assert await saver.aget_tuple(config()) is None
    else:
        done = await late.ainvoke({"log": ["b"]}, config())
        assert done["log"] == ["a", "x", "b", "x"]


async def test_a_thread_that_waits_for_a_human_does_not_expire(async_database: Database) -> None:
    saver = await async_database.raw(ttl=SHORT)

    def ask(state: State) -> Any:
        return {"log": [interrupt("?")]}

    inner = StateGraph(State).add_node("ask", ask).add_edge(START, "ask").compile()
    graph = StateGraph(State).add_node("sub", inner).add_edge(START, "sub").compile(checkpointer=saver)
    await graph.ainvoke({"log": []}, config())
    await asyncio.sleep(PAST)
    report = await async_database.under_async_names(saver).asweep()
    assert (report.threads, report.kept) == (0, 1)
    assert (await graph.ainvoke(Command(resume="yes"), config()))["log"] == ["yes"]
    await asyncio.sleep(PAST)
    assert await saver.aget_tuple(config()) is None
