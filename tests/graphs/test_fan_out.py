"""Send, Command and other ways to go on: what is spawned, where it goes, what is remembered of it."""

from __future__ import annotations

import operator
from typing import Annotated, Any

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from tests.graphs.comparing import Twins, answers


class State(TypedDict, total=False):
    items: list[Any]
    done: Annotated[list[Any], operator.add]


def mapped(work: Any) -> Any:
    """An app that sends each item to `work`, then sums up."""

    def build(saver: Any) -> Any:
        builder = StateGraph(State)
        builder.add_node("plan", lambda state: {"done": ["planned"]})
        builder.add_node("work", work)
        builder.add_node("sum", lambda state: {"done": [len(state["done"])]})
        builder.add_edge(START, "plan")
        builder.add_conditional_edges("plan", lambda state: [Send("work", item) for item in state["items"]], ["work"])
        builder.add_edge("work", "sum")
        return builder.compile(checkpointer=saver)

    return build


async def test_a_fan_out(twins: Twins) -> None:
    await twins.start(mapped(lambda item: {"done": [item["n"] * 2]}))
    await twins.invoke({"items": [{"n": n} for n in range(12)]}, ordered=False)
    await twins.invoke({"items": [{"n": n} for n in range(3)]}, ordered=False)
    await twins.invoke({"items": []})


async def test_equal_items_sent_twice(twins: Twins) -> None:
    await twins.start(mapped(lambda item: {"done": [item["n"]]}))
    await twins.invoke({"items": [{"n": 1}] * 3}, ordered=False)
    assert (await twins.state()).values["done"] == ["planned", 1, 1, 1, 4]


async def test_some_of_those_sent_ask(twins: Twins) -> None:
    def work(item: Any) -> Any:
        return {"done": [item["n"] if item["n"] % 2 else interrupt(f"{item['n']}?")]}

    await twins.start(mapped(work))
    await twins.invoke({"items": [{"n": n} for n in range(4)]}, ordered=False)
    await twins.invoke(answers(**{"0?": "zero"}), ordered=False)
    await twins.invoke(answers(**{"2?": "two"}), ordered=False)
    assert (await twins.state()).values["done"] == ["planned", "zero", 1, "two", 3, 5]


async def test_sends_to_a_subgraph_that_asks(twins: Twins) -> None:
    def inner() -> Any:
        class Item(TypedDict, total=False):
            n: int
            done: list[Any]

        builder = StateGraph(Item)
        builder.add_node("ask", lambda item: {"done": [[item["n"], interrupt(f"{item['n']}?")]]})
        builder.add_node("end", lambda item: {"done": [*item["done"], "end"]})
        builder.add_edge(START, "ask")
        builder.add_edge("ask", "end")
        return builder.compile()

    def build(saver: Any) -> Any:
        builder = StateGraph(State)
        builder.add_node("work", inner())
        builder.add_conditional_edges(START, lambda state: [Send("work", item) for item in state["items"]], ["work"])
        return builder.compile(checkpointer=saver)

    await twins.start(build)
    await twins.invoke({"items": [{"n": n} for n in range(3)]}, ordered=False)
    await twins.invoke(answers(**{"1?": "one"}), ordered=False)
    await twins.invoke(answers(**{"0?": "zero", "2?": "two"}), ordered=False)
    assert (await twins.state()).next == ()


def routed(saver: Any) -> Any:
    """Nodes that say themselves where to go."""

    def a(state: State) -> Any:
        wanted = state["items"][0]
        return Command(update={"done": ["a"], "items": state["items"][1:]}, goto=wanted)

    builder = StateGraph(State)
    builder.add_node("a", a, destinations=("a", "b", "c", END))
    builder.add_node("b", lambda state: Command(update={"done": ["b"]}, goto=[Send("c", state), "d"]))
    builder.add_node("c", lambda state: {"done": ["c"]})
    builder.add_node("d", lambda state: {"done": ["d"]})
    builder.add_edge(START, "a")
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("way", [["b"], ["a", "a", END], ["c"], [["b", "c"]]], ids=str)
async def test_commands_that_go_somewhere(twins: Twins, way: list[Any]) -> None:
    await twins.start(routed)
    await twins.invoke({"items": way}, ordered=False)
    await twins.invoke({"items": [END]}, ordered=False)


async def test_commands_from_outside(twins: Twins) -> None:
    await twins.start(routed)
    await twins.invoke(Command(goto="d", update={"items": [END]}), ordered=False)
    await twins.invoke(Command(goto=[Send("c", {}), "d"], update={"items": [END]}), ordered=False)


async def test_a_command_to_the_parent(twins: Twins) -> None:
    def build(saver: Any) -> Any:
        inner = StateGraph(State)
        leave = Command(graph=Command.PARENT, update={"done": ["left"]}, goto="other")
        inner.add_node("step", lambda state: {"done": ["stepped"]})
        inner.add_node("leave", lambda state: leave)
        inner.add_edge(START, "step")
        inner.add_edge("step", "leave")
        builder = StateGraph(State)
        builder.add_node("inner", inner.compile(), destinations=("other",))
        builder.add_node("other", lambda state: {"done": ["other"]})
        builder.add_edge(START, "inner")
        return builder.compile(checkpointer=saver)

    await twins.start(build)
    await twins.invoke({"items": [], "done": ["in"]})
    await twins.invoke({"items": [1]})


async def test_joins_and_deferred_nodes(twins: Twins) -> None:
    def build(saver: Any) -> Any:
        builder = StateGraph(State)
        for name in ("a", "b", "b2", "c"):
            builder.add_node(name, lambda state, name=name: {"done": [name]})
        builder.add_node("late", lambda state: {"done": ["late"]}, defer=True)
        builder.add_edge(START, "a")
        builder.add_edge("a", "b")
        builder.add_edge("b", "b2")
        builder.add_edge("a", "late")
        builder.add_edge(["b2", "late"], "c")
        return builder.compile(checkpointer=saver, interrupt_before=["b2"])

    # In the background LangGraph stores a join's live set: with "async" it may already hold the next step's names.
    twins.durability = "exit" if twins.durability == "exit" else "sync"
    await twins.start(build)
    await twins.invoke({"done": ["in"]}, ordered=False)
    while (await twins.state()).next:
        await twins.invoke(None, ordered=False)


async def test_a_loop_that_runs_out_of_steps(twins: Twins) -> None:
    def build(saver: Any) -> Any:
        builder = StateGraph(State)
        builder.add_node("a", lambda state: {"done": ["a" * 300]})
        builder.add_edge(START, "a")
        builder.add_edge("a", "a")
        return builder.compile(checkpointer=saver)

    await twins.start(build)
    twins.config = {**twins.config, "recursion_limit": 7}
    said = await twins.invoke({"done": ["in"]})
    assert "recursion" in str(said[-1]).lower()
    await twins.invoke(None)
