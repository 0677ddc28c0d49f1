"""One writing statement out of named parts: each part is a CTE that runs only if the guard `g` let it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from psycopg.types.numeric import Int4, Int8
from typing_extensions import LiteralString

from stepvault._core.chunks import ChunkRow
from stepvault._core.manifest import PAGE, first_of
from stepvault._core.plan import Stmt
from stepvault._core.rows import CheckpointRow, Elements, Guard, Note, WriteRow
from stepvault.checkpointers.postgres.names import Names
from stepvault.checkpointers.postgres.ranges import to_ranges
from stepvault.checkpointers.postgres.schema import QUERIES

_FEW = 8  # rows that are spelled out as VALUES: cheaper to send than arrays, and few different statements
_COLUMNS = {
    "add_chunks": (("number", "bigint"), ("count", "int"), ("element", "bytea")),
    "put_writes": (
        ("in_ns", "bytea"),
        ("checkpoint", "bytea"),
        ("task", "bytea"),
        ("k", "int"),
        ("by_run", "bytea"),
        ("made_at", "bigint"),
        ("pages", "int4multirange"),
        ("write", "bytea"),
    ),
    "put_notes": (("note", "bytea"), ("text", "bytea")),
}
_COLUMNS["replace_writes"] = _COLUMNS["put_writes"]


class Writing:
    """A writing statement under construction."""

    def __init__(self, guard: Guard) -> None:
        self.args: dict[str, Any] = {"rev": guard.rev, "extents": guard.extents}
        self._parts: list[tuple[str, str, int]] = []  # alias, query, rows
        if guard.thread is None:
            self.args |= {"tenant": guard.key.tenant, "thread": guard.key.thread, "uid": guard.uid}
            self.add("g", "create_thread")
        else:
            self.args |= {"no": Int8(guard.thread.no), "was": guard.thread.rev}
            self.add("g", "advance_thread")

    def add(self, alias: str, query: str, **args: Any) -> None:
        """Add a part and its arguments."""
        self._parts.append((alias, query, 0))
        self.args |= args

    def add_elements(self, elements: Elements) -> None:
        """New element rows; they replace the rows of closed pages, those that keep their number in place."""
        if elements.closed and "no" in self.args:
            numbers = {row.no for row in elements.rows}
            pages = [range(first_of(page), first_of(page) + PAGE) for page in elements.closed]
            dropped = [Int8(no) for page in pages for no in page if no not in numbers]
            self.add("d", "drop_chunks", dropped=dropped)
        if elements.rows:
            self._add_rows("c", "add_chunks", [_sized(row) for row in elements.rows])

    def add_checkpoint(self, row: CheckpointRow, tokens: Sequence[bytes]) -> None:
        """A checkpoint and the tokens of its metadata."""
        numbers = {"step": row.step, "created_at": row.created_at}
        typed = {name: None if number is None else Int8(number) for name, number in numbers.items()}
        self.add("k", "put_checkpoint", **{**row._asdict(), **typed, "refs": to_ranges(row.refs)})
        if tokens:
            if "no" in self.args:
                self.add("o", "drop_metas")
            self.add("m", "add_metas", tokens=list(tokens))

    def add_writes(self, rows: Sequence[WriteRow], *, replace: bool = False) -> None:
        """Rows of `put_writes`."""
        if rows:
            self._add_rows("w", "replace_writes" if replace else "put_writes", [_typed(row) for row in rows])

    def add_notes(self, notes: Sequence[Note]) -> None:
        """Notes to put, and to take away."""
        if kept := [tuple(note) for note in notes if note.body is not None]:
            self._add_rows("n", "put_notes", kept)
        if dropped := [note.key for note in notes if note.body is None]:
            self.add("e", "drop_notes", dropped_notes=dropped)

    def _add_rows(self, alias: str, query: str, rows: Sequence[tuple[Any, ...]]) -> None:
        few = len(rows) if len(rows) <= _FEW else 0
        self._parts.append((alias, query, few))
        for at, (name, _) in enumerate(_COLUMNS[query]):
            if few:
                self.args |= {f"{name}{i}": row[at] for i, row in enumerate(rows)}
            else:
                self.args[f"{name}s"] = [row[at] for row in rows]

    def statement(self, names: Names, cache: dict[Any, LiteralString], result: LiteralString) -> Stmt:
        """The whole; texts are kept by their parts."""
        key = (tuple(self._parts), result)
        text = cache.get(key)
        if text is None:
            parts = ", ".join(f"{alias} AS ({_text(query, few)})" for alias, query, few in self._parts)
            text = cache[key] = names.fill(f"WITH {parts} SELECT {result} FROM g")
        return Stmt(text, self.args)


def _text(query: str, few: int) -> str:
    columns = _COLUMNS.get(query)
    if columns is None:
        return QUERIES[query]
    if few:
        rows = (", ".join(f"%({name}{i})s::{kind}" for name, kind in columns) for i in range(few))
        source = "(VALUES {})".format(", ".join(f"({row})" for row in rows))
    else:
        source = "unnest({})".format(", ".join(f"%({name}s)s::{kind}[]" for name, kind in columns))
    return QUERIES[query].replace("{source}", source)


def _sized(row: ChunkRow) -> tuple[Any, ...]:
    return Int8(row.no), Int4(row.n), row.body


def _typed(row: WriteRow) -> tuple[Any, ...]:
    created_at = None if row.created_at is None else Int8(row.created_at)
    return (row.ns, row.checkpoint, row.task, Int4(row.k), row.run, created_at, to_ranges(row.refs), row.body)


def arrays(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Mapping[str, Any]:
    """Rows as one array per column, for `unnest`."""
    columns = zip(*rows, strict=True)
    return {
        name: [Int8(value) if type(value) is int else value for value in column]
        for name, column in zip(names, columns, strict=True)
    }
