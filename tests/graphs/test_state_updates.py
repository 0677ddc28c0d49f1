"""The state API: updates from outside, from inside a node, in bulk; replay, fork and travel in time."""

from __future__ import annotations

import operator
from typing import Annotated, Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, StateUpdate, interrupt
from typing_extensions import TypedDict

from tests.graphs.comparing import OfEach, Twins, newest


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    doc: str
    facts: dict[str, Any]


def chain(saver: Any) -> Any:
    """Three nodes; the second changes a long text and a dict, the third asks if the topic says so."""

    def b(state: State) -> Any:
        facts = {**state.get("facts", {}), f"fact {len(state['log'])}": "x" * 100}
        return {"log": ["b"], "doc": state.get("doc", "") + "some text " * 100, "facts": facts}

    def c(state: State) -> Any:
        return {"log": [interrupt("ok?") if "ask" in state["log"] else "c"]}

    builder = StateGraph(State)
    for before, name, node in ((START, "a", lambda state: {"log": ["a"]}), ("a", "b", b), ("b", "c", c)):
        builder.add_node(name, node)
        builder.add_edge(before, name)
    return builder.compile(checkpointer=saver)


async def start(twins: Twins, *log: str) -> None:
    """A thread with the history of two runs, whatever the durability."""
    await twins.start(chain)
    await twins.invoke({"log": ["one"]}, durability="sync")
    await twins.invoke({"log": ["two", *log]}, durability="sync")


# -- updates


async def test_updates_from_outside(twins: Twins) -> None:
    await start(twins)
    await twins.update({"log": ["from outside"]})
    await twins.update({"log": ["as a"], "doc": "new"}, as_node="a")
    assert (await twins.state()).next == ("b",)
    await twins.invoke(None)
    await twins.update({"facts": {}}, as_node="b")
    await twins.invoke(None)


async def test_an_update_of_a_thread_that_does_not_exist(twins: Twins) -> None:
    await twins.start(chain)
    await twins.update({"log": ["first"]}, as_node="__start__")
    await twins.invoke(None)
    await twins.invoke({"log": ["in"]})


async def test_an_update_to_the_end(twins: Twins) -> None:
    await start(twins)
    await twins.update(None, as_node="__end__")
    assert (await twins.state()).next == ()
    await twins.invoke({"log": ["on"]})


async def test_updates_in_bulk(twins: Twins) -> None:
    await twins.start(chain)
    steps = [
        [StateUpdate({"log": ["in"]}, "__input__")],
        [StateUpdate({"log": ["a"]}, "a")],
        [StateUpdate({"log": ["b"], "doc": "b"}, "b")],
    ]
    await twins.each("bulk_update_state", twins.config, steps)
    assert (await twins.state()).next == ("c",)
    await twins.invoke(None)


async def test_a_copy_of_a_checkpoint(twins: Twins) -> None:
    await start(twins)
    await twins.update(None, as_node="__copy__")
    await twins.update(None, as_node="__copy__", at=newest("b"))
    await twins.invoke(None)


async def test_a_node_that_updates_its_own_thread(twins: Twins) -> None:
    graphs: dict[Any, Any] = {}

    def build(saver: Any) -> Any:
        def sync_a(state: State) -> Any:
            graphs[saver].update_state(twins.config, {"doc": "from inside"}, as_node="b")
            return {"log": ["a"]}

        async def a(state: State) -> Any:
            await graphs[saver].aupdate_state(twins.config, {"doc": "from inside"}, as_node="b")
            return {"log": ["a"]}

        builder = StateGraph(State)
        builder.add_node("a", sync_a if twins.sync else a)
        builder.add_node("b", lambda state: {"log": [state.get("doc", "")]})
        builder.add_edge(START, "a")
        builder.add_edge("a", "b")
        graphs[saver] = builder.compile(checkpointer=saver)
        return graphs[saver]

    twins.durability = "sync"  # the order of a background put and the update inside is chance
    await twins.start(build)
    await twins.invoke({"log": ["in"]})
    await twins.invoke({"log": ["again"]})


# -- time travel


async def test_a_replay(twins: Twins) -> None:
    await start(twins)
    for nodes in (("b",), ("c",), ("a",), ("__start__",)):
        await twins.invoke(None, at=newest(*nodes))
    await twins.invoke({"log": ["on"]})


async def test_a_fork(twins: Twins) -> None:
    await start(twins)
    await twins.update({"log": ["forked"], "doc": "other"}, at=newest("b"))
    assert (await twins.state()).values["doc"] == "other"
    await twins.invoke(None)
    await twins.invoke({"log": ["on the fork"]})
    await twins.update({"doc": "again"}, at=newest("c"), as_node="a")
    await twins.invoke(None)


async def test_a_fork_of_the_first_run_leaves_the_second(twins: Twins) -> None:
    await start(twins)
    oldest = OfEach(lambda history: [state for state in history if state.next == ("b",)][-1].config)
    await twins.update({"log": ["forked"]}, at=oldest)
    await twins.invoke(None)
    assert (await twins.state()).values["log"] == ["one", "a", "forked", "b", "c"]


async def test_new_input_at_an_old_checkpoint(twins: Twins) -> None:
    await start(twins)
    await twins.invoke({"log": ["another way"]}, at=newest("c"))
    await twins.invoke({"log": ["on"]})


async def test_a_command_at_an_old_checkpoint(twins: Twins) -> None:
    await start(twins)
    await twins.invoke(Command(goto="c", update={"log": ["jumped"]}), at=newest("b"), ordered=False)


async def test_an_answer_at_an_old_question(twins: Twins) -> None:
    await start(twins, "ask")
    await twins.invoke(Command(resume="first"), durability="sync")
    assert (await twins.state()).next == ()
    await twins.invoke(None, at=newest("b"))
    await twins.invoke(Command(resume="second"))
    await twins.invoke({"log": ["on"]})


async def test_a_fork_before_a_question(twins: Twins) -> None:
    await start(twins, "ask")
    await twins.update({"doc": "other"}, at=newest("b"))
    await twins.invoke(None)
    await twins.invoke(Command(resume="on the fork"))


async def test_the_state_at_every_old_checkpoint(twins: Twins) -> None:
    await start(twins)
    for state in await twins.history():
        assert await twins.apps["ours"].call("get_state", state.config) == state
        named = await twins.apps["ours, from another saver"].call("get_state", state.config)
        assert named == state


@pytest.mark.parametrize(
    "arguments", [{"limit": 2}, {"filter": {"source": "loop"}}, {"filter": {"step": 1}, "limit": 1}]
)
async def test_part_of_the_history(twins: Twins, arguments: dict[str, Any]) -> None:
    await start(twins)
    whole = await twins.history()
    wanted = arguments.get("filter", {}).items()
    expected = [state for state in whole if all(state.metadata[key] == value for key, value in wanted)]

    found = await twins.apps["ours"].all_of("get_state_history", twins.config, **arguments)

    assert found == expected[: arguments.get("limit")]
    assert found
