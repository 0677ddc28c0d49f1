"""What sealing costs a store: memories put, got and found, sealed and not.

    python -m benchmarks.sealing_stores [--quick] [--backend sqlite]

Contenders take turns, in CPU time of this process (a server's is its own); each number is the median of the rounds,
and each ratio of the ratios.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from langgraph.store.base import PutOp
from rich.console import Console
from rich.table import Table

from stepvault import Vault
from stepvault.encryption import Keyring

DIMS, PEOPLE = 256, 20
KEYRING = Keyring({"bench": bytes(range(32))})
CONTENDERS: dict[str, dict[str, Any]] = {
    "unsealed": {},
    "sealed": {"keyring": KEYRING},
    "sealed, names too": {"keyring": KEYRING, "pseudonymise_ids": True},
}
WORDS = [f"word{number}" for number in range(2000)]


def embed(texts: list[str]) -> list[list[float]]:
    return [[random.Random(text).random() for _ in range(DIMS)] for text in texts]


def value(number: int) -> dict[str, Any]:
    """A memory of some 300 bytes."""
    text = " ".join(random.Random(number).choices(WORDS, k=40))
    return {"text": text, "kind": "fact" if number % 3 else "preference", "n": number}


class Contender:
    """One store, and what is asked of it."""

    def __init__(self, url: str, options: dict[str, Any], *, vectors: bool, each: int) -> None:
        self._url, self._each = url, each
        if vectors:
            options = {**options, "index": {"dims": DIMS, "embed": embed, "fields": ["text"], "model": "m"}}
        self._vault = Vault.open(url, **options)
        self._vault.setup()
        self._store = self._vault.store
        self._number = 0
        for person in range(PEOPLE):
            self._store.batch([PutOp((f"u{person}", "facts"), f"k{n}", value(n), index=None) for n in range(each)])

    def put(self) -> None:
        self._number += 1
        self._store.put((f"u{self._number % PEOPLE}", "facts"), f"k{self._number % self._each}", value(self._number))

    def get(self) -> None:
        self._number += 1
        self._store.get((f"u{self._number % PEOPLE}", "facts"), f"k{self._number % self._each}")

    def search(self, **how: Any) -> Callable[[], None]:
        def do() -> None:
            self._number += 1
            self._store.search((f"u{self._number % PEOPLE}",), **how)

        return do

    def close(self) -> float:
        """Bytes of an item; 0 where no file says it."""
        self._vault.close()
        path = Path(self._url.removeprefix("sqlite:///"))
        return path.stat().st_size / (PEOPLE * self._each) if path.exists() else 0


@contextmanager
def urls(backend: str) -> Iterator[Callable[[ExitStack], str]]:
    """What makes an empty database, which is gone when the stack is closed."""
    with ExitStack() as servers:
        if backend == "sqlite":
            yield lambda stack: f"sqlite:///{stack.enter_context(tempfile.TemporaryDirectory())}/app.db"
            return
        from tests.servers import Postgres, Valkey, fresh_database

        if backend == "postgres":
            url = servers.enter_context(Postgres()).url
            yield lambda stack: stack.enter_context(fresh_database(url))
        else:
            yield lambda stack: stack.enter_context(Valkey()).url


def timed(work: Callable[[], object], count: int) -> float:
    """Microseconds of CPU for one."""
    start = time.process_time()
    for _ in range(count):
        work()
    return (time.process_time() - start) / count * 1e6


def operations(one: Contender, *, vectors: bool) -> dict[str, tuple[Callable[[], None], int]]:
    if vectors:
        return {
            "put": (one.put, 20),
            "search by meaning": (one.search(query="word7 word8"), 10),
        }
    return {
        "put": (one.put, 100),
        "get": (one.get, 300),
        "search, newest 10": (one.search(), 100),
        "search, filter": (one.search(filter={"kind": "preference"}), 100),
        "search, range": (one.search(filter={"n": {"$lt": 5}}, limit=5), 30),
        "search by words": (one.search(query="word7 word8", mode="text"), 20),
    }


def compared(new: Callable[[], str], rounds: int, each: int, *, vectors: bool) -> dict[str, dict[str, list[float]]]:
    """By operation and contender: each round's time. Sizes are one round."""
    made = {name: Contender(new(), options, vectors=vectors, each=each) for name, options in CONTENDERS.items()}
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(rounds):
        for name, one in made.items():
            for what, (work, count) in operations(one, vectors=vectors).items():
                found.setdefault(what, {}).setdefault(name, []).append(min(timed(work, count) for _ in range(3)))
    sizes = {name: [one.close()] for name, one in made.items()}
    return {**found, "bytes of an item": sizes} if all(map(any, sizes.values())) else found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--backend", choices=("sqlite", "postgres", "redis"), default="sqlite")
    arguments = parser.parse_args()
    table = Table(title=f"Stores of {PEOPLE} people, {arguments.backend}, us of CPU")
    for column in ("", *CONTENDERS):
        table.add_column(column)
    each, rounds = (10, 2) if arguments.quick else (50, 5)
    with urls(arguments.backend) as new:
        for vectors in (False, True):
            with ExitStack() as stack:
                found = compared(lambda: new(stack), rounds, each, vectors=vectors)
            for what, by in found.items():
                cells = []
                for times in by.values():
                    ratios = [mine / base for mine, base in zip(times, by["unsealed"], strict=True)]
                    cells.append(f"{statistics.median(times):,.0f} ({statistics.median(ratios):.2f} x)")
                table.add_row(f"{what}, vectors of {DIMS}" if vectors and "meaning" not in what else what, *cells)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
