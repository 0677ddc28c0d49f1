"""Reading a thread's lineage off its checkpoints.

How a run began is told by LangGraph's bookkeeping (1.x): the checkpoint after a resume has, under `__interrupt__` in
its `versions_seen`, the versions of its parent's channels, where its parent had others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from langgraph.checkpoint.serde.types import INTERRUPT

from stepvault._core.codec import unpack
from stepvault._core.ids import id_key, id_of, text_of
from stepvault._core.plan import Op
from stepvault._core.reads import Read
from stepvault._core.record import Record, decode_record
from stepvault._core.rows import CheckpointRow
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.expiry import is_over
from stepvault.checkpointers._ops.inbox.entries import CLOSED, WAITING, Entry, entry_of, moment, public_id
from stepvault.checkpointers._ops.reads import ASKED, DONE, INSIDE, Noted, read_of
from stepvault.checkpointers._ops.reads import PREFIX as READS
from stepvault.lineage import Lineage, LineageDecision, LineageRead, LineageRun, RunKind

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SKEW = 1000  # milliseconds: the process counts the database's clock on

_SOURCES: dict[bytes, RunKind] = {b"input": "input", b"fork": "fork", b"update": "update"}


@dataclass(slots=True)
class _Line:
    """A run in the making."""

    kind: RunKind
    rows: list[CheckpointRow]
    forks: bool
    duplicates: bytes | None
    decisions: list[Entry] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)


def lineage(scope: Scope, thread_id: Any) -> Op[Lineage]:
    """The runs of a thread; none if there is no such thread."""
    key = scope.key(thread_id)
    skeleton = yield from scope.core.dialect.skeleton(key)
    if skeleton is None or (yield from is_over(scope.core, skeleton.thread)):
        return Lineage(text_of(key.thread), ())
    entries: list[Entry] = []
    for prefix in (WAITING, CLOSED):
        notes = yield from scope.core.dialect.notes(skeleton.thread, prefix)
        entries += [entry_of(scope, note.body) for note in notes if note.body is not None]
    rows = sorted((row for row in skeleton.checkpoints if not row.ns), key=lambda row: row.id)
    lines = _lines(rows)
    for line in lines:
        line.decisions = [entry for entry in entries if _went_on_with(line, entry)]
    if lines:
        for note in read_of((yield from scope.core.dialect.notes(skeleton.thread, READS))):
            for read in note.reads:
                _reader(lines, read, note).reads.append(read)
    uid = skeleton.thread.uid
    return Lineage(text_of(key.thread), tuple(_shown(line, uid, rows[-1].id) for line in lines))


def _lines(rows: Sequence[CheckpointRow]) -> list[_Line]:
    """Checkpoints in the lines that runs made of them."""
    records: dict[bytes, Record] = {row.id: decode_record(unpack(row.body)) for row in rows}
    stored = {row.id: row for row in rows}
    lines: list[_Line] = []
    home: dict[bytes, _Line] = {}
    begun: dict[bytes, list[_Line]] = {}  # runs by the checkpoint they began from
    followed: set[bytes] = set()
    for row in rows:
        parent = stored.get(row.parent or b"")
        kind = _beginning(row, parent, records)
        line = home.get(parent.id) if parent else None
        forks = parent is not None and parent.id in followed
        if line is None or parent is None or kind is not None or forks or row.run != parent.run:
            rivals = [rival for rival in begun.get(row.parent or b"", []) if kind == rival.kind == "resume"]
            line = _Line(kind or "continue", [], forks, rivals[0].rows[0].id if rivals else None)
            begun.setdefault(row.parent or b"", []).append(line)
            lines.append(line)
        line.rows.append(row)
        home[row.id] = line
        if parent is not None:
            followed.add(parent.id)
    return lines


def _beginning(row: CheckpointRow, parent: CheckpointRow | None, records: dict[bytes, Record]) -> RunKind | None:
    """How a run began with this checkpoint; None: it goes on from its parent."""
    kind = _SOURCES.get(row.source or b"")
    if kind is not None or parent is None:
        return kind
    seen, before = records[row.id].seen.get(INTERRUPT), records[parent.id]
    if seen and seen != before.seen.get(INTERRUPT) and parent.source not in (b"fork", b"update"):
        return "resume"
    return None


def _reader(lines: Sequence[_Line], read: Read, note: Noted) -> _Line:
    """The run that had read something: what a task read that has ended shows in the checkpoint after it."""
    place = read.checkpoint if note.by in (ASKED, INSIDE, DONE) else note.by
    at = id_key("checkpoint_id", place) if place else b""
    rows = sorted(((row, line) for line in lines for row in line.rows), key=lambda entry: entry[0].id)
    if note.by == DONE:
        for row, line in rows:
            if row.parent == at and (row.created_at or 0) >= note.at - _SKEW:
                return line
    return next((line for row, line in rows if row.id >= at), rows[-1][1])


def _went_on_with(line: _Line, entry: Entry) -> bool:
    """Whether a run began from the checkpoint at which this was asked, with an answer to it."""
    if line.duplicates is not None:
        return False
    return line.kind == "resume" and entry.checkpoint == line.rows[0].parent and entry.status == "answered"


def _shown(line: _Line, uid: bytes, head: bytes) -> LineageRun:
    rows = line.rows
    return LineageRun(
        kind=line.kind,
        run_id=text_of(rows[0].run) if rows[0].run is not None else None,
        began_at=id_of(rows[0].parent) if rows[0].parent is not None else None,
        checkpoints=tuple(id_of(row.id) for row in rows),
        started=moment(rows[0].created_at or 0),
        ended=moment(rows[-1].created_at or 0),
        forks=line.forks,
        duplicates=id_of(line.duplicates) if line.duplicates is not None else None,
        decisions=tuple(_decision(entry, uid) for entry in line.decisions),
        is_head=rows[-1].id == head,
        reads=tuple(dict.fromkeys(map(_read, line.reads))),
    )


def _read(read: Read) -> LineageRead:
    return LineageRead(read.namespace, read.key, _EPOCH + timedelta(microseconds=read.updated_at), read.checkpoint)


def _decision(entry: Entry, uid: bytes) -> LineageDecision:
    decided = moment(entry.decided) if entry.decided is not None else None
    return LineageDecision(public_id(entry, uid), entry.node, entry.by, decided, entry.remark)
