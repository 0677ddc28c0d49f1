"""Workers that are killed while they erase a person, beside others and writers that will not stop.

Run as a program, it kills one worker after another batch of an erasure each time, each time under a tenant of its own,
while a second worker is killed at another batch and a third process stores more and more for the same person: in
threads, in memory, in a run that had begun before. A fresh process then resumes. It prints each tenant, and in which
state of the erasure each worker died.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from itertools import count, pairwise
from typing import Any

from langchain_core.runnables.config import var_child_runnable_config
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Interrupt, interrupt

from stepvault import Vault
from stepvault.checkpointers._ops.erasing import requests
from stepvault.checkpointers._ops.erasing.requests import Request
from stepvault.checkpointers._ops.spaces import space
from stepvault.errors import StepvaultError, SubjectErasedError, ThreadGoneError
from tests.contract.building import checkpoint, config
from tests.contract.matrix import KEYRING
from tests.faults.workload import Deadly

MARKER = "secret-6f1d0c94b7e2"
KINDS = ("before", "half", "after")


def put(vault: Vault, thread: str, *subjects: str, text: str = MARKER) -> Any:
    made = checkpoint({"a": f"{text} of {subjects}" * 20})
    at = config(thread, user_id=list(subjects))
    return vault.checkpointer.put(at, made, {"source": "loop", "step": 0}, made["channel_versions"])


def fill(vault: Vault) -> None:
    """All that a person leaves: threads, one of them shared, a question, an effect, a decision, memory of each kind."""
    store, waiting = vault.store, ask(vault, "ann 0", "ann")
    for n in range(1, 3):
        put(vault, f"ann {n}", "ann")
    put(vault, "both", "ann", "bob", text="theirs")
    put(vault, "bob", "bob", text="his")
    assert waiting
    vault.inbox.decide(ask(vault, "bob asks", "bob", text="his"), "yes", by="ann")
    store.put((*store.thread_scope("bob"), "notes"), "k", {"text": "his"})
    store.put(("users", "bob"), "k", {"text": "his"})
    store.put(("users", "ann-2"), "k", {"text": "hers"})
    for thread in ("ann 1", "both"):
        store.put((*store.thread_scope(thread), "notes"), "k", {"text": MARKER})
    store.put(("users", "ann"), "k", {"text": MARKER})
    store.put(("ann", "notes"), "k", {"text": MARKER})


def ask(vault: Vault, thread: str, subject: str, *, text: str = MARKER) -> str:
    """A run that has paid and now waits for an answer; the id of its question."""

    def pay(state: MessagesState) -> Any:
        vault.effects.once("pay", lambda: text)
        return {"messages": [("ai", interrupt(f"pay {text}?"))]}

    graph = StateGraph(MessagesState).add_node("pay", pay).add_edge(START, "pay")
    done = graph.compile(checkpointer=vault.checkpointer).invoke({"messages": []}, config(thread, user_id=subject))
    return str(done["__interrupt__"][0].id)


class Writer:
    """Stores data of the person until told to end; where it was refused once, it stays refused."""

    def __init__(self, vault: Vault) -> None:
        self.vault, self.told = vault, False
        self.refused: set[Any] = set()

    def work(self, ready: Callable[[], None]) -> None:
        signal.signal(signal.SIGTERM, self._stop)
        fill(self.vault)
        run = self._begin()
        ready()
        parent = os.getppid()
        for n in count():
            if self.told or os.getppid() != parent:
                return
            for place, write in (*self._writes(n), *run):
                self._try(place, write, n)
            time.sleep(0.001)

    def _stop(self, *_: Any) -> None:
        self.told = True

    def _begin(self) -> list[tuple[Any, Callable[[int], Any]]]:
        """A run that loads a thread of hers now, and writes to its memory and its checkpoints from then on."""
        vault, run = self.vault, config("ann 2", user_id="ann")
        control = type("Control", (), {})()
        run["configurable"]["__pregel_runtime"] = type("Runtime", (), {"control": control})()
        vault.checkpointer.get_tuple(run)
        notes = (*vault.store.thread_scope("ann 2"), "notes")

        def remember(n: int) -> None:
            before = var_child_runnable_config.set(run)
            try:
                vault.store.put(notes, f"{n}", {"text": MARKER})
            finally:
                var_child_runnable_config.reset(before)

        return [("the run's memory", remember)]

    def _writes(self, n: int) -> Iterator[tuple[Any, Callable[[int], Any]]]:
        vault = self.vault
        thread = f"ann {n % 3}" if n % 2 else f"late {n}"
        yield ("thread", thread), lambda n: put(vault, thread, "ann")
        yield "memory", lambda n: vault.store.put(("users", "ann"), f"{n % 5}", {"text": MARKER})
        if n % 4 == 1:
            yield ("question", thread), lambda n: self._question(thread, n)

    def _question(self, thread: str, n: int) -> None:
        stored = put(self.vault, thread, "ann")
        at = config(thread, checkpoint_id=stored["configurable"]["checkpoint_id"], user_id="ann")
        asked = [("__interrupt__", (Interrupt(value=MARKER, id=f"{n:032}"),))]
        self.vault.checkpointer.put_writes(at, asked, f"task {n}", "~__pregel_pull, ask")

    def _try(self, place: Any, write: Callable[[int], Any], n: int) -> None:
        try:
            write(n)
        except (SubjectErasedError, ThreadGoneError) as exc:
            if isinstance(exc, SubjectErasedError) or place == "the run's memory":
                self.refused.add(place)
        except StepvaultError:
            return  # a thread that went under the writer
        else:
            assert place not in self.refused, f"stored for somebody who was erased: {place}"


def erase(vault: Vault, told: Callable[[Any], None] | None = None) -> None:
    """The thread that is also bob's stays, without her."""
    vault.erasure.erase("ann", shared="anonymise", progress=told)


def aerase(vault: Vault, told: Callable[[Any], None] | None = None) -> None:
    """The same by the async half."""
    asyncio.run(vault.erasure.aerase("ann", shared="anonymise", progress=told))


def resume(vault: Vault) -> None:
    """What the next process does; a worker that died before its request was kept was told nothing."""
    vault.erasure.resume()
    if not finished(vault):
        erase(vault)


def finished(vault: Vault) -> list[Request]:
    """The requests that have a receipt, the oldest first."""
    scope = vault.checkpointer._scope
    docs = scope.core.dialect.docs(space(scope, requests.SPACE), requests._REQUEST, b"", 1000)
    found = [requests._unpack(scope, doc.body) for doc in vault.checkpointer._run(docs)]
    return sorted((one for one in found if one.state == "receipted"), key=lambda one: one.requested)


def arm(vault: Vault, kind: str, at: int) -> Deadly:
    """Have a vault's process die at a batch of any of its databases, whichever is the `at`-th."""
    saver, keys = vault.checkpointer, vault.checkpointer._core.keys
    saver._driver = deadly = Deadly(saver._driver, kind, at)
    drivers = [(vault.store, "_driver")]
    if keys is not None and keys.elsewhere is not None:
        drivers.append((keys, "elsewhere"))
    for holder, name in drivers:
        other = Deadly(getattr(holder, name), kind, at)
        other._batches = deadly._batches
        setattr(holder, name, other)
    return deadly


class Processes:
    """Opens vaults in child processes."""

    def __init__(self, url: str, options: str) -> None:
        self._url, self._options = url, json.loads(options)
        if self._options.pop("sealed", False):
            self._options["keyring"] = KEYRING

    def start(self, tenant: str, work: Callable[[Vault], Any], deadly: tuple[str, int] | None = None) -> int:
        child = os.fork()
        if child:
            return child
        status = 1
        try:
            vault = Vault.open(self._url, **self._options)
            vault.setup()
            vault = vault.for_tenant(tenant)
            if deadly is not None:
                arm(vault, *deadly)
            work(vault)
            status = 0
        except BaseException:
            traceback.print_exc()
        os._exit(status)

    def erase(self, tenant: str, work: Any, deadly: tuple[str, int]) -> tuple[int, int]:
        """A worker, and where to read the states it has reached."""
        reader, writer = os.pipe()
        told = lambda request: os.write(writer, f"{request.state}\n".encode())  # noqa: E731
        child = self.start(tenant, lambda vault: work(vault, told), deadly)
        os.close(writer)
        return child, reader

    def end(self, child: int) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def batches(self, seed: str) -> list[range]:
        """The batches of an erasure that nobody disturbs, by the state that it is in."""
        reader, writer = os.pipe()

        def count_them(vault: Vault) -> None:
            fill(vault)
            deadly = arm(vault, "before", 0)
            begins = {"before": 0}

            def told(request: Any) -> None:
                if request.state not in begins:  # each look at the counter counts, too
                    begins[request.state] = next(deadly._batches) - len(begins)

            erase(vault, told)
            os.write(writer, json.dumps([*begins.values()]).encode())

        assert self.end(self.start(f"count {seed}", count_them)) == 0
        begins = json.loads(os.read(reader, 1000))
        return [range(at + 1, end + 1) for at, end in pairwise(begins)]


def killed_in(processes: Processes, worker: int, states: int) -> str | None:
    """The state of the erasure that a worker died in; None if it did its work."""
    with open(states) as told:
        reached = told.read().split()
    status = processes.end(worker)
    assert status in (0, -signal.SIGKILL), status
    return (reached[-1] if reached else "before") if status else None


def one(processes: Processes, tenant: str, points: list[tuple[str, int]]) -> list[str]:
    """An erasure whose workers are killed at these points; the states they died in."""
    reader, writer = os.pipe()
    late = processes.start(tenant, lambda vault: Writer(vault).work(lambda: os.write(writer, b".")))
    os.close(writer)
    assert os.read(reader, 1), "the writer is at work"
    works = (erase, aerase)
    workers = [processes.erase(tenant, work, point) for work, point in zip(works, points, strict=True)]
    died = [state for worker in workers if (state := killed_in(processes, *worker))]
    assert processes.end(processes.start(tenant, resume)) == 0
    os.kill(late, signal.SIGTERM)
    assert processes.end(late) == 0
    os.close(reader)
    return died


def main(url: str, options: str, seed: str, wanted: str, states_wanted: str) -> None:
    """Kill until that many were killed, in that many states: one all over the erasure, one in each state in turn."""
    processes, dice = Processes(url, options), random.Random(seed)
    states, killed, seen = processes.batches(seed), 0, set[str]()
    last, share = states[-1].stop - 1, int(wanted) // 2 or 1
    with contextlib.suppress(BrokenPipeError):
        for n in range(4 * share):
            at = 1 + n * last // share if n < share else 1  # then the second one alone, for states that pass in no time
            places = (at, dice.choice(states[-1 - n % len(states)]))
            points = [(dice.choice(KINDS), place) for place in places]
            tenant = f"{seed} {n}"
            died = one(processes, tenant, points)
            killed += len(died)
            seen |= {*died} - {"receipted"}
            print(json.dumps([tenant, died]), flush=True)
            if n + 1 >= share and killed >= int(wanted) and len(seen) >= int(states_wanted):
                return


if __name__ == "__main__":
    main(*sys.argv[1:])
