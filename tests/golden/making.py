"""The stored format, frozen: databases and records that every later version must read, and records it must write.

    python -m tests.golden.making            writes what is missing in tests/golden
    python -m tests.golden.making --replace  writes all of it anew: only before the first release

A new form of a value, or a new version of the format, gets files of its own; the old ones stay.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from stepvault._core.record import Record, Write, encode_record, encode_writes
from stepvault.checkpointers.sqlite import SqliteSaver
from tests.contract.building import checkpoint, config

HERE = Path(__file__).parent


@dataclass
class Put:
    """One checkpoint; `new` names the channels that changed (None: all)."""

    thread: str
    ns: str
    id: str
    values: dict[str, Any]
    parent: str | None = None
    new: tuple[str, ...] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    writes: list[tuple[str, str, list[tuple[str, Any]]]] = field(default_factory=list)  # task, path, writes

    def checkpoint(self) -> dict[str, Any]:
        return dict(checkpoint(self.values, id=self.id, **self.fields))

    def store(self, saver: Any) -> None:
        made = self.checkpoint()
        versions = made["channel_versions"]
        new = versions if self.new is None else {name: versions[name] for name in self.new}
        stored = saver.put(config(self.thread, self.ns, self.parent), made, self.metadata, new)
        for task, path, writes in self.writes:
            saver.put_writes(stored, writes, task, path)


def uuid(number: int) -> str:
    return f"1f0a0000-0000-6000-8000-{number:012}"


def words(number: int, count: int) -> str:
    """Text that compresses like text."""
    return " ".join(f"word{(number * 7919 + n * n) % 997}" for n in range(count))


USAGE = {"output_tokens": 1, "total_tokens": 9}


def messages(count: int) -> list[Any]:
    kinds: list[Callable[[int], Any]] = [
        lambda n: HumanMessage(words(n, 40), id=f"h{n}"),
        lambda n: AIMessage(words(n, 60), id=f"a{n}", usage_metadata={**USAGE, "input_tokens": n}),
        lambda n: ToolMessage(words(n, 10), id=f"t{n}", tool_call_id=f"c{n}"),
    ]
    return [kinds[n % 3](n) for n in range(count)]


def story() -> Iterator[Put]:
    """Every kind of value, name, version and row that is stored."""
    chat = messages(150)
    for n in range(0, 150, 10):
        said = [("task", "~__pregel_pull, node", [("messages", chat[n : n + 10])])]
        parent = uuid(n - 10) if n else None
        yield Put(
            "chat",
            "",
            uuid(n),
            {"messages": chat[: n + 10]},
            parent,
            metadata={"source": "loop", "step": n},
            writes=said,
        )
    yield Put("chat", "sub:1|deeper:2", uuid(1), {"messages": chat[:3]}, metadata={"parents": {"": uuid(0)}})
    values = {
        "none": None,
        "small": [1, "two", None],
        "one": words(1, 80),
        "text": words(2, 4000),
        "bytes": bytes(range(256)) * 60,
        "whole": {"nested": {"list": [{3}, [None]]}, "float": 0.1},
        "list": [words(n, 20) for n in range(9)],
        "dict": {f"key {n}": words(n, 20) for n in range(12)},
        "many": list(range(1500)),
        "wide": {f"k{n}": n for n in range(1500)},
        "delta": _DeltaSnapshot([words(3, 50), words(4, 50)]),
        "__start__": {"messages": chat[:2], "topic": "t"},
        "name \ud800 \x00 é": "named",
    }
    versions = {name: f"{n:08x}" for n, name in enumerate(values)} | {
        "count": 7,
        "ratio": 1.5,
        "official": f"{3:032}.{0.5:016}",
    }
    seen = {"node": {"none": "00000000", "gone": 3}, "__input__": {}}
    fields = {
        "channel_versions": versions,
        "versions_seen": seen,
        "updated_channels": ["small", "gone"],
        "pending_sends": [],
    }
    kept = {"source": "input", "step": -1, "run_id": "run", "user": "ü", "flag": True, "tags": ["a"]}
    rows = [
        ("task", "", [("small", [1]), ("text", words(5, 400)), ("__error__", "boom")]),
        ("task", "later", [("x", 0), ("x", 1), ("x", "third"), ("__resume__", ["yes"])]),
        (uuid(9), "~1", [("none", None), ("delta", [words(6, 300)])]),
    ]
    yield Put("values", "", uuid(2), values, metadata=kept, fields=fields, writes=rows)
    later = values | {"list": [*values["list"], words(9, 20)]}
    yield Put(
        "values",
        "",
        "not a uuid \x00",
        later,
        uuid(2),
        new=("list",),
        fields=fields | {"ts": "2025-01-01T00:00:00+02:00", "v": 1},
    )


def expected() -> dict[tuple[str, str, str], tuple[Any, ...]]:
    """What a reader must find, by thread, namespace and id."""
    from langgraph.checkpoint.memory import InMemorySaver

    found: dict[tuple[str, str, str], tuple[Any, ...]] = {}
    memory = InMemorySaver(serde=Untouched())
    for put in story():
        put.store(memory)
        entry = memory.get_tuple(config(put.thread, put.ns, put.id))
        assert entry is not None
        made = put.checkpoint() | {"channel_values": put.values}
        found[(put.thread, put.ns, put.id)] = (made, put.metadata, put.parent, entry.pending_writes)
    return found


class Untouched:
    """A serializer that gives back the very objects."""

    def __init__(self) -> None:
        self._objects: list[Any] = []

    def dumps_typed(self, value: Any) -> tuple[str, bytes]:
        self._objects.append(value)
        return "object", str(len(self._objects) - 1).encode()

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return self._objects[int(data[1])]


class Foreign:
    """A serializer Stepvault knows nothing of: values are stored whole, under its tag."""

    def dumps_typed(self, value: Any) -> tuple[str, bytes]:
        return "foreign", pickle.dumps(value, protocol=4)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        assert data[0] == "foreign"
        return pickle.loads(data[1])


OPTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "native": dict,
    "raw": lambda: {"compression": None},
    "jsonplus": lambda: {"serde": JsonPlusSerializer()},
    "foreign": lambda: {"serde": Foreign()},
}


def database(kind: str) -> str:
    """A database of the story as SQL, byte for byte."""
    with SqliteSaver(":memory:", **OPTIONS[kind]()) as saver:
        for put in story():
            put.store(saver)
        return "\n".join(saver._driver.connection().iterdump())


def opened(sql: str, path: Path, kind: str) -> SqliteSaver:
    """A saver on a database that was stored as SQL."""
    connection = sqlite3.connect(path)
    connection.executescript(sql)
    connection.close()
    return SqliteSaver(str(path), **OPTIONS[kind]())


RECORDS = {
    "empty": Record(1, "2026-01-02T03:04:05.678901+00:00"),
    "full": Record(
        4,
        "2026-01-02T03:04:05+02:00",
        {"a": "00000001", "b": 2, "c": 2, "d": 2.0, "e": True},
        {"a": b"\x01", "b": [1, 3, b"\x02\x03"], "free": None},
        {"node": {"a": "00000001", "gone": 2}, "other": {}},
        ["a", "gone"],
        b"\x80",
        b"\x81\xa1a\x01",
    ),
    "names": Record(4, "", {"\ud800": 1, "é": "x"}, {"\ud800": b"\xc0"}, {"\udfff": {"\ud800": 1}}, ["\ud800"]),
}
WRITES = {
    "one": ("", [Write(0, "a", b"\x01")]),
    "several": ("~1", [Write(-3, "__interrupt__", [1, 1, b"\x02\x01"]), Write(7, "\ud800", None)]),
}


def records() -> dict[str, str]:
    """Bodies as hexadecimal digits."""
    bodies = {f"record {name}": encode_record(record) for name, record in RECORDS.items()}
    bodies |= {f"writes {name}": encode_writes(*writes) for name, writes in WRITES.items()}
    return {name: body.hex() for name, body in bodies.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replace", action="store_true", help="write files that exist, too")
    replace = parser.parse_args().replace
    files = {f"sqlite_{kind}_1.sql": lambda kind=kind: database(kind) for kind in OPTIONS}
    files["records_1.json"] = lambda: json.dumps(records(), indent=1) + "\n"
    for name, make in files.items():
        if replace or not (HERE / name).exists():
            (HERE / name).write_text(make(), encoding="utf-8")
            print(name)


if __name__ == "__main__":
    main()
