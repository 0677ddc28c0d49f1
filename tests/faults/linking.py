"""Two processes that erase two ids of one person at once; in every second round a third one says so only then.

Run as a program, it prints under which tenants.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

from stepvault import Vault
from stepvault.errors import SubjectErasedError
from tests.faults.erasing import Processes, ask, put

IDS = ("ann", "anna")


def fill(vault: Vault) -> None:
    for subject in IDS:
        put(vault, f"of {subject}", subject)
        vault.store.put(("users", subject), "k", {"text": subject})
        vault.inbox.decide(ask(vault, f"asks {subject}", "bob", text="his"), "yes", by=subject)
    put(vault, "of both", *IDS)
    put(vault, "shared", IDS[0], "bob", text="theirs")


def link(vault: Vault) -> None:
    with contextlib.suppress(SubjectErasedError):
        vault.subjects.link(*IDS)


def erase(subject: str) -> Callable[[Vault], Any]:
    return lambda vault: vault.erasure.erase(subject)


def together(processes: Processes, tenant: str, works: list[Callable[[Vault], Any]]) -> None:
    """Begin each when all are ready."""
    reader, writer = os.pipe()

    def begin(vault: Vault, work: Callable[[Vault], Any]) -> None:
        os.close(writer)
        os.read(reader, 1)  # returns when the last writer is closed
        work(vault)

    children = [processes.start(tenant, lambda vault, work=work: begin(vault, work)) for work in works]  # type: ignore[misc]
    os.close(writer)
    os.close(reader)
    assert [processes.end(child) for child in children] == [0] * len(works)


def main(url: str, options: str, rounds: str) -> None:
    processes = Processes(url, options)
    for n in range(int(rounds)):
        tenant = f"{n}"
        first: list[Callable[[Vault], Any]] = [fill] if n % 2 else [lambda vault: (fill(vault), link(vault))]
        together(processes, tenant, first)
        together(processes, tenant, [*map(erase, IDS), *([link] if n % 2 else [])])
        print(tenant, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
