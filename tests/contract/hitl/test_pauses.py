"""Pauses of `interrupt_before` and `interrupt_after`: in the inbox while, and only while, `get_state().next` waits."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send

from stepvault import Vault
from stepvault.checkpointers import _pauses
from stepvault.checkpointers._inbox import Inbox
from stepvault.errors import (
    AlreadyDecidedError,
    AnswerInvalidError,
    ConfigurationError,
    ConflictError,
    DeadlinePassedError,
    HeadMovedError,
    SupersededError,
)
from stepvault.steps import Run
from tests.contract.hitl.building import App, State, asks, built, chain, functional, note, on_thread
from tests.contract.hitl.test_inbox_random import LAYERS, compiled
from tests.contract.matrix import Database

pytest.importorskip("langgraph.callbacks", reason="this LangGraph tells nobody of pauses")


@pytest.fixture
async def app(database: Database) -> App:
    return await App.on(database, on_conflict="raise")


def heard(app: App, thread: Any = "t") -> Any:
    return {**on_thread(thread), "callbacks": [app.vault.inbox.pauses]}


async def run(app: App, graph: Any, value: Any, thread: Any = "t", before: Any = "*", **options: Any) -> Any:
    return await app.invoke(graph, value, config=heard(app, thread), interrupt_before=before, **options)


async def agrees(app: App, graph: Any, thread: Any = "t") -> tuple[str, ...]:
    """The inbox lists one pause, with the nodes of `get_state().next`; where they are none, it lists none."""
    shown = tuple(sorted((await app.state(graph, thread)).next))
    pauses = [i for i in await app.inbox("list", thread_id=thread) if i.kind == "pause"]
    assert [tuple(sorted(i.next)) for i in pauses] == ([shown] if shown else [])
    assert [i.id for i in await app.inbox("list")] == [i.id for i in pauses]
    for pause in pauses:
        assert (pause.value, pause.node) == (None, pause.next[0])
        assert [i.id for i in await app.inbox("list", node=pause.next[-1])] == [pause.id]
    return shown


def joined(saver: Any) -> Any:
    nodes = dict.fromkeys(("one", "two", "both", "late", "end+s"), note)
    builder = StateGraph(State)
    for name, node in nodes.items():
        builder.add_node(name, node, defer=name == "late")
    for source, target in [(START, "one"), (START, "two"), ("one", "late"), (["one", "two"], "both")]:
        builder.add_edge(source, target)
    builder.add_edge(["two", "both"], "end+s")
    return builder.compile(checkpointer=saver)


def routed(saver: Any) -> Any:
    def choose(state: State) -> Command[Any]:
        return Command(update={"log": ["went"]}, goto=["left", Send("each", {"topic": "a"}), Send("each", {})])

    builder = StateGraph(State)
    builder.add_node("choose", choose, destinations=("left", "each"))
    for name in ("left", "each"):
        builder.add_node(name, note)
    builder.add_edge(START, "choose")
    builder.add_conditional_edges("left", lambda state: "each" if len(state["log"]) < 6 else "__end__")
    return builder.compile(checkpointer=saver)


SHAPES = {
    "chain": lambda saver: chain(saver, ("a", note), ("b", note), ("c", note)),
    "joined": joined,
    "routed": routed,
    "sent": lambda saver: built(
        {"before": note, "each": note, "after": note},
        [(START, "before"), ("before", lambda state: [Send("each", {}), Send("each", {})]), ("each", "after")],
        saver,
    ),
    "nested": lambda saver: chain(saver, ("sub", chain(None, ("x", note), ("y", note))), ("after", note)),
}

STOPS = {"chain": 3, "joined": 4, "routed": 3, "sent": 3, "nested": 2}


@pytest.mark.parametrize("shape", SHAPES)
async def test_equal_to_the_state_after_every_step(app: App, shape: str) -> None:
    graph = SHAPES[shape](app.saver)
    modes = ("sync", "async", "exit")
    for durability in modes if app.database.name == "sqlite" else modes[len(shape) % 3 :][:1]:
        await run(app, graph, {"log": []}, durability, durability=durability)
        stops = 0
        while await agrees(app, graph, durability):
            stops += 1
            await run(app, graph, None, durability, durability=durability)
        assert stops == STOPS[shape]
        listed = await app.inbox("list", thread_id=durability, status=None)
        assert [i.status for i in listed] == ["answered"] * stops
        assert not list(await app.inbox("list"))


async def test_interrupt_after(app: App) -> None:
    graph = SHAPES["chain"](app.saver)
    assert await app.invoke(graph, {"log": []}, config=heard(app), interrupt_after=["a", "c"])
    assert await agrees(app, graph) == ("b",)
    await app.invoke(graph, None, config=heard(app), interrupt_after=["a", "c"])
    assert await agrees(app, graph) == ()  # stopped after its last node: there is nothing to go on with


async def test_a_breakpoint_in_a_subgraph_that_the_root_stands_still_for(app: App) -> None:
    inner = chain(None, ("x", note), ("y", note), ("z", note))
    inner.interrupt_before_nodes = ["x", "y", "z"]
    graph = built({"sub": inner, "beside": note}, [(START, "sub"), (START, "beside")], app.saver)
    config = heard(app)
    await app.invoke(graph, {"log": []}, config=config)
    seen = []
    while await agrees(app, graph):
        (pause,) = await app.inbox("list")
        seen.append(pause.id)
        decision = await app.inbox("decide", pause.id, True)
        await app.invoke(graph, decision.command, config=config)
    assert len(set(seen)) == 3
    assert {i.status for i in await app.inbox("list", status=None)} == {"answered"}


async def test_the_functional_api_pauses_before_its_function(app: App) -> None:
    graph = functional(app.saver)
    await run(app, graph, 1)
    (pause,) = await app.inbox("list")
    assert (pause.kind, pause.node, pause.next) == ("pause", None, ())
    await run(app, graph, None)
    assert {i.kind for i in await app.inbox("list")} == {"question"}


async def test_a_question_waits_in_place_of_a_pause(app: App) -> None:
    graph = built({"ask": asks("ok?"), "b": note, "c": note}, [(START, "ask"), (START, "b"), ("ask", "c")], app.saver)
    await run(app, graph, {"log": []}, before=["c"])
    assert [(i.kind, i.value) for i in await app.inbox("list")] == [("question", "ok?")]
    await run(app, graph, Command(resume="yes"), before=["c"])
    assert await agrees(app, graph) == ("c",)


async def test_a_pause_is_decided_once_and_kept_until_it_is_used(app: App) -> None:
    graph = SHAPES["chain"](app.saver)
    await run(app, graph, {"log": []}, before=["b"])
    (pause,) = await app.inbox("list")
    with pytest.raises(AnswerInvalidError):
        await app.inbox("decide", pause.id, False)  # whoever runs on with a decision goes on
    decision = await app.inbox("decide", pause.id, True, by="ann", note="fine")
    with pytest.raises(AlreadyDecidedError) as raised:
        await app.inbox("decide", pause.id, True, by="bob")
    assert raised.value.by == "ann"
    (found,) = await app.inbox("list", status="decided")
    assert found.decision == decision
    assert decision.command is None
    assert (await app.invoke(graph, decision.command, config=decision.config))["log"] == [0, 1, 2]
    assert (await app.inbox("get", pause.id)).status == "answered"
    told = [change.kind for change in await app.inbox("changes")]
    assert told == ["created", "decided", "answered"]


async def test_what_else_ends_a_pause(app: App) -> None:
    graph = SHAPES["chain"](app.saver)
    await run(app, graph, {"log": []}, before=["b"])
    (first,) = await app.inbox("list")
    await run(app, graph, {"log": ["instead"]}, before=["b"])
    (second,) = await app.inbox("list")
    assert (await app.inbox("get", first.id)).status == "superseded"
    await app.call(graph, "update_state", on_thread("t"), {"log": ["edited"]}, as_node="b")
    with pytest.raises(SupersededError):
        await app.inbox("decide", second.id, True)
    assert not list(await app.inbox("list"))


async def test_a_thread_that_runs_does_not_pause(app: App) -> None:
    listed, heads = [], []

    async def look(state: State) -> Any:
        listed.append(list(await app.inbox("list")))
        heads.append((await app.state(graph)).next)
        return {"log": ["looked"]}

    def look_sync(state: State) -> Any:
        listed.append(list(app.vault.inbox.list()))
        heads.append(graph.get_state(on_thread("t")).next)
        return {"log": ["looked"]}

    graph = chain(app.saver, ("a", note), ("look", look_sync if app.sync else look), ("c", note))
    await run(app, graph, {"log": []})  # before a
    await run(app, graph, None)
    (pause,) = await app.inbox("list")
    await run(app, graph, None)
    assert (listed, heads) == ([[]], [("look",)])
    assert (await app.inbox("get", pause.id)).status == "answered"
    assert await agrees(app, graph) == ("c",)


async def test_runs_that_end_otherwise_do_not_pause(app: App) -> None:
    def fails(state: State) -> Any:
        raise RuntimeError("boom")

    graph = chain(app.saver, ("a", note), ("fails", fails))
    with pytest.raises(RuntimeError, match="boom"):
        await run(app, graph, {"log": []}, before=[])
    limited = {**heard(app), "recursion_limit": 1}
    with pytest.raises(GraphRecursionError):
        await app.invoke(SHAPES["chain"](app.saver), {"log": []}, config=limited, interrupt_before=["c"])
    assert not list(await app.inbox("list", status=None))


async def test_the_config_of_a_lease_tells_of_pauses(app: App) -> None:
    graph = SHAPES["chain"](app.saver)
    lease = app.saver.lease("t")
    if app.sync:
        with lease as config:
            graph.invoke({"log": []}, config, interrupt_before=["b"])
    else:
        async with lease as config:
            await graph.ainvoke({"log": []}, config, interrupt_before=["b"])
    assert await agrees(app, graph) == ("b",)
    (pause,) = await app.inbox("list")
    for name, waits in ((pause.interrupt_id, True), ("pause-of-nothing", False)):
        expected = app.saver.lease("t", expect_interrupt=name)
        if waits:
            await enter(app, expected)
        else:
            with pytest.raises(HeadMovedError):
                await enter(app, expected)


async def enter(app: App, lease: Any) -> None:
    if app.sync:
        with lease:
            return
    async with lease:
        pass


async def test_copies_deadlines_and_steps(app: App) -> None:
    graph = SHAPES["chain"](app.saver)
    await run(app, graph, {"log": []}, before=["b"])
    (pause,) = await app.inbox("list")
    await app.call(app.saver, "copy_thread", "t", "copy")
    (copied,) = await app.inbox("list", thread_id="copy")
    assert copied.id != pause.id
    assert copied.next == ("b",)
    past = datetime.now(timezone.utc) - timedelta(hours=1)
    with pytest.raises(AnswerInvalidError):
        await app.inbox("amend", copied.id, default=False)
    await app.inbox("amend", copied.id, deadline=past, default=True)
    await app.inbox("amend", pause.id, deadline=past)
    assert {i.id for i in await app.inbox("due")} == {pause.id, copied.id}
    assert (await app.inbox("expire", copied.id)).decision.command is None
    assert (await app.inbox("expire", pause.id)).status == "expired"
    with pytest.raises(DeadlinePassedError):
        await app.inbox("decide", pause.id, True)
    if app.sync:
        steps = await asyncio.to_thread(Run.from_thread, app.saver, "t")
        assert [(s.interrupt_id, s.value) for s in steps.steps if s.kind == "interrupt"] == [(pause.id, None)]


async def test_a_paused_thread_is_not_compacted(app: App) -> None:
    graph = SHAPES["chain"](app.saver)
    await run(app, graph, {"log": []}, before=["b"])
    with pytest.raises(ConflictError, match="pause"):
        await app.call(app.saver, "compact_thread", "t", keep_messages=1)
    assert await agrees(app, graph) == ("b",)


async def test_one_tenant_does_not_hear_of_another(app: App) -> None:
    other = app.saver.for_tenant("other")
    graph = SHAPES["chain"](other)
    await run(app, graph, {"log": []}, before=["b"])
    assert not list(await app.inbox("list"))
    await app.invoke(
        graph, {"log": []}, config={**on_thread("t"), "callbacks": [Inbox(other).pauses]}, interrupt_before=["b"]
    )
    assert not list(await app.inbox("list"))
    assert [i.next for i in await app.call(Inbox(other), "list")] == [("b",)]


def test_a_langgraph_that_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pauses, "_kind", lambda: None)
    with Vault.open("memory://") as vault:
        with pytest.raises(ConfigurationError, match=r"get_state\(config\)\.next"):
            _ = vault.inbox.pauses
        with vault.checkpointer.lease("t") as config:
            assert "callbacks" not in config


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(LAYERS, st.sampled_from(["sync", "async", "exit"]))
def test_equal_on_random_graphs(layers: Any, durability: Any) -> None:
    with Vault.open("memory://") as vault:
        graph = compiled(layers, vault.checkpointer)
        config: Any = {**on_thread("t"), "callbacks": [vault.inbox.pauses]}
        value: Any = {"log": []}
        for _ in range(20):
            graph.invoke(value, config, interrupt_before="*", durability=durability)
            state = graph.get_state(on_thread("t"))
            waiting = list(vault.inbox.list())
            if state.interrupts:
                assert {i.interrupt_id for i in waiting} == {i.id for i in state.interrupts}
                value = Command(resume={i.id: "yes" for i in state.interrupts})
                continue
            assert [sorted(i.next) for i in waiting] == ([sorted(state.next)] if state.next else [])
            if not state.next:
                break
            value = vault.inbox.decide(waiting[0].id, True).command
