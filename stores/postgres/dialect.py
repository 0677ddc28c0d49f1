"""The storage primitives on Postgres: a batch is one statement, so one round trip and one snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg.types.numeric import Int8
from typing_extensions import LiteralString

from stepvault._core.plan import Atomic, Batch, Op, Stmt
from stepvault._core.sqltext import literal
from stepvault.errors import MissingDependencyError, StorageError, SubjectErasedError
from stepvault.stores._dialect import (
    Find,
    Found,
    IndexRecord,
    ItemRow,
    Match,
    Near,
    Removed,
    Reply,
    Work,
)
from stepvault.stores.postgres.exchanging import Exchanging, by_name, numbers_of, token_array
from stepvault.stores.postgres.marks import one_of
from stepvault.stores.postgres.naming import Names
from stepvault.stores.postgres.schema import QUERIES, Schema
from stepvault.stores.postgres.vectors import AnnSettings, text_of_vector

_ABOVE = b"\xff"  # above every byte of a namespace
_EXACT = 5000  # up to so many candidates are compared one by one; more go through the approximate index
_ALL = 2**62
_REFUSED = "refused"
_PARTS = ("named", "numbers_many", "drop_vectors_of")  # of other statements
_NO_PGVECTOR = "Vector search needs pgvector in this database: install it, then CREATE EXTENSION vector."


class PostgresDialect(Exchanging):
    """See `Dialect`."""

    def __init__(self, names: Names, ann: AnnSettings, *, automatic_setup: bool = False) -> None:
        self.automatic_setup = automatic_setup
        self._names = names
        self._schema = Schema(names)
        self._ann = ann
        self._vectors: dict[str, str] | None = None  # what statements name of pgvector, once an index is seen
        self._texts: dict[Any, LiteralString] = {}
        self._parts = {name: names.fill(QUERIES[name]) for name in _PARTS}

    def setup(self) -> Op[None]:
        return self._schema.setup()

    def snapshot(self, op: Op[Any]) -> Op[Any]:
        return (yield Atomic(op, "read"))

    def transaction(self, op: Op[Any]) -> Op[Any]:
        return (yield Atomic(op, "write"))

    def _text(self, name: str, more: Mapping[str, str] | None = None) -> LiteralString:
        key = (name, *(more or {}).items())
        text = self._texts.get(key)
        if text is None:
            filling = {name: self._names.fill(part) for name, part in (more or {}).items()}
            filling = {**self._parts, **(self._vectors or {}), **filling}
            text = self._texts[key] = self._names.fill(QUERIES[name], filling)
        return text

    def _ask(self, name: str, /, **args: Any) -> Op[list[Any]]:
        (rows,) = yield Batch([Stmt(self._text(name), args)])
        return rows  # type: ignore[no-any-return]

    # -- one batch

    def work(self, tenant: bytes, work: Work) -> Op[Reply]:
        nearest = {place: find for place, find in enumerate(work.finds) if isinstance(find, Near)}
        ranked = {}
        for place, find in nearest.items():
            ranked[place] = yield from self._near(tenant, find)
        statement, parts = self._statement(tenant, work)
        rows: list[Any] = []
        if statement is not None:
            (rows,) = yield Batch([statement], retry=not (work.puts or work.deletes))
        return _reply(work, ranked, parts, rows)

    def _statement(self, tenant: bytes, work: Work) -> tuple[Stmt | None, list[Any]]:
        """The one statement of a batch, and what each `kind` in its rows stands for."""
        args: dict[str, Any] = {"tenant": tenant}
        parts: list[Any] = []
        reads: list[str] = []
        if work.gets:
            amount, names = _one_or_many({"ns": [ns for ns, _ in work.gets], "key": [key for _, key in work.gets]})
            reads.append(_part(self._text("gets", {"names": QUERIES[f"names_{amount}"]}), parts, args, "gets", names))
        for place, find in enumerate(work.finds):
            if isinstance(find, Near) or (isinstance(find, Match) and not find.words):
                continue
            values = _range(find) | {"limit": Int8(find.limit), "offset": Int8(find.offset)}
            if isinstance(find, Match):
                values["words"] = " | ".join(find.words)
            name, more = ("match" if isinstance(find, Match) else "find"), _narrowing(find, values)
            reads.append(_part(self._text(name, {"more": more}), parts, args, place, values))
        for place, low in enumerate(work.namespaces):
            values = {"low": low, "high": low + _ABOVE}
            reads.append(_part(self._text("namespaces"), parts, args, ("ns", place), values))
        writes = self._writes(work, args)
        if work.people:
            writes.insert(0, self._text("refused", {"people": one_of(work.people, args)}))
            reads.append(_part(self._text("was_refused"), parts, args, _REFUSED, {}))
        if not reads and not writes:
            return None, parts
        text = " UNION ALL ".join(f"({read})" for read in reads) or "SELECT NULL WHERE false"
        return Stmt(literal(f"WITH {', '.join(writes)} {text}" if writes else text), args), parts

    def _writes(self, work: Work, args: dict[str, Any]) -> list[str]:
        writes: list[str] = []
        allowed = {"allowed": QUERIES["allowed"] if work.people else ""}
        if work.deletes:
            writes.append(self._text("deletes", allowed))
            args |= _named(work.deletes)
        if work.puts:
            names = ("ns", "key", "ttl", "thread", "checkpoint", "fields", "body")
            columns: dict[str, list[Any]] = {name: [getattr(put, name) for put in work.puts] for name in names}
            columns["tokens"] = [token_array(put) for put in work.puts]
            columns["words"] = [put.words or None for put in work.puts]
            amount, given = _one_or_many(columns)
            args |= given
            writes += [self._text(f"given_{amount}", allowed), self._text("puts")]
            if self._vectors is not None:
                vectors = [(put.ns, put.key, text_of_vector(one)) for put in work.puts for one in put.vectors]
                turned: Any = zip(*vectors, strict=True) if vectors else ((), (), ())
                args |= dict(zip(("vector_ns", "vector_key", "vector"), map(list, turned), strict=True))
                writes.append(self._text("put_vectors"))
        return writes

    def set_erased(self, tenant: bytes, marks: Sequence[bytes], *, erased: bool) -> Op[None]:
        change = Stmt(self._text("set_erased" if erased else "unset_erased"), {"tenant": tenant, "mark": list(marks)})
        yield Batch([Stmt(self._text("lock_erased")), change], durable=True)

    def erased(self) -> Op[list[tuple[bytes, bytes]]]:
        return (yield from self._ask("erased"))

    # -- vectors

    def _near(self, tenant: bytes, find: Near) -> Op[list[Found]]:
        """Exact where few vectors or few items come into question, else through the approximate index."""
        values = {"tenant": tenant, "vector": text_of_vector(find.vector), **_range(find)}
        more = {"more": _narrowing(find, values)}
        approximate = self._ann.approximate(len(find.vector) // 4)
        most = max(_EXACT, find.limit) if approximate else _ALL
        found = yield from self._exact("near_all", values, more, most, find.limit)
        if found is None and more["more"]:
            found = yield from self._exact("near_few", values, more, most, find.limit)
        if found is None:
            found = yield from self._through_index(values, more, find.limit)
        if found is None:
            found = yield from self._exact("near_few", values, more, _ALL, find.limit)
        return found or []

    def _exact(
        self, name: str, values: dict[str, Any], more: dict[str, str], most: int, wanted: int
    ) -> Op[list[Found] | None]:
        """All that is in question, compared one by one; None if that is more than `most`."""
        limit = wanted
        while True:  # several vectors of one item take several rows
            statement = Stmt(self._text(name, more), {**values, "most": Int8(most), "limit": Int8(limit)})
            (rows,) = yield Batch([statement], retry=True)
            if rows and rows[-1][0] == -1:
                return None
            found = _ranked(rows, wanted)
            if len(found) >= wanted or len(rows) < limit:
                return found
            limit *= 2

    def _through_index(self, values: dict[str, Any], more: dict[str, str], wanted: int) -> Op[list[Found] | None]:
        """The index goes on until there are enough; None if it gives up, for a short answer would mean the end."""
        limit = wanted
        while True:
            near = Stmt(self._text("near", more), {**values, "limit": Int8(limit)})
            settings = Stmt(self._text("iterate"), {"ef": str(min(1000, max(100, 2 * limit)))})
            _, rows = yield Batch([settings, near], retry=True)
            found = _ranked(rows, wanted)
            if len(found) >= wanted:
                return found
            if len(rows) < limit:
                return None
            limit *= 2

    def index(self) -> Op[IndexRecord | None]:
        ((dims, distance, model, ready, schema),) = yield from self._ask("index")
        if dims is None:
            return None
        self._see(IndexRecord(dims, distance, model, ready), schema)
        return IndexRecord(dims, distance, model, ready)

    def _see(self, record: IndexRecord, schema: str | None) -> None:
        if schema is None:
            raise MissingDependencyError(_NO_PGVECTOR)
        self._vectors = self._ann.filling(record.distance, schema, record)
        self._texts.clear()

    def make_index(self, record: IndexRecord) -> Op[None]:
        yield Atomic(self._make_index(record), "write")

    def _make_index(self, record: IndexRecord) -> Op[None]:
        yield from self._ask("lock_index")
        if (yield from self.index()) == record:
            return  # another process was first
        if not (yield from self._ask("extension_exists")):
            raise MissingDependencyError(_NO_PGVECTOR)
        try:
            yield from self._ask("create_extension")
        except StorageError as exc:
            raise MissingDependencyError(f"{_NO_PGVECTOR} This role may not: {exc}") from exc
        ((*_, schema),) = yield from self._ask("index")
        self._see(record, schema)
        names = ["drop_vectors", "create_vectors", "create_vector_item", "create_vector_ns"]
        if self._ann.approximate(record.dims):
            names.append("create_vector_ann")
        yield Batch([Stmt(self._text(name)) for name in names])
        yield from self._record(record)

    def _record(self, record: IndexRecord) -> Op[None]:
        yield from self._ask("record_index", **record._asdict())

    def finish_index(self, record: IndexRecord) -> Op[None]:
        yield from self._record(record)

    def page(self, after: Any, limit: int) -> Op[tuple[list[tuple[Any, str | None, bytes]], Any]]:
        rows = yield from self._ask("page", after=Int8(after or 0), limit=Int8(limit))
        return rows, rows[-1][0] if len(rows) == limit else None

    def set_vectors(self, vectors: Sequence[tuple[Any, Sequence[bytes]]]) -> Op[None]:
        rows = [(no, text_of_vector(vector)) for no, found in vectors for vector in found]
        yield from self._ask(
            "set_vectors",
            no=[no for no, _ in vectors],
            vector_no=[no for no, _ in rows],
            vector=[vector for _, vector in rows],
        )

    def now(self) -> Op[int]:
        ((now,),) = yield from self._ask("now")
        return now  # type: ignore[no-any-return]

    # -- lifetime

    def touch(self, tenant: bytes, rows: Sequence[ItemRow]) -> Op[None]:
        yield from self._change("touch", [row.no for row in sorted(rows, key=by_name)])

    def pin(self, tenant: bytes, names: Sequence[tuple[bytes, bytes]], *, pinned: bool) -> Op[None]:
        yield from self._ask("pin" if pinned else "unpin", tenant=tenant, **_named(names))

    def delete_below(self, tenant: bytes, prefixes: Sequence[bytes]) -> Op[Removed]:
        count = {"vectors": self._text("count_vectors") if self._vectors is not None else "0"}
        low = sorted(prefixes)
        args = {"tenant": tenant, "low": low, "high": [prefix + _ABOVE for prefix in low]}
        ((row,),) = yield Batch([Stmt(self._text("delete_below", count), args)])
        return Removed(*row)

    def sweep(self, limit: int) -> Op[int]:
        ((count,),) = yield from self._ask("sweep", limit=Int8(limit))
        return count  # type: ignore[no-any-return]

    def overdue(self) -> Op[int]:
        ((count,),) = yield from self._ask("overdue")
        return count  # type: ignore[no-any-return]


def _named(names: Sequence[tuple[bytes, bytes]]) -> dict[str, Any]:
    return {"name_ns": [ns for ns, _ in names], "name_key": [key for _, key in names]}


def _one_or_many(columns: Mapping[str, list[Any]]) -> tuple[str, Mapping[str, Any]]:
    """Arrays, or plain parameters if they hold one item, and which of the two."""
    if len(columns["ns"]) == 1:
        return "one", {name: column[0] for name, column in columns.items()}
    return "many", columns


def _part(text: str, parts: list[Any], args: dict[str, Any], what: Any, values: Mapping[str, Any]) -> str:
    """One read of a batch, with parameters of its own."""
    number = len(parts)
    parts.append(what)
    for name, value in {"kind": number, **values}.items():
        text = text.replace(f"%({name})s", f"%(p{number}_{name})s")
        args[f"p{number}_{name}"] = value
    return text


def _range(find: Find) -> dict[str, Any]:
    return {"low": find.prefix, "high": find.prefix + _ABOVE}


def _narrowing(find: Find, values: dict[str, Any]) -> str:
    """The conditions of one search; fills in their parameters."""
    conditions = []
    if find.before is not None:
        values["before"] = Int8(find.before)
        conditions.append("AND i.no < %(before)s")
    if find.max_age is not None:
        values["max_age"] = Int8(find.max_age)
        conditions.append("AND i.updated_at >= {now} - %(max_age)s")
    if find.tokens:
        values["tokens"] = [Int8(number) for number in numbers_of(b"".join(find.tokens))]
        conditions.append("AND (i.tokens IS NULL OR i.tokens @> %(tokens)s::bigint[])")
    return " ".join(conditions)


def _reply(work: Work, ranked: dict[int, list[Found]], parts: list[Any], rows: list[Any]) -> Reply:
    """The rows of one statement, sorted into what was asked."""
    reply = Reply([None] * len(work.gets), [[] for _ in work.finds], [[] for _ in work.namespaces])
    for place, found in ranked.items():
        reply.finds[place] = found
    for kind, place, *row, score in rows:
        what = parts[kind]
        if what == _REFUSED:
            raise SubjectErasedError
        if what == "gets":
            reply.gets[place - 1] = ItemRow(*row)
        elif isinstance(what, tuple):
            reply.namespaces[what[1]].append(row[1])
        else:
            reply.finds[what].append(Found(ItemRow(*row), score))
    for place, find in enumerate(work.finds):
        if not isinstance(find, Near):
            reply.finds[place].sort(key=lambda one: (-(one.score or 0.0), -one.row.no))
    for found_namespaces in reply.namespaces:
        found_namespaces.sort()
    return reply


def _ranked(rows: list[Any], limit: int) -> list[Found]:
    """Rows best first, each item once."""
    found = [Found(ItemRow(*row[:-1]), row[-1]) for row in rows]
    found.sort(key=lambda one: (-(one.score or 0.0), -one.row.no))
    first: dict[int, Found] = {}
    for one in found:
        first.setdefault(one.row.no, one)
    return list(first.values())[:limit]
