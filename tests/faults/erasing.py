"""Workers that are killed while they erase a person, beside others and a writer that will not stop.

Run as a program, it kills one worker at each batch of an erasure in turn, each time under a tenant of its own, while a
second worker is killed at another batch and a third process stores more and more for the same person. A fresh process
then resumes. It prints each tenant, and how many of the workers died.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from stepvault.checkpointers._erasure import Erasure
from stepvault.checkpointers._ops.erasing import requests
from stepvault.errors import StepvaultError, SubjectErasedError
from tests.contract.building import checkpoint, config
from tests.faults.workload import Deadly

MARKER = "secret-6f1d0c94b7e2"


def put(saver: Any, thread: str, *subjects: str, text: str = MARKER) -> None:
    made = checkpoint({"a": f"{text} of {subjects}" * 20})
    saver.put(config(thread, user_id=list(subjects)), made, {"source": "loop", "step": 0}, made["channel_versions"])


def fill(saver: Any) -> None:
    for n in range(3):
        put(saver, f"ann {n}", "ann")
    put(saver, "both", "ann", "bob", text="theirs")
    put(saver, "bob", "bob", text="his")


def write_on(saver: Any, ready: Callable[[], None]) -> None:
    """Store data of the person until told to end; a thread that was refused once stays refused."""
    told = False

    def stop(*_: Any) -> None:
        nonlocal told
        told = True

    signal.signal(signal.SIGTERM, stop)
    fill(saver)
    ready()
    refused: set[str] = set()
    n = 0
    while not told:
        n += 1
        thread = f"ann {n % 3}" if n % 2 else f"late {n}"
        try:
            put(saver, thread, "ann")
        except SubjectErasedError:
            refused.add(thread)
        except StepvaultError:
            continue  # a thread that went under the writer
        else:
            assert thread not in refused, "stored for somebody who was erased"
        time.sleep(0.002)


def erase(saver: Any) -> None:
    """The thread that is also bob's stays, without her."""
    Erasure(saver).erase("ann", shared="anonymise")


def resume(saver: Any) -> None:
    """What the next process does; a worker that died before its request was kept was told nothing."""
    Erasure(saver).resume()
    if not saver._run(requests.finished(saver._scope)):
        erase(saver)


class Processes:
    """Makes savers in child processes."""

    def __init__(self, module: str, name: str, url: str, options: str) -> None:
        self._factory = getattr(importlib.import_module(module), name).from_conn_string
        self._url, self._options = url, json.loads(options)

    def start(self, tenant: str, work: Callable[[Any], Any], deadly: tuple[str, int] | None = None) -> int:
        child = os.fork()
        if child:
            return child
        status = 1
        try:
            saver = self._factory(self._url, tenant=tenant, **self._options)
            saver.setup()
            if deadly is not None:
                saver._driver = Deadly(saver._driver, *deadly)
            work(saver)
            status = 0
        except Exception:
            traceback.print_exc()
        os._exit(status)

    def end(self, child: int) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def batches(self, seed: str) -> int:
        """How many batches an erasure takes that nobody disturbs."""
        reader, writer = os.pipe()

        def count(saver: Any) -> None:
            fill(saver)
            saver._driver = driver = Deadly(saver._driver, "before", 0)
            erase(saver)
            os.write(writer, str(next(driver._batches)).encode())

        assert self.end(self.start(f"count {seed}", count)) == 0
        return int(os.read(reader, 100))


def main(module: str, name: str, url: str, options: str, seed: str) -> None:
    processes, dice = Processes(module, name, url, options), random.Random(seed)
    last = processes.batches(seed)
    for at in range(1, last + 1):
        tenant = f"{at} {seed}"
        reader, writer = os.pipe()
        late = processes.start(tenant, lambda saver, to=writer: write_on(saver, lambda: os.write(to, b".")))
        os.read(reader, 1)
        points = (at, dice.randint(1, last))
        workers = [processes.start(tenant, erase, ("after", n)) for n in points]
        ends = [processes.end(worker) for worker in workers]
        assert set(ends) <= {0, -signal.SIGKILL}, ends
        assert processes.end(processes.start(tenant, resume)) == 0
        os.kill(late, signal.SIGTERM)
        assert processes.end(late) == 0
        os.close(reader)
        os.close(writer)
        print(json.dumps([tenant, ends.count(-signal.SIGKILL)]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
