"""The inbox lists exactly the interrupts that `get_state` shows, on every shape of graph, after every step."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langgraph.graph import START
from langgraph.types import Command, interrupt

from tests.contract.hitl.building import SHAPES, App, answer_to, asks, built, chain, note, on_thread, one, parallel
from tests.contract.hitl.counting import batches
from tests.contract.matrix import Database, matrix

DURABILITIES = ("sync", "async", "exit")


@pytest.fixture
async def app(database: Database) -> App:
    return await App.on(database, on_conflict="raise")


def start_of(shape: str) -> Any:
    return 1 if shape == "functional" else {"log": []}


@pytest.mark.parametrize("shape", SHAPES)
async def test_after_every_step_of_every_shape(app: App, shape: str) -> None:
    graph = SHAPES[shape](app.saver)
    for durability in DURABILITIES if app.database.name == "sqlite" else DURABILITIES[len(shape) % 3 :][:1]:
        result = await app.invoke(graph, start_of(shape), durability, durability=durability)
        asked = await app.agrees(graph, durability)
        assert asked
        while isinstance(result, dict) and result.get("__interrupt__"):
            answer = answer_to((await app.state(graph, durability)).interrupts)
            result = await app.invoke(graph, answer, durability, durability=durability)
            asked |= await app.agrees(graph, durability)
        assert not await app.open(durability)
        listed = await app.inbox("list", thread_id=durability, status=None)
        assert {repr(i.value) for i in listed} == asked
        assert {i.status for i in listed} == {"answered"}


@pytest.mark.parametrize("shape", ["one", "parallel", "nested twice", "sent"])
async def test_a_new_turn_supersedes_what_was_asked(app: App, shape: str) -> None:
    graph = SHAPES[shape](app.saver)
    await app.invoke(graph, {"log": []})
    first = {i.id for i in await app.open()}
    await app.invoke(graph, {"log": ["instead"]})
    await app.agrees(graph)
    told = {i.id: i.status for i in await app.everything()}
    assert all(told[id_] == "superseded" for id_ in first)


async def test_an_update_of_the_state_supersedes_what_was_asked(app: App) -> None:
    graph = one(app.saver)
    await app.invoke(graph, {"log": []})
    await app.call(graph, "update_state", on_thread("t"), {"topic": "x"})
    await app.agrees(graph)
    await app.invoke(graph, None)
    assert await app.agrees(graph) == {"'ok?'"}


async def test_a_fork_and_time_travel(app: App) -> None:
    graph = parallel(app.saver)
    await app.invoke(graph, {"log": []})
    old = (await app.state(graph)).config
    await app.invoke(graph, answer_to((await app.state(graph)).interrupts))
    await app.agrees(graph)
    await app.invoke(graph, None, config=old)  # a fork of the old checkpoint asks everything again
    assert await app.agrees(graph) == {"'left?'", "'right?'"}
    await app.invoke(graph, {"log": ["new"]})
    await app.agrees(graph)
    await app.invoke(graph, Command(resume={"0" * 32: "nobody asked"}), config=old)
    await app.agrees(graph)


async def test_a_node_that_fails_beside_a_question(app: App) -> None:
    fails = [True]

    def shaky(state: Any) -> Any:
        if fails:
            raise RuntimeError("boom")
        return {"log": ["shaky"]}

    graph = built({"ask": asks("ok?"), "shaky": shaky}, [(START, "ask"), (START, "shaky")], app.saver)
    with pytest.raises(RuntimeError, match="boom"):
        await app.invoke(graph, {"log": []})
    await app.agrees(graph)
    fails.clear()
    await app.invoke(graph, None)
    assert await app.agrees(graph) == {"'ok?'"}
    await app.invoke(graph, Command(resume="yes"))
    assert await app.agrees(graph) == set()


async def test_an_answer_that_fails_keeps_the_question_answerable(app: App) -> None:
    fails = [True]

    def node(state: Any) -> Any:
        answer = interrupt("ok?")
        if fails:
            raise RuntimeError("boom")
        return {"log": [answer]}

    graph = chain(app.saver, ("ask", node))
    await app.invoke(graph, {"log": []})
    with pytest.raises(RuntimeError, match="boom"):
        await app.invoke(graph, Command(resume="yes"))
    await app.agrees(graph)
    fails.clear()
    assert (await app.invoke(graph, None))["log"] == ["yes"]
    assert await app.agrees(graph) == set()


@pytest.mark.parametrize("database", matrix(("async",)), indirect=True)  # only tasks are cancelled
async def test_a_cancelled_run(app: App) -> None:
    begun = asyncio.Event()
    wait = True

    async def slow(state: Any) -> Any:
        begun.set()
        if wait:
            await asyncio.sleep(60)
        return {"log": ["slow"]}

    graph = chain(app.saver, ("ask", asks("ok?")), ("slow", slow), ("again", asks("again?")))
    await app.invoke(graph, {"log": []})
    run = asyncio.create_task(app.invoke(graph, Command(resume="yes")))
    await begun.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await app.agrees(graph)
    wait = False
    await app.invoke(graph, None)
    assert await app.agrees(graph) == {"'again?'"}


async def test_what_an_interrupt_says_of_itself(app: App) -> None:
    graph = SHAPES["nested beside"](app.saver)
    result = await app.invoke(graph, {"log": []}, thread=7)
    shown = {i.value: i for i in await app.inbox("list", thread_id=7)}
    assert {(value, i.node) for value, i in shown.items()} == {("a?", "a"), ("b?", "b"), ("c?", "ask")}
    assert shown["c?"].checkpoint_ns == ""
    assert shown["a?"].checkpoint_ns.startswith("sub:")
    head = (await app.state(graph, 7)).config["configurable"]["checkpoint_id"]
    assert {(i.thread_id, i.checkpoint_id, i.status) for i in shown.values()} == {("7", head, "pending")}
    assert {i.interrupt_id for i in shown.values()} == {i.id for i in result["__interrupt__"]}
    assert [i.value for i in await app.inbox("list", node="b")] == ["b?"]


async def test_the_node_of_a_send_is_known(app: App) -> None:
    await app.invoke(SHAPES["sent"](app.saver), {"log": []})
    assert {(i.node, i.value) for i in await app.open()} == {("each", f"item {n}?") for n in range(3)}
    other = await app.another()
    assert {i.node for i in await other.open()} == {"each"}


async def test_a_thread_with_questions_costs_more_than_one_without_only_while_they_wait(app: App) -> None:
    """Extra round trips are paid by the writes that open and close questions, by no others."""
    graph = chain(app.saver, ("a", note), ("b", note), ("c", note))
    asking = chain(app.saver, ("ask", asks("ok?")), ("a", note), ("b", note), ("c", note))
    await app.invoke(graph, {"log": []}, thread="plain")
    await app.invoke(asking, {"log": []}, thread="asked")
    await app.invoke(asking, Command(resume="yes"), thread="asked")
    with batches(app.saver) as plain:
        await app.invoke(graph, {"log": []}, thread="plain")
    with batches(app.saver) as after:
        await app.invoke(graph, {"log": []}, thread="asked")
    assert len(after) == len(plain)
