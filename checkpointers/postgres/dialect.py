"""The storage primitives on Postgres: one statement, and so one round trip and one snapshot, wherever that is safe."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, cast

from psycopg.types.numeric import Int8
from typing_extensions import LiteralString

from stepvault._core.chunks import ChunkRow
from stepvault._core.knowledge import ThreadKey
from stepvault._core.manifest import page_of, unpack_pages
from stepvault._core.plan import Batch, Op, Row, Stmt
from stepvault._core.rows import (
    CheckpointRow,
    Doc,
    DocChange,
    Elements,
    Guard,
    Held,
    Loaded,
    Note,
    Query,
    Removal,
    Skeleton,
    ThreadRow,
    ThreadSummary,
    WriteRow,
    beyond,
)
from stepvault._core.sqltext import literal
from stepvault.checkpointers.postgres import purging
from stepvault.checkpointers.postgres.names import Names
from stepvault.checkpointers.postgres.ranges import from_ranges, ranges_of
from stepvault.checkpointers.postgres.removing import Removing
from stepvault.checkpointers.postgres.schema import QUERIES, Schema
from stepvault.checkpointers.postgres.writing import Writing, arrays
from stepvault.erasure import PurgeStep

_BEYOND = b"\xff"  # above every checkpoint id: those begin with 0 or 1
_LAST = 2**63 - 1


class PostgresDialect(Removing):
    """See `Dialect`."""

    def __init__(self, names: Names, schema: Schema, *, automatic_setup: bool = False) -> None:
        self.automatic_setup = automatic_setup
        self._names = names
        self._schema = schema
        self._sql: dict[str, LiteralString] = {name: names.fill(text) for name, text in QUERIES.items()}
        ends = {end: self._sql[end] for end in ("one", "rows")}
        for name in ("head", "by_id", "delete_threads", "delete_locked"):
            self._sql[name] = names.fill(self._sql[name], ends)
        self._composed: dict[Any, LiteralString] = {}

    def setup(self) -> Op[None]:
        return self._schema.setup()

    def only_theirs(self) -> Op[bool]:
        return self._schema.only_theirs()

    def lock(self, key: ThreadKey) -> Op[None]:
        # The advisory lock stands in for the row of a thread that does not exist yet.
        name = hashlib.blake2b(key.tenant + b"\0" + key.thread, digest_size=8).digest()
        yield Batch([
            self._stmt("lock_name", name=Int8(int.from_bytes(name, "big", signed=True))),
            self._stmt("lock_thread", tenant=key.tenant, thread=key.thread),
        ])  # fmt: skip

    def _stmt(self, query: str, /, **args: Any) -> Stmt:
        return Stmt(self._sql[query], args)

    def _ask(self, query: str, /, **args: Any) -> Op[list[Any]]:
        """Rows of one reading statement."""
        (rows,) = yield Batch([self._stmt(query, **args)], retry=True)
        return rows  # type: ignore[no-any-return]

    # -- reading

    def load(self, key: ThreadKey, ns: bytes, checkpoint: bytes | None, held: Held | None) -> Op[Loaded]:
        args = {"tenant": key.tenant, "thread": key.thread, "ns": ns, **_held(held)}
        if checkpoint is None:
            rows = yield from self._ask("head", **args)
        else:
            rows = yield from self._ask("by_id", **args, id=checkpoint)
        loaded = Loaded()
        for kind, a, b, c, rev, extents, id_, parent, run, source, created_at, refs, body in rows:
            if kind == 2:
                loaded.chunks.append(ChunkRow(a, b, body))
            elif kind == 1:
                loaded.writes.append(WriteRow(ns, id_, c, a, run, created_at, from_ranges(refs), body))
            else:
                loaded.thread = ThreadRow(a, c, rev, extents)
                if body is not None:
                    row = CheckpointRow(ns, id_, parent, run, source, b, created_at, from_ranges(refs), body)
                    loaded.checkpoints.append(row)
        return loaded

    def page(self, query: Query) -> Op[list[tuple[ThreadKey, Loaded]]]:
        (rows,) = yield Batch([self._find(query)], retry=True)
        found: list[tuple[int, bytes, CheckpointRow]] = []
        writes: dict[int, list[WriteRow]] = {}
        chunks: dict[int, list[ChunkRow]] = {}
        threads: dict[int, ThreadRow] = {}
        for kind, no, b, c, ns, id_, parent, run, source, created_at, refs, body in rows:
            if kind == 0:
                row = CheckpointRow(ns, id_, parent, run, source, b, created_at, from_ranges(refs), body)
                found.append((no, c, row))
            elif kind == 1:
                writes.setdefault(no, []).append(WriteRow(ns, id_, parent, b, run, created_at, from_ranges(refs), body))
            elif kind == 2:
                chunks.setdefault(no, []).append(ChunkRow(created_at, b, body))
            else:
                threads[no] = ThreadRow(no, c, ns, id_)
        found.sort(key=lambda entry: (entry[2].id, entry[2].ns, entry[1]), reverse=True)
        groups: list[tuple[int, ThreadKey, Loaded]] = []
        for no, thread, row in found:
            if not groups or groups[-1][0] != no:
                groups.append((no, ThreadKey(query.tenant, thread), Loaded(threads[no])))
            groups[-1][2].checkpoints.append(row)
        for no, _, loaded in groups:
            _distribute(loaded, writes.get(no, []), chunks.get(no, []))
        return [(key, loaded) for _, key, loaded in groups]

    def _find(self, query: Query) -> Stmt:
        """The statement of one page of a list."""
        below, below_ns, below_thread = query.after or (_BEYOND, b"", b"")
        if query.before is not None and query.before <= below:
            below, below_ns, below_thread = query.before, b"", b""
        args: dict[str, Any] = {
            "tenant": query.tenant, "thread": query.thread, "ns": query.ns, "limit": Int8(query.limit),
            "below": below, "below_ns": below_ns, "below_thread": below_thread,
            "source": query.source, "step": None if query.step is None else Int8(query.step), "run": query.run,
            "id": query.checkpoint, **_held(query.held),
        }  # fmt: skip
        scope = "everywhere" if query.thread is None else "in_thread" if query.ns is None else "in_namespace"
        columns = [name for name in ("source", "step", "run", "id") if args[name] is not None]
        if query.thread is None and query.ns is not None:
            columns.append("ns")
        key = (scope, *columns, len(query.tokens))
        text = self._composed.get(key)
        if text is None:
            among, tokens = "all" if query.run is None else "run", range(len(query.tokens))
            if among == "all" and query.thread is None and tokens:
                among, tokens = "tokens", tokens[1:]
            more = [f"AND {name} = %({name})s" for name in columns]
            more += [self._sql["has_token"].replace("{token}", f"token{i}") for i in tokens]
            find = self._sql[f"find_{scope}"].replace("{among}", self._sql[f"among_{among}"])
            find = find.replace("{more}", " ".join(more))
            text = self._composed[key] = literal(self._sql["page"].replace("{find}", find))
        args |= {f"token{i}": token for i, token in enumerate(query.tokens)}
        return Stmt(text, args)

    def skeleton(self, key: ThreadKey) -> Op[Skeleton | None]:
        rows = yield from self._ask("skeleton", tenant=key.tenant, thread=key.thread)
        thread = None
        checkpoints, writes, chunks = [], [], []
        for kind, a, b, c, d, e, run, source, created_at, refs, body in rows:
            if kind == 0:
                thread = ThreadRow(a, c, d, e)
            elif kind == 1:
                checkpoints.append(CheckpointRow(c, d, e, run, source, b, created_at, from_ranges(refs), body))
            elif kind == 2:
                writes.append(WriteRow(c, d, e, a, run, created_at, from_ranges(refs), body))
            else:
                chunks.append((a, b, created_at))
        return None if thread is None else Skeleton(thread, checkpoints, writes, sorted(chunks))

    def chunks(self, thread: ThreadRow, numbers: Sequence[int]) -> Op[Loaded]:
        rows = yield from self._ask("chunks", no=Int8(thread.no), numbers=[Int8(no) for no in numbers])
        return Loaded(thread, chunks=[ChunkRow(*row) for row in rows])

    def tenants(self) -> Op[list[bytes]]:
        return [row[0] for row in (yield from self._ask("tenants"))]

    def tenants_with(self, name: bytes) -> Op[list[bytes]]:
        rows = yield from self._ask("spaces_between", low=name + b"\0", high=name + b"\1")
        return [space[len(name) + 1 :] for (space,) in rows]

    def spaces(self) -> Op[list[bytes]]:
        return [row[0] for row in (yield from self._ask("spaces"))]

    def threads_of_runs(self, tenant: bytes, runs: Sequence[bytes]) -> Op[list[ThreadKey]]:
        rows = yield from self._ask("threads_of_runs", tenant=tenant, runs=list(runs))
        return [ThreadKey(*row) for row in rows]

    def threads(self, tenant: bytes, limit: int, after: Any) -> Op[list[ThreadSummary]]:
        below = Int8(_LAST if after is None else after)
        rows = yield from self._ask("threads", tenant=tenant, below=below, limit=Int8(limit))
        return [ThreadSummary(*row) for row in rows]

    # -- writing

    def put(
        self,
        guard: Guard,
        elements: Elements,
        row: CheckpointRow,
        tokens: Sequence[bytes],
        notes: Sequence[Note] = (),
    ) -> Op[Any]:
        writing = Writing(guard)
        writing.add_elements(elements)
        writing.add_checkpoint(row, tokens)
        writing.add_notes(notes)
        rows = yield from self._write(writing, "g.no", guard.durable)
        return rows[0][0] if rows else None

    def put_writes(
        self,
        guard: Guard,
        elements: Elements,
        rows: Sequence[WriteRow],
        notes: Sequence[Note] = (),
        *,
        replace_rows: bool = False,
    ) -> Op[tuple[Any, bool] | None]:
        writing = Writing(guard)
        writing.add_elements(elements)
        writing.add_writes(rows, replace=replace_rows)
        writing.add_notes(notes)
        result = "g.no, (SELECT count(*) FROM w)" if rows else "g.no, 0"
        found = yield from self._write(writing, result, guard.durable)
        return (found[0][0], found[0][1] == len(rows)) if found else None

    def _write(self, writing: Writing, result: LiteralString, durable: bool = False) -> Op[list[Row]]:
        (rows,) = yield Batch([writing.statement(self._names, self._composed, result)], durable=durable)
        return rows  # type: ignore[no-any-return]

    def copy(self, source: ThreadRow, guard: Guard) -> Op[bool]:
        writing = Writing(guard)
        for alias in ("chunks", "checkpoints", "writes", "metas", "notes"):
            writing.add(alias, f"copy_{alias}")
        writing.args["from"] = Int8(source.no)
        return bool((yield from self._write(writing, "g.no")))

    def begin_copy(self, guard: Guard) -> Op[ThreadRow | None]:
        done = yield from self.put_writes(guard, Elements(), ())
        return None if done is None else ThreadRow(done[0], guard.uid, guard.rev, b"")

    def remove(self, guard: Guard, removal: Removal) -> Op[bool]:
        assert guard.thread is not None
        no = Int8(guard.thread.no)
        start = Writing(guard).statement(self._names, self._composed, "g.no")
        batch = [Stmt(start.sql, start.args, guard=True)]
        if removal.checkpoints:
            args = arrays(("namespaces", "ids"), removal.checkpoints)
            batch.append(self._stmt("remove_checkpoints", no=no, **args))
        if removal.writes:
            args = arrays(("namespaces", "ids", "tasks", "ks"), removal.writes)
            batch.append(self._stmt("remove_writes", no=no, **args))
        if removal.chunks:
            batch.append(self._stmt("remove_chunks", no=no, numbers=[Int8(first) for first in removal.chunks]))
        if removal.rewritten:
            args = arrays(("numbers", "counts", "bodies"), removal.rewritten)
            batch.append(self._stmt("add_chunks_to", no=no, **args))
        replies = yield Batch(batch)
        return len(replies) == len(batch)

    # -- notes and docs

    def born(self, thread: ThreadRow) -> Op[int | None]:
        rows = yield from self._ask("born", no=Int8(thread.no))
        return rows[0][0] if rows else None

    def notes(self, thread: ThreadRow, prefix: bytes) -> Op[list[Note]]:
        rows = yield from self._ask("notes", no=Int8(thread.no), prefix=prefix, beyond=beyond(prefix))
        return [Note(*row) for row in rows]

    def notes_at(self, places: Sequence[tuple[ThreadKey, bytes]]) -> Op[list[tuple[ThreadRow | None, bytes | None]]]:
        found: list[tuple[ThreadRow | None, bytes | None]] = [(None, None)] * len(places)
        if places:
            tenant, threads = places[0][0].tenant, [key.thread for key, _ in places]
            if any(note for _, note in places):
                rows = yield from self._ask(
                    "notes_at", tenant=tenant, threads=threads, keys=[note for _, note in places]
                )
            else:
                rows = yield from self._ask("threads_at", tenant=tenant, threads=threads)
            for i, no, uid, rev, extents, body in rows:
                found[i - 1] = (ThreadRow(no, uid, rev, extents), body)
        return found

    def docs(self, space: bytes, prefix: bytes, after: bytes, limit: int, *, oldest: bool = False) -> Op[list[Doc]]:
        limits = {"prefix": prefix, "after": after, "beyond": beyond(prefix), "limit": Int8(limit)}
        rows = yield from self._ask("oldest_docs" if oldest else "docs", space=space, **limits)
        return [Doc(*row) for row in rows]

    def get_docs(self, space: bytes, keys: Sequence[bytes]) -> Op[list[Doc]]:
        rows = yield from self._ask("get_docs", space=space, keys=list(keys))
        return [Doc(*row) for row in rows]

    def write_docs(self, space: bytes, changes: Sequence[DocChange], *, durable: bool = False) -> Op[bool]:
        if changes and all(change.body is None and change.expected == b"" for change in changes):
            keys = sorted(change.key for change in changes)
            yield Batch([self._stmt("drop_docs", space=space, keys=keys)], durable=durable)
            return True
        batch = self._doc_changes(space, changes)
        replies = yield Batch(batch, durable=durable)
        return len(replies) == len(batch) and all(
            reply for reply, statement in zip(replies, batch, strict=True) if statement.guard
        )

    def _doc_changes(self, space: bytes, changes: Sequence[DocChange]) -> list[Stmt]:
        """Replacements of what is there, as rewrapped keys are, go together."""
        some = [change for change in changes if change.body is not None and change.expected]
        if len(some) < 2 or len({change.key for change in changes}) < len(changes):
            return [self._doc_change(space, change) for change in changes]
        rest = [self._doc_change(space, change) for change in changes if change.body is None or not change.expected]
        keys, bodies, versions, expected = zip(*some, strict=True)
        args = {"keys": list(keys), "bodies": list(bodies), "versions": list(versions), "expected": list(expected)}
        one = self._stmt("change_docs", space=space, count=Int8(len(some)), **args)
        return [Stmt(one.sql, one.args, guard=True), *rest]

    def _doc_change(self, space: bytes, change: DocChange) -> Stmt:
        """One change; a `guard` that finds no row takes the whole batch back."""
        args = {"space": space, "key": change.key}
        if change.body is not None:
            args |= {"version": change.version, "body": change.body}
        if change.expected is None:
            return Stmt(self._sql["add_doc"], args, guard=True)
        if change.expected:
            query = "take_doc" if change.body is None else "change_doc"
            return Stmt(self._sql[query], {**args, "expected": change.expected}, guard=True)
        return Stmt(self._sql["drop_doc" if change.body is None else "put_doc"], args)

    def purge(self, *, rewrite: bool = False) -> Op[list[PurgeStep]]:
        return (yield from purging.purge(self._names, rewrite=rewrite))

    def reclaim(self) -> Op[None]:
        return  # autovacuum does it
        yield

    def warnings(self) -> Op[list[str]]:
        ((read_only, may_write),) = yield from self._ask("standing")
        found = []
        if read_only:
            found.append(
                "This database takes no writes (a replica, or default_transaction_read_only): use the primary."
            )
        if not may_write:
            found.append("This role lacks a privilege on a table; docs/postgres.md has the list.")
        return found

    def now(self) -> Op[int]:
        rows = yield from self._ask("now")
        return cast(int, rows[0][0])


def _held(held: Held | None) -> dict[str, Any]:
    """The pages that a reader need not be sent, if the thread stands at their revision."""
    if held and held.pages:
        return {"rev": held.rev, "held": ranges_of(held.pages)}
    return {"rev": b"", "held": "{}"}


def _distribute(loaded: Loaded, writes: list[WriteRow], chunks: list[ChunkRow]) -> None:
    """Give a group of checkpoints the writes and elements of its own; its thread may have other groups."""
    ids = {(row.ns, row.id) for row in loaded.checkpoints}
    loaded.writes = [write for write in writes if (write.ns, write.checkpoint) in ids]
    rows: list[CheckpointRow | WriteRow] = [*loaded.checkpoints, *loaded.writes]
    spans = [span for row in rows for span in unpack_pages(row.refs)]
    pages = {page for low, high in spans for page in range(low, high + 1)}
    loaded.chunks = [chunk for chunk in chunks if page_of(chunk.no) in pages]
