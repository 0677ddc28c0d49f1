"""What durability, questions, effects and leases cost, and a page of the inbox among many.

    python -m benchmarks.hitl                        every backend
    python -m benchmarks.hitl --backend sqlite --pending 100000

Round trips are exact; milliseconds are medians of this machine (of pages: the best, read in turns with what they are
compared with) and only good for comparison within one table.
"""

from __future__ import annotations

import argparse
import operator
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import Command, Interrupt, interrupt
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.backends import Backends
from stepvault import Vault
from stepvault._core import plan
from stepvault._core.knowledge import ThreadKey
from stepvault.checkpointers._ops.inbox.entries import entry_of, interrupt_of, note_keys

BACKENDS = {"sqlite": "sqlite:///{}", "postgres": "{}", "redis": "{}"}
NODES = 5
PAGE = 50
TOGETHER = 10  # questions of one thread


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]


@contextmanager
def counted() -> Iterator[list[Any]]:
    """Every round trip meanwhile."""
    seen: list[Any] = []
    answer = plan.answer

    def counting(request: Any, driver: Any) -> Any:
        if isinstance(request, plan.Batch):
            seen.append(request)
        return answer(request, driver)

    plan.answer = counting
    try:
        yield seen
    finally:
        plan.answer = answer


def graph_of(vault: Vault, kind: str) -> Any:
    def step(state: State) -> State:
        return {"log": ["step"]}

    def middle(state: State) -> State:
        if kind == "question":
            return {"log": [interrupt("ok?")]}
        if kind == "effect":
            return {"log": [vault.effects.once("charge", len, "x")]}
        return {"log": ["middle"]}

    builder = StateGraph(State)
    names = [f"n{number}" for number in range(NODES)]
    for before, name in zip([START, *names], names, strict=False):
        builder.add_node(name, middle if name == "n2" else step)
        builder.add_edge(before, name)
    return builder.compile(checkpointer=vault.checkpointer)


def cost(run: Callable[[str], None], rounds: int) -> tuple[int, float]:
    """Round trips and milliseconds of a turn on a fresh thread."""
    with counted() as seen:
        run("counted")
    times = []
    for number in range(rounds):
        began = time.perf_counter()
        run(f"timed {number}")
        times.append(time.perf_counter() - began)
    return len(seen), statistics.median(times) * 1000


def turns(vault: Vault, rounds: int) -> Iterator[tuple[str, int, float]]:
    plain, question, effect = (graph_of(vault, kind) for kind in ("plain", "question", "effect"))

    def at(thread: str, what: str) -> Any:
        return {"configurable": {"thread_id": f"{what} {thread}"}}

    def ask(thread: str) -> None:
        question.invoke({"log": []}, at(thread, "question"), durability="sync")
        question.invoke(Command(resume="yes"), at(thread, "question"), durability="sync")

    def decide(thread: str) -> None:
        (asked,) = question.invoke({"log": []}, at(thread, "decision"), durability="sync")["__interrupt__"]
        decision = vault.inbox.decide(asked.id, "yes", by="ann")
        question.invoke(decision.command, decision.config, durability="sync")

    def lease(thread: str) -> None:
        with vault.checkpointer.lease(at(thread, "lease")["configurable"]["thread_id"]) as config:
            plain.invoke({"log": []}, config, durability="sync")

    for durability in ("sync", "async", "exit"):
        run = lambda thread: plain.invoke({"log": []}, at(thread, durability), durability=durability)  # noqa: E731, B023
        yield f'{NODES} nodes, durability="{durability}"', *cost(run, rounds)
    run = lambda thread: effect.invoke({"log": []}, at(thread, "effect"), durability="sync")  # noqa: E731
    yield "... with an effect", *cost(run, rounds)
    yield "... under a lease", *cost(lease, rounds)
    yield "... with a question and an answer", *cost(ask, rounds)
    yield "... decided in the inbox", *cost(decide, rounds)


def fill(vault: Vault, pending: int) -> None:
    """Threads that wait, each for several answers; few are one person's, few at one node, few are decided."""
    saver, threads = vault.checkpointer, pending // TOGETHER
    few = -(-PAGE // TOGETHER)  # threads that a page takes
    every = max(1, threads // (few + 1))
    for number in range(threads):
        kind, ids = number % every, [f"{number * TOGETHER + place:032x}" for place in range(TOGETHER)]
        who = {"user_id": "ann"} if kind == 1 else {}
        config = {
            "configurable": {"thread_id": f"p{number}", "checkpoint_ns": "", "checkpoint_id": f"{number:032x}", **who}
        }
        asked = [Interrupt(value={"ask": id_}, id=id_) for id_ in ids]
        node = "rare" if kind == 2 else "ask"
        saver.put_writes(config, [("__interrupt__", asked)], f"task {number}", f"~__pregel_pull, {node}")
        for id_ in ids if kind == 3 else ():
            vault.inbox.decide(id_, "yes")


def pages(vault: Vault, pending: int, rounds: int) -> Iterator[tuple[str, int, float, float]]:
    """Pages of the inbox: round trips, milliseconds, and those of the same entries read by their primary keys."""
    fill(vault, pending)
    deep = None
    for _ in range(pending * 9 // 10 // 1000):
        deep = vault.inbox.list(limit=1000, cursor=deep).cursor
    kinds: dict[str, dict[str, Any]] = {
        "the first": {},
        "at nine tenths": {"cursor": deep},
        "of one person": {"subject": "ann"},
        "at one node": {"node": "rare"},
        "of one person at one node": {"subject": "ann", "node": "ask"},
        "decided": {"status": "decided"},
        "of any status": {"status": None},
    }
    for label, filters in kinds.items():
        yield label, *compared(vault, filters, rounds)


def compared(vault: Vault, filters: dict[str, Any], rounds: int) -> tuple[int, float, float]:
    """A page, and its entries by their keys."""
    saver, scope = vault.checkpointer, vault.checkpointer._scope
    with counted() as seen:
        first = vault.inbox.list(limit=PAGE, **filters)
    trips = len(seen)
    keys = [(ThreadKey(scope.tenant, i.thread_id.encode()), note_keys(i.interrupt_id)[0]) for i in first]

    def by_key() -> Any:
        rows = yield from scope.core.dialect.notes_at(keys)
        return [
            interrupt_of(scope, key, row.uid, entry_of(scope, body))
            for (key, _), (row, body) in zip(keys, rows, strict=True)
        ]

    ours, theirs = [], []
    for _ in range(rounds * 5):
        began = time.perf_counter()
        assert len(vault.inbox.list(limit=PAGE, **filters)) == PAGE
        ours.append(time.perf_counter() - began)
        began = time.perf_counter()
        assert len(saver._run(by_key())) == PAGE
        theirs.append(time.perf_counter() - began)
    return trips, min(ours) * 1000, min(theirs) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", action="append", choices=BACKENDS, help="may be given more than once")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--pending", type=int, default=2000, help="how many interrupts wait")
    arguments = parser.parse_args()
    console = Console()
    with Backends() as backends:
        for name in arguments.backend or BACKENDS:
            table = Table(title=name, title_justify="left", box=box.SIMPLE_HEAD)
            for heading in ("", "round trips", "ms"):
                table.add_column(heading, justify="left" if not heading else "right")
            with backends.place(name) as place, Vault.open(BACKENDS[name].format(place.address)) as vault:
                vault.setup()
                for label, trips, milliseconds in turns(vault, arguments.rounds):
                    table.add_row(label, str(trips), f"{milliseconds:.1f}")
                for label, trips, ours, theirs in pages(vault, arguments.pending, arguments.rounds):
                    what = f"inbox: {PAGE} of {arguments.pending:,}, {label} ({ours / theirs:.2f} x by primary key)"
                    table.add_row(what, str(trips), f"{ours:.2f}")
            console.print(table)


if __name__ == "__main__":
    main()
