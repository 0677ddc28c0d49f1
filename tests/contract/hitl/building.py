"""Apps that ask humans, and one way to call graph and vault alike, sync or async."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Annotated, Any

from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from stepvault.checkpointers._effects import Effects
from stepvault.checkpointers._inbox import Inbox
from tests.contract.matrix import Database


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    topic: str


class App:
    """What a vault gives on a database, and graphs over it."""

    def __init__(self, database: Database, saver: Any) -> None:
        self.database, self.saver = database, saver
        self.sync = database.mode == "sync"
        self.vault = SimpleNamespace(inbox=Inbox(saver), effects=Effects(saver))

    @classmethod
    async def on(cls, database: Database, **options: Any) -> App:
        return cls(database, await database.raw(**options))

    async def another(self, **options: Any) -> App:
        """As another process would see the same data."""
        return await App.on(self.database, **options)

    async def call(self, target: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        """A method of a graph, a saver, an inbox: the sync one in a thread, or its async twin."""
        if self.sync:
            return await asyncio.to_thread(getattr(target, name), *args, **kwargs)
        return await getattr(target, f"a{name}")(*args, **kwargs)

    async def invoke(self, graph: Any, value: Any, thread: Any = "t", **options: Any) -> Any:
        at = options.pop("config", None) or on_thread(thread)
        return await self.call(graph, "invoke", value, at, **options)

    async def state(self, graph: Any, thread: Any = "t") -> Any:
        return await self.call(graph, "get_state", on_thread(thread))

    async def inbox(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return await self.call(self.vault.inbox, name, *args, **kwargs)

    async def effects(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return await self.call(self.vault.effects, name, *args, **kwargs)

    async def open(self, thread: Any = "t") -> list[Any]:
        """What the inbox says of a thread: every interrupt that waits."""
        return [
            i for i in await self.inbox("list", thread_id=thread, status=None) if i.status in ("pending", "decided")
        ]

    async def agrees(self, graph: Any, thread: Any = "t") -> set[str]:
        """The inbox lists exactly what `get_state` shows, found in either way."""
        shown = {(i.id, repr(i.value)) for i in (await self.state(graph, thread)).interrupts}
        mine = await self.open(thread)
        everywhere = [i for i in await self.everything() if i.thread_id == str(thread)]
        assert {(i.interrupt_id, repr(i.value)) for i in mine} == shown
        assert {i.id for i in mine} == {i.id for i in everywhere if i.status in ("pending", "decided")}
        return {value for _, value in shown}

    async def everything(self) -> list[Any]:
        """Every interrupt of every thread, read in small pages."""
        found: list[Any] = []
        cursor = None
        while True:
            page = await self.inbox("list", status=None, limit=3, cursor=cursor)
            found += page
            cursor = page.cursor
            if cursor is None:
                return found

    async def changes(self, cursor: str | None = None) -> list[tuple[str, Any]]:
        """The whole feed: what happened, and to which question."""
        found: list[tuple[str, Any]] = []
        while True:
            page = await self.inbox("changes", cursor)
            found += [(change.kind, change.interrupt.value) for change in page]
            if page.cursor == (cursor or ""):
                return found
            cursor = page.cursor


def on_thread(thread: Any) -> Any:
    return {"configurable": {"thread_id": thread}}


def asks(*questions: Any) -> Callable[[Any], Any]:
    """A node that asks, one question after the other, and notes the answers."""

    def node(state: State) -> Any:
        return {"log": [[question, interrupt(question)] for question in questions]}

    return node


def note(state: State) -> Any:
    return {"log": [len(state.get("log") or ())]}


def built(nodes: dict[str, Any], edges: list[tuple[Any, ...]], saver: Any = None) -> Any:
    builder = StateGraph(State)
    for name, node in nodes.items():
        builder.add_node(name, node)
    for source, target in edges:
        if callable(target):
            builder.add_conditional_edges(source, target)
        else:
            builder.add_edge(source, target)
    return builder.compile(checkpointer=saver)


def chain(saver: Any, *nodes: tuple[str, Any]) -> Any:
    """Nodes one after the other."""
    names = [name for name, _ in nodes]
    return built(dict(nodes), list(zip([START, *names], names, strict=False)), saver)


def one(saver: Any) -> Any:
    return chain(saver, ("before", note), ("ask", asks("ok?")), ("after", note))


def two_in_a_node(saver: Any) -> Any:
    return chain(saver, ("ask", asks("first?", "second?")), ("after", note))


def parallel(saver: Any) -> Any:
    nodes = {"left": asks("left?"), "right": asks("right?", "sure?"), "calm": note, "last": note}
    edges = [(START, name) for name in ("left", "right", "calm")] + [(n, "last") for n in ("left", "right", "calm")]
    return built(nodes, edges, saver)


def sent(saver: Any) -> Any:
    def fan(state: State) -> list[Send]:
        return [Send("each", {"topic": str(number)}) for number in range(3)]

    def each(state: State) -> Any:
        return {"log": [interrupt(f"item {state['topic']}?")]}

    return built(
        {"before": note, "each": each, "after": note}, [(START, "before"), ("before", fan), ("each", "after")], saver
    )


def nested(depth: int, kept: bool | None = None) -> Callable[[Any], Any]:
    """Graphs in graphs; with `kept`, subgraphs that keep their state from call to call."""

    def build(saver: Any) -> Any:
        graph = chain(kept, ("first", note), ("ask", asks("deep?", "sure?")), ("last", note))
        for level in range(depth):
            graph = chain(saver if level == depth - 1 else kept, (f"level{level}", graph), ("after", note))
        return graph

    return build


def nested_beside(saver: Any) -> Any:
    inner = built({"a": asks("a?"), "b": asks("b?")}, [(START, "a"), (START, "b")])
    return built({"sub": inner, "ask": asks("c?")}, [(START, "sub"), (START, "ask")], saver)


def loop(saver: Any) -> Any:
    """Asks as often as it takes."""

    def node(state: State) -> Any:
        return {"log": [interrupt(f"round {len(state['log'])}?")]}

    def more(state: State) -> str:
        return "ask" if len(state["log"]) < 4 else "__end__"

    return built({"ask": node}, [(START, "ask"), ("ask", more)], saver)


def functional(saver: Any) -> Any:
    @task
    def check(item: int) -> Any:
        return interrupt(f"check {item}?")

    @entrypoint(checkpointer=saver)
    def flow(value: Any) -> Any:
        first = check(1)
        second = check(2)
        return [first.result(), second.result(), interrupt("done?")]

    return flow


SHAPES: dict[str, Callable[[Any], Any]] = {
    "one": one,
    "two in a node": two_in_a_node,
    "parallel": parallel,
    "sent": sent,
    "nested": nested(1),
    "nested twice": nested(2),
    "kept subgraph": nested(1, kept=True),
    "nested beside": nested_beside,
    "loop": loop,
    "functional": functional,
}


def answer_to(interrupts: Any) -> Command[Any]:
    """Answers the first of what is asked, by its id."""
    first = sorted(interrupts, key=lambda i: repr(i.value))[0]
    return Command(resume={first.id: f"answer to {first.value}"})
