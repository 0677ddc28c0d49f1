"""Processes that sweep, and are killed, or meet those who write.

Run as a program: `kill` kills a sweep at each of its batches, each under a tenant of its own; `many` has several sweep
the same threads at once; `race` has one sweep while another writes, reads, copies and resumes threads that live for a
moment. With a number, as large a part of that.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from langgraph.checkpoint.serde.types import INTERRUPT, RESUME
from langgraph.types import Interrupt

from stepvault import Vault
from stepvault.checkpointers._ops import copying, sweeping
from stepvault.errors import ConfigurationError, ConflictError, ThreadGoneError
from tests.contract.building import checkpoint, config
from tests.faults.erasing import Processes

MARKER = "marker-0c5d7e91a4"
MOMENT = 0.3 / 60  # minutes


def put(saver: Any, thread: str, minutes: float | None, text: str = MARKER) -> None:
    made = checkpoint({"a": text * 50, "b": text})
    at = config(thread, user_id="ann", stepvault_ttl=minutes)
    stored = saver.put(at, made, {"source": "loop", "step": 0}, made["channel_versions"])
    stored["configurable"]["stepvault_ttl"] = minutes
    saver.put_writes(stored, [("a", text)], "task")


def ask(saver: Any, thread: str, minutes: float) -> str:
    """A thread with an interrupt; its id."""
    made = checkpoint({"a": MARKER})
    at = config(thread, user_id="ann", stepvault_ttl=minutes)
    stored = saver.put(at, made, {"source": "loop", "step": 0}, made["channel_versions"])
    question = Interrupt(MARKER, id=f"question of {thread}")
    stored["configurable"]["stepvault_ttl"] = minutes
    saver.put_writes(stored, [(INTERRUPT, [question])], "task")
    return question.id


def fill(vault: Vault, count: int) -> None:
    saver = vault.checkpointer
    for n in range(count):
        put(saver, f"t{n}", MOMENT)
    vault.store.put(vault.store.thread_scope("t0"), "note", {"text": MARKER})
    vault.inbox.decide(ask(saver, "asks", MOMENT), MARKER, by="bob")
    put(saver, "lives", None, "x")
    time.sleep(0.4)


def kill(processes: Processes, every: int) -> None:
    """A sweep that is killed before each of its batches in turn; the last one was not."""
    at, status = 1 - every, -signal.SIGKILL
    while status:
        at += every
        tenant = f"kill {at}"
        assert processes.end(processes.start(tenant, lambda vault: fill(vault, 3))) == 0
        status = processes.end(processes.start(tenant, lambda vault: vault.sweep(), ("before", at)))
        assert status in (0, -signal.SIGKILL)
        print(json.dumps([tenant, status]), flush=True)


def many(processes: Processes, _: int) -> None:
    """Four that sweep forty threads; how many each removed."""
    assert processes.end(processes.start("many", lambda vault: fill(vault, 39))) == 0
    reader, writer = os.pipe()

    def sweep(vault: Vault) -> None:
        os.write(writer, f"{vault.sweep().threads}\n".encode())

    assert [processes.end(child) for child in [processes.start("many", sweep) for _ in range(4)]] == [0] * 4
    os.close(writer)
    with open(reader, encoding="utf-8") as told:
        print(json.dumps([int(line) for line in told]), flush=True)


def race(processes: Processes, part: int) -> None:
    """One sweeps; the other finds each thread whole or not at all."""
    sweeper = processes.start("race", sweep_on)
    worker = processes.start("race", lambda vault: work(vault, 200 // part))
    ended = processes.end(worker)
    os.kill(sweeper, signal.SIGKILL)
    assert (ended, processes.end(sweeper)) == (0, -signal.SIGKILL)


def sweep_on(vault: Vault) -> None:
    sweeping.MINUTE = 100  # a thread that waits is looked at again after this long
    while True:
        vault.checkpointer.sweep()


def work(vault: Vault, rounds: int) -> None:
    saver = vault.checkpointer
    copying.MINUTE = (
        5_000 if rounds >= 200 else 2_000
    )  # a sweep gives a copy this long to become whole: less, for a test
    met: dict[str, int] = dict.fromkeys(("stored", "seen", "gone", "copied", "refused", "resumed"), 0)
    for n in range(rounds):
        thread, copy = f"t{n % 5}", f"copy {n}"
        try:
            put(saver, thread, 2e-4 * (n % 4 + 1), f"{n} ")
            met["stored"] += 1
        except (ThreadGoneError, ConflictError):
            met["refused"] += 1
        found = saver.get_tuple(config(thread))
        met["gone" if found is None else "seen"] += 1
        if found is not None:
            values = found.checkpoint["channel_values"]
            assert values["a"] == values["b"] * 50, "half a thread"
        if n % 7 == 0:
            try:
                saver.copy_thread(thread, copy)
                met["copied"] += 1
            except (ConfigurationError, ConflictError, ThreadGoneError):
                met["refused"] += 1
            for entry in saver.list(config(copy)):
                assert entry.checkpoint["channel_values"]["b"], "half a copy"
        if n % 100 == 0:
            resume(saver, f"asks {n}")
            met["resumed"] += 1
        time.sleep(0.003 * (n % 5))
    print(json.dumps(met), flush=True)


def resume(saver: Any, thread: str) -> None:
    """A question outlives its thread's time; the answer ends that."""
    at = config(thread)
    ask(saver, thread, MOMENT)
    time.sleep(0.4)
    found = saver.get_tuple(at)
    assert found is not None, "a thread that waits for a human expired"
    saver.put_writes(found.config, [(RESUME, ["yes"]), ("a", "yes")], "task")


def main(url: str, options: str, what: str, part: str) -> None:
    {"kill": kill, "many": many, "race": race}[what](Processes(url, options), int(part))


if __name__ == "__main__":
    main(*sys.argv[1:])
