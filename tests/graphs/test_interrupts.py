"""Graphs that wait for a human: one question, several at once, in subgraphs; stops before and after a node."""

from __future__ import annotations

import operator
from typing import Annotated, Any

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from tests.graphs.comparing import OfEach, Twins, answers


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    topic: str


def asks(*questions: str) -> Any:
    """A node that asks, then notes the answers."""

    def node(state: State) -> Any:
        return {"log": [[question, interrupt(question)] for question in questions]}

    return node


def note(state: State) -> Any:
    return {"log": [len(state["log"])]}


def line(*nodes: tuple[str, Any], **options: Any) -> Any:
    """An app of nodes one after the other."""

    def build(saver: Any) -> Any:
        builder = StateGraph(State)
        for before, (name, node) in zip([START, *(name for name, _ in nodes)], nodes, strict=False):
            builder.add_node(name, node)
            builder.add_edge(before, name)
        return builder.compile(checkpointer=saver, **options)

    return build


def side_by_side(saver: Any) -> Any:
    """Two nodes ask at once, a third does not; a last one sums up."""
    builder = StateGraph(State)
    for name, node in (("left", asks("left?")), ("right", asks("right?")), ("calm", note)):
        builder.add_node(name, node)
        builder.add_edge(START, name)
        builder.add_edge(name, "last")
    builder.add_node("last", note)
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("answer", ["yes", "", False, 0, {"a": [1]}, ["x", {"y": None}]], ids=repr)
async def test_one_question(twins: Twins, answer: Any) -> None:
    await twins.start(line(("before", note), ("ask", asks("ok?")), ("after", note)))
    await twins.invoke({"log": ["in"]})
    assert (await twins.state()).interrupts[0].value == "ok?"
    await twins.invoke(Command(resume=answer))
    assert (await twins.state()).values["log"][2] == ["ok?", answer]
    await twins.invoke({"log": ["again"]})
    await twins.invoke(Command(resume="second"))


async def test_a_resume_by_the_id_of_the_question(twins: Twins) -> None:
    await twins.start(line(("ask", asks("ok?")), ("after", note)))
    await twins.invoke({"log": ["in"]})
    await twins.invoke(answers(**{"ok?": "by id"}))
    assert (await twins.state()).values["log"][1] == ["ok?", "by id"]


async def test_several_questions_in_one_node(twins: Twins) -> None:
    await twins.start(line(("ask", asks("first?", "second?", "third?")), ("after", note)))
    await twins.invoke({"log": []})
    for number in range(3):
        await twins.invoke(Command(resume=number))
    assert (await twins.state()).values["log"][:3] == [["first?", 0], ["second?", 1], ["third?", 2]]


async def test_questions_side_by_side_answered_at_once(twins: Twins) -> None:
    await twins.start(side_by_side)
    await twins.invoke({"log": ["in"]}, ordered=False)
    await twins.invoke(answers(**{"left?": 1, "right?": 2}), ordered=False)
    assert (await twins.state()).next == ()


async def test_questions_side_by_side_answered_one_by_one(twins: Twins) -> None:
    await twins.start(side_by_side)
    await twins.invoke({"log": ["in"]}, ordered=False)
    await twins.invoke(answers(**{"right?": 2}), ordered=False)
    assert [asked.value for asked in (await twins.state()).interrupts] == ["left?"]
    await twins.invoke(answers(**{"left?": 1}), ordered=False)
    assert (await twins.state()).next == ()


async def test_new_input_in_place_of_an_answer(twins: Twins) -> None:
    await twins.start(line(("ask", asks("ok?")), ("after", note)))
    await twins.invoke({"log": ["in"]})
    await twins.invoke({"log": ["something else"]})
    await twins.invoke(Command(resume="late"))


async def test_an_answer_with_an_update(twins: Twins) -> None:
    await twins.start(line(("ask", asks("ok?")), ("after", note)))
    await twins.invoke({"log": ["in"]})
    await twins.invoke(Command(resume="yes", update={"log": ["by the way"], "topic": "t"}))


async def test_a_goto_in_place_of_an_answer(twins: Twins) -> None:
    await twins.start(line(("ask", asks("ok?")), ("after", note)))
    await twins.invoke({"log": ["in"]})
    await twins.invoke(Command(goto="after"), ordered=False)


async def test_a_new_process_between_question_and_answer(twins: Twins) -> None:
    build = line(("ask", asks("ok?", "sure?")), ("after", note))
    await twins.start(build)
    await twins.invoke({"log": ["in"]})
    await twins.start(build)
    await twins.invoke(Command(resume="yes"))
    await twins.start(build)
    await twins.invoke(Command(resume="sure"))


async def test_an_answer_that_the_node_refuses(twins: Twins) -> None:
    def picky(state: State) -> Any:
        answer = interrupt("a number?")
        while not isinstance(answer, int):
            answer = interrupt(f"{answer} is no number")
        return {"log": [answer]}

    await twins.start(line(("ask", picky), ("after", note)))
    await twins.invoke({"log": ["in"]})
    for answer in ("a", "b", 3):
        await twins.invoke(Command(resume=answer))


# -- stops


@pytest.mark.parametrize("stops", [{"interrupt_before": ["b"]}, {"interrupt_after": ["a"]}, {"interrupt_before": "*"}])
async def test_stops_at_a_node(twins: Twins, stops: dict[str, Any]) -> None:
    await twins.start(line(("a", note), ("b", note), ("c", note), **stops))
    await twins.invoke({"log": ["in"]})
    assert (await twins.state()).next != ()
    while (await twins.state()).next:
        await twins.invoke(None)
    await twins.invoke({"log": ["again"]})


async def test_stops_asked_for_by_a_call(twins: Twins) -> None:
    await twins.start(line(("a", note), ("b", note)))
    await twins.invoke({"log": ["in"]}, interrupt_before=["b"])
    await twins.update({"log": ["while it waits"]})
    await twins.invoke(None, interrupt_after=["b"])
    await twins.invoke(None)


async def test_an_update_while_a_question_waits(twins: Twins) -> None:
    await twins.start(line(("ask", asks("ok?")), ("after", note)))
    await twins.invoke({"log": ["in"]})
    await twins.update({"topic": "corrected"})
    await twins.invoke(Command(resume="yes"))
    await twins.invoke(None)


# -- in subgraphs


def nested(depth: int, inner: Any, **options: Any) -> Any:
    """An app whose node is a graph whose node is a graph ..."""

    def build(saver: Any) -> Any:
        graph = inner(None)
        for level in range(depth):
            builder = StateGraph(State)
            builder.add_node("before", note)
            builder.add_node(f"level {level}", graph)
            builder.add_node("after", note)
            builder.add_edge(START, "before")
            builder.add_edge("before", f"level {level}")
            builder.add_edge(f"level {level}", "after")
            builder.add_edge("after", END)
            graph = builder.compile(checkpointer=saver if level == depth - 1 else options.get("checkpointer"))
        return graph

    return build


@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_questions_in_a_subgraph(twins: Twins, depth: int) -> None:
    await twins.start(nested(depth, line(("first", note), ("ask", asks("ok?", "sure?")), ("last", note))))
    await twins.invoke({"log": ["in"]})
    await twins.invoke(Command(resume="yes"))
    await twins.invoke(Command(resume="sure"))
    assert (await twins.state()).next == ()
    await twins.invoke({"log": ["again"]})


async def test_questions_side_by_side_in_a_subgraph(twins: Twins) -> None:
    await twins.start(nested(2, side_by_side))
    await twins.invoke({"log": ["in"]}, ordered=False)
    await twins.invoke(answers(**{"right?": "r"}), ordered=False)
    await twins.invoke(answers(**{"left?": "l"}), ordered=False)
    assert (await twins.state()).next == ()


async def test_the_state_of_a_waiting_subgraph_is_updated(twins: Twins) -> None:
    await twins.start(nested(1, line(("first", note), ("ask", asks("ok?")), ("last", note))))
    await twins.invoke({"log": ["in"]})

    def inside(history: list[Any]) -> Any:
        ns = history[0].tasks[0].state["configurable"]["checkpoint_ns"]
        return {"configurable": {**twins.config["configurable"], "checkpoint_ns": ns}}

    await twins.update({"log": ["from outside"]}, at=OfEach(inside))
    await twins.invoke(Command(resume="yes"))


async def test_a_subgraph_called_in_a_node(twins: Twins) -> None:
    def build(saver: Any) -> Any:
        inner = line(("ask", asks("inner?")), ("last", note))(None)

        def calls(state: State) -> Any:
            first = interrupt("outer?")
            found = inner.invoke({"log": [first]})
            return {"log": [found["log"]]}

        return line(("calls", calls), ("after", note))(saver)

    await twins.start(build)
    await twins.invoke({"log": ["in"]})
    await twins.invoke(Command(resume="outer"))
    await twins.invoke(Command(resume="inner"))
    assert (await twins.state()).next == ()
