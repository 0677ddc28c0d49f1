"""Finding interrupts: lists, one by id, and the feed of changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from stepvault._core.chunks import unpack_row
from stepvault._core.codec import unpack
from stepvault._core.ids import check_text, thread_text
from stepvault._core.knowledge import ThreadKey
from stepvault._core.numbers import check_count
from stepvault._core.people import subject_key
from stepvault._core.plan import Op
from stepvault._core.record import decode_record
from stepvault._core.renames import Aliases
from stepvault._core.rows import ThreadRow
from stepvault._core.state import State
from stepvault.checkpointers._ops.context import Scope, thread_of
from stepvault.checkpointers._ops.expiry import is_over
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
from stepvault.errors import ConfigurationError, InterruptNotFoundError, SubjectErasedError, ThreadGoneError
from stepvault.inbox import STATUSES, InboxPage, PendingInterrupt

T = TypeVar("T")

_PAGE = 100
_MOST = 1000


class Found(NamedTuple):
    """An entry as it counts now, the thread it stands in, and the entry as it is stored."""

    key: ThreadKey
    thread: ThreadRow
    entry: Entry
    stored: Entry


Wanted = Callable[[PendingInterrupt], bool]


class Lists(NamedTuple):
    """Lists that are read as one, in the order of their ranks: what follows the name of a list in its keys."""

    prefixes: Sequence[bytes]

    def page(self, scope: Scope, after: bytes, limit: int) -> Op[list[Place]]:
        """The next places after a rank."""
        found: dict[bytes, Place] = {}
        for prefix in self.prefixes:
            for place in (yield from index.places(scope, prefix, prefix + after, limit)):
                found[place.key[len(prefix) :]] = place
        return [found[rank] for rank in sorted(found)[:limit]]


def listed(
    scope: Scope, families: Sequence[bytes], status: str | None, wanted: Wanted, limit: int, cursor: str | None
) -> Op[InboxPage]:
    """Interrupts of a status (None: open ones, then closed ones), oldest first.

    Args:
        scope: The saver's view.
        families: Lists that hold every interrupt that is wanted.
        status: Which status, see `STATUSES`.
        wanted: What else they must be.
        limit: At most this many.
        cursor: Where the page before ended.
    """
    check_page(status, limit)
    groups = _groups(families, status)
    position = _position(cursor) or b"\x00"
    if position[0] >= len(groups):
        raise ConfigurationError(f"cursor {cursor!r} is not one that this list returned.")
    found: list[PendingInterrupt] = []
    after = position[1:]
    for group in range(position[0], len(groups)):
        size = max(limit, 10)
        while True:
            places = yield from groups[group].page(scope, after, size)
            for place, hit in (yield from verified(scope, places)):
                interrupt = interrupt_of(scope, hit.key, hit.thread.uid, hit.entry)
                if (status is None or interrupt.status == status) and wanted(interrupt):
                    found.append(interrupt)
                    if len(found) == limit:
                        return InboxPage(found, (bytes((group,)) + place.key[-index.RANK :]).hex())
            if len(places) < size:
                break
            after = places[-1].key[-index.RANK :]
            size = min(size * 2, _MOST)  # few of many are wanted: read on in larger pages
        after = b""
    return InboxPage(found, None)


def _groups(families: Sequence[bytes], status: str | None) -> list[Lists]:
    """What to read, one after the other."""
    groups = [letters for letters in (index.OPEN, index.CLOSED) if status is None or status in letters]
    return [
        Lists([family + letter for family in families for name, letter in letters.items() if status in (None, name)])
        for letters in groups
    ]


def families_of(scope: Scope, subject: str | None, node: str | None) -> list[bytes]:
    """The shortest lists that hold what is asked of a subject or a node; a node is listed under the name it had."""
    if subject is not None:
        return [index.of_subject(scope, subject)]
    if node is None:
        return [index.LISTS]
    former = [name for name, present in scope.core.evolution.aliases.names.items() if present == node]
    return [index.of_node(scope, name) for name in dict.fromkeys([node, *former])]


def check_page(status: str | None, limit: int) -> None:
    """Raise ConfigurationError for a status or a limit that does not exist."""
    if status is not None and status not in STATUSES:
        raise ConfigurationError(f"status must be one of {', '.join(STATUSES)}, not {status!r}.")
    check_count("limit", limit)


def _position(cursor: str | None) -> bytes:
    try:
        return bytes.fromhex(cursor or "")
    except (ValueError, TypeError) as exc:
        raise ConfigurationError(f"cursor {cursor!r} is not one that the inbox returned.") from exc


def of_thread(
    scope: Scope, key: ThreadKey, status: str | None, wanted: Wanted, limit: int, cursor: str | None
) -> Op[InboxPage]:
    """Interrupts of one thread, oldest first, read from its own notes."""
    check_page(status, limit)
    after = _position(cursor)
    thread = yield from thread_of(scope, key)
    if thread is None or (yield from is_over(scope.core, thread)):
        return InboxPage([], None)
    rows: list[tuple[bytes, PendingInterrupt]] = []
    for prefix in (WAITING,) if status in OPEN else (WAITING, CLOSED):
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


def with_reference(
    scope: Scope, reference: str, status: str | None, wanted: Wanted, limit: int, cursor: str | None
) -> Op[InboxPage]:
    """Interrupts that carry an external reference, in no order that means something."""
    check_page(status, limit)
    prefix = index.REFERENCES + index.reference(scope, reference)
    after, found = prefix + _position(cursor), list[PendingInterrupt]()
    while True:
        places = yield from index.places(scope, prefix, after, _PAGE)
        for place, hit in (yield from verified(scope, places)):
            interrupt = interrupt_of(scope, hit.key, hit.thread.uid, hit.entry)
            if (status is None or interrupt.status == status) and wanted(interrupt):
                found.append(interrupt)
                if len(found) == limit:
                    return InboxPage(found, place.key[len(prefix) :].hex())
        if len(places) < _PAGE:
            return InboxPage(found, None)
        after = places[-1].key


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
    """The hints that are true, with what they lead to, unless it has expired; those that never will be are dropped."""
    kept, stale = [], []
    for place, (thread, hit) in zip(places, (yield from look_up(scope, places)), strict=True):
        if hit is not None and index.is_true(scope, place, hit.stored):
            if not (yield from is_over(scope.core, hit.thread)):
                kept.append((place, hit))
        elif thread is None or thread.uid != place.uid or thread.rev != place.rev:
            stale.append(place)
    yield from index.drop(scope, stale)
    return kept


def tidy(scope: Scope, family: bytes) -> Op[None]:
    """Drop what leads from a person to interrupts that are not there: a writer was killed, or refused, before them.

    `family` is `index.of_subject` of them.
    """
    after = family
    while True:
        places = yield from index.places(scope, family, after, _PAGE)
        for place in places:
            yield from verified(scope, [place, *(yield from index.beside(scope, place))])
        if len(places) < _PAGE:
            return
        after = places[-1].key


def withdrawing(scope: Scope, key: ThreadKey, announced: Sequence[Entry], op: Op[T]) -> Op[T]:
    """A write of what was announced; if its thread or its person went meanwhile, nothing that leads there is left."""
    try:
        return (yield from op)
    except (SubjectErasedError, ThreadGoneError, InterruptNotFoundError):
        for entry in announced:
            places = yield from index.at(scope, index.traces_of(scope, key.thread, entry))
            true = [place for place, _ in (yield from verified(scope, places))]
            lists = [place for place in places if place.key[:1] == index.SUBJECTS and place not in true]
            yield from index.drop(scope, lists)  # who else announces this for them is refused as well
        raise


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
    return keys[:1] if index.is_open(place) else keys


def _found(scope: Scope, key: ThreadKey, thread: ThreadRow, body: bytes) -> Op[Found]:
    """An entry as it counts: one whose checkpoint the thread has left without closing it is superseded."""
    stored = entry = entry_of(scope, body)
    head = State.head_of(thread.extents)
    if entry.is_open and head is not None and head > entry.checkpoint:
        entry = entry.close("superseded", entry.created)
    elif entry.status == "pending" and entry.taken is not None:
        entry = entry.close("answered", entry.taken)
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
    check_text("interrupt_id", public)
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
    waits, after = _groups([index.LISTS], None)[0], b""
    while True:
        places = yield from waits.page(scope, after, _PAGE)
        for _, hit in (yield from verified(scope, places)):
            if (yield from present_ids(scope, hit.key)).get(hit.entry.id) == interrupt_id:
                return hit
        if not places:
            return None
        after = places[-1].key[-index.RANK :]


def wanted(subject: str | None, thread_id: Any, node: str | None, external_ref: str | None, aliases: Aliases) -> Wanted:
    """The filter of a list.

    Raises:
        IdentifierError: What is looked for is no text.
    """
    if subject is not None:
        subject_key(subject)
    for name, value in (("node", node), ("external_ref", external_ref)):
        if value is not None:
            check_text(name, value)

    def fits(interrupt: PendingInterrupt) -> bool:
        return (
            (subject is None or subject in interrupt.subjects)
            and (thread_id is None or interrupt.thread_id == thread_text(thread_id))
            and (node is None or node in _nodes_of(interrupt, aliases))
            and (external_ref is None or interrupt.external_ref == external_ref)
        )

    return fits


def _nodes_of(interrupt: PendingInterrupt, aliases: Aliases) -> list[str]:
    """The node that asked, or those that a pause stands before."""
    return [aliases.node(node) for node in (interrupt.node, *interrupt.next) if node]
