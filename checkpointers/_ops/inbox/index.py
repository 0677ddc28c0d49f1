"""Where interrupts are found: lists ordered by time, hints by deadline, id and reference, and the feed of changes.

A list holds the interrupts of one status, of all, of one subject or of one node; a filter reads the shortest one.

Everything here is written before the write it tells of, and says which revision of the thread that write replaces. So
a reader can tell what is true, what may still become true and what never will: a write that was announced for a
revision can only be committed while the thread stands at it. All hints of a change and its events are one
compare-and-set on the counter that numbers the events.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

import ormsgpack

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.rows import Doc, DocChange
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.expiry import db_now
from stepvault.checkpointers._ops.inbox.entries import Entry
from stepvault.checkpointers._ops.spaces import drop_docs, space

EVENTS, LISTS, SUBJECTS, NODES, DUE, IDS, REFERENCES = b"\x01", b"l", b"s", b"n", b"d", b"i", b"x"
OPEN = {"pending": b"o", "decided": b"d"}  # the lists of a family
CLOSED = {"answered": b"a", "superseded": b"s", "expired": b"e"}
_KINDS, _OPEN = (LISTS, SUBJECTS, NODES), (*OPEN.values(),)
RANK = 24  # bytes of a key after the name of its list: a time, a thread and an interrupt
COUNTER = b"\x00"
SPACE = "inbox"


class Place(NamedTuple):
    """A hint: which interrupt of which thread, and the generation and revision it was written for."""

    key: bytes
    version: bytes
    thread: bytes
    id: str
    uid: bytes
    rev: bytes
    kind: str


def order_of(scope: Scope, thread: bytes, entry: Entry) -> bytes:
    """Where an entry stands in a list: by the time it was asked."""
    return _number(entry.created) + scope.mark(_short(thread))[:8] + _short(entry.id.encode("utf-8", "surrogatepass"))


def hints_of(scope: Scope, thread: bytes, entry: Entry) -> set[bytes]:
    """The keys under which an entry is to be found."""
    id_ = entry.id.encode("utf-8", "surrogatepass")
    place = scope.mark(_short(thread))[:8] + _short(id_)
    keys = {IDS + digest_of(entry.id) + place}
    families = _families(scope, entry, b"")
    if entry.is_open:
        keys.update(family + OPEN[entry.status] + order_of(scope, thread, entry) for family in families)
    else:
        keys.update(family + CLOSED[entry.status] + _number(entry.closed or 0) + place for family in families)
    if entry.status == "pending" and entry.deadline is not None:
        keys.add(DUE + _number(entry.deadline) + place)
    if entry.external_ref is not None:
        keys.add(REFERENCES + reference(scope, entry.external_ref) + place)
    return keys


def is_true(scope: Scope, place: Place, entry: Entry) -> bool:
    """Whether a hint leads to what it promises."""
    if is_open(place):  # as below, with less work: pages are made of these
        family, letter, rank = place.key[: -RANK - 1], place.key[-RANK - 1 : -RANK], place.key[-RANK:]
        stands = letter == OPEN.get(entry.status) and rank == order_of(scope, place.thread, entry)
        return stands and family in _families(scope, entry, family[:1])
    return place.key in hints_of(scope, place.thread, entry)


def is_open(place: Place) -> bool:
    """Whether a hint is of a list of open interrupts."""
    return place.key[:1] in _KINDS and place.key[-RANK - 1 : -RANK] in _OPEN


def _families(scope: Scope, entry: Entry, kind: bytes) -> list[bytes]:
    """The families of lists that hold an entry; those of one kind, or all."""
    families = [LISTS]
    if kind in (b"", SUBJECTS):
        families += [of_subject(scope, subject) for subject in entry.subjects]
    if kind in (b"", NODES):
        families += [of_node(scope, node) for node in {entry.node, *(entry.nodes or ())} if node is not None]
    return families


def announce(
    scope: Scope, key: ThreadKey, uid: bytes, rev: bytes, changed: Sequence[tuple[str | None, Entry]]
) -> Op[list[Entry]]:
    """Write the hints of entries and the events that tell of them; returns the entries with their events.

    Args:
        scope: The saver's view.
        key: The thread.
        uid: Its generation.
        rev: The revision that the write which stores these entries replaces.
        changed: Entries, and what happened to each (None: nothing to tell).
    """
    while True:
        entries = [entry for _, entry in changed]
        changes: list[DocChange] = []
        if any(kind for kind, _ in changed):
            entries, changes = yield from _numbered(scope, key, uid, rev, changed)
        version = scope.core.random(8)
        for entry in entries:
            body = _body(key.thread, entry.id, uid, rev)
            changes += [DocChange(hint, body, version) for hint in sorted(hints_of(scope, key.thread, entry))]
        if (yield from scope.core.dialect.write_docs(space(scope, SPACE), changes)):
            return entries


def _numbered(
    scope: Scope, key: ThreadKey, uid: bytes, rev: bytes, changed: Sequence[tuple[str | None, Entry]]
) -> Op[tuple[list[Entry], list[DocChange]]]:
    """Numbers for events: microseconds, moved on by the counter, so that they grow even if the counter is lost."""
    found = yield from scope.core.dialect.get_docs(space(scope, SPACE), [COUNTER])
    number = max(int.from_bytes(found[0].body, "big") if found else 0, (yield from db_now(scope.core)) * 1000)
    version = scope.core.random(8)
    entries, events = [], []
    for kind, entry in changed:
        if kind is not None:
            number += 1
            entry = replace(entry, events=(*entry.events, (number, kind)))
            events.append(DocChange(EVENTS + _number(number), _body(key.thread, entry.id, uid, rev, kind), version))
        entries.append(entry)
    return entries, [DocChange(COUNTER, _number(number), version, found[0].version if found else None), *events]


def traces_of(scope: Scope, thread: bytes, entry: Entry) -> set[bytes]:
    """The keys of everything that leads to an entry or tells of it."""
    return hints_of(scope, thread, entry) | {EVENTS + _number(number) for number, _ in entry.events}


def drop_traces(scope: Scope, keys: Collection[bytes]) -> Op[None]:
    """Drop what led to entries that are gone, or told of them."""
    yield from drop_docs(scope, SPACE, sorted(keys))


def forget(scope: Scope, key: ThreadKey, changed: Sequence[tuple[Entry, Entry | None]]) -> Op[None]:
    """After a write: drop the hints that held before it and do not any more (None: nor do its events)."""
    gone: set[bytes] = set()
    for before, after in changed:
        if after is None:
            gone |= traces_of(scope, key.thread, before)
        else:
            gone |= hints_of(scope, key.thread, before)
            gone -= hints_of(scope, key.thread, after)
    yield from drop_traces(scope, gone)


def at(scope: Scope, keys: Collection[bytes]) -> Op[list[Place]]:
    """What stands at these keys, as far as something does."""
    return [_place(doc) for doc in (yield from scope.core.dialect.get_docs(space(scope, SPACE), sorted(keys)))]


def beside(scope: Scope, place: Place) -> Op[list[Place]]:
    """The hints that lead to the same interrupt as one of a person's lists."""
    rank = place.key[len(of_subject(scope, "")) :]
    return (yield from at(scope, [LISTS + rank, IDS + digest_of(place.id) + rank[9:]]))  # after a letter and a time


def drop(scope: Scope, places: Sequence[Place]) -> Op[None]:
    """Drop hints that were found to be false, unless somebody has written them anew."""
    for place in places:
        change = DocChange(place.key, None, b"", place.version)
        yield from scope.core.dialect.write_docs(space(scope, SPACE), [change])


def restore(scope: Scope, key: ThreadKey, uid: bytes, rev: bytes, entry: Entry) -> Op[None]:
    """Write the hints and events of an entry again."""
    version = scope.core.random(8)
    body = _body(key.thread, entry.id, uid, rev)
    changes = [DocChange(hint, body, version) for hint in sorted(hints_of(scope, key.thread, entry))]
    for number, kind in entry.events:
        changes.append(DocChange(EVENTS + _number(number), _body(key.thread, entry.id, uid, rev, kind), version))
    yield from scope.core.dialect.write_docs(space(scope, SPACE), changes)


def places(scope: Scope, prefix: bytes, after: bytes, limit: int) -> Op[list[Place]]:
    """Hints whose keys begin with a prefix, in order, from a key on."""
    found = yield from scope.core.dialect.docs(space(scope, SPACE), prefix, after, limit)
    return [_place(doc) for doc in found]


def of_subject(scope: Scope, subject: str) -> bytes:
    """The family of lists of a subject."""
    return SUBJECTS + scope.mark(digest_of(subject))


def of_node(scope: Scope, node: str) -> bytes:
    """The family of lists of a node."""
    return NODES + scope.mark(digest_of(node))


def digest_of(text: str) -> bytes:
    """What stands for an id in keys."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def reference(scope: Scope, external: str) -> bytes:
    """What stands for a reference in keys."""
    return scope.mark(digest_of(external))


def _place(doc: Doc) -> Place:
    return Place(doc.key, doc.version, *ormsgpack.unpackb(doc.body))


def _body(thread: bytes, interrupt_id: str, uid: bytes, rev: bytes, kind: str = "") -> bytes:
    return ormsgpack.packb([thread, interrupt_id, uid, rev, kind])


def _number(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _short(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=8).digest()
