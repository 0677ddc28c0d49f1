"""Finding interrupts: lists, one by id, and the feed of changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from langgraph.checkpoint.serde.types import TASKS

from stepvault._core.chunks import unpack_row
from stepvault._core.codec import unpack
from stepvault._core.ids import text_of
from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.record import decode_record
from stepvault._core.rows import ThreadRow
from stepvault._core.state import State
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.inbox import index
from stepvault.checkpointers._ops.inbox.entries import OPEN, Entry, entry_of, interrupt_of, note_key, public_id
from stepvault.checkpointers._ops.inbox.index import Place
from stepvault.checkpointers._ops.inbox.upkeep import place_of_send
from stepvault.errors import ConfigurationError, InterruptNotFoundError
from stepvault.inbox import STATUSES, Change, ChangePage, InboxPage, PendingInterrupt

_PAGE = 100
_SETTLE = 60_000  # milliseconds in which an announced interrupt must have been stored


class Found(NamedTuple):
    """An entry with the thread it stands in."""

    key: ThreadKey
    thread: ThreadRow
    entry: Entry


def listed(
    scope: Scope, status: str | None, wanted: Callable[[PendingInterrupt], bool], limit: int, cursor: str | None
) -> Op[InboxPage]:
    """Interrupts of a status (None: open ones and closed ones), oldest first."""
    if status is not None and status not in STATUSES:
        raise ConfigurationError(f"status must be one of {', '.join(STATUSES)}, not {status!r}.")
    if limit < 1:
        raise ConfigurationError(f"limit must be at least 1, not {limit!r}.")
    spaces = ["inbox"] if status in OPEN else ["inbox-closed"] if status else ["inbox", "inbox-closed"]
    start, after = _position(spaces, cursor)
    found: list[PendingInterrupt] = []
    for name in spaces[spaces.index(start) :]:
        places: list[Place] = [Place(after, b"", "")]
        while places and len(found) < limit:
            read = index.open_places if name == "inbox" else index.closed_places
            places = yield from read(scope, after, _PAGE)
            for place, entry in (yield from _verified(scope, name, places)):
                after = place.key
                if (status is None or entry.status == status) and wanted(entry):
                    found.append(entry)
                    if len(found) == limit:
                        return InboxPage(found, f"{name}:{after.hex()}")
            after = places[-1].key if places else b""
    return InboxPage(found, None)


def _position(spaces: list[str], cursor: str | None) -> tuple[str, bytes]:
    if cursor is None:
        return spaces[0], b""
    name, _, at = cursor.partition(":")
    try:
        if name in spaces:
            return name, bytes.fromhex(at)
    except ValueError:
        pass
    raise ConfigurationError(f"cursor {cursor!r} is not one that this list returned.")


def _verified(scope: Scope, name: str, places: Sequence[Place]) -> Op[list[tuple[Place, PendingInterrupt]]]:
    """The interrupts at these places; docs without their note, or of the other list, are dropped."""
    kept, stale = [], []
    for place in places:
        found = yield from find(scope, ThreadKey(scope.tenant, place.thread), place.id)
        if found is None:
            stale.append(place)
        elif found.entry.is_open == (name == "inbox"):
            kept.append((place, interrupt_of(found.key, found.thread.uid, found.entry)))
        elif name == "inbox":
            yield from index.close(scope, found.key, [found.entry])
    if stale:
        now = yield from scope.core.dialect.now()
        yield from index.drop(scope, name, [p for p in stale if now - int.from_bytes(p.key[:8], "big") > _SETTLE])
    return kept


def find(scope: Scope, key: ThreadKey, interrupt_id: str) -> Op[Found | None]:
    """The entry of an interrupt in a thread; one whose checkpoint the thread has left is seen as superseded."""
    loaded = yield from scope.core.dialect.load(key, b"", b"\x00", None)
    if loaded.thread is None:
        return None
    notes = yield from scope.core.dialect.notes(loaded.thread, note_key(interrupt_id))
    bodies = [note.body for note in notes if note.key == note_key(interrupt_id) and note.body is not None]
    if not bodies:
        return None
    entry = entry_of(scope, bodies[0])
    head = State.unpack(loaded.thread.extents).head
    if entry.is_open and head is not None and head > entry.checkpoint:  # an interrupt may precede its checkpoint
        entry = entry.close("superseded", entry.created)
    place = place_of_send(entry.path)
    if entry.node is None and place is not None:
        entry = replace(entry, node=(yield from _sent_to(scope, key, entry.checkpoint, place)))
    return Found(key, loaded.thread, entry)


def _sent_to(scope: Scope, key: ThreadKey, checkpoint: bytes, place: int) -> Op[str | None]:
    """The node of a Send, which stands in the checkpoint that sent it (stored before or after the interrupt)."""
    loaded = yield from scope.core.dialect.load(key, b"", checkpoint, None)
    if not loaded.checkpoints:
        return None
    elements: dict[int, bytes] = {}
    for chunk in loaded.chunks:
        unpack_row(chunk, elements)
    form = decode_record(unpack(loaded.checkpoints[0].body)).forms.get(TASKS)
    sends = scope.decoder(elements).value(form) or []
    return getattr(sends[place], "node", None) if place < len(sends) else None


def by_id(scope: Scope, public: str, thread_id: str | None = None) -> Op[Found]:
    """The entry with this id.

    Raises:
        InterruptNotFoundError: No thread has it.
    """
    interrupt_id, _, _ = public.partition(":")
    places = yield from index.places_of_id(scope, interrupt_id)
    hits: list[Found] = []
    for place in places:
        found = yield from find(scope, ThreadKey(scope.tenant, place.thread), interrupt_id)
        if found is not None and (thread_id is None or text_of(found.key.thread) == thread_id):
            hits.append(found)
    exact = [found for found in hits if public_id(found.entry, found.thread.uid) == public]
    if exact:
        return exact[0]
    raise InterruptNotFoundError(f"No interrupt has the id {public!r}; it was deleted with its thread, or never was.")


def changes(scope: Scope, cursor: str | None) -> Op[ChangePage]:
    """Events after a cursor, in order; one that is not stored yet ends the page, one that never was is passed over."""
    try:
        after = bytes.fromhex(cursor) if cursor else b""
    except ValueError as exc:
        raise ConfigurationError(f"cursor {cursor!r} is not one that changes() returned.") from exc
    found: list[Change] = []
    for place in (yield from index.events(scope, after, _PAGE)):
        entry = yield from find(scope, ThreadKey(scope.tenant, place.thread), place.id)
        if entry is not None and _happened(place.kind, entry.entry):
            found.append(Change(place.kind, interrupt_of(entry.key, entry.thread.uid, entry.entry)))  # type: ignore[arg-type]
        after = place.key
    return ChangePage(found, after.hex())


def _happened(kind: str, entry: Entry) -> bool:
    if kind == "created":
        return True
    return entry.decided is not None if kind == "decided" else entry.status == kind
