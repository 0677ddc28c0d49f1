"""What is measured. Adding a workload is one function, one entry in `WORKLOADS` and its rows in `targets.py`.

A workload takes a contender, its fresh place and whether to be quick, and returns numbers by name. Times are
milliseconds.
"""

from __future__ import annotations

import asyncio
import gc
import random
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated, Any

import zstandard
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

from benchmarks.backends import Place
from benchmarks.contenders import Contender
from benchmarks.data import steps, text, writes
from benchmarks.erasing import erasing
from benchmarks.lifetime import lifetime

Numbers = dict[str, float]


@dataclass(frozen=True)
class Workload:
    """`rounds` times over all contenders, one after the other, so that noise meets all alike."""

    run: Callable[[Contender, Place, bool], Numbers]
    rounds: int
    about: str


def _ms(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1000


def _median_ms(call: Callable[[int], Any], times: int) -> float:
    return statistics.median(_ms(lambda i=i: call(i)) for i in range(times))  # type: ignore[misc]


# -- chat: one thread of add_messages


class Chat(TypedDict):
    messages: Annotated[list[Any], add_messages]


def _chat_graph(saver: Any) -> Any:
    rng = random.Random(1)
    graph = StateGraph(Chat)
    graph.add_node("model", lambda state: {"messages": [AIMessage(content=text(rng, 1000))]})
    graph.add_edge(START, "model")
    graph.add_edge("model", END)
    return graph.compile(checkpointer=saver)


def chat(contender: Contender, place: Place, quick: bool) -> Numbers:
    marks = (50, 200) if quick else (50, 200, 500)
    config = {"configurable": {"thread_id": "chat"}}
    rng = random.Random(2)
    numbers: Numbers = {}
    turns: list[float] = []
    with contender.open(place) as saver:
        graph = _chat_graph(saver)
        for turn in range(1, marks[-1] + 1):
            said = {"messages": [HumanMessage(content=text(rng, 100))]}
            turns.append(_ms(lambda said=said: graph.invoke(said, config)))  # type: ignore[misc]
            if turn in marks:
                numbers[f"turn@{turn}"] = statistics.median(turns[-20:])
                numbers[f"bytes@{turn}"] = place.size()
        messages = graph.get_state(config).values["messages"]
        assert len(messages) == 2 * marks[-1]
        numbers["get_tuple"] = _median_ms(lambda i: saver.get_tuple(config), 9)
        numbers["get_state"] = _median_ms(lambda i: graph.get_state(config), 9)
        numbers["history"] = _median_ms(lambda i: list(graph.get_state_history(config, limit=10)), 9)
    if place.address:
        numbers["cold_get"] = statistics.median(_cold_get_ms(contender, place, config) for _ in range(3))
    return numbers | _chat_bytes(numbers, messages, marks)


def _cold_get_ms(contender: Contender, place: Place, config: Any) -> float:
    with contender.open(place) as saver:
        return _ms(lambda: saver.get_tuple(config))


def _chat_bytes(numbers: Numbers, messages: list[Any], marks: tuple[int, ...]) -> Numbers:
    """Stored bytes against those of the messages themselves."""
    serializer = JsonPlusSerializer()
    parts = [serializer.dumps_typed([message])[1] for message in messages]
    payload = sum(map(len, parts))
    packed = len(zstandard.ZstdCompressor(level=3).compress(b"".join(parts)))
    stored = numbers[f"bytes@{marks[-1]}"]
    growth = {} if marks[-1] < 500 else {"growth": stored / (numbers["bytes@200"] or 1)}
    return growth | {
        "payload": payload,
        "packed": packed,
        "per_payload": stored / payload,
        "per_packed": stored / packed,
    }


# -- raw: the saver's own methods, 10 channels, 50 KB of state, 6 KB changed per step


def raw(contender: Contender, place: Place, quick: bool) -> Numbers:
    threads, count = (8, 30) if quick else (20, 50)
    puts: list[float] = []
    put_writes: list[float] = []
    with contender.open(place) as saver:
        for thread in range(threads):
            _store_thread(saver, thread, count, 10, puts, put_writes)
        heads = [{"configurable": {"thread_id": f"t{thread}", "checkpoint_ns": ""}} for thread in range(threads)]
        numbers = {
            "put": statistics.median(puts),
            "put_writes": statistics.median(put_writes),
            "get_tuple": _median_ms(lambda i: saver.get_tuple(heads[i % threads]), 100),
        }
        if contender.role != "limit":
            numbers["list"] = _median_ms(lambda i: list(saver.list(heads[i % threads], limit=10)), 2 * threads)
            numbers["bytes"] = place.size()
    return numbers


def _store_thread(
    saver: Any, thread: int, count: int, channels: int, puts: list[float], put_writes: list[float]
) -> None:
    config: Any = {"configurable": {"thread_id": f"t{thread}", "checkpoint_ns": ""}}
    versions: dict[str, Any] = {}
    for step, (checkpoint, changed) in enumerate(steps(thread, count, channels)):
        for channel in changed:
            versions[channel] = saver.get_next_version(versions.get(channel), None)
        checkpoint["channel_versions"] = dict(versions)
        checkpoint["versions_seen"] = {"n": dict(versions)}
        new = {channel: versions[channel] for channel in changed}
        metadata = {"source": "loop", "step": step, "parents": {}}
        start = time.perf_counter()
        config = saver.put(config, checkpoint, metadata, new)
        puts.append((time.perf_counter() - start) * 1000)
        task, given = str(uuid.UUID(int=thread * 1_000_000 + step)), writes(thread, step)
        put_writes.append(_ms(lambda config=config: saver.put_writes(config, given, task)))  # type: ignore[misc]  # noqa: B023


# -- async: 64 tasks, each 3 runs of 5 supersteps on threads of their own


class Work(TypedDict):
    x: int
    log: Annotated[list[str], lambda left, right: left + right]


def _work_graph(saver: Any) -> Any:
    async def node(state: Work) -> Any:
        return {"x": state["x"] + 1, "log": [text(random.Random(state["x"]), 200)]}

    graph = StateGraph(Work)
    names = [f"n{i}" for i in range(5)]
    for name in names:
        graph.add_node(name, node)
    for left, right in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(left, right)
    return graph.compile(checkpointer=saver)


async def _tasks(contender: Contender, place: Place, runs: int) -> AsyncIterator[float]:
    """Seconds of each run; the last number is how long all took."""
    assert contender.aopen is not None
    async with contender.aopen(place) as saver:
        graph = _work_graph(saver)
        took: list[float] = []

        async def task(number: int) -> None:
            for run in range(runs):
                start = time.perf_counter()
                config = {"configurable": {"thread_id": f"{number}-{run}"}}
                result = await graph.ainvoke({"x": 0, "log": []}, config)
                took.append(time.perf_counter() - start)
                assert result["x"] == 5

        await task(-1)
        took.clear()
        start = time.perf_counter()
        await asyncio.gather(*(task(number) for number in range(64)))
        took.append(time.perf_counter() - start)
        for seconds in took:
            yield seconds


def concurrent(contender: Contender, place: Place, quick: bool) -> Numbers:
    async def collect() -> list[float]:
        return [seconds async for seconds in _tasks(contender, place, 1 if quick else 3)]

    *took, all_of_them = asyncio.run(collect())
    return {
        "runs_per_s": len(took) / all_of_them,
        "p50": statistics.median(took) * 1000,
        "p99": sorted(took)[int(len(took) * 0.99)] * 1000,
    }


# -- manage: long threads


def manage(contender: Contender, place: Place, quick: bool) -> Numbers:
    sizes = (50, 500) if quick else (50, 500, 5000)
    numbers: Numbers = {}
    with contender.open(place) as saver:
        for size in sizes:
            _store_thread(saver, size, size, 3, [], [])
            head: Any = {"configurable": {"thread_id": f"t{size}", "checkpoint_ns": ""}}
            numbers[f"list@{size}"] = _median_ms(lambda i, head=head: list(saver.list(head, limit=10)), 15)  # type: ignore[misc]
        numbers["list_growth"] = numbers[f"list@{sizes[-1]}"] / numbers["list@50"]
        for thread in (501, 502):
            _store_thread(saver, thread, 500, 3, [], [])
        numbers["delete"] = statistics.median(_ms(lambda t=t: saver.delete_thread(f"t{t}")) for t in (500, 501, 502))  # type: ignore[misc]
    return numbers


# -- import: fresh interpreters

_IMPORTS = {
    "stepvault": "import stepvault",
    "our_saver": "from stepvault.checkpointers.sqlite import SqliteSaver",
    "official_saver": "from langgraph.checkpoint.sqlite import SqliteSaver",
}


def imports(contender: Contender, place: Place, quick: bool) -> Numbers:
    """What each import adds over langgraph-checkpoint."""
    return {name: _import_ms(statement) for name, statement in _IMPORTS.items()}


def _import_ms(statement: str) -> float:
    lines = [
        "import time, langgraph.checkpoint.base, langgraph.checkpoint.serde.jsonplus",
        "start = time.perf_counter()",
        statement,
        "print((time.perf_counter() - start) * 1000)",
    ]
    words = [sys.executable, "-c", "\n".join(lines)]
    return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


WORKLOADS = {
    "chat": Workload(chat, 3, "one thread, 500 turns of add_messages"),
    "raw": Workload(raw, 5, "10 channels, 50 KB of state, 6 KB changed per step"),
    "async": Workload(concurrent, 5, "64 tasks, 3 runs each, 5 supersteps per run"),
    "manage": Workload(manage, 3, "long threads of small checkpoints: list, delete"),
    "erase": Workload(
        erasing, 1, "a person with 5,000 threads erased, against a raw DELETE of the same rows; its memory"
    ),
    "ttl": Workload(lifetime, 5, "the same threads with and without a time to live; sweeps against a raw DELETE"),
    "import": Workload(imports, 7, "fresh interpreters"),
}


def measure(name: str, contender: Contender, place: Place, quick: bool) -> Numbers:
    """One run of a workload, without garbage of the run before."""
    gc.collect()
    return WORKLOADS[name].run(contender, place, quick)
