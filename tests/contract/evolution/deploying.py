"""Apps in several versions over one database, and one way to call them, sync or async."""

from __future__ import annotations

import asyncio
import operator
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any

from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.types import Send, interrupt
from typing_extensions import TypedDict

from stepvault.checkpointers._inbox import Inbox
from tests.contract.matrix import Database

DONE: Counter[str] = Counter()  # what was done outside, by name


class Log(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]


class Deploy:
    """One version of an app: its saver, its inbox, its graph."""

    def __init__(self, database: Database, saver: Any, build: Callable[[Any], Any] | None, thread: str) -> None:
        self.sync = database.mode == "sync"
        self.saver = saver
        self.inbox = Inbox(saver)
        self.graph = build(saver) if build is not None else None
        self.thread: Any = {"configurable": {"thread_id": thread}}

    @classmethod
    async def of(
        cls, database: Database, build: Callable[[Any], Any] | None = None, *, thread: str = "t", **options: Any
    ) -> Deploy:
        return cls(database, await database.raw(**options), build, thread)

    async def call(self, target: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        if self.sync:
            return await asyncio.to_thread(getattr(target, name), *args, **kwargs)
        return await getattr(target, f"a{name}")(*args, **kwargs)

    async def invoke(self, value: Any, **options: Any) -> Any:
        return await self.call(self.graph, "invoke", value, self.thread, **options)

    async def state(self, **options: Any) -> Any:
        return await self.call(self.graph, "get_state", self.thread, **options)

    async def head(self) -> Any:
        """The newest checkpoint."""
        return await self.call(self.saver, "get_tuple", self.thread)

    async def values(self) -> dict[str, Any]:
        """The channel values of the newest checkpoint."""
        return (await self.head()).checkpoint["channel_values"]


def question(name: str) -> Callable[[Any], dict[str, Any]]:
    """A node that asks twice, and notes what it was told."""

    def ask(state: Any) -> dict[str, Any]:
        return {"log": [f"{name}:{interrupt('first')}:{interrupt('second')}"]}

    return ask


def step(name: str) -> Callable[[Any], dict[str, Any]]:
    def run(state: Any) -> dict[str, Any]:
        DONE[name] += 1
        return {"log": [name]}

    return run


# Each shape is an app whose nodes take their names from `names`.


def joined(saver: Any, **names: str) -> Any:
    """Two nodes that meet in the one that asks, and a third beside it that is done."""
    a, ask = names.get("a", "a"), names.get("ask", "ask")
    graph = StateGraph(Log)
    for name in (a, "b", "beside"):
        graph.add_node(name, step(name))
    graph.add_node(ask, question("asked"))
    graph.add_node("end", step("end"))
    graph.add_edge(START, a)
    graph.add_edge(START, "b")
    graph.add_edge([a, "b"], ask)
    graph.add_edge("b", "beside")
    graph.add_edge(ask, "end")
    return graph.compile(checkpointer=saver)


def sent(saver: Any, **names: str) -> Any:
    """A node that is sent to, twice: one asks, one is done."""
    ask = names.get("ask", "ask")

    def run(state: Any) -> Any:
        return question("asked")(state) if state["which"] else step("sent")(state)

    graph = StateGraph(Log)
    graph.add_node("split", step("split"))
    graph.add_node(ask, run)
    graph.add_conditional_edges("split", lambda state: [Send(ask, {"which": which}) for which in (0, 1)], [ask])
    graph.add_edge(START, "split")
    return graph.compile(checkpointer=saver)


def nested(saver: Any, **names: str) -> Any:
    """A subgraph that has done something before it asks."""
    outer, inner = names.get("outer", "outer"), names.get("inner", "inner")
    below = StateGraph(Log)
    below.add_node("before", step("before"))
    below.add_node(inner, question("asked"))
    below.add_edge(START, "before")
    below.add_edge("before", inner)
    graph = StateGraph(Log)
    graph.add_node(outer, below.compile())
    graph.add_edge(START, outer)
    return graph.compile(checkpointer=saver)


def functional(saver: Any, **names: str) -> Any:
    """A function whose task is done when it asks."""

    def charge(amount: int) -> int:
        DONE["charge"] += 1
        return amount

    charged = task(charge, name=names.get("charge", "charge"))

    def main(value: Any) -> Any:
        paid = charged(7).result()
        return {"log": [paid, f"asked:{interrupt('first')}:{interrupt('second')}"]}

    main.__name__ = names.get("main", "main")
    return entrypoint(checkpointer=saver)(main)


SHAPES: dict[str, tuple[Callable[..., Any], dict[str, str], Any]] = {
    # name: the app, what its nodes are called after the deploy, what was done before it asked
    "the node that asks": (joined, {"ask": "review"}, {"a": 1, "b": 1, "beside": 1}),
    "a node it waits for": (joined, {"a": "first"}, {"a": 1, "b": 1, "beside": 1}),
    "both": (joined, {"a": "first", "ask": "review"}, {"a": 1, "b": 1, "beside": 1}),
    "a node that is sent to": (sent, {"ask": "review"}, {"split": 1, "sent": 1}),
    "a node of a subgraph": (nested, {"inner": "review"}, {"before": 1}),
    "a node with a subgraph": (nested, {"outer": "office"}, {"before": 1}),
    "both, nested": (nested, {"outer": "office", "inner": "review"}, {"before": 1}),
    "a function": (functional, {"main": "handle", "charge": "charge"}, {"charge": 1}),
    "its task": (functional, {"charge": "debit"}, {"charge": 1}),
}
