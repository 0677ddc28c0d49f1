"""Items in another form, or removed, as they were read: their numbers tell versions apart."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import LiteralString

from stepvault._core.plan import Atomic, Batch, Op, Stmt
from stepvault.stores._dialect import ItemRow, NewItem, Whole
from stepvault.stores.postgres.schema import QUERIES
from stepvault.stores.postgres.vectors import vector_of_text


class Exchanging:
    """See `Dialect`."""

    _vectors: dict[str, str] | None

    def names(self, tenant: bytes, rows: Sequence[ItemRow]) -> list[Any]:
        return [row.no for row in rows]

    def whole(self, names: Sequence[Any]) -> Op[list[Whole]]:
        embedded = {"embedded": self._text("embedded") if self._vectors is not None else "NULL::text"}
        (rows,) = yield Batch([Stmt(self._text("whole", embedded), {"no": list(names)})])
        found = []
        for no, tenant, *columns, tokens, fields, words, vectors, body in rows:
            numbers = None if tokens is None else b"".join(map(_number, filter(None, tokens.split(","))))
            floats = [vector_of_text(text) for text in (vectors or "").split(";") if text]
            item = NewItem._make([*columns, numbers, fields, words or "", floats, body])
            found.append(Whole(no, no, tenant, item))
        return found

    def exchange(self, changes: Sequence[tuple[Whole, NewItem | None]]) -> Op[None]:
        yield Atomic(self._exchange(changes), "write")

    def _exchange(self, changes: Sequence[tuple[Whole, NewItem | None]]) -> Op[None]:
        if any(new and (new.ns, new.key) != (old.item.ns, old.item.key) for old, new in changes):
            yield from self._ask("lock_items")  # nobody takes a new name meanwhile
        numbers = [old.no for old, _ in sorted(changes, key=lambda change: by_name(change[0].item))]
        still = {no for (no,) in (yield from self._ask("still", no=numbers))}
        present = [(old, new) for old, new in changes if old.no in still]
        wanted = [(old.tenant, new.ns, new.key) for old, new in present if new]
        columns: Any = zip(*wanted, strict=True) if wanted else ((), (), ())
        asked = dict(zip(("tenant", "ns", "key"), map(list, columns), strict=True))
        targets = {tuple(name): no for no, *name in (yield from self._ask("targets", **asked))}
        gone, kept = [], []
        for old, new in present:
            other = targets.get((old.tenant, new.ns, new.key), old.no) if new else None
            if new is None or other is None or other > old.no:
                gone.append(old.no)
                continue
            kept.append((old.no, new))
            if other != old.no:
                gone.append(other)
        yield from self._change("drop_numbers", gone)
        if kept:
            yield from self._give(kept)

    def _give(self, kept: Sequence[tuple[int, NewItem]]) -> Op[None]:
        numbers = [no for no, _ in kept]
        if self._vectors is not None:
            yield from self._ask("drop_vectors_of", no=numbers)
        args = {name: [getattr(new, name) for _, new in kept] for name in ("ns", "key", "thread", "fields", "body")}
        tokens, words = [token_array(new) for _, new in kept], [new.words or None for _, new in kept]
        yield from self._ask("exchange", no=numbers, tokens=tokens, words=words, **args)
        if self._vectors is not None:
            yield from self.set_vectors([(no, new.vectors) for no, new in kept])

    def drop(self, tenant: bytes, rows: Sequence[ItemRow]) -> Op[None]:
        yield from self._change("drop_numbers", [row.no for row in sorted(rows, key=by_name)])

    def _change(self, name: str, numbers: Sequence[int]) -> Op[None]:
        """Change items by their numbers, which come in the order of their names."""
        amount, no = ("one", numbers[0]) if len(numbers) == 1 else ("many", list(numbers))
        text = self._text(name, {"numbers": QUERIES[f"numbers_{amount}"]})
        yield Batch([Stmt(text, {"no": no})])

    def set_vectors(self, vectors: Sequence[tuple[Any, Sequence[bytes]]]) -> Op[None]:
        raise NotImplementedError

    def _text(self, name: str, more: Mapping[str, str] | None = None) -> LiteralString:
        raise NotImplementedError

    def _ask(self, name: str, /, **args: Any) -> Op[list[Any]]:
        raise NotImplementedError


def by_name(row: ItemRow | NewItem) -> tuple[bytes, bytes]:
    """The order in which items are locked."""
    return row.ns, row.key


def _number(text: str) -> bytes:
    return struct.pack(">q", int(text))


def numbers_of(tokens: bytes) -> tuple[int, ...]:
    """Tokens as the numbers that stand for them in a column."""
    return struct.unpack(f">{len(tokens) // 8}q", tokens)


def token_array(put: NewItem) -> str | None:
    """The tokens of an item as Postgres writes an array."""
    return None if put.tokens is None else "{" + ",".join(map(str, numbers_of(put.tokens))) + "}"
