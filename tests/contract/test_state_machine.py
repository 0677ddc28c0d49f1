"""Random histories over two savers on one database, against a plain model of what a checkpointer is."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple

from stepvault.errors import ConflictError
from tests.contract.building import checkpoint, config
from tests.contract.matrix import Database, matrix

THREADS = ["t", "u", "v%"]
SPACES = ["", "", "", "sub:1"]
RUNS = ["run 1", "run 2", None]
CHANNELS = ["items", "text", "table", "n"]
WRITE_CHANNELS = ["items", "text", "__error__", "__interrupt__", "__resume__", "n"]

places = st.tuples(st.sampled_from(THREADS), st.sampled_from(SPACES))
numbers = st.integers(0, 30)
sizes = st.sampled_from([1, 3, 40, 300, 700, 5000, 9000])


@dataclass
class Entry:
    """A checkpoint of the model."""

    values: dict[str, Any]
    versions: dict[str, int]
    metadata: dict[str, Any]
    parent: str | None


@dataclass
class Thread:
    """A thread of the model: checkpoints and writes by namespace and id; writes need no checkpoint."""

    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)
    writes: dict[tuple[str, str], dict[tuple[str, int], Any]] = field(default_factory=dict)

    def pending(self, place: tuple[str, str]) -> list[tuple[str, str, Any]]:
        rows = [(path, task, idx, channel, value) for (task, idx), (path, channel, value) in self.at(place).items()]
        return [(task, channel, value) for _, task, _, channel, value in sorted(rows, key=lambda row: row[:3])]

    def at(self, place: tuple[str, str]) -> dict[tuple[str, int], Any]:
        return self.writes.get(place, {})

    def keep(self, kept: Callable[[tuple[str, str]], bool]) -> None:
        gone = [place for place in self.entries if not kept(place)]
        for place in gone:
            del self.entries[place]
            self.writes.pop(place, None)

    def copy(self) -> Thread:
        return Thread(dict(self.entries), {place: dict(rows) for place, rows in self.writes.items()})


def item(number: int, size: int) -> Any:
    """An element of a list: small or large, of several types; equal numbers give equal elements."""
    kinds = (number, f"{number} " * size, {"n": number, "text": "x" * size}, HumanMessage("m" * size, id=str(number)))
    return kinds[number % 4]


def edited(values: dict[str, Any], channel: str, edit: int, number: int, size: int) -> Any:
    """A channel's next value: grown, shortened, shuffled or changed in the middle."""
    if channel == "n":
        return [None, number, float(number), f"{number}"][edit % 4]
    if channel == "text":
        text = values.get("text", "")
        return [text + f"{number} " * size, text[: len(text) // 2], f"{number}" * size, text[::-1]][edit % 4]
    if channel == "table":
        table = dict(values.get("table", {}))
        table |= {f"key {number + n}": item(number + n, size) for n in range(edit)}
        return table if edit % 3 else dict(list(table.items())[::-1][: number + 1])
    items = list(values.get("items", []))
    at = number % (len(items) + 1)
    new = [item(number + n, size) for n in range(edit % 5)]
    return [items + new, items[:at] + new + items[at:], items[at:] + items[:at], items[: at + 1], new][edit % 5]


class Machine(RuleBasedStateMachine):
    """What LangGraph's users do to a saver, in any order."""

    savers: tuple[Any, ...]
    loop: asyncio.AbstractEventLoop
    tenants = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        tenant = f"example {next(self.tenants)}"
        self.views = [saver.for_tenant(tenant) for saver in self.savers]
        self.fresh = lambda: self.reader.for_tenant(tenant)
        self.model: dict[str, Thread] = {}
        self.counter = 0

    reader: Any

    def call(self, which: int, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call one of the savers, by its sync or its async half."""
        saver = self.views[which // 2 % 2]
        if which % 2:
            return getattr(saver, name)(*args, **kwargs)
        return self.loop.run_until_complete(getattr(saver, f"a{name}")(*args, **kwargs))

    def listed(self, which: int, *args: Any, **kwargs: Any) -> list[CheckpointTuple]:
        saver = self.views[which // 2 % 2]
        if which % 2:
            return list(saver.list(*args, **kwargs))

        async def collect() -> list[CheckpointTuple]:
            return [entry async for entry in saver.alist(*args, **kwargs)]

        return self.loop.run_until_complete(collect())

    def chosen(self, thread: str, ns: str, number: int) -> str | None:
        """One of the ids of a namespace."""
        ids = sorted(id for space, id in self.model.get(thread, Thread()).entries if space == ns)
        return ids[-1 - number % len(ids)] if ids else None

    def tuple_of(self, thread: str, place: tuple[str, str]) -> CheckpointTuple:
        entry, (ns, id) = self.model[thread].entries[place], place
        made = checkpoint(entry.values, id=id, channel_versions=entry.versions)
        parent = config(thread, ns, entry.parent) if entry.parent else None
        pending = self.model[thread].pending(place)
        return CheckpointTuple(config(thread, ns, id), made, entry.metadata, parent, pending)  # type: ignore[arg-type]

    def everything(self, thread: str | None = None) -> list[CheckpointTuple]:
        names = [thread] if thread is not None else list(self.model)
        places = [(id, ns, name) for name in names for ns, id in self.model.get(name, Thread()).entries]
        return [self.tuple_of(name, (ns, id)) for id, ns, name in sorted(places, reverse=True)]

    # -- writing

    @initialize(which=numbers, place=places)
    def begin(self, which: int, place: tuple[str, str]) -> None:
        self.put(which, place, 0, True, {"items": (1, 5, 300), "text": (0, 1, 9000)}, None, 0)

    @rule(
        which=numbers,
        place=places,
        parent=numbers,
        given=st.booleans(),
        edits=st.dictionaries(st.sampled_from(CHANNELS), st.tuples(st.integers(0, 12), numbers, sizes), max_size=3),
        run=st.sampled_from(RUNS),
        back=st.sampled_from([0, 0, 0, 0, 3]),
    )
    def put(
        self, which: int, place: tuple[str, str], parent: int, given: bool, edits: Any, run: str | None, back: int
    ) -> None:
        """A child of a checkpoint, mostly of the newest; what does not change is given, or left to the parent."""
        thread, ns = place
        base = self.chosen(thread, ns, parent if parent < 6 else 0)
        self.counter += 1
        self.store(which, thread, ns, f"{max(0, self.counter - back):06}", base, given, edits, run)

    @rule(which=numbers, place=places, number=numbers, edits=st.just({"items": (4, 3, 300), "n": (1, 7, 1)}))
    def replace(self, which: int, place: tuple[str, str], number: int, edits: Any) -> None:
        """An id stored again."""
        if id := self.chosen(*place, number):
            self.store(which, *place, id, None, True, edits, None)

    def store(
        self, which: int, thread: str, ns: str, id: str, base: str | None, given: bool, edits: Any, run: str | None
    ) -> None:
        model = self.model.setdefault(thread, Thread())
        parent = model.entries[(ns, base)] if base else Entry({}, {}, {}, None)
        values, versions = dict(parent.values), dict(parent.versions)
        for channel, (edit, number, size) in edits.items():
            values[channel] = edited(parent.values, channel, edit, number, size)
            versions[channel] = versions.get(channel, 0) + 1
        metadata = {"source": "loop", "step": self.counter, "odd": self.counter % 2} | ({"run_id": run} if run else {})
        new = {channel: versions[channel] for channel in edits}
        handed = values if given else {channel: values[channel] for channel in edits}
        made = checkpoint(handed, id=id, channel_versions=versions)
        self.call(which, "put", config(thread, ns, base), made, metadata, new)
        model.entries[(ns, id)] = Entry(values, versions, metadata, base)

    @rule(
        which=numbers,
        place=places,
        number=numbers,
        ahead=st.sampled_from([False, False, False, True]),
        task=st.sampled_from(["task 1", "task 2"]),
        path=st.sampled_from(["", "~1", "~0"]),
        writes=st.lists(st.tuples(st.sampled_from(WRITE_CHANNELS), numbers, sizes), max_size=4),
    )
    def put_writes(
        self, which: int, place: tuple[str, str], number: int, ahead: bool, task: str, path: str, writes: Any
    ) -> None:
        """Writes of a task at a checkpoint, or at the one that will be stored next."""
        thread, ns = place
        id = f"{self.counter + 1:06}" if ahead else self.chosen(thread, ns, number)
        if id is None:
            return
        rows = [(channel, item(n, size)) for channel, n, size in writes]
        self.call(which, "put_writes", config(thread, ns, id), rows, task, path)
        if not rows:
            return
        stored = self.model.setdefault(thread, Thread()).writes.setdefault((ns, id), {})
        taken = {idx for name, idx in stored if name == task}
        for idx, (channel, value) in enumerate(rows):
            idx = WRITES_IDX_MAP.get(channel, idx)
            if idx < 0 or idx not in taken:
                stored[(task, idx)] = (path, channel, value)

    # -- removing

    @rule(which=numbers, thread=st.sampled_from(THREADS))
    def prune(self, which: int, thread: str) -> None:
        self.call(which, "prune", [thread, "never"])
        if model := self.model.get(thread):
            heads = {ns: max(id for space, id in model.entries if space == ns) for ns, _ in model.entries}
            model.keep(lambda place: heads[place[0]] == place[1])

    @rule(which=numbers, thread=st.sampled_from(THREADS), prune=st.booleans())
    def delete(self, which: int, thread: str, prune: bool) -> None:
        if prune:
            self.call(which, "prune", [thread], strategy="delete")
        else:
            self.call(which, "delete_thread", thread)
        self.model.pop(thread, None)

    @rule(which=numbers, runs=st.lists(st.sampled_from(["run 1", "run 2", "run 3"]), max_size=2))
    def delete_for_runs(self, which: int, runs: list[str]) -> None:
        self.call(which, "delete_for_runs", runs)
        for name, model in list(self.model.items()):
            entries = model.entries
            model.keep(lambda place, entries=entries: entries[place].metadata.get("run_id") not in runs)
            if not model.entries and not model.writes:
                del self.model[name]

    @rule(which=numbers, source=st.sampled_from(THREADS), to=st.sampled_from([*THREADS, "copy"]))
    def copy(self, which: int, source: str, to: str) -> None:
        if source == to:
            return
        if source in self.model and to in self.model:
            with pytest.raises(ConflictError):
                self.call(which, "copy_thread", source, to)
            return
        self.call(which, "copy_thread", source, to)
        if source in self.model:
            self.model[to] = self.model[source].copy()

    # -- reading

    @rule(which=numbers, place=places, number=numbers, newest=st.booleans())
    def get(self, which: int, place: tuple[str, str], number: int, newest: bool) -> None:
        thread, ns = place
        id = self.chosen(thread, ns, 0 if newest else number)
        found = self.call(which, "get_tuple", config(thread, ns, None if newest else id or "none"))
        assert found == (self.tuple_of(thread, (ns, id)) if id else None)

    @rule(
        which=numbers,
        thread=st.sampled_from([*THREADS, "copy", None]),
        limit=st.sampled_from([None, None, 1, 3]),
        before=st.sampled_from([None, None, 5]),
        odd=st.sampled_from([None, 1]),
        run=st.sampled_from([None, "run 1"]),
    )
    def listing(self, which: int, thread: str | None, limit: Any, before: Any, odd: Any, run: Any) -> None:
        at = None if thread is None else {"configurable": {"thread_id": thread}}
        wanted = {key: value for key, value in (("odd", odd), ("run_id", run)) if value is not None}
        until = None if before is None else config("t", "", f"{max(0, self.counter - before):06}")
        found = self.listed(which, at, limit=limit, filter=wanted, before=until)
        expected = [
            entry
            for entry in self.everything(thread)
            if all(entry.metadata.get(key) == value for key, value in wanted.items())  # type: ignore[attr-defined]
            and (until is None or entry.checkpoint["id"] < until["configurable"]["checkpoint_id"])
        ]
        assert alike(found, expected, limit)

    @precondition(lambda self: self.counter % 7 == 6)
    @rule(which=numbers)
    def threads(self, which: int) -> None:
        found = {info.thread_id: info.checkpoints for info in self.call(which, "threads", limit=100)}
        assert found == {name: len(model.entries) for name, model in self.model.items()}

    def teardown(self) -> None:
        """A saver that has never seen these threads reads all of it, and so do the two that wrote it."""
        for view in (self.fresh(), *self.views):
            assert alike(list(view.list(None)), self.everything())


def alike(found: list[CheckpointTuple], expected: list[CheckpointTuple], limit: int | None = None) -> bool:
    """Whether a list is as expected; checkpoints of one id may stand in any order."""
    ids = [entry.checkpoint["id"] for entry in expected[:limit]]
    left = list(expected)
    for entry in found:
        left.remove(entry)
    return [entry.checkpoint["id"] for entry in found] == ids


def check(database: Database, raw: tuple[Any, ...], loop: asyncio.AbstractEventLoop, examples: int, steps: int) -> None:
    machine = type("Machine", (Machine,), {"savers": raw[:2], "reader": raw[2], "loop": loop})
    limits = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[*HealthCheck],
        print_blob=True,
    )
    run_state_machine_as_test(machine, settings=limits)


EXAMPLES = {"sqlite": 60}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("database", matrix(("async",)), indirect=True)
async def test_random_histories(database: Database) -> None:
    await in_a_loop_of_its_own(database, EXAMPLES.get(database.name, 15), 40)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("database", matrix(("async",)), indirect=True)
async def test_many_random_histories(database: Database) -> None:
    await in_a_loop_of_its_own(database, 2000 if database.name == "sqlite" else 500, 60)


async def in_a_loop_of_its_own(database: Database, examples: int, steps: int) -> None:
    """Hypothesis is sync, so the async halves get a loop of their own in its thread."""

    def work() -> None:
        with asyncio.Runner() if hasattr(asyncio, "Runner") else OldRunner() as runner:
            loop = runner.get_loop()
            savers = tuple(loop.run_until_complete(database.raw()) for _ in range(3))
            try:
                check(database, savers, loop, examples, steps)
            finally:
                loop.run_until_complete(database.close())

    await asyncio.to_thread(work)


class OldRunner:
    """`asyncio.Runner` before Python 3.11, as far as it is used here."""

    def __enter__(self) -> OldRunner:
        self._loop = asyncio.new_event_loop()
        return self

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def __exit__(self, *exc_info: object) -> None:
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
