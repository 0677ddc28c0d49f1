"""Closing what nobody will answer any more: questions that have lapsed, of threads whose time is over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.rows import Elements, Guard, ThreadRow
from stepvault._core.state import State
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.expiry import is_held, watch
from stepvault.checkpointers._ops.inbox import index
from stepvault.checkpointers._ops.inbox.entries import WAITING, Entry, entry_of, notes_of
from stepvault.checkpointers._ops.inbox.queries import Found, verified

_PAGE = 100


def lapse(scope: Scope, now: int, in_time: Callable[[], bool], *, dry_run: bool) -> Op[list[int]]:
    """Close the questions whose deadlines have passed of threads whose time is over and that wait for nothing else.

    A default answer is still to be given, and so is an answer that no run has used: such threads wait. A thread whose
    questions are closed has expired, which is left to the sweep; a dry run closes none and says how many checkpoints
    each such thread has.
    """
    would_go: list[int] = []
    after = b""
    while in_time():
        places = yield from index.places(scope, index.DUE, after, _PAGE)
        passed = [place for place in places if int.from_bytes(place.key[1:9], "big") <= now]
        for _, hit in (yield from verified(scope, passed)):
            entries = yield from _lapsed(scope, hit, now)
            if dry_run and entries and hit.entry.id == entries[0].id:  # each thread once
                skeleton = yield from scope.core.dialect.skeleton(hit.key)
                would_go += [len(skeleton.checkpoints)] if skeleton else []
            elif entries and not dry_run and (yield from _close(scope, hit.key, hit.thread, entries)):
                yield from watch(scope, hit.key, State.unpack(hit.thread.extents).expires_at or 0)
        if len(passed) < _PAGE:
            break
        after = places[-1].key
    return would_go


def _lapsed(scope: Scope, hit: Found, now: int) -> Op[list[Entry]]:
    """The open questions of a thread, if its time is over and theirs too."""
    state = State.unpack(hit.thread.extents)
    if state.expires_at is None or state.expires_at > now or is_held(state, now) or not _is_lapsed(hit.entry, now):
        return []
    entries = yield from _open(scope, hit.thread)
    return entries if all(_is_lapsed(entry, now) for entry in entries) else []


def _is_lapsed(entry: Entry, now: int) -> bool:
    has_passed = entry.deadline is not None and entry.deadline <= now
    return entry.status == "pending" and has_passed and entry.default is None


def _open(scope: Scope, thread: ThreadRow) -> Op[list[Entry]]:
    notes = yield from scope.core.dialect.notes(thread, WAITING)
    return [entry_of(scope, note.body) for note in notes if note.body is not None]


def _close(scope: Scope, key: ThreadKey, thread: ThreadRow, entries: Sequence[Entry]) -> Op[bool]:
    """Whether the thread still stood as it was read."""
    now = yield from scope.core.dialect.now()
    told: list[tuple[str | None, Entry]] = [("expired", entry.close("expired", now)) for entry in entries]
    closed = yield from index.announce(scope, key, thread.uid, thread.rev, told)
    state = State.unpack(thread.extents)
    guard = Guard(key, thread, thread.uid, scope.core.random(8), replace(state, pending=0, paused=False).pack())
    if (yield from scope.core.dialect.put_writes(guard, Elements(), (), notes_of(scope, closed))) is None:
        return False
    scope.core.knowledge.forget(key)
    yield from index.forget(scope, key, list(zip(entries, closed, strict=True)))
    return True
