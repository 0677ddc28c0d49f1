"""Processes that work on a database and are killed at a chosen moment.

They are forked from a server that has everything imported, so that one costs some milliseconds.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
from collections.abc import Callable
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, interrupt

from stepvault.checkpointers._effects import Effects
from stepvault.checkpointers._inbox import Inbox
from stepvault.errors import EffectInDoubtError, StepvaultError
from tests.contract.hitl.building import chain, note, on_thread
from tests.contract.hitl.counting import die_after
from tests.contract.matrix import Database

_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload([__name__])

Place = tuple[str, str, str, dict[str, Any]]


def place_of(database: Database) -> Place:
    """How another process opens a database."""
    return database.module, database.saver_class, database.url, dict(database.options)


def opened(place: Place, **more: Any) -> Any:
    module, name, url, options = place
    return getattr(importlib.import_module(module), name).from_conn_string(url, **options, **more)


def start(job: Callable[..., None], *args: Any) -> Any:
    child = _server.Process(target=job, args=args, daemon=True)
    child.start()
    return child


def was_killed(job: Callable[..., None], *args: Any) -> bool:
    """Run a job to its end; whether it killed itself."""
    child = start(job, *args)
    child.join(60)
    assert child.exitcode in (0, -signal.SIGKILL), child.exitcode
    return bool(child.exitcode)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# -- paying


def paying(saver: Any, ledger: str, before: Callable[[], None] = bool, after: Callable[[], None] = bool) -> Any:
    """Asks, then charges once; every charge is a line of the ledger."""
    effects = Effects(saver)

    def charge(thread: str, cents: int) -> dict[str, Any]:
        before()
        with open(ledger, "a") as file:
            file.write(f"{thread} {effects.key()}\n")
        after()
        return {"charged": cents}

    def pay(state: Any, config: RunnableConfig) -> Any:
        interrupt("pay?")
        thread = config["configurable"]["thread_id"]
        return {"log": [effects.once("charge", charge, thread, 500)["charged"]]}

    return chain(saver, ("before", note), ("pay", pay), ("after", note))


def charges(ledger: str, thread: str) -> list[str]:
    """The idempotency keys under which a thread was charged."""
    if not os.path.exists(ledger):
        return []
    with open(ledger) as file:
        return [line.split()[1] for line in file if line.split()[0] == thread]


def pay(place: Place, ledger: str, thread: str, point: Any) -> None:
    """Answer and pay; die inside the effect, or after so many batches of the resumed run."""
    with opened(place) as saver:
        points = {"before the charge": (die, bool), "after the charge": (bool, die)}
        graph = paying(saver, ledger, *points.get(point, (bool, bool)))
        saver.get_tuple(on_thread(thread))
        if isinstance(point, int):
            die_after(point)
        graph.invoke(Command(resume="yes"), on_thread(thread))


def pay_at_once(place: Place, ledger: str, thread: str, line: Any, told: Any) -> None:
    """Answer and pay when all are ready; say what came of it."""
    with opened(place, on_conflict="raise") as saver:
        graph = paying(saver, ledger, after=lambda: __import__("time").sleep(0.05))
        saver.get_tuple(on_thread(thread))
        line.wait()
        try:
            graph.invoke(Command(resume="yes"), on_thread(thread))
            told.put("done")
        except StepvaultError as exc:
            told.put(type(exc).__name__)


def settle(saver: Any, ledger: str, thread: str) -> str:
    """What an operator does after a crash: run on; if in doubt look at the ledger, settle, run on."""
    graph = paying(saver, ledger)
    outcome = _run_on(saver, ledger, thread, None)
    if graph.get_state(on_thread(thread)).next:  # it died before its answer was stored, maybe not before it paid
        again = _run_on(saver, ledger, thread, Command(resume="yes"))
        outcome = "asked again" if again == "ran on" else again
    assert graph.get_state(on_thread(thread)).values["log"][1] == 500
    return outcome


def _run_on(saver: Any, ledger: str, thread: str, value: Any) -> str:
    graph, effects = paying(saver, ledger), Effects(saver)
    try:
        graph.invoke(value, on_thread(thread))
        return "ran on"
    except EffectInDoubtError as exc:
        record: Any = exc.record
        assert record.id in {found.id for found in effects.in_doubt()}
        made = charges(ledger, thread)
        assert made in ([], [record.key])
        outcome = "in doubt, charged" if made else "in doubt, not charged"
        effects.resolve(record.id, **({"result": {"charged": 500}} if made else {"retry": True}))
        graph.invoke(value, on_thread(thread))
        return outcome


# -- deciding and asking


def decide(place: Place, interrupt_id: str, answer: Any, batches: int | None) -> None:
    """Decide; die after so many batches, or before anything is made of the decision."""
    with opened(place) as saver:
        saver.get_tuple(on_thread("nobody"))
        if batches is not None:
            die_after(batches)
        Inbox(saver).decide(interrupt_id, answer, by=f"process {answer}")
        if batches is None:
            die()


def decide_at_once(place: Place, interrupt_id: str, answer: Any, line: Any, told: Any) -> None:
    with opened(place) as saver:
        saver.get_tuple(on_thread("nobody"))
        line.wait()
        try:
            Inbox(saver).decide(interrupt_id, answer, by=f"process {answer}")
            told.put(("heard", answer))
        except StepvaultError as exc:
            told.put((type(exc).__name__, getattr(exc, "by", None)))


def turn(place: Place, thread: str, value: Any, batches: int) -> None:
    """One turn of a thread that asks; dies after so many batches."""
    from tests.contract.hitl.building import two_in_a_node

    with opened(place) as saver:
        saver.get_tuple(on_thread("nobody"))
        die_after(batches)
        two_in_a_node(saver).invoke(Command(resume="yes") if value is None else value, on_thread(thread))


def hold(place: Place, thread: str, ready: Any) -> None:
    """Hold the lease of a thread until killed."""
    with opened(place) as saver, saver.lease(thread, ttl=1):
        ready.set()
        signal.pause()


def at_once(job: Callable[..., None], place: Place, count: int, *args: Any, numbered: bool = False) -> list[Any]:
    """The same job in several processes that begin together; what each says."""
    line, told = _server.Barrier(count), _server.Queue()
    children = [start(job, place, *args, *((n,) if numbered else ()), line, told) for n in range(count)]
    found = [told.get(timeout=60) for _ in children]
    for child in children:
        child.join(60)
    return found


def event() -> Any:
    return _server.Event()
