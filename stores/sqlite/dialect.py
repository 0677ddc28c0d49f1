"""The storage primitives on SQLite: items in a table, vectors beside it, words in FTS5."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

from typing_extensions import LiteralString

from stepvault._core.migrate import migrations_in, pending, statements
from stepvault._core.plan import Atomic, Batch, Mode, Op, Stmt
from stepvault._core.sqltext import literal, named
from stepvault.errors import MissingDependencyError, SubjectErasedError
from stepvault.stores._dialect import (
    Find,
    Found,
    IndexRecord,
    ItemRow,
    Match,
    Near,
    NewItem,
    Removed,
    Reply,
    Whole,
    Work,
)
from stepvault.stores._ops.ranking import VectorCache, nearest

_HERE = files("stepvault.stores.sqlite")
_NOW = "(CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000)"
_LIVE = f"(i.expires_at IS NULL OR i.expires_at > {_NOW})"
_ABOVE = b"\xff"  # above every byte of a namespace
_ABREAST = 500  # marks in one statement
_RANGES = 250

_QUERIES = named(_HERE.joinpath("queries.sql").read_text(encoding="utf-8"))
SQL: Mapping[str, LiteralString] = {
    name: literal(text.replace("{live}", _LIVE).replace("{now}", _NOW)) for name, text in _QUERIES.items()
}
MIGRATIONS = migrations_in(_HERE.joinpath("migrations"))
_TEXT_MIGRATION = 2
_EXACT_DELETES = (3, 42)


class SqliteDialect:
    """See `Dialect`."""

    automatic_setup = True

    def __init__(self, cache_bytes: int) -> None:
        self._text = True  # whether this SQLite has FTS5
        self._exact = False  # whether its FTS5 forgets deleted words at once
        self._cache = VectorCache(cache_bytes)

    # -- tables

    def setup(self) -> Op[None]:
        ((version, modules),) = yield Atomic(_one(Stmt(SQL["survey"])), "read")
        self._text = bool(modules)
        recorded = yield from self._recorded()
        if recorded is None or pending(self._known(), recorded):
            yield Atomic(self._migrate(), "write")
        self._exact = self._text and tuple(map(int, version.split("."))) >= _EXACT_DELETES
        if self._exact and (yield Atomic(_one(Stmt(SQL["text_is_exact"])), "read")) != [(1,)]:
            yield Batch([Stmt(SQL["make_text_exact"])])

    def _known(self) -> list[Any]:
        return [step for step in MIGRATIONS if self._text or step.number != _TEXT_MIGRATION]

    def _recorded(self) -> Op[list[tuple[int, str, int]] | None]:
        """The applied migrations; None without the table that records them."""
        table = Stmt("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'stepvault_store_migration'")
        if not (yield Atomic(_one(table), "read")):
            return None
        columns = Stmt("SELECT number, checksum, oldest FROM stepvault_store_migration")
        return (yield Atomic(_one(columns), "read"))  # type: ignore[no-any-return]

    def _migrate(self) -> Op[None]:
        yield Batch([Stmt(
            "CREATE TABLE IF NOT EXISTS stepvault_store_migration (number INTEGER PRIMARY KEY, name TEXT NOT NULL, "
            "checksum TEXT NOT NULL, oldest INTEGER NOT NULL, applied_at INTEGER NOT NULL)"
        )])  # fmt: skip
        recorded = yield from self._recorded()
        for step in pending(self._known(), recorded or []):
            yield Batch([Stmt(literal(sql)) for sql in statements(step.sql)])
            record = literal(f"INSERT INTO stepvault_store_migration VALUES (?, ?, ?, ?, {_NOW})")
            yield Batch([Stmt(record, (step.number, step.name, step.checksum, step.oldest))])

    def snapshot(self, op: Op[Any]) -> Op[Any]:
        return (yield Atomic(op, "read"))

    def transaction(self, op: Op[Any]) -> Op[Any]:
        return (yield Atomic(op, "write"))

    # -- one batch

    def work(self, tenant: bytes, work: Work) -> Op[Reply]:
        if len(work.gets) == 1 and not (work.finds or work.namespaces or work.puts or work.deletes):
            return (yield from self._work(tenant, work))  # a query alone needs no transaction
        mode: Mode = "write" if work.puts or work.deletes else "read"
        return (yield Atomic(self._work(tenant, work), mode))  # type: ignore[no-any-return]

    def _work(self, tenant: bytes, work: Work) -> Op[Reply]:
        reply = Reply()
        if work.gets:
            replies = yield Batch([Stmt(SQL["get"], (tenant, *name)) for name in work.gets])
            reply.gets = [ItemRow(*rows[0]) if rows else None for rows in replies]
        for find in work.finds:
            reply.finds.append((yield from self._find(tenant, find)))
        if work.namespaces:
            replies = yield Batch([Stmt(SQL["namespaces"], (tenant, low, low + _ABOVE)) for low in work.namespaces])
            reply.namespaces = [[ns for (ns,) in rows] for rows in replies]
        if work.puts or work.deletes or work.people:
            people = [work.people[at : at + _ABREAST] for at in range(0, len(work.people), _ABREAST)]
            living = [Stmt(_living(len(some)), (tenant, *some), guard=True) for some in people]
            replies = yield Batch([*living, *self._writes(tenant, work.puts, work.deletes)])
            if not all(replies[: len(living)]):
                raise SubjectErasedError
        return reply

    def _find(self, tenant: bytes, find: Find) -> Op[list[Found]]:
        if isinstance(find, Near):
            return (yield from self._near(tenant, find))
        if isinstance(find, Match):
            if not self._text:
                raise MissingDependencyError("Text search needs an SQLite with FTS5; use mode='vector'.")
            if not find.words:
                return []
            words = " OR ".join(f'"{word}"' for word in find.words)
            rows = yield from _one(_statement("match", tenant, find, words=words))
        else:
            rows = yield from _one(_statement("find", tenant, find))
        return [Found(ItemRow(*row[:-1]), row[-1]) for row in rows]

    def _near(self, tenant: bytes, find: Near) -> Op[list[Found]]:
        """Versions are (no, time of writing): a restored file may give a number to another item."""
        versions = yield from _one(_statement("candidates", tenant, find))
        missing = self._cache.missing(versions)
        if missing:
            found = yield from self._vectors(missing)
            self._cache.add(len(find.vector) // 4, found)
        ranked = self._cache.nearest(versions, find.vector, find.distance, find.limit)
        if ranked is None:
            ranked = nearest((yield from self._vectors(versions)), find.vector, find.distance, find.limit)
        best = [(versions[place][0], score) for place, score in ranked]
        rows = yield from _one(Stmt(SQL["rows"], (json.dumps([no for no, _ in best]),)))
        by_no = {row[0]: ItemRow(*row) for row in rows}
        return [Found(by_no[no], score) for no, score in best]

    def _vectors(self, versions: list[Any]) -> Op[list[tuple[Any, bytes]]]:
        rows = yield from _one(Stmt(SQL["vectors"], (json.dumps([no for no, _ in versions]),)))
        by_no = dict(rows)
        return [(version, by_no.get(version[0], b"")) for version in versions]

    def _writes(self, tenant: bytes, puts: Sequence[NewItem], deletes: Sequence[tuple[bytes, bytes]]) -> list[Stmt]:
        gone = [(tenant, *name) for name in deletes]
        names = gone + [(tenant, put.ns, put.key) for put in puts]
        batch = [Stmt(SQL["drop_vector"], names, many=True)]
        if self._text:
            batch.append(Stmt(SQL["drop_text"], names, many=True))
        batch.append(Stmt(SQL["drop_item"], gone, many=True))
        batch.append(Stmt(SQL["put"], [
            (tenant, put.ns, put.key, put.ttl, put.thread, put.checkpoint, put.tokens, put.fields, put.body)
            for put in puts
        ], many=True))  # fmt: skip
        vectors = [(tenant, put.ns, put.key, b"".join(put.vectors)) for put in puts if put.vectors]
        batch.append(Stmt(SQL["put_vector"], vectors, many=True))
        if self._text:
            texts = [(tenant, put.ns, put.key, put.words) for put in puts if put.words]
            batch.append(Stmt(SQL["put_text"], texts, many=True))
        return [statement for statement in batch if statement.args]

    def set_erased(self, tenant: bytes, marks: Sequence[bytes], *, erased: bool) -> Op[None]:
        name = "set_erased" if erased else "unset_erased"
        yield Batch([Stmt(SQL[name], [(tenant, mark) for mark in marks], many=True)], durable=True)

    def erased(self) -> Op[list[tuple[bytes, bytes]]]:
        return (yield Atomic(_one(Stmt(SQL["erased"])), "read"))  # type: ignore[no-any-return]

    # -- lifetime

    def touch(self, tenant: bytes, rows: Sequence[ItemRow]) -> Op[None]:
        yield Batch([Stmt(SQL["touch"], [(row.no,) for row in rows], many=True)])

    def drop(self, tenant: bytes, rows: Sequence[ItemRow]) -> Op[None]:
        numbers = [row.no for row in rows]
        statements = [*self._without(numbers), Stmt(SQL["drop_item_no"], [(no,) for no in numbers], many=True)]
        yield Batch([*statements, *([Stmt(SQL["tidy_text"])] if self._text and not self._exact else [])])
        self._cache.clear()

    def pin(self, tenant: bytes, names: Sequence[tuple[bytes, bytes]], *, pinned: bool) -> Op[None]:
        yield Batch([Stmt(SQL["pin" if pinned else "unpin"], [(tenant, *name) for name in names], many=True)])

    def delete_below(self, tenant: bytes, prefixes: Sequence[bytes]) -> Op[Removed]:
        if len(prefixes) > 1 and not (yield Atomic(_below(tenant, prefixes), "read")):
            return Removed(0, 0)  # most threads have no memory: no writer has to wait for that
        removed: Removed | None = yield Atomic(self._delete_below(tenant, prefixes), "write")
        if removed is None:
            return Removed(0, 0)
        self._cache.clear()
        return removed

    def _delete_below(self, tenant: bytes, prefixes: Sequence[bytes]) -> Op[Removed | None]:
        """None: there was nothing."""
        found = yield from _below(tenant, prefixes)
        if not found:
            return None
        ranges = [(tenant, prefix, prefix + _ABOVE) for prefix in found]
        names = ("drop_vectors_below", *(["drop_texts_below"] if self._text else []), "drop_items_below")
        batch = [Stmt(SQL[name], ranges, many=True) for name in names]
        if self._text and not self._exact:  # older ones keep deleted words until their segments are merged
            batch.append(Stmt(SQL["tidy_text"]))
        yield Batch(batch)
        return Removed(*map(sum, zip(*found.values(), strict=True)))

    def sweep(self, limit: int) -> Op[int]:
        return (yield Atomic(self._sweep(limit), "write"))  # type: ignore[no-any-return]

    def overdue(self) -> Op[int]:
        ((count,),) = yield Atomic(_one(Stmt(SQL["overdue"])), "read")
        return count  # type: ignore[no-any-return]

    def _sweep(self, limit: int) -> Op[int]:
        expired = yield from _one(Stmt(SQL["expired"], (limit,)))
        names = ("drop_vector_no", *(["drop_text_no"] if self._text else []), "drop_item_no")
        if expired:
            yield Batch([Stmt(SQL[name], expired, many=True) for name in names])
        return len(expired)

    # -- vector index

    def index(self) -> Op[IndexRecord | None]:
        rows = yield Atomic(_one(Stmt(SQL["index"])), "read")
        if not rows:
            return None
        dims, distance, model, ready = rows[0]
        return IndexRecord(dims, distance, model, bool(ready))

    def make_index(self, record: IndexRecord) -> Op[None]:
        yield Batch([Stmt(SQL["drop_all_vectors"]), Stmt(SQL["make_index"], record)])
        self._cache.clear()

    def finish_index(self, record: IndexRecord) -> Op[None]:
        yield Batch([Stmt(SQL["make_index"], record)])

    def page(self, after: Any, limit: int) -> Op[tuple[list[tuple[Any, str | None, bytes]], Any]]:
        rows = yield Atomic(_one(Stmt(SQL["page"], (after or 0, limit))), "read")
        return rows, rows[-1][0] if len(rows) == limit else None

    def set_vectors(self, vectors: Sequence[tuple[Any, Sequence[bytes]]]) -> Op[None]:
        yield Batch([
            Stmt(SQL["drop_vector_no"], [(no,) for no, _ in vectors], many=True),
            Stmt(SQL["set_vector"], [(no, b"".join(found)) for no, found in vectors if found], many=True),
        ])  # fmt: skip
        self._cache.clear()

    # -- another form of the same items

    def names(self, tenant: bytes, rows: Sequence[ItemRow]) -> list[Any]:
        return [row.no for row in rows]

    def whole(self, names: Sequence[Any]) -> Op[list[Whole]]:
        return (yield Atomic(self._whole(json.dumps(list(names))), "read"))  # type: ignore[no-any-return]

    def _whole(self, names: str) -> Op[list[Whole]]:
        rows = yield from _one(Stmt(SQL["whole"], (names,)))
        texts = dict((yield from _one(Stmt(SQL["texts"], (names,))))) if self._text else {}
        found = []
        for no, tenant, *columns, vectors, body in rows:
            item = NewItem._make([*columns, texts.get(no, ""), (vectors,) if vectors else (), body])
            found.append(Whole(no, no, tenant, item))
        return found

    def exchange(self, changes: Sequence[tuple[Whole, NewItem | None]]) -> Op[None]:
        yield Atomic(self._exchange(changes), "write")
        self._cache.clear()

    def _exchange(self, changes: Sequence[tuple[Whole, NewItem | None]]) -> Op[None]:
        for old, new in changes:
            replies = yield Batch([
                Stmt(SQL["number"], (old.tenant, item.ns, item.key)) for item in (old.item, new or old.item)
            ])  # fmt: skip
            there, target = (rows[0][0] if rows else None for rows in replies)
            if there != old.no:
                continue  # written meanwhile: another version
            other = target if target != old.no else None
            newer = other is not None and other > old.no
            gone = [old.no] if newer or new is None or other is None else [old.no, other]
            statements = self._without(gone)
            if new is None or newer:
                statements.append(Stmt(SQL["drop_item_no"], (old.no,)))
            else:
                statements += self._with(old, other, new)
            yield Batch(statements)
        if self._text and not self._exact:
            yield Batch([Stmt(SQL["tidy_text"])])

    def _without(self, numbers: Sequence[int]) -> list[Stmt]:
        names = ("drop_vector_no", *(["drop_text_no"] if self._text else []))
        return [Stmt(SQL[name], [(no,) for no in numbers], many=True) for name in names]

    def _with(self, old: Whole, older: int | None, new: NewItem) -> list[Stmt]:
        statements = [] if older is None else [Stmt(SQL["drop_item_no"], (older,))]
        row = (old.no, new.ns, new.key, new.thread, new.tokens, new.fields, new.body)
        statements.append(Stmt(SQL["exchange"], row))
        if new.vectors:
            statements.append(Stmt(SQL["set_vector"], (old.no, b"".join(new.vectors))))
        if self._text and new.words:
            statements.append(Stmt(SQL["set_text"], (old.no, new.words)))
        return statements

    def now(self) -> Op[int]:
        rows = yield from _one(Stmt(SQL["now"]))
        return rows[0][0]  # type: ignore[no-any-return]


def _below(tenant: bytes, prefixes: Sequence[bytes]) -> Op[dict[bytes, tuple[int, int]]]:
    """Prefixes with anything below them: how many items are live, and how many of those have vectors."""
    found: dict[bytes, tuple[int, int]] = {}
    for start in range(0, len(prefixes), _RANGES):
        part = prefixes[start : start + _RANGES]
        text = literal(SQL["below"].replace("{ranges}", ", ".join(["(?, ?)"] * len(part))))
        ranges = [end for prefix in part for end in (prefix, prefix + _ABOVE)]
        rows = yield from _one(Stmt(text, (*ranges, tenant)))
        found.update({low: (live, embedded) for low, live, embedded in rows})
    return found


@lru_cache(_ABREAST)
def _living(count: int) -> LiteralString:
    return literal(SQL["living"].replace("{marks}", ", ".join("?" * count)))


def _one(statement: Stmt) -> Op[list[Any]]:
    (rows,) = yield Batch([statement])
    return rows  # type: ignore[no-any-return]


def _statement(name: str, tenant: bytes, find: Find, **more: Any) -> Stmt:
    """The statement of a search: its fixed text, and one condition for each thing it narrows by."""
    args: dict[str, Any] = {
        "tenant": tenant, "low": find.prefix, "high": find.prefix + _ABOVE,
        "limit": find.limit, "offset": find.offset, **more,
    }  # fmt: skip
    conditions: list[str] = []
    if find.before is not None:
        args["before"] = find.before
        conditions.append("AND i.no < :before")
    if find.max_age is not None:
        args["max_age"] = find.max_age
        conditions.append(f"AND i.updated_at >= {_NOW} - :max_age")
    for number, token in enumerate(find.tokens):
        args[f"token{number}"] = token
        conditions.append(f"AND (i.tokens IS NULL OR instr(i.tokens, :token{number}) > 0)")
    text = literal(SQL[name].replace("{more}", " ".join(conditions)))
    return Stmt(text, args)
