"""Nodes that fail: what is remembered of it, and that what was done is not done again."""

from __future__ import annotations

import asyncio
import enum
import operator
import threading
from typing import Annotated, Any

import pytest
from langgraph.channels import UntrackedValue
from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy, Send
from typing_extensions import TypedDict

from stepvault.errors import ValueNotSerializableError
from tests.contract.building import whole
from tests.graphs.comparing import App, Twins


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]


def line(**nodes: Any) -> Any:
    def build(saver: Any) -> Any:
        builder = StateGraph(State)
        before = START
        for name, node in nodes.items():
            builder.add_node(name, node)
            builder.add_edge(before, name)
            before = name
        return builder.compile(checkpointer=saver)

    return build


async def test_a_node_that_fails_is_run_again(twins: Twins) -> None:
    broken = [True]

    def shaky(state: State) -> Any:
        if broken[0]:
            raise ValueError("out of order")
        return {"log": ["mended"]}

    await twins.start(line(a=lambda state: {"log": ["a"]}, shaky=shaky, b=lambda state: {"log": ["b"]}))
    said = await twins.invoke({"log": ["in"]})
    assert "out of order" in repr(said[-1])
    if twins.durability != "exit":
        assert "out of order" in str((await twins.state()).tasks[0].error)
    await twins.invoke(None)
    broken[0] = False
    await twins.invoke(None)
    assert (await twins.state()).values["log"] == ["in", "a", "mended", "b"]


async def test_what_is_done_beside_a_failure_is_not_done_again(twins: Twins) -> None:
    broken: list[bool] = [True]
    done: dict[Any, threading.Event] = {}
    times: list[int] = []

    def build(saver: Any) -> Any:
        done[saver] = threading.Event()

        def good(state: State) -> Any:
            times.append(1)
            return {"log": ["good"]}

        def bad(state: State) -> Any:
            if broken[0]:
                assert done[saver].wait(10)
                raise ValueError("bad")
            return {"log": ["mended"]}

        builder = StateGraph(State)
        for name, node in (("good", good), ("bad", bad)):
            builder.add_node(name, node)
            builder.add_edge(START, name)
        builder.add_node("end", lambda state: {"log": ["end"]})
        builder.add_edge(["good", "bad"], "end")
        return builder.compile(checkpointer=saver)

    await twins.start(build)
    for name, app in twins.apps.items():
        config = {**twins.config, "configurable": {"thread_id": name}}

        async def failing(app: Any = app, config: Any = config) -> None:
            with pytest.raises(ValueError, match="bad"):
                await app.call("invoke", {"log": ["in"]}, config, durability="sync")

        run = asyncio.create_task(failing())
        while not (state := await app.call("get_state", config)).tasks or not any(
            task.result for task in state.tasks if task.name == "good"
        ):
            await asyncio.sleep(0.002)
        done[app.graph.checkpointer].set()
        await run
    broken[0] = False
    for name, app in twins.apps.items():
        found = await app.call("invoke", None, {"configurable": {"thread_id": name}})
        assert found["log"] == ["in", "mended", "good", "end"]
    assert len(times) == 3, "once for each app"


async def test_retries(twins: Twins) -> None:
    tried: dict[Any, int] = {}

    def build(saver: Any) -> Any:
        def shaky(state: State) -> Any:
            tried[saver] = tried.get(saver, 0) + 1
            if tried[saver] % 3:
                raise ConnectionError("not yet")
            return {"log": [tried[saver]]}

        builder = StateGraph(State)
        policy = RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False)
        builder.add_node("shaky", shaky, retry_policy=policy)
        builder.add_edge(START, "shaky")
        return builder.compile(checkpointer=saver)

    await twins.start(build)
    await twins.invoke({"log": []})
    assert (await twins.state()).values["log"] == [3]


async def test_nodes_and_channels_named_by_an_enum(twins: Twins) -> None:
    class Name(str, enum.Enum):
        FIRST = "first"
        SECOND = "second"

    await twins.start(line(**{Name.FIRST: lambda s: {"log": [1]}, Name.SECOND: lambda s: {"log": [2]}}))
    await twins.invoke({"log": ["in"]})
    await twins.update({"log": ["as first"]}, as_node=Name.FIRST)
    assert (await twins.state()).next == ("second",)
    await twins.invoke(None)


async def test_a_state_that_cannot_be_stored_stops_the_run_and_leaves_the_thread(twins: Twins) -> None:
    await twins.start(
        line(a=lambda state: {"log": ["a"]}, bad=lambda state: {"log": [object()] if len(state["log"]) > 4 else [1]})
    )
    app = twins.apps["ours"]
    await app.call("invoke", {"log": ["in"]}, twins.config)
    before = await twins.state()

    with pytest.raises(ValueNotSerializableError, match="log"):
        await app.call("invoke", {"log": ["again"]}, twins.config, durability=twins.durability)

    after = await twins.state()
    assert after.values["log"][:3] == before.values["log"]
    for entry in await whole(twins.saver):
        assert all(type(item) is not object for item in entry.checkpoint["channel_values"].get("log", []))


class Mixed(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    secret: Annotated[str, UntrackedValue]


async def test_untracked_values_never_reach_the_database(twins: Twins) -> None:
    marker, kept = "marker of an untracked value", "marker of a stored value"

    def build(saver: Any) -> Any:
        builder = StateGraph(Mixed)
        builder.add_node("a", lambda state: {"log": [kept], "secret": f"{marker} from a node"})
        builder.add_node("b", lambda state: {"log": [f"{len(state['secret'])} characters"]})
        builder.add_node("c", lambda state: {"log": [f"sent {len(state['secret'])}"]})
        builder.add_edge(START, "a")
        builder.add_edge("a", "b")
        builder.add_conditional_edges("b", lambda state: [Send("c", {"secret": f"{marker} sent"})], ["c"])
        return builder.compile(checkpointer=saver)

    app = App(build(await twins.database.raw(compression=None)), twins.sync)
    found = await app.call("invoke", {"log": [kept]}, twins.config, durability=twins.durability)
    assert found["log"][2:] == ["40 characters", f"sent {len(marker) + 5}"]

    content = twins.database.content()
    assert kept.encode() in content
    assert marker.encode() not in content
