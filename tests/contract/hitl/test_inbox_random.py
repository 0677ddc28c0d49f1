"""The inbox against `get_state`, over random graphs and whatever is done to their threads."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt

from stepvault import Vault
from tests.contract.hitl.building import State, note, on_thread

# A node: how many questions it asks, or a graph of nodes in it, or how many sends it makes.
LEAF = st.one_of(
    st.tuples(st.just("asks"), st.integers(0, 2)), st.tuples(st.just("sends"), st.integers(1, 3)), st.just(("calm", 0))
)
LAYERS = st.recursive(
    st.lists(st.lists(LEAF, min_size=1, max_size=3), min_size=1, max_size=2),
    lambda inner: st.lists(
        st.lists(st.one_of(LEAF, st.tuples(st.just("graph"), inner)), min_size=1, max_size=3), min_size=1, max_size=3
    ),
    max_leaves=6,
)
ACTION = st.sampled_from(["answer", "answer", "answer", "answer all", "again", "input", "update", "fork", "old"])


def compiled(layers: Any, saver: Any = None, name: str = "") -> Any:
    """Layers of nodes that run at once, one layer after the other."""
    builder = StateGraph(State)
    before: list[str] = []
    for depth, layer in enumerate(layers):
        names = []
        for place, (kind, what) in enumerate(layer):
            node = f"{name}{depth}{place}"
            names += _add(builder, node, kind, what)
        for source in before or [START]:
            for target in names:
                builder.add_edge(source, target)
        before = names
    return builder.compile(checkpointer=saver)


def _add(builder: Any, node: str, kind: str, what: Any) -> list[str]:
    if kind == "graph":
        builder.add_node(node, compiled(what, name=node))
    elif kind == "asks":
        builder.add_node(node, _asking(node, what))
    elif kind == "calm":
        builder.add_node(node, note)
    else:
        builder.add_node(node, note)
        builder.add_node(f"{node}each", _asking(f"{node}each", 1))
        builder.add_conditional_edges(node, lambda state: [Send(f"{node}each", {"topic": str(n)}) for n in range(what)])
    return [node]


def _asking(node: str, count: int) -> Any:
    def ask(state: State) -> Any:
        return {"log": [interrupt(f"{node} {state.get('topic')} {number}?") for number in range(count)]}

    return ask


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(LAYERS, st.lists(ACTION, max_size=6), st.sampled_from(["sync", "async", "exit"]), st.integers(0, 2**32))
def test_equal_after_whatever_is_done(layers: Any, actions: list[str], durability: str, seed: int) -> None:
    dice = random.Random(seed)
    with Vault.open("memory://", on_conflict="fork") as vault:
        graph = compiled(layers, vault.checkpointer)
        graph.invoke({"log": []}, on_thread("t"), durability=durability)
        agree(vault, graph)
        for action in actions:
            act(graph, action, durability, dice)
            agree(vault, graph)
        feed_tells_all(vault)


def act(graph: Any, action: str, durability: str, dice: random.Random) -> None:
    head = graph.get_state(on_thread("t"))
    asked = {i.id: f"answer to {i.value}" for i in head.interrupts}
    config, value = on_thread("t"), None
    if action == "answer" and asked:
        chosen = dice.choice(sorted(asked, key=asked.__getitem__))
        value = Command(resume={chosen: asked[chosen]})
    elif action == "answer all" and asked:
        value = Command(resume=asked)
    elif action == "input":
        value = {"log": ["new"]}
    elif action == "update":
        if head.next and not any(":" in name for name in head.next):
            graph.update_state(on_thread("t"), {"log": ["edited"]}, as_node=dice.choice(sorted(set(head.next))))
        return
    elif action in ("fork", "old"):
        history = [state.config for state in graph.get_state_history(on_thread("t")) if state.next]
        if not history:
            return
        config = dice.choice(history)
        if action == "old":
            value = Command(resume={"0" * 32: "nobody asked"})
    graph.invoke(value, config, durability=durability)


def agree(vault: Vault, graph: Any) -> None:
    shown = {i.id: i.value for i in graph.get_state(on_thread("t")).interrupts}
    mine = vault.inbox.list(status=None, limit=1000)
    waiting = {i.interrupt_id: i.value for i in mine if i.status in ("pending", "decided")}
    assert waiting == shown
    assert [i.id for i in vault.inbox.list(thread_id="t", limit=1000)] == [i.id for i in vault.inbox.list(limit=1000)]
    assert len({i.id for i in mine}) == len(list(mine))
    for interrupt_ in mine:
        assert vault.inbox.get(interrupt_.id) == interrupt_


def feed_tells_all(vault: Vault) -> None:
    """The feed, applied in order, ends where the list is."""
    last: dict[str, str] = {}
    cursor = None
    while (page := vault.inbox.changes(cursor)).cursor != (cursor or ""):
        for change in page:
            assert (change.kind == "created") == (last.get(change.interrupt.id) not in ("created", "decided"))
            last[change.interrupt.id] = change.kind
        cursor = page.cursor
    listed = {i.id: "created" if i.status == "pending" else i.status for i in vault.inbox.list(status=None, limit=1000)}
    assert last == listed
