"""Our stores against the official ones and LangGraph's `InMemoryStore`, in one run, as ratios.

    python -m benchmarks.stores                     every backend
    python -m benchmarks.stores sqlite --rounds 5

5,000 items of 500 bytes in 50 namespaces; vectors of 384 numbers. Contenders take turns, round after round, and each
number is a median: on a noisy machine trust the ratios, not the times. The official store for SQLite needs a Python
whose sqlite3 loads extensions to search by vector, the one for Redis a server with modules: what cannot run sits out.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from langgraph.store.base import GetOp, PutOp
from rich.console import Console
from rich.table import Table

from benchmarks.backends import Backends

ITEMS, USERS, DIMS = 5000, 50, 384
Numbers = dict[str, float]

_CENTRES = np.random.default_rng(0).normal(size=(USERS, DIMS)).astype("f4")
_NAMED = re.compile(r"c(\d+) i(\d+)")
_WORDS = [f"word{number}" for number in range(2000)]
_vectors: dict[tuple[str, ...], list[float]] = {}


def embed(texts: Sequence[str]) -> list[list[float]]:
    """Vectors near the centre a text names; made once, so that the embedder costs nothing."""
    return [_vector(_NAMED.search(text).groups()) for text in texts]  # type: ignore[union-attr]


def _vector(name: tuple[str, ...]) -> list[float]:
    if name not in _vectors:
        noise = np.random.default_rng(int(name[1])).normal(size=DIMS).astype("f4")
        made = _CENTRES[int(name[0]) % USERS] + 0.7 * noise
        _vectors[name] = (made / np.linalg.norm(made)).tolist()
    return _vectors[name]


def items() -> list[tuple[tuple[str, str], str, dict[str, Any]]]:
    """What is stored."""
    chance = random.Random(5)
    made = []
    for number in range(ITEMS):
        body = " ".join(chance.choice(_WORDS) for _ in range(65))
        value = {"text": f"c{number % USERS} i{number}", "body": body, "kind": "abc"[number % 3], "score": number % 100}
        made.append((("memories", f"user{number % USERS}"), f"k{number}", value))
    return made


def ours(backend: str, address: str, **options: Any) -> Any:
    if backend == "sqlite":
        from stepvault.stores.sqlite import SqliteStore

        return SqliteStore.from_conn_string(address, **options)
    if backend == "postgres":
        from stepvault.stores.postgres import PostgresStore

        return PostgresStore.from_conn_string(address, **options)
    from stepvault.stores.redis import RedisStore

    return RedisStore.from_conn_string(address, **options)


@contextlib.contextmanager
def official(backend: str, address: str, **options: Any) -> Iterator[Any]:
    if backend == "sqlite":
        from langgraph.store.sqlite import SqliteStore

        with SqliteStore.from_conn_string(address, **options) as store:
            store.conn.execute("PRAGMA journal_mode = WAL")
            store.conn.execute("PRAGMA synchronous = NORMAL")  # as durable as ours
            yield store
    elif backend == "postgres":
        from langgraph.store.postgres import PostgresStore as TheirPostgresStore

        with TheirPostgresStore.from_conn_string(address, **options) as store:
            yield store
    else:
        from langgraph.store.redis import RedisStore as TheirRedisStore

        with TheirRedisStore.from_conn_string(address, **options) as store:
            yield store


@contextlib.contextmanager
def memory(backend: str, address: str, **options: Any) -> Iterator[Any]:
    from langgraph.store.memory import InMemoryStore

    yield InMemoryStore(**options)


CONTENDERS: dict[str, Callable[..., Any]] = {
    "ours": ours,
    "ours, no text": lambda backend, address, **options: ours(backend, address, text=False, **options),
    "official": official,
    "memory": memory,
}


def typical(action: Callable[[int], Any], times: int) -> float:
    """Milliseconds of one call, the median."""
    taken = []
    for number in range(times):
        start = time.perf_counter()
        action(number)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) * 1e3


def each(action: Callable[[Any], Any], everything: Sequence[Any], size: int) -> float:
    """Milliseconds of one item, done in batches."""
    start = time.perf_counter()
    for at in range(0, len(everything), size):
        action(everything[at : at + size])
    return (time.perf_counter() - start) * 1e3 / len(everything)


def keys_and_filters(store: Any, stored: Sequence[Any]) -> Numbers:
    """Single calls, batches of 100, filters and listing."""
    numbers = {"put": typical(lambda n: store.put(*stored[n]), 300)}
    numbers["put, batch of 100"] = each(lambda part: store.batch([PutOp(*one) for one in part]), stored[300:], 100)
    numbers["get"] = typical(lambda n: store.get(*stored[n * 7 % ITEMS][:2]), 500)
    numbers["get, batch of 100"] = each(lambda part: store.batch([GetOp(*one[:2]) for one in part]), stored, 100)
    one = [("memories", f"user{number}") for number in range(USERS)]
    numbers["search, filter in 100 items"] = typical(lambda n: store.search(one[n % USERS], filter={"kind": "a"}), 100)
    everywhere = ("memories",)
    numbers["search, filter in 5,000 items"] = typical(lambda n: store.search(everywhere, filter={"score": n}), 20)
    with contextlib.suppress(Exception):  # compared as text, or refused
        numbers["search, range in 5,000 items"] = typical(
            lambda n: store.search(everywhere, filter={"score": {"$gte": 95}}), 20
        )
    numbers["list_namespaces"] = typical(lambda n: store.list_namespaces(prefix=everywhere), 20)
    return numbers


def vectors(store: Any, stored: Sequence[Any]) -> Numbers:
    """Embedded puts, and searches by meaning over all items."""
    queries = [f"c{number} i{100_000 + number}" for number in range(40)]
    embed([one[2]["text"] for one in stored] + queries)
    numbers = {
        "put with vector, batch of 100": each(lambda part: store.batch([PutOp(*one) for one in part]), stored, 100)
    }
    store.search(("memories",), query=queries[0])
    numbers["search by vector"] = typical(lambda n: store.search(("memories",), query=queries[n]), 40)
    numbers["search by vector, filter"] = typical(
        lambda n: store.search(("memories",), query=queries[n], filter={"kind": "b"}), 40
    )
    asked = [np.array(embed([query])[0]) for query in queries]
    matrix = np.array(embed([one[2]["text"] for one in stored]))
    hits = [{item.key for item in store.search(("memories",), query=query)} for query in queries]
    best = [{f"k{place}" for place in np.argsort(-(matrix @ vector))[:10]} for vector in asked]
    numbers["recall@10"] = statistics.mean(len(mine & true) / 10 for mine, true in zip(hits, best, strict=True))
    return numbers


WORKLOADS: dict[str, tuple[Callable[[Any, Sequence[Any]], Numbers], dict[str, Any]]] = {
    "keys and filters": (keys_and_filters, {}),
    "vectors": (vectors, {"index": {"dims": DIMS, "embed": embed, "fields": ["text"]}}),
}


def run(backend: str, rounds: int, console: Console) -> None:
    stored = items()
    for title, (workload, options) in WORKLOADS.items():
        results: dict[str, list[Numbers]] = defaultdict(list)
        out: dict[str, str] = {}
        with Backends() as backends:
            for _ in range(rounds):
                for name, make in CONTENDERS.items():
                    if name in out:
                        continue
                    with backends.place(backend) as place:
                        try:
                            with make(backend, place.address, **options) as store:
                                getattr(store, "setup", lambda: None)()
                                results[name].append(workload(store, stored))
                        except Exception as exc:  # whatever it says without a module or an extension it needs
                            if make is not official:
                                raise
                            out[name] = f"{type(exc).__name__}: {exc}"
        show(f"{backend}: {title} (ms)", results, console)
        for name, reason in out.items():
            console.print(f"sits out: {name}: {reason}", highlight=False)


def show(title: str, results: dict[str, list[Numbers]], console: Console) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in results:
        table.add_column(name, justify="right")
        if name != "ours":
            table.add_column("ours / it", justify="right")
    for measure in results["ours"][0]:
        mine = statistics.median(numbers[measure] for numbers in results["ours"])
        row = [measure]
        for name, found in results.items():
            values = [numbers[measure] for numbers in found if measure in numbers]
            row.append(f"{statistics.median(values):.3f}" if values else "-")
            if name != "ours":
                row.append(f"{mine / statistics.median(values):.2f}" if values else "-")
        table.add_row(*row)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backends", nargs="*", default=["sqlite", "postgres", "redis"])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    console = Console(width=120)
    for backend in arguments.backends:
        run(backend, arguments.rounds, console)


if __name__ == "__main__":
    main()
