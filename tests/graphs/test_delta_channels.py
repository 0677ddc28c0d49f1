"""DeltaChannels: rebuilt from writes, the same as in memory, through every kind of history."""

from __future__ import annotations

import operator
from typing import Annotated, Any

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from tests.contract.building import ids
from tests.graphs.comparing import Twins, newest


def extend(state: list[Any] | None, writes: Any) -> list[Any]:
    return [*(state or []), *(item for write in writes for item in write)]


def merge(state: dict[str, Any] | None, writes: Any) -> dict[str, Any]:
    merged = dict(state or {})
    for write in writes:
        merged |= write
    return merged


class Logged(TypedDict, total=False):
    log: Annotated[list[Any], DeltaChannel(extend)]


def app(frequency: int) -> Any:
    """A log and a table as DeltaChannels beside an ordinary one; asks if it is told to."""

    fields = {
        "log": Annotated[list[Any], DeltaChannel(extend, snapshot_frequency=frequency)],
        "table": Annotated[dict[str, Any], DeltaChannel(merge, snapshot_frequency=frequency)],
        "plain": Annotated[list[Any], operator.add],
    }
    state_type = TypedDict("State", fields, total=False)  # type: ignore[operator]

    def a(state: Any) -> Any:
        size = len(state.get("log", []))
        return {"log": [f"a{size}", "x" * 500], "table": {f"a{size}": ["y" * 300]}, "plain": [size]}

    def b(state: Any) -> Any:
        answer = [interrupt("ok?")] if "ask" in state["plain"] else []
        return {"log": [*answer, f"b{len(state['log'])}"], "table": {"last": len(state["log"])}}

    def c(state: Any) -> Any:
        return {"plain": ["c"]}

    def build(saver: Any) -> Any:
        builder = StateGraph(state_type)
        for before, name, node in ((START, "a", a), ("a", "b", b), ("b", "c", c)):
            builder.add_node(name, node)
            builder.add_edge(before, name)
        return builder.compile(checkpointer=saver)

    return build


pytestmark = pytest.mark.filterwarnings("ignore:.*beta.*")
FREQUENCIES = pytest.mark.parametrize("frequency", [1, 3, 100])


@FREQUENCIES
async def test_several_runs(twins: Twins, frequency: int) -> None:
    await twins.start(app(frequency))
    for turn in range(5):
        await twins.invoke({"log": [turn], "plain": ["in"]})
    assert len((await twins.state()).values["log"]) == 20


@FREQUENCIES
async def test_questions_updates_and_forks(twins: Twins, frequency: int) -> None:
    await twins.start(app(frequency))
    await twins.invoke({"log": ["one"], "plain": []}, durability="sync")
    await twins.invoke({"log": ["two"], "plain": ["ask"]}, durability="sync")
    await twins.update({"log": ["from outside"]}, as_node="a")
    await twins.invoke(None)
    await twins.invoke(Command(resume="yes"))
    await twins.invoke(None, at=newest("b"))
    await twins.update({"log": ["forked"], "table": {"fork": 1}}, at=newest("c"))
    await twins.invoke(None)


@FREQUENCIES
async def test_a_prune_leaves_the_state_as_it_was(twins: Twins, frequency: int) -> None:
    await twins.start(app(frequency))
    for turn in range(3):
        await twins.invoke({"log": [turn], "plain": ["in"]})
    before = await twins.state()
    stored = len(await ids(twins.saver))

    await twins.saver.aprune(["t"])

    after = await twins.state()
    assert (after.values, after.next, after.config) == (before.values, before.next, before.config)
    if frequency < 100 or twins.durability == "exit":
        assert len(await ids(twins.saver)) <= stored
    said = await twins.apps["ours"].call("invoke", {"log": ["more"], "plain": []}, twins.config)
    assert said["log"][:-4] == before.values["log"]
    assert (await twins.state()).values["log"] == said["log"]


async def test_a_copy_has_them_too(twins: Twins) -> None:
    await twins.start(app(3))
    for turn in range(3):
        await twins.invoke({"log": [turn], "plain": ["in"]})
    before = (await twins.state()).values

    await twins.saver.acopy_thread("t", "copy")
    await twins.saver.adelete_thread("t")

    twins.config = {"configurable": {"thread_id": "copy", "user_id": "u"}}
    assert (await twins.state()).values == before


async def test_parallel_writers_in_their_order(twins: Twins) -> None:
    def build(saver: Any) -> Any:
        builder = StateGraph(Logged)
        for name in "zyxabc":
            builder.add_node(name, lambda state, name=name: {"log": [name]})
            builder.add_edge(START, name)
        builder.add_node("sent", lambda item: {"log": [item["n"]]})
        builder.add_conditional_edges("z", lambda state: [Send("sent", {"n": n}) for n in range(12)], ["sent"])
        return builder.compile(checkpointer=saver)

    await twins.start(build)
    for turn in range(2):
        await twins.invoke({"log": [turn]}, ordered=False)
