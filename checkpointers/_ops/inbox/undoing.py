"""The questions and effects of runs that are deleted: they go with their checkpoints; what they answered waits again.

Written before the checkpoints go, so that whoever is killed in between finds the runs and does both again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.types import INTERRUPT

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.rows import Elements, Guard, Note, Removal, Skeleton, ThreadRow
from stepvault._core.state import State
from stepvault.checkpointers._ops import effect_hints, effects, subjects
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.inbox import index
from stepvault.checkpointers._ops.inbox.entries import CLOSED, ORIGIN, WAITING, Entry, entry_of, note_keys, notes_of

_INTERRUPT = WRITES_IDX_MAP[INTERRUPT]


def undo(
    scope: Scope, key: ThreadKey, skeleton: Skeleton, removal: Removal, head: bytes | None, holder: bytes
) -> Op[ThreadRow | None]:
    """Take what these rows asked and recorded out of a thread; the thread as it then is, None if it was written."""
    thread = skeleton.thread
    notes = yield from scope.core.dialect.notes(thread, b"")
    entries = [entry_of(scope, note.body) for note in notes if note.key[:1] in (WAITING, CLOSED) and note.body]
    gone = {checkpoint for ns, checkpoint in removal.checkpoints if not ns}
    asked = [entry for entry in entries if entry.checkpoint in gone]
    again = [(entry, _reopened(entry)) for entry in _waiting_again(skeleton, removal, head, entries)]
    done = _effects(scope, notes, removal)
    if not (asked or again or done):
        return thread
    told = yield from index.announce(
        scope, key, thread.uid, thread.rev, [("created" if one.decided is None else "decided", one) for _, one in again]
    )
    before = State.unpack(thread.extents)
    pending = before.pending - sum(entry.is_open for entry in asked) + len(again)
    paused = any(entry.nodes is not None and entry.is_open for entry in [*told, *entries] if entry not in asked)
    state = replace(before, pending=max(0, pending), paused=paused)
    guard = Guard(key, thread, thread.uid, scope.core.random(8), state.pack(), holder=holder)
    changed = [*notes_of(scope, told), *_without(asked), *done]
    if (yield from scope.core.dialect.put_writes(guard, Elements(), (), changed)) is None:
        return None
    went = [(entry, None) for entry in asked]
    yield from index.forget(scope, key, [*went, *zip((entry for entry, _ in again), told, strict=True)])
    decided = [(entry.by, entry.id) for entry in asked if entry.by]
    yield from subjects.forget(scope, [subjects.Left(key, (), decided)])
    return ThreadRow(thread.no, thread.uid, guard.rev, state.pack())


def _waiting_again(skeleton: Skeleton, removal: Removal, head: bytes | None, entries: Sequence[Entry]) -> list[Entry]:
    """What the head asks: the last question of each of its tasks that has asked and not gone on."""
    rows = {(row.ns, row.checkpoint, row.task, row.k) for row in skeleton.writes}.difference(removal.writes)
    here = [(task, k) for ns, checkpoint, task, k in rows if not ns and checkpoint == head]
    asking = {task for task, k in here if k == _INTERRUPT} - {task for task, k in here if k >= 0}
    asked = [entry for entry in entries if entry.checkpoint == head and entry.task in asking]
    last: dict[bytes, int] = {}
    for entry in asked:
        last[entry.task] = max(entry.created, last.get(entry.task, 0))
    return [entry for entry in asked if not entry.is_open and entry.created == last[entry.task]]


def _reopened(entry: Entry) -> Entry:
    return replace(entry, status="pending" if entry.decided is None else "decided", closed=None)


def _without(asked: Sequence[Entry]) -> list[Note]:
    keys = [key for entry in asked for key in (*note_keys(entry.id), ORIGIN + note_keys(entry.id)[0][1:])]
    return [Note(key, None) for key in keys]


def _effects(scope: Scope, notes: Sequence[Note], removal: Removal) -> list[Note]:
    """Effects of tasks that are removed, without those in doubt: these a human settles."""
    tasks = {row[2] for row in removal.writes}
    mine = [note for note in notes if note.key[:1] == effect_hints.PREFIX and note.body]
    return [Note(note.key, None) for note in mine if effects.done_by(scope, note, tasks)]
