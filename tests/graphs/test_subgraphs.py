"""Graphs in graphs: those that forget, and those that keep a state of their own between runs."""

from __future__ import annotations

import operator
from typing import Annotated, Any

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from tests.contract.building import listed
from tests.graphs.comparing import Twins, newest


class Inner(TypedDict, total=False):
    memory: Annotated[list[Any], operator.add]
    log: Annotated[list[Any], operator.add]


class Outer(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]


def remembering(name: str, question: str | None = None) -> Any:
    """A subgraph that counts in a channel its parent does not have."""

    def count(state: Inner) -> Any:
        return {"memory": [len(state.get("memory", []))], "log": [f"{name} {len(state.get('memory', []))}"]}

    def end(state: Inner) -> Any:
        return {"log": [[question, interrupt(question)]]} if question else {}

    builder = StateGraph(Inner)
    builder.add_node("count", count)
    builder.add_node("end", end)
    builder.add_edge(START, "count")
    builder.add_edge("count", "end")
    return builder


def outer(nodes: dict[str, Any]) -> Any:
    """An app of subgraphs one after the other."""

    def build(saver: Any) -> Any:
        builder = StateGraph(Outer)
        before = START
        for name, graph in nodes.items():
            builder.add_node(name, graph)
            builder.add_edge(before, name)
            before = name
        builder.add_edge(before, END)
        return builder.compile(checkpointer=saver)

    return build


@pytest.mark.parametrize("checkpointer", [None, True, False], ids=["forgets", "remembers", "stores nothing"])
async def test_a_subgraph_over_several_runs(twins: Twins, checkpointer: Any) -> None:
    await twins.start(outer({"sub": remembering("sub").compile(checkpointer=checkpointer)}))
    for turn in range(4):
        await twins.invoke({"log": [turn]})
    assert ("sub 3" in (await twins.state()).values["log"]) == bool(checkpointer)


async def test_two_subgraphs_remember_apart(twins: Twins) -> None:
    subs = {name: remembering(name).compile(checkpointer=True) for name in ("one", "two")}
    await twins.start(outer(subs))
    for turn in range(3):
        await twins.invoke({"log": [turn]})
    assert (await twins.state()).values["log"][-2:] == ["one 2", "two 2"]


async def test_a_subgraph_that_remembers_and_asks(twins: Twins) -> None:
    await twins.start(outer({"sub": remembering("sub", "ok?").compile(checkpointer=True)}))
    for turn in range(3):
        await twins.invoke({"log": [turn]})
        await twins.invoke(Command(resume=f"answer {turn}"))
    assert (await twins.state()).values["log"][-2:] == ["sub 2", ["ok?", "answer 2"]]


async def test_subgraphs_in_subgraphs_that_remember(twins: Twins) -> None:
    builder = StateGraph(Outer)
    builder.add_node("deep", remembering("deep", "ok?").compile(checkpointer=True))
    builder.add_edge(START, "deep")
    await twins.start(outer({"middle": builder.compile(checkpointer=True)}))
    for turn in range(2):
        await twins.invoke({"log": [turn]})
        await twins.invoke(Command(resume=turn))
    assert "deep 1" in (await twins.state()).values["log"]


async def test_a_fan_out_of_subgraphs(twins: Twins) -> None:
    def build(saver: Any) -> Any:
        builder = StateGraph(Outer)
        builder.add_node("sub", remembering("sub").compile())
        builder.add_conditional_edges(START, lambda state: [Send("sub", {"memory": [i]}) for i in range(4)], ["sub"])
        return builder.compile(checkpointer=saver)

    await twins.start(build)
    await twins.invoke({"log": ["in"]}, ordered=False)
    await twins.invoke({"log": ["again"]}, ordered=False)


async def test_time_travel_into_a_run_with_a_subgraph(twins: Twins) -> None:
    await twins.start(outer({"a": remembering("a").compile(), "b": remembering("b", "ok?").compile()}))
    await twins.invoke({"log": ["in"]}, durability="sync")
    await twins.invoke(Command(resume=1), durability="sync")
    history = await twins.history()
    assert history[0].next == ()
    await twins.invoke(None, at=newest("b"))
    await twins.update({"log": ["forked"]}, at=newest("a"))
    await twins.invoke(None)


async def test_deleting_a_run_takes_its_subgraphs_along(twins: Twins) -> None:
    await twins.start(outer({"sub": remembering("sub").compile(checkpointer=True)}))
    runs = ["11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"]
    for run in runs:
        twins.config = {**twins.config, "run_id": run}
        await twins.invoke({"log": [run]})
    before = await listed(twins.saver)
    assert {entry.config["configurable"]["checkpoint_ns"] for entry in before} == {"", "sub"}
    half = len(before) // 2

    await twins.saver.adelete_for_runs(runs[1:])

    assert await listed(twins.saver) == before[half:]
    await twins.saver.adelete_for_runs(runs[:1])
    assert await listed(twins.saver) == []
    assert len(await twins.saver.athreads()) == 0


async def test_a_pruned_thread_goes_on_with_its_subgraphs(twins: Twins) -> None:
    await twins.start(outer({"sub": remembering("sub", "ok?").compile(checkpointer=True)}))
    await twins.invoke({"log": ["one"]})
    await twins.invoke(Command(resume=1))
    await twins.invoke({"log": ["two"]})
    waiting = await twins.state()

    await twins.saver.aprune(["t"])

    state = await twins.state()
    assert (state.values, state.next, state.interrupts) == (waiting.values, waiting.next, waiting.interrupts)
    app = twins.apps["ours"]
    said = await app.call("invoke", Command(resume=2), twins.config)
    assert said["log"][-2:] == ["sub 1", ["ok?", 2]]
    await app.call("invoke", {"log": ["three"]}, twins.config)
    assert "sub 2" in (await app.call("invoke", Command(resume=3), twins.config))["log"]
