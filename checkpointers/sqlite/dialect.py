"""The storage primitives on SQLite: plain statements, several in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, cast

from typing_extensions import LiteralString

from stepvault._core.chunks import ChunkRow
from stepvault._core.knowledge import ThreadKey
from stepvault._core.manifest import PAGE, first_of, merged_pages, unpack_pages
from stepvault._core.plan import Atomic, Batch, Op, Stmt
from stepvault._core.rows import (
    CheckpointRow,
    Deleted,
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
from stepvault._core.sqltext import literal, named
from stepvault.checkpointers._locking import Locking
from stepvault.checkpointers.sqlite.purging import Purging
from stepvault.checkpointers.sqlite.removing import delete_all
from stepvault.checkpointers.sqlite.schema import NOW, Schema

_HERE = files("stepvault.checkpointers.sqlite")
_CHILDREN = ("chunks", "checkpoints", "writes", "metas", "notes")
_DELETES = (*(f"delete_{name}" for name in _CHILDREN), "delete_thread")
_ASKED = 500  # threads that one statement looks for
_BEYOND = b"\xff"  # above every checkpoint id: those begin with 0 or 1
_LAST = 2**63 - 1

_QUERIES = named(_HERE.joinpath("queries.sql").read_text(encoding="utf-8"))
SQL: Mapping[str, LiteralString] = {name: literal(text.replace("{now}", NOW)) for name, text in _QUERIES.items()}


class SqliteDialect(Schema, Purging, Locking):
    """See `Dialect`."""

    automatic_setup = True

    def lock(self, key: ThreadKey) -> Op[None]:
        return  # BEGIN IMMEDIATE holds off every other writer
        yield

    # -- reading

    def load(self, key: ThreadKey, ns: bytes, checkpoint: bytes | None, held: Held | None) -> Op[Loaded]:
        loaded, spans = yield from self._load(key, ns, checkpoint, held)
        if not spans:
            return loaded
        return (yield Atomic(self._load_whole(key, ns, checkpoint, held), "read"))  # type: ignore[no-any-return]

    def _load_whole(self, key: ThreadKey, ns: bytes, checkpoint: bytes | None, held: Held | None) -> Op[Loaded]:
        loaded, spans = yield from self._load(key, ns, checkpoint, held)
        if loaded.thread is not None:
            loaded.chunks = yield from self._chunks(loaded.thread.no, spans)
        return loaded

    def _load(
        self, key: ThreadKey, ns: bytes, checkpoint: bytes | None, held: Held | None
    ) -> Op[tuple[Loaded, list[tuple[int, int]]]]:
        """What one statement returns, and the page ranges that it did not."""
        args = (*key, ns) if checkpoint is None else (*key, ns, checkpoint)
        (rows,) = yield Batch([Stmt(SQL["head" if checkpoint is None else "checkpoint"], args)])
        loaded = Loaded()
        for row in rows:
            if row[0] is None:
                loaded.writes.append(WriteRow(*row[1:9]))
                continue
            loaded.thread = ThreadRow(*row[:4])
            if row[5] is not None:
                loaded.checkpoints.append(CheckpointRow(*row[4:]))
        return loaded, _missing(loaded, held)

    def _chunks(self, no: int, spans: list[tuple[int, int]]) -> Op[list[ChunkRow]]:
        if not spans:
            return []
        replies = yield Batch(
            [Stmt(SQL["chunks"], (no, first_of(low), first_of(high) + PAGE - 1)) for low, high in spans]
        )
        return [ChunkRow._make(row) for rows in replies for row in rows]

    def page(self, query: Query) -> Op[list[tuple[ThreadKey, Loaded]]]:
        return (yield Atomic(self._page(query), "read"))  # type: ignore[no-any-return]

    def _page(self, query: Query) -> Op[list[tuple[ThreadKey, Loaded]]]:
        (rows,) = yield Batch([_find(query)])
        groups: list[tuple[ThreadKey, Loaded]] = []
        numbers: list[int] = []
        for no, uid, rev, extents, ns, id_, thread, *rest in rows:
            if not numbers or numbers[-1] != no:
                numbers.append(no)
                groups.append((ThreadKey(query.tenant, thread), Loaded(ThreadRow(no, uid, rev, extents))))
            groups[-1][1].checkpoints.append(CheckpointRow(ns, id_, *rest))
        for no, (_, loaded) in zip(numbers, groups, strict=True):
            replies = yield Batch([Stmt(SQL["writes"], (no, row.ns, row.id)) for row in loaded.checkpoints])
            loaded.writes = [WriteRow(*row) for rows in replies for row in rows]
            loaded.chunks = yield from self._chunks(no, _missing(loaded, query.held))
        return groups

    def skeleton(self, key: ThreadKey) -> Op[Skeleton | None]:
        return (yield Atomic(self._skeleton(key), "read"))  # type: ignore[no-any-return]

    def _skeleton(self, key: ThreadKey) -> Op[Skeleton | None]:
        (threads,) = yield Batch([Stmt(SQL["thread"], key)])
        if not threads:
            return None
        thread = ThreadRow(*threads[0])
        names = ("all_checkpoints", "all_writes", "all_chunks")
        checkpoints, writes, chunks = yield Batch([Stmt(SQL[name], (thread.no,)) for name in names])
        return Skeleton(thread, [CheckpointRow(*r) for r in checkpoints], [WriteRow(*r) for r in writes], chunks)

    def chunks(self, thread: ThreadRow, numbers: Sequence[int]) -> Op[Loaded]:
        replies = yield Batch([Stmt(SQL["chunk"], (thread.no, number)) for number in numbers])
        return Loaded(thread, chunks=[ChunkRow(*row) for rows in replies for row in rows])

    def tenants(self) -> Op[list[bytes]]:
        return [row[0] for row in (yield from _one(Stmt(SQL["tenants"])))]

    def tenants_with(self, name: bytes) -> Op[list[bytes]]:
        rows = yield from _one(Stmt(SQL["spaces_between"], (name + b"\0", name + b"\1")))
        return [space[len(name) + 1 :] for (space,) in rows]

    def spaces(self) -> Op[list[bytes]]:
        return [row[0] for row in (yield from _one(Stmt(SQL["spaces"])))]

    def threads_of_runs(self, tenant: bytes, runs: Sequence[bytes]) -> Op[list[ThreadKey]]:
        replies = yield Batch([Stmt(SQL["threads_of_run"], (tenant, run)) for run in runs])
        return list(dict.fromkeys(ThreadKey(*row) for rows in replies for row in rows))

    def threads(self, tenant: bytes, limit: int, after: Any) -> Op[list[ThreadSummary]]:
        (rows,) = yield Batch([Stmt(SQL["threads"], (tenant, _LAST if after is None else after, limit))])
        return [ThreadSummary(*row) for row in rows]

    # -- writing

    def put(
        self, guard: Guard, elements: Elements, row: CheckpointRow, tokens: Sequence[bytes], notes: Sequence[Note] = ()
    ) -> Op[Any]:
        target = _target(guard)
        batch = _begin(guard, elements)
        batch.append(Stmt(SQL["put_checkpoint"], (*target, *row)))
        if tokens:
            if guard.thread:
                batch.append(Stmt(SQL["drop_meta"], (guard.thread.no, row.ns, row.id)))
            batch.append(Stmt(SQL["add_meta"], [(*target, token, row.ns, row.id) for token in tokens], many=True))
        batch += _notes(guard, notes)
        return _number(guard, (yield Batch(batch, durable=guard.durable)))

    def put_writes(
        self,
        guard: Guard,
        elements: Elements,
        rows: Sequence[WriteRow],
        notes: Sequence[Note] = (),
        *,
        replace_rows: bool = False,
    ) -> Op[tuple[Any, bool] | None]:
        target = _target(guard)
        batch = _begin(guard, elements)
        first = len(batch)
        put = SQL["replace_write" if replace_rows else "put_write"]
        batch += [Stmt(put, (*target, *row)) for row in rows]
        batch += _notes(guard, notes)
        replies = yield Batch(batch, durable=guard.durable)
        no = _number(guard, replies)
        return None if no is None else (no, all(replies[first : first + len(rows)]))

    def delete(self, key: ThreadKey, rev: bytes | None = None) -> Op[Deleted | None]:
        batch = [Stmt(SQL["thread_at"], (*key, rev), guard=True)] if rev is not None else []
        batch += [Stmt(SQL[name], key) for name in ("notes_of_thread", "count_checkpoints", *_DELETES)]
        replies = yield Batch(batch)
        if rev is not None and not replies[0]:
            return None
        notes, ((count,),), *_, found = replies[-len(_DELETES) - 2 :]
        return Deleted(count, found[0][0] if found else None, [Note(*row) for row in notes])

    def delete_all(self, threads: Sequence[tuple[ThreadKey, ThreadRow]]) -> Op[list[Deleted | None]]:
        return (yield from delete_all(SQL, [thread for _, thread in threads]))

    def remove(self, guard: Guard, removal: Removal) -> Op[bool]:
        assert guard.thread is not None
        no = guard.thread.no
        batch = _begin(guard, Elements())
        for name, rows in (
            ("remove_checkpoint", [(no, *row) for row in removal.checkpoints]),
            ("drop_meta", [(no, *row) for row in removal.checkpoints]),
            ("remove_write", [(no, *row) for row in removal.writes]),
            ("remove_chunk", [(no, first) for first in removal.chunks]),
            ("add_chunk", [(no, b"", b"", *row) for row in removal.rewritten]),
        ):
            if rows:
                batch.append(Stmt(SQL[name], rows, many=True))
        replies = yield Batch(batch)
        return bool(replies[0])

    def copy(self, source: ThreadRow, guard: Guard) -> Op[bool]:
        batch = [
            *_begin(guard, Elements()),
            *(Stmt(SQL[f"copy_{name}"], (source.no, *guard.key)) for name in _CHILDREN),
        ]
        replies = yield Batch(batch)
        return bool(replies[0])

    def begin_copy(self, guard: Guard) -> Op[ThreadRow | None]:
        done = yield from self.put_writes(guard, Elements(), ())
        return None if done is None else ThreadRow(done[0], guard.uid, guard.rev, b"")

    # -- notes and docs

    def born(self, thread: ThreadRow) -> Op[int | None]:
        (rows,) = yield Batch([Stmt(SQL["born"], (thread.no,))])
        return rows[0][0] if rows else None

    def notes(self, thread: ThreadRow, prefix: bytes) -> Op[list[Note]]:
        (rows,) = yield Batch([Stmt(SQL["notes"], (thread.no, prefix, beyond(prefix)))])
        return [Note(*row) for row in rows]

    def notes_at(self, places: Sequence[tuple[ThreadKey, bytes]]) -> Op[list[tuple[ThreadRow | None, bytes | None]]]:
        if len(places) > 1 and not any(note for _, note in places):
            return (yield from self._rows_at([key for key, _ in places]))
        return (yield Atomic(self._notes_at(places), "read"))  # type: ignore[no-any-return]

    def _rows_at(self, keys: Sequence[ThreadKey]) -> Op[list[tuple[ThreadRow | None, bytes | None]]]:
        """Threads alone: no note has an empty key."""
        found: dict[bytes, ThreadRow] = {}
        for start in range(0, len(keys), _ASKED):
            part = keys[start : start + _ASKED]
            text = literal(SQL["threads_at"].replace("{threads}", ", ".join("?" * len(part))))
            rows = yield from _one(Stmt(text, (part[0].tenant, *(key.thread for key in part))))
            found.update((thread, ThreadRow(*row)) for thread, *row in rows)
        return [(found.get(key.thread), None) for key in keys]

    def _notes_at(self, places: Sequence[tuple[ThreadKey, bytes]]) -> Op[list[tuple[ThreadRow | None, bytes | None]]]:
        replies = yield Batch([Stmt(SQL["note_at"], (*key, note)) for key, note in places])
        return [(ThreadRow(*rows[0][:4]), rows[0][4]) if rows else (None, None) for rows in replies]

    def docs(self, space: bytes, prefix: bytes, after: bytes, limit: int, *, oldest: bool = False) -> Op[list[Doc]]:
        first = max(prefix, after + b"\0") if after else prefix
        (rows,) = yield Batch([Stmt(SQL["docs"], (space, first, beyond(prefix), limit))])
        return [Doc(*row) for row in rows]

    def get_docs(self, space: bytes, keys: Sequence[bytes]) -> Op[list[Doc]]:
        replies = yield Batch([Stmt(SQL["doc"], (space, key)) for key in keys])
        return [Doc(*row) for rows in replies for row in rows]

    def write_docs(self, space: bytes, changes: Sequence[DocChange], *, durable: bool = False) -> Op[bool]:
        if changes and all(change.body is None and change.expected == b"" for change in changes):
            drop = Stmt(SQL["drop_doc"], [(space, change.key) for change in changes], many=True)
            yield Batch([drop], durable=durable)
            return True
        replies = yield Batch([_doc_statement(space, change) for change in changes], durable=durable)
        found = (reply for reply, change in zip(replies, changes, strict=False) if change.expected != b"")
        return len(replies) == len(changes) and all(found)

    def now(self) -> Op[int]:
        (rows,) = yield Batch([Stmt(SQL["now"])])
        return cast(int, rows[0][0])


def _missing(loaded: Loaded, held: Held | None) -> list[tuple[int, int]]:
    """The page ranges that these rows need, without the pages at hand."""
    have = held.pages if held and loaded.thread and held.rev == loaded.thread.rev else ()
    spans = [span for packed in loaded.refs() for span in unpack_pages(packed)]
    if not have:
        return merged_pages(spans)
    pages = [(page, page) for low, high in spans for page in range(low, high + 1) if page not in have]
    return merged_pages(pages) if pages else pages


def _notes(guard: Guard, notes: Sequence[Note]) -> list[Stmt]:
    target = _target(guard)
    return [
        Stmt(SQL["put_note"], (*target, note.key, note.body))
        if note.body is not None
        else Stmt(SQL["drop_note"], (target[0], note.key))
        for note in notes
    ]


def _doc_statement(space: bytes, change: DocChange) -> Stmt:
    """One change; a `guard` that changes no row takes the whole batch back."""
    key, body, version, expected = change
    if body is None:
        return (
            Stmt(SQL["take_doc"], (space, key, expected), guard=True)
            if expected
            else Stmt(SQL["drop_doc"], (space, key))
        )
    if expected is None:
        return Stmt(SQL["add_doc"], (space, key, version, body), guard=True)
    if expected:
        return Stmt(SQL["change_doc"], (space, key, version, body, expected), guard=True)
    return Stmt(SQL["put_doc"], (space, key, version, body))


def _one(statement: Stmt) -> Op[list[Any]]:
    (rows,) = yield Batch([statement])
    return rows  # type: ignore[no-any-return]


def _target(guard: Guard) -> tuple[Any, bytes, bytes]:
    """Parameters 1 to 3 of an insert: the thread's number, or the names to find it by."""
    return guard.thread.no if guard.thread else None, guard.key.tenant, guard.key.thread


def _begin(guard: Guard, elements: Elements) -> list[Stmt]:
    """The guard, then the element rows."""
    if guard.thread is None:
        batch = [Stmt(SQL["create_thread"], (*guard.key, guard.uid, guard.rev, guard.extents), guard=True)]
    else:
        args = (guard.thread.no, guard.thread.rev, guard.rev, guard.extents)
        batch = [Stmt(SQL["advance_thread"], args, guard=True)]
        for page in elements.closed:
            batch.append(Stmt(SQL["drop_page"], (guard.thread.no, first_of(page), first_of(page) + PAGE - 1)))
    if elements.rows:
        target = _target(guard)
        batch.append(Stmt(SQL["add_chunk"], [(*target, *row) for row in elements.rows], many=True))
    return batch


def _number(guard: Guard, replies: list[Any]) -> Any:
    """The thread's number, or None if the guard refused."""
    if not replies[0]:
        return None
    return replies[0][0][0] if guard.thread is None else guard.thread.no


def _find(query: Query) -> Stmt:
    """The statement of one page of a list."""
    below, below_ns, below_thread = query.after or (_BEYOND, b"", b"")
    if query.before is not None and query.before <= below:
        below, below_ns, below_thread = query.before, b"", b""
    args: dict[str, Any] = {
        "tenant": query.tenant, "thread": query.thread, "ns": query.ns, "limit": query.limit,
        "below": below, "below_ns": below_ns, "below_thread": below_thread,
    }  # fmt: skip
    more: list[LiteralString] = []
    for column in ("source", "step", "run"):
        value = getattr(query, column)
        if value is not None:
            args[column] = value
            more.append(literal(f"AND c.{column} = :{column}"))
    if query.checkpoint is not None:
        args["checkpoint"] = query.checkpoint
        more.append("AND c.id = :checkpoint")
    for i, token in enumerate(query.tokens):
        args[f"token{i}"] = token
        more.append(
            literal(
                f"AND EXISTS (SELECT 1 FROM stepvault_meta m WHERE m.token = :token{i} "
                "AND m.t = c.t AND m.ns = c.ns AND m.checkpoint = c.id)"
            )
        )
    scope = "find_everywhere" if query.thread is None else "find_in_thread" if query.ns is None else "find_in_namespace"
    if query.thread is None and query.ns is not None:
        more.append("AND c.ns = :ns")
    condition = " ".join(more)
    text = SQL[scope].replace("{more}", condition).replace("{more_k}", condition.replace("c.", "k."))
    return Stmt(literal(text), args)
