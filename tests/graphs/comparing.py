"""One app on two savers: whatever is done is done on both, and all that can be seen of it must be equal.

Ids of checkpoints, tasks and interrupts are random: each is replaced by the place of its first appearance. Times are
left out. Everything else counts: values, metadata, next, parents, tasks with their results, errors and interrupts,
the history of every namespace, and what a run streams.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, Interrupt
from pydantic import BaseModel

from tests.contract.matrix import Database

IDS = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|\b[0-9a-f]{32}\b")
STREAMS = ["values", "updates", "tasks", "checkpoints", "custom"]
MISSING = object()


class OfEach:
    """A value that is another one for each of the two apps, made from its history."""

    def __init__(self, make: Callable[[list[Any]], Any]) -> None:
        self.make = make


class Normal:
    """Values without what is random in them, so that two runs of the same can be equal."""

    def __init__(self, *, ids: bool = False) -> None:
        self._ids = ids
        self._seen: dict[str, str] = {}

    def of(self, value: Any) -> Any:
        if isinstance(value, str):
            return value if self._ids else IDS.sub(self._place, value)
        if isinstance(value, BaseModel):
            fields = dict(value)
            if isinstance(value, ToolMessage):  # gets its id while it may be stored already
                del fields["id"]
            return (type(value).__name__, self.of(fields))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return (type(value).__name__, [self.of(getattr(value, field.name)) for field in dataclasses.fields(value)])
        if isinstance(value, tuple) and hasattr(value, "_asdict"):
            return (type(value).__name__, self.of(value._asdict()))
        if isinstance(value, Mapping):
            return {self.of(key): self.of(part) for key, part in value.items() if not _passing(key)}
        if isinstance(value, (set, frozenset)):
            return (type(value).__name__, sorted(self.of(part) for part in value))
        if isinstance(value, (list, tuple)) and value and all(map(_asked, value)):
            value = sorted(value, key=lambda part: IDS.sub("", str(part)))  # they stand as the tasks came to an end
        if isinstance(value, (list, tuple)):
            return [self.of(part) for part in value]  # in memory, a tuple comes back as a list
        if isinstance(value, BaseException):
            return self.of(repr(value))
        if slots := getattr(type(value), "__slots__", None):
            return (type(value).__name__, [self.of(getattr(value, name, None)) for name in slots])
        return value

    def _place(self, match: re.Match[str]) -> str:
        return self._seen.setdefault(match[0], f"<id {len(self._seen)}>")


def unordered(chunks: list[Any]) -> list[Any]:
    """What parallel tasks stream, in an order that does not depend on which was first."""
    return sorted((Normal().of(chunk) for chunk in chunks), key=str)


def _asked(value: Any) -> bool:
    return isinstance(value, Interrupt) or (isinstance(value, dict) and {"id", "value"} <= value.keys())


def _passing(key: Any) -> bool:
    """Whether a key holds a time, or an object that only lives as long as a run."""
    return isinstance(key, str) and (key in ("created_at", "ts", "timestamp") or key.startswith("__pregel_"))


def same(what: str, ours: Any, theirs: Any) -> None:
    """Fail if two values differ, saying where."""
    if found := difference(ours, theirs):
        pytest.fail(f"{what}: {found}")


def difference(ours: Any, theirs: Any, path: str = "") -> str:
    """Where two values differ first; nothing if they are equal."""
    if type(ours) is type(theirs):
        if isinstance(ours, Mapping) and list(ours) == list(theirs):
            return next(
                (found for key in ours if (found := difference(ours[key], theirs[key], f"{path}[{key!r}]"))), ""
            )
        if isinstance(ours, (list, tuple)):
            pairs = enumerate(zip_longest(ours, theirs, fillvalue="nothing"))
            return next((found for i, pair in pairs if (found := difference(*pair, f"{path}[{i}]"))), "")
        if ours == theirs:
            return ""
    return f"{path}: {ours!r} is not {theirs!r}"


class App:
    """A compiled graph and the way it is called."""

    def __init__(self, graph: Any, sync: bool) -> None:
        self.graph = graph
        self._sync = sync

    async def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if self._sync:
            return await asyncio.to_thread(getattr(self.graph, name), *args, **kwargs)
        return await getattr(self.graph, f"a{name}")(*args, **kwargs)

    async def all_of(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """What an iterator yields, and the error it ends with, if any."""
        found: list[Any] = []
        try:
            if self._sync:
                call = getattr(self.graph, name)
                await asyncio.to_thread(lambda: found.extend(call(*args, **kwargs)))
            else:
                async for entry in getattr(self.graph, f"a{name}")(*args, **kwargs):
                    found.append(entry)
        except Exception as exc:
            found.append(exc)
        return found

    async def history(self, config: Any) -> list[Any]:
        return await self.all_of("get_state_history", config)


class Twins:
    """An app on our saver and on `InMemorySaver`; `start` it, then do things."""

    def __init__(self, database: Database, durability: str, saver: Any, other: Any) -> None:
        self.durability = durability
        self.sync = database.mode == "sync"
        self.database = database
        self._savers = {"memory": InMemorySaver(), "ours": saver, "ours, from another saver": other}
        self.config: Any = {"configurable": {"thread_id": "t", "user_id": "u"}}
        self.saver = database.under_async_names(saver)

    async def start(self, build: Callable[[Any], Any]) -> None:
        """Compile the app on each saver; again with another one after a deploy."""
        made = {name: build(saver) for name, saver in self._savers.items()}
        if asyncio.iscoroutine(made["ours"]):
            made = {name: await coroutine for name, coroutine in made.items()}
        self.apps = {name: App(graph, self.sync) for name, graph in made.items()}
        self._pairs = [self.apps["memory"], self.apps["ours"]]

    async def invoke(self, value: Any, *, ordered: bool = True, at: Any = None, **options: Any) -> list[Any]:
        """Run both with every stream on; equal if they say the same and remember the same."""
        options = {"stream_mode": STREAMS, "subgraphs": True, "durability": self.durability, **options}
        said = []
        for app in self._pairs:
            history = await app.history(self.config)
            config = self.config if at is None else at.make(history)
            given = value.make(history) if isinstance(value, OfEach) else value
            said.append(await app.all_of("stream", given, config, **options))
        normal = [Normal().of(chunks) if ordered else unordered(chunks) for chunks in said]
        same("streams", normal[1], normal[0])
        await self.compare()
        return said[1]

    async def update(self, values: Any, as_node: str | None = None, *, at: Any = None) -> None:
        """Update the state of both."""
        for app in self._pairs:
            history = await app.history(self.config)
            config = self.config if at is None else at.make(history)
            given = values.make(history) if isinstance(values, OfEach) else values
            await app.call("update_state", config, given, as_node=as_node)
        await self.compare()

    async def each(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Call something else on both."""
        for app in self._pairs:
            await app.call(name, *args, **kwargs)
        await self.compare()

    async def compare(self) -> None:
        """Both remember the same, and so does another saver on our database."""
        states = {name: await self._everything(app) for name, app in self.apps.items() if name != "memory"}
        theirs = await self._everything(self.apps["memory"])
        ours, others = states.values()
        same("what another saver on the same database reads", Normal(ids=True).of(others), Normal(ids=True).of(ours))
        same("what is remembered", Normal().of(ours), Normal().of(theirs))

    async def _everything(self, app: App) -> Any:
        head = await app.call("get_state", self.config, subgraphs=True)
        history = await app.history(self.config)
        spaces = dict.fromkeys(_namespaces(head))
        inner = [
            await app.history({"configurable": {**self.config["configurable"], "checkpoint_ns": ns}}) for ns in spaces
        ]
        return head, history, inner

    async def state(self) -> Any:
        """Our state now."""
        return await self.apps["ours"].call("get_state", self.config, subgraphs=True)

    async def history(self) -> list[Any]:
        """Our history now."""
        return await self.apps["ours"].history(self.config)


def _namespaces(state: Any) -> list[str]:
    found = []
    for task in state.tasks:
        inner = task.state
        if inner is not None and hasattr(inner, "config"):
            found += [inner.config["configurable"]["checkpoint_ns"], *_namespaces(inner)]
    return found


def newest(*nodes: str) -> OfEach:
    """The config of the newest checkpoint that waits for these nodes."""
    return OfEach(lambda history: next(state.config for state in history if state.next == nodes))


def answers(**by_question: Any) -> OfEach:
    """A resume map for what is asked: answers by the value of their interrupt."""
    return OfEach(
        lambda history: Command(
            resume={asked.id: by_question[asked.value] for asked in history[0].interrupts if asked.value in by_question}
        )
    )
