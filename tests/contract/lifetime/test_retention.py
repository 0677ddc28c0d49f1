"""Histories are kept to a length; what is needed stays."""

from __future__ import annotations

import operator
import random
from typing import Annotated, Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from stepvault.errors import ConfigurationError
from tests.contract.building import config, id_of, ids, put, whole
from tests.contract.matrix import Database


class State(TypedDict):
    log: Annotated[list[str], operator.add]


async def chain(saver: Any, count: int, ns: str = "") -> list[Any]:
    at, stored = config(ns=ns), []
    for n in range(count):
        at = await put(saver, {"a": n, "long": f"{n}" * 400}, at=at)
        stored.append(at)
    return stored


async def test_the_newest_stay_in_each_namespace(database: Database) -> None:
    saver = await database.saver(retention={"keep_last": 3})
    root, child = await chain(saver, 6), await chain(saver, 5, "child:1")
    report = await saver.asweep()
    assert report.trimmed == 5
    assert report.freed > 0
    assert await ids(saver, config()) == [id_of(at) for at in root[:-4:-1]]
    assert await ids(saver, config(ns="child:1")) == [id_of(at) for at in child[:-4:-1]]
    for entry in await whole(saver):
        assert entry.checkpoint["channel_values"]["long"] == str(entry.checkpoint["channel_values"]["a"]) * 400
    assert (await saver.asweep()).trimmed == 0


async def test_what_only_the_removed_needed_is_gone(database: Database) -> None:
    saver = await database.saver(retention={"keep_last": 1})
    marker = "marker-77b1e0"
    await put(saver, {"a": marker * 60})
    await put(saver, {"a": "y" * 600})
    await saver.asweep()
    assert marker.encode() not in database.content()


async def test_writing_keeps_a_thread_short_by_itself(database: Database) -> None:
    saver = await database.saver(retention={"keep_last": 4})
    await chain(saver, 40)
    assert len(await ids(saver, config())) <= 4 + 8


async def test_a_thread_that_may_stay_is_looked_at_now_and_then(database: Database) -> None:
    saver = await database.saver(retention={"max_age": 60})
    dialect = getattr(saver, "saver", saver)._core.dialect
    real, looks = dialect.skeleton, []

    def skeleton(key: Any) -> Any:
        looks.append(key)
        return (yield from real(key))

    dialect.skeleton = skeleton
    await chain(saver, 60)
    assert 4 <= len(looks) <= 8


async def test_tagged_checkpoints_stay(database: Database) -> None:
    saver = await database.saver(retention={"keep_last": 1})
    stored = await chain(saver, 5)
    await saver.atag(stored[1], "approved")
    assert await saver.atags("t") == {"approved": id_of(stored[1])}
    await saver.asweep()
    assert await ids(saver, config()) == [id_of(stored[4]), id_of(stored[1])]
    await saver.auntag("t", "approved")
    await saver.asweep()
    assert await ids(saver, config()) == [id_of(stored[4])]


async def test_old_ones_go_by_age_and_big_ones_by_size(database: Database) -> None:
    saver = await database.saver(retention={"max_age": 60})
    await chain(saver, 3)
    assert (await saver.asweep()).trimmed == 0
    small = await database.saver(retention={"max_bytes": 1})
    assert (await small.asweep()).trimmed == 2


async def test_size_is_that_of_the_values_too(database: Database) -> None:
    saver = await database.saver()
    at = config()
    for n in range(12):
        at = await put(saver, {"a": bytes(random.Random(n).randbytes(20_000))}, at=at)
    before = (await saver.athreads()).threads[0].bytes
    limited = await database.saver(retention={"max_bytes": 70_000})
    report = await limited.asweep()
    (after,) = (await saver.athreads()).threads
    assert (after.checkpoints, report.trimmed) == (3, 9)
    assert after.bytes < 70_000
    assert report.freed == pytest.approx(before - after.bytes, rel=0.05)
    assert (await limited.asweep()).trimmed == 0
    assert len(await whole(saver)) == 3


@pytest.mark.parametrize("how", ["retention", "prune", "run"])
async def test_a_name_goes_with_its_checkpoint(how: str, database: Database) -> None:
    saver = await database.saver(retention={"keep_last": 1, "keep_tagged": False})
    first = await put(saver, {"a": 1}, metadata={"run_id": "r1"})
    second = await put(saver, {"a": 2}, at=first)
    await saver.atag(first, "draft")
    await saver.atag(second, "final")
    if how == "retention":
        await saver.asweep()
    elif how == "prune":
        await saver.aprune(["t"])
    else:
        await saver.adelete_for_runs(["r1"])
    assert await saver.atags("t") == {"final": id_of(second)}


async def test_a_waiting_question_stays_loadable(async_database: Database) -> None:
    saver = await async_database.raw(retention={"keep_last": 1})

    def ask(state: State) -> Any:
        return {"log": [interrupt("?")]}

    graph = StateGraph(State).add_node("ask", ask).add_edge(START, "ask").compile(checkpointer=saver)
    await graph.ainvoke({"log": ["a"]}, config())
    await async_database.under_async_names(saver).asweep()
    assert (await graph.ainvoke(Command(resume="yes"), config()))["log"] == ["a", "yes"]


@pytest.mark.parametrize(
    "retention", [{"keep_last": 0}, {"keep": 1}, {"max_age": -1}, {"max_bytes": "1"}, {"keep_tagged": "no"}, 7]
)
async def test_what_is_no_limit_is_refused(retention: Any, database: Database) -> None:
    with pytest.raises(ConfigurationError):
        database.unprepared(retention=retention)


async def test_a_tag_needs_a_stored_checkpoint(database: Database) -> None:
    saver = await database.saver()
    await put(saver, {"a": 1})
    with pytest.raises(ConfigurationError):
        await saver.atag(config(), "x")
    with pytest.raises(ConfigurationError):
        await saver.atag(config(checkpoint_id="no such"), "x")


async def test_a_dry_run_says_how_much_would_go(database: Database) -> None:
    saver = await database.saver(retention={"keep_last": 2})
    await chain(saver, 5)
    report = await saver.asweep(dry_run=True)
    assert (report.trimmed, len(await ids(saver, config()))) == (3, 5)
    done = await saver.asweep()
    assert (done.trimmed, done.freed) == (report.trimmed, report.freed)


async def test_a_subgraph_goes_with_the_step_that_called_it(async_database: Database) -> None:
    saver = await async_database.raw(retention={"keep_last": 4})

    def work(state: State) -> Any:
        return {"log": [f"x{len(state['log'])}"]}

    inner = StateGraph(State).add_node("work", work).add_edge(START, "work").compile(checkpointer=None)
    graph = StateGraph(State).add_node("sub", inner).add_edge(START, "sub").compile(checkpointer=saver)
    for n in range(6):
        await graph.ainvoke({"log": [f"{n}"]}, config())
    await async_database.under_async_names(saver).asweep()
    names = {entry.config["configurable"]["checkpoint_ns"] for entry in await whole(saver)}
    assert 1 <= len(names - {""}) <= 2
    assert len(await ids(saver, config())) == 4
    assert (await graph.ainvoke({"log": ["end"]}, config()))["log"][-1].startswith("x")


async def test_a_fork_with_a_node_to_run_stays_loadable(async_database: Database) -> None:
    saver = await async_database.raw(retention={"keep_last": 1})

    def node(state: State) -> Any:
        return {"log": ["x"]}

    builder = StateGraph(State).add_node("a", node).add_node("b", node).add_edge(START, "a").add_edge("a", "b")
    graph = builder.compile(checkpointer=saver, interrupt_before=["b"])
    await graph.ainvoke({"log": ["1"]}, config())
    stopped = (await graph.aget_state(config())).config
    await graph.ainvoke({"log": ["2"]}, config())  # goes on from there: its question is over
    fork = await graph.aupdate_state(stopped, {"log": ["fork"]}, as_node="a")
    await builder.compile(checkpointer=saver).ainvoke({"log": ["3"]}, config(checkpoint_id=id_of(stopped)))
    await async_database.under_async_names(saver).asweep()
    assert id_of(stopped) not in await ids(saver, config())
    assert (await graph.aget_state(fork)).next == ("b",)
    assert (await graph.ainvoke(None, fork))["log"] == ["1", "x", "fork", "x"]
