"""What a thread leaves outside itself: its hints, kept in step when it is copied, removed or looked through."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.rows import Deleted, Elements, Guard, Note, ThreadRow
from stepvault.checkpointers._ops import effect_hints, reads, remains, subjects
from stepvault.checkpointers._ops.context import Scope, thread_of
from stepvault.checkpointers._ops.expiry import db_now
from stepvault.checkpointers._ops.inbox import index
from stepvault.checkpointers._ops.inbox.entries import CLOSED, WAITING, Entry, entry_of, notes_of

_PAGE = 100


def _noted(scope: Scope, notes: Sequence[Note]) -> tuple[list[Entry], list[bytes]]:
    """The interrupts and the effects of a thread, as its notes tell."""
    entries = [entry_of(scope, note.body) for note in notes if note.key[:1] in (WAITING, CLOSED) and note.body]
    return entries, [note.key for note in notes if note.key[:1] == effect_hints.PREFIX]


def delete(scope: Scope, key: ThreadKey, rev: bytes | None = None, *, led_by: bytes = b"") -> Op[int | None]:
    """Remove a thread, its memory and whatever leads to it, see `Dialect.delete`.

    The caller drops the hint of the person `led_by`, by which it came here. Hints left by a crash are dropped by
    readers; memory left by one goes when this is repeated, or is swept.
    """
    removed = yield from scope.core.dialect.delete(key, rev)
    if removed is None:
        return None
    yield from _forget(scope, [(key, removed)], led_by)
    if removed.uid is None:
        yield from clear(scope, [key])
    return removed.checkpoints


def clear(scope: Scope, keys: Sequence[ThreadKey], *, led_by: bytes = b"") -> Op[list[ThreadKey]]:
    """Remove what is left of threads that went by themselves; which ones did.

    Of their memory what they can have written: more may have come since, for the next thread of that id.
    """
    found = yield from scope.core.dialect.remains(keys)
    left = [(key, row) for key, row in zip(keys, found, strict=True) if row is not None]
    if left:
        name = scope.core.random(12)
        yield from remains.note(scope, name, [key for key, _ in left], (yield from db_now(scope.core)))
        for key, row in left:  # before what tells of them goes: a new thread of the id may follow at once
            yield from reads.forget_before(scope, key, int(row.extents))
        yield from delete_all(scope, left, led_by=led_by, memory=False)
        yield from remains.done(scope, name)
    return [key for key, _ in left]


class Removed(NamedTuple):
    """What became of threads: how many checkpoints each had, None for those that stay; items of their memory."""

    checkpoints: list[int | None]
    items: int


def delete_all(
    scope: Scope, threads: Sequence[tuple[ThreadKey, ThreadRow]], *, led_by: bytes = b"", memory: bool = True
) -> Op[Removed]:
    """Remove threads that still stand as they were read, as `delete` does."""
    if not threads:
        return Removed([], 0)
    found = yield from scope.core.dialect.delete_all(threads)
    gone = [(key, removed) for (key, _), removed in zip(threads, found, strict=True) if removed is not None]
    items = yield from _forget(scope, gone, led_by, memory=memory)
    return Removed([None if removed is None else removed.checkpoints for removed in found], items)


def delete_of(
    scope: Scope, keys: Sequence[ThreadKey], person: bytes, beside: Collection[bytes] | None
) -> Op[tuple[list[Deleted | ThreadRow | None], int]]:
    """Remove the threads of a person that led here, see `Dialect.delete_of`; also how many items their memory had."""
    found = yield from scope.core.dialect.delete_of(keys, person, beside)
    gone = [(key, removed) for key, removed in zip(keys, found, strict=True) if isinstance(removed, Deleted)]
    return found, (yield from _forget(scope, gone, person))


def _forget(scope: Scope, gone: Sequence[tuple[ThreadKey, Deleted]], led_by: bytes, *, memory: bool = True) -> Op[int]:
    """Drop whatever leads to threads that are gone, and their memory; how many items that were."""
    traces: set[bytes] = set()
    effects: list[tuple[ThreadKey, bytes]] = []
    people: list[subjects.Left] = []
    for key, removed in gone:
        scope.core.knowledge.forget(key)
        marks = [note.key[1:] for note in removed.notes if note.key[:1] == subjects.PREFIX]
        decided: list[tuple[str, str]] = []
        if len(marks) < len(removed.notes):
            entries, noted = _noted(scope, removed.notes)
            for entry in entries:
                traces |= index.traces_of(scope, key.thread, entry)
            effects += [(key, effect) for effect in noted]
            decided = _decided(entries)
        if decided or marks != [led_by]:
            people.append(subjects.Left(key, [mark for mark in marks if mark != led_by], decided))
    yield from index.drop_traces(scope, traces)
    yield from effect_hints.drop_hints_of(scope, effects)
    yield from subjects.forget(scope, people)
    if not memory:
        return 0
    return (yield from reads.forget_all(scope, [(key, removed.notes) for key, removed in gone]))


def _decided(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """Who decided which."""
    return [(entry.by, entry.id) for entry in entries if entry.by]


def settle_copy(scope: Scope, key: ThreadKey) -> Op[list[str]]:
    """Make a fresh copy a thread of its own: its questions are announced, and what was paid in one is not in two.

    Returns:
        Who decided in it.
    """
    thread = yield from thread_of(scope, key)
    if thread is None:
        return []
    notes = yield from scope.core.dialect.notes(thread, b"")
    entries, effects = _noted(scope, notes)
    told: list[tuple[str | None, Entry]] = [
        ("created" if entry.is_open else None, replace(entry, events=())) for entry in entries
    ]
    changed = (yield from index.announce(scope, key, thread.uid, thread.rev, told)) if told else []
    after = [*notes_of(scope, changed), *(Note(effect, None) for effect in effects)]
    if after:
        guard = Guard(key, thread, thread.uid, scope.core.random(8), thread.extents)
        yield from scope.core.dialect.put_writes(guard, Elements(), (), after)
    yield from subjects.announce_deciders(scope, key, _decided(entries))
    return list({by: None for by, _ in _decided(entries)})


def rebuild(scope: Scope) -> Op[int]:
    """Write every hint of this tenant's threads anew from their notes; how many interrupts there are."""
    count, after = 0, None
    while True:
        rows = yield from scope.core.dialect.threads(scope.tenant, _PAGE, after)
        for row in rows:
            key = ThreadKey(scope.tenant, row.thread)
            thread = yield from thread_of(scope, key)
            if thread is None:
                continue
            entries, effects = _noted(scope, (yield from scope.core.dialect.notes(thread, b"")))
            for entry in entries:
                yield from index.restore(scope, key, thread.uid, thread.rev, entry)
            yield from subjects.announce_deciders(scope, key, _decided(entries))
            yield from effect_hints.restore_hints(scope, key, effects)
            count += len(entries)
        if len(rows) < _PAGE:
            return count
        after = rows[-1].no
