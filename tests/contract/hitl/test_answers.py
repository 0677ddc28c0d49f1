"""Used answers stay used: three wrong resumes of LangGraph's own savers, and the answers that must not be lost."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.func import entrypoint
from langgraph.types import Command, interrupt

from tests.contract.hitl.building import App, asks, chain, nested, one, two_in_a_node
from tests.contract.matrix import Database

SHAPES = {"plain": two_in_a_node, "subgraph": nested(1), "subgraph of a subgraph": nested(2)}


@pytest.fixture
async def app(database: Database) -> App:
    return await App.on(database)


def answers_in(result: Any) -> list[Any]:
    return [entry[1] for entry in result["log"] if isinstance(entry, list)]


@pytest.mark.parametrize("shape", SHAPES)
async def test_running_on_does_not_answer_the_second_question_with_the_first_answer(app: App, shape: str) -> None:
    graph = SHAPES[shape](app.saver)
    await app.invoke(graph, {"log": []})
    second = (await app.invoke(graph, Command(resume="first answer")))["__interrupt__"]
    assert (await app.invoke(graph, None))["__interrupt__"] == second
    other = await app.another()
    assert (await other.invoke(SHAPES[shape](other.saver), None))["__interrupt__"] == second
    assert answers_in(await app.invoke(graph, Command(resume="second answer"))) == ["first answer", "second answer"]


async def test_a_second_click_does_not_approve_the_next_turn(app: App) -> None:
    @entrypoint(checkpointer=app.saver)
    def flow(item: int) -> Any:
        return [item, interrupt(f"approve {item}?")]

    await app.invoke(flow, 1)
    assert await app.invoke(flow, Command(resume="yes")) == [1, "yes"]
    assert await app.invoke(flow, Command(resume="yes")) == [1, "yes"]
    asked = await app.invoke(flow, 2)
    assert asked["__interrupt__"][0].value == "approve 2?"
    assert await app.invoke(flow, Command(resume="no")) == [2, "no"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_replay_with_other_answers_gets_them(app: App, shape: str, durability: str) -> None:
    graph = SHAPES[shape](app.saver)
    await app.invoke(graph, {"log": []}, durability=durability)
    asking = (await app.state(graph)).config
    for answer in ("a", "b"):
        await app.invoke(graph, Command(resume=answer), durability=durability)
    (second,) = (await app.invoke(graph, Command(resume="c"), config=asking))["__interrupt__"]
    assert second.value in ("second?", "sure?")


@pytest.mark.parametrize("shape", ["plain", "subgraph"])
async def test_a_replay_of_one_question(app: App, shape: str) -> None:
    graph = one(app.saver) if shape == "plain" else chain(app.saver, ("sub", one(None)))
    await app.invoke(graph, {"log": []})
    asking = (await app.state(graph)).config
    assert answers_in(await app.invoke(graph, Command(resume="first"))) == ["first"]
    assert answers_in(await app.invoke(graph, Command(resume="second"), config=asking)) == ["second"]
    assert answers_in((await app.state(graph)).values) == ["second"]


async def test_an_answer_that_no_task_has_used_is_still_given(app: App) -> None:
    """The worker stored the answer, then died or failed."""
    fails = [True]

    def node(state: Any) -> Any:
        if fails and state.get("topic") != "first":
            raise RuntimeError("boom before the question")
        return {"log": [interrupt("ok?")]}

    graph = chain(app.saver, ("ask", node))
    fails.clear()
    await app.invoke(graph, {"log": []})
    fails.append(True)
    with pytest.raises(RuntimeError, match="boom"):
        await app.invoke(graph, Command(resume="kept"))
    fails.clear()
    other = await app.another()
    assert (await other.invoke(chain(other.saver, ("ask", node)), None))["log"] == ["kept"]


async def test_questions_side_by_side_each_get_their_own(app: App) -> None:
    graph = chain(app.saver, ("ask", asks("a?")), ("again", asks("b?")))
    await app.invoke(graph, {"log": []})
    await app.invoke(graph, Command(resume="to a"))
    assert "__interrupt__" in await app.invoke(graph, None)
    assert (await app.invoke(graph, Command(resume="to b")))["log"] == [["a?", "to a"], ["b?", "to b"]]
    assert (await app.state(graph)).next == ()
