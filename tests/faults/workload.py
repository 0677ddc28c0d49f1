"""What a process does until it is killed, and a driver that kills it.

Run as a program, it does the work again and again in child processes, each under a tenant of its own, and kills each
at another point: before a batch, in the middle of one, after one. It prints how much each had been told was stored.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from itertools import count
from typing import Any

from stepvault._core.plan import Atomic, Batch
from tests.contract.matrix import saver_elsewhere
from tests.faults.scheduler import Step
from tests.faults.worlds import LONG, put, write

KINDS = ("before", "half", "after")


def work() -> list[Step]:
    """Every kind of write; each is one transaction, and done twice leaves what it leaves done once."""
    steps: list[Step] = []
    for n in range(5):
        items = [*LONG[: n + 1], f"only {n} " * 100]
        steps.append(lambda saver, n=n, items=items: put(saver, n, items, parent=n - 1 if n else None, run_id=f"r{n}"))
        steps.append(lambda saver, n=n: write(saver, n, "task", LONG[n], "w" * 1500))
    steps += [
        lambda saver: saver.copy_thread("t", "copy"),
        lambda saver: saver.prune(["t"]),
        lambda saver: put(saver, 10, [*LONG, "after the prune" * 50], parent=4),
        lambda saver: saver.delete_for_runs(["r2"]),
        lambda saver: put(saver, 11, LONG[::-1], thread="copy", parent=3),
        lambda saver: saver.delete_thread("t"),
        lambda saver: put(saver, 12, LONG[:3]),
        lambda saver: write(saver, 12, "task", LONG[1]),
        lambda saver: saver.copy_thread("copy", "copy of the copy"),
        lambda saver: saver.prune(["copy"]),
        lambda saver: saver.prune(["copy of the copy"], strategy="delete"),
        lambda saver: saver.delete_for_runs(["r4"]),
        lambda saver: put(saver, 13, [*LONG, *LONG], parent=12),
    ]
    return steps


class Deadly:
    """A driver that kills its process at batch number `at`: before it, after it, or with half of it done."""

    def __init__(self, driver: Any, kind: str, at: int) -> None:
        self._driver, self._kind, self._at = driver, kind, at
        self._batches = count(1)

    def run(self, op: Any) -> Any:
        return self._driver.run(self._watched(op))

    async def arun(self, op: Any) -> Any:
        return await self._driver.arun(self._watched(op))

    def close(self) -> None:
        self._driver.close()

    def _watched(self, op: Any) -> Any:
        """The same operation; every request to the database is counted, inside transactions too."""
        try:
            request = next(op)
            while True:
                due = isinstance(request, (Batch, Atomic)) and next(self._batches) == self._at
                whole = isinstance(request, Batch) and request.outside  # what no transaction may hold
                if due and (self._kind == "before" or (self._kind == "half" and whole)):
                    kill()
                if due and self._kind == "half":
                    request = Atomic(_half(request), "write")
                elif isinstance(request, Atomic):
                    request = replace(request, op=self._watched(request.op))
                try:
                    reply = yield request
                except BaseException as exc:
                    request = op.throw(exc)
                else:
                    if due and self._kind == "after":
                        kill()
                    request = op.send(reply)
        except StopIteration as stop:
            return stop.value


def _half(request: Any) -> Any:
    """Only the first statements of a transaction, or all of them, then death before it is committed."""
    if isinstance(request, Atomic):
        yield from request.op
    else:
        yield Batch(request.statements[: (len(request.statements) + 1) // 2])
    kill()


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(name: str, url: str, *kinds: str) -> None:
    for kind in kinds:
        for at in count(1):
            tenant = f"{kind} {at}"
            reader, writer = os.pipe()
            child = os.fork()
            if not child:
                saver = saver_elsewhere(name, url, tenant=tenant)
                saver.setup()
                saver._driver = Deadly(saver._driver, kind, at)
                for step in work():
                    step(saver)
                    os.write(writer, b".")
                os._exit(0)
            os.close(writer)
            with open(reader, "rb") as told:
                print(json.dumps([tenant, len(told.read())]), flush=True)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if status == 0:
                break
            assert status == -signal.SIGKILL, status


if __name__ == "__main__":
    main(*sys.argv[1:])
