"""Finding interrupts: lists, one by id, and the feed of changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from stepvault._core.chunks import unpack_row
from stepvault._core.codec import unpack
from stepvault._core.ids import thread_text
from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.record import decode_record
from stepvault._core.renames import Aliases
from stepvault._core.rows import ThreadRow, beyond
from stepvault._core.state import State
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.inbox import index
from stepvault.checkpointers._ops.inbox.entries import (
    CLOSED,
    OPEN,
    WAITING,
    Entry,
    entry_of,
    interrupt_of,
    note_keys,
    public_id,
)
from stepvault.checkpointers._ops.inbox.index import Place
from stepvault.checkpointers._ops.inbox.renaming import present_ids
from stepvault.checkpointers._ops.inbox.upkeep import place_of_send, sent_to
from stepvault.errors import ConfigurationError, InterruptNotFoundError
from stepvault.inbox import STATUSES, InboxPage, PendingInterrupt

_PAGE = 100


class Found(NamedTuple):
    """An entry as it counts now, the thread it stands in, and the entry as it is stored."""

    key: ThreadKey
    thread: ThreadRow
    entry: Entry
    stored: Entry


Wanted = Callable[[PendingInterrupt], bool]


def listed(scope: Scope, status: str | None, wanted: Wanted, limit: int, cursor: str | None) -> Op[InboxPage]:
    """Interrupts of a status (None: open ones, then closed ones), oldest first."""
    check_page(status, limit)
    kinds = [index.WAITS] if status in OPEN else [index.CLOSED] if status else [index.WAITS, index.CLOSED]
    after = _position(cursor)
    found: list[PendingInterrupt] = []
    for kind in kinds:
        while after < beyond(kind):
            places = yield from index.places(scope, kind, after, _PAGE if len(kinds) > 1 else max(limit, 10))
            for place, hit in (yield from verified(scope, places)):
                interrupt = interrupt_of(scope, hit.key, hit.thread.uid, hit.entry)
                if (status is None or interrupt.status == status) and wanted(interrupt):
                    found.append(interrupt)
                    if len(found) == limit:
                        return InboxPage(found, place.key.hex())
            after = places[-1].key if places else beyond(kind)
    return InboxPage(found, None)


def check_page(status: str | None, limit: int) -> None:
    """Raise ConfigurationError for a status or a limit that does not exist."""
    if status is not None and status not in STATUSES:
        raise ConfigurationError(f"status must be one of {', '.join(STATUSES)}, not {status!r}.")
    if limit < 1:
        raise ConfigurationError(f"limit must be at least 1, not {limit!r}.")


def _position(cursor: str | None) -> bytes:
    try:
        return bytes.fromhex(cursor or "")
    except ValueError as exc:
        raise ConfigurationError(f"cursor {cursor!r} is not one that the inbox returned.") from exc


def of_thread(
    scope: Scope, key: ThreadKey, status: str | None, wanted: Wanted, limit: int, cursor: str | None
) -> Op[InboxPage]:
    """Interrupts of one thread, oldest first, read from its own notes."""
    check_page(status, limit)
    after = _position(cursor)
    ((thread, _),) = yield from scope.core.dialect.notes_at([(key, b"")])
    if thread is None:
        return InboxPage([], None)
    rows: list[tuple[bytes, PendingInterrupt]] = []
    for prefix in (WAITING, CLOSED):
        for note in (yield from scope.core.dialect.notes(thread, prefix)):
            assert note.body is not None
            hit = yield from _found(scope, key, thread, note.body)
            interrupt = interrupt_of(scope, key, thread.uid, hit.entry)
            place = index.order_of(scope, key.thread, hit.entry)
            if place > after and (status is None or interrupt.status == status) and wanted(interrupt):
                rows.append((place, interrupt))
    rows.sort(key=lambda row: row[0])
    page = [interrupt for _, interrupt in rows[:limit]]
    return InboxPage(page, rows[limit - 1][0].hex() if len(rows) > limit else None)


def with_reference(scope: Scope, reference: str, status: str | None, wanted: Wanted) -> Op[InboxPage]:
    """Interrupts that carry an external reference."""
    check_page(status, 1)
    places = yield from index.places(scope, index.REFERENCES + index.reference(scope, reference), b"", _PAGE)
    hits = yield from verified(scope, places)
    shown = [interrupt_of(scope, hit.key, hit.thread.uid, hit.entry) for _, hit in hits]
    return InboxPage([i for i in shown if (status is None or i.status == status) and wanted(i)], None)


def due(scope: Scope, until: int) -> Op[list[PendingInterrupt]]:
    """Pending interrupts whose deadline is not after a time, earliest first."""
    late: list[PendingInterrupt] = []
    after = b""
    while True:
        places = yield from index.places(scope, index.DUE, after, _PAGE)
        in_time = [place for place in places if int.from_bytes(place.key[1:9], "big") <= until]
        for _, hit in (yield from verified(scope, in_time)):
            if hit.entry.status == "pending":
                late.append(interrupt_of(scope, hit.key, hit.thread.uid, hit.entry))
        if len(in_time) < _PAGE:
            return late
        after = places[-1].key


def verified(scope: Scope, places: Sequence[Place]) -> Op[list[tuple[Place, Found]]]:
    """The hints that are true, with what they lead to; those that never will be true again are dropped."""
    kept, stale = [], []
    for place, (thread, hit) in zip(places, (yield from look_up(scope, places)), strict=True):
        if hit is not None and index.is_true(scope, place, hit.stored):
            kept.append((place, hit))
        elif thread is None or thread.uid != place.uid or thread.rev != place.rev:
            stale.append(place)
    yield from index.drop(scope, stale)
    return kept


def look_up(scope: Scope, places: Sequence[Place]) -> Op[list[tuple[ThreadRow | None, Found | None]]]:
    """Each thread as it stands, and the interrupt in it."""
    keys = [ThreadKey(scope.tenant, place.thread) for place in places]
    asked = [(key, note) for key, place in zip(keys, places, strict=True) for note in _notes(place)]
    rows = iter((yield from scope.core.dialect.notes_at(asked)))
    found: list[tuple[ThreadRow | None, Found | None]] = []
    for key, place in zip(keys, places, strict=True):
        read = [next(rows) for _ in _notes(place)]
        thread, body = read[-1][0], next((body for _, body in read if body), None)
        found.append((thread, (yield from _found(scope, key, thread, body)) if thread and body else None))
    return found


def _notes(place: Place) -> tuple[bytes, ...]:
    """Where the note of a hint may stand; that of one that waits in one place only."""
    keys = note_keys(place.id)
    return keys[:1] if place.key[:1] == index.WAITS else keys


def _found(scope: Scope, key: ThreadKey, thread: ThreadRow, body: bytes) -> Op[Found]:
    """An entry as it counts: one whose checkpoint the thread has left without closing it is superseded."""
    stored = entry = entry_of(scope, body)
    head = State.head_of(thread.extents)
    if entry.is_open and head is not None and head > entry.checkpoint:
        entry = entry.close("superseded", entry.created)
    place = place_of_send(entry.path)
    if entry.node is None and place is not None and not entry.ns:
        entry = replace(entry, node=(yield from _sent_to(scope, key, entry.checkpoint, place)))
    return Found(key, thread, entry, stored)


def _sent_to(scope: Scope, key: ThreadKey, checkpoint: bytes, place: int) -> Op[str | None]:
    """The node of a Send whose checkpoint was not at hand when the interrupt was stored."""
    loaded = yield from scope.core.dialect.load(key, b"", checkpoint, None)
    if not loaded.checkpoints:
        return None
    elements: dict[int, bytes] = {}
    for chunk in loaded.chunks:
        unpack_row(chunk, elements)
    return sent_to(scope, decode_record(unpack(loaded.checkpoints[0].body)), elements, place)


def by_id(scope: Scope, public: str) -> Op[Found]:
    """The interrupt with this id.

    Raises:
        InterruptNotFoundError: No thread has it.
    """
    interrupt_id, _, _ = public.partition(":")
    places = yield from index.places(scope, index.IDS + index.digest_of(interrupt_id), b"", 1000)
    for _, hit in (yield from verified(scope, places)):
        if public_id(hit.entry, hit.thread.uid) == public:
            return hit
    renamed = (yield from _by_present_id(scope, interrupt_id)) if scope.core.evolution.aliases else None
    if renamed is not None:
        return renamed
    raise InterruptNotFoundError(f"No interrupt has the id {public!r}; it was deleted with its thread, or never was.")


def _by_present_id(scope: Scope, interrupt_id: str) -> Op[Found | None]:
    """An open interrupt by the id that the present code gives it, since its node was renamed."""
    after = index.WAITS
    while True:
        places = yield from index.places(scope, index.WAITS, after, _PAGE)
        for _, hit in (yield from verified(scope, places)):
            if (yield from present_ids(scope, hit.key)).get(hit.entry.id) == interrupt_id:
                return hit
        if not places:
            return None
        after = places[-1].key


def wanted(subject: str | None, thread_id: Any, node: str | None, external_ref: str | None, aliases: Aliases) -> Wanted:
    """The filter of a list."""

    def fits(interrupt: PendingInterrupt) -> bool:
        return (
            (subject is None or subject in interrupt.subjects)
            and (thread_id is None or interrupt.thread_id == thread_text(thread_id))
            and (node is None or (interrupt.node and aliases.node(interrupt.node)) == node)
            and (external_ref is None or interrupt.external_ref == external_ref)
        )

    return fits
