"""Where interrupts are found: docs ordered by time, by id, and the feed of changes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import ormsgpack

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.rows import Doc, DocChange
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.inbox.entries import Entry

_COUNTER = b"\x00n"
_EVENT = b"\x01"


class Place(NamedTuple):
    """Where an interrupt's note is."""

    key: bytes  # of the doc
    thread: bytes
    id: str
    kind: str = ""


def space(scope: Scope, name: str) -> bytes:
    """A space of docs of this tenant."""
    return name.encode() + b"\x00" + scope.tenant


def announce(scope: Scope, key: ThreadKey, entries: Sequence[Entry]) -> Op[None]:
    """Make entries findable and announce them, before the write that stores them."""
    version = scope.core.random(8)
    yield from scope.core.dialect.write_docs(
        space(scope, "inbox"), [DocChange(_open_key(key, e), _body(key, e.id), version) for e in entries]
    )
    yield from scope.core.dialect.write_docs(
        space(scope, "inbox-id"), [DocChange(_id_key(key, e.id), _body(key, e.id), version) for e in entries]
    )
    yield from append(scope, key, [("created", e.id) for e in entries])


def close(scope: Scope, key: ThreadKey, entries: Sequence[Entry]) -> Op[None]:
    """Move closed entries from the list of open ones to that of closed ones, after the write that closed them."""
    version = scope.core.random(8)
    yield from scope.core.dialect.write_docs(
        space(scope, "inbox-closed"), [DocChange(_closed_key(key, e), _body(key, e.id), version) for e in entries]
    )
    yield from scope.core.dialect.write_docs(
        space(scope, "inbox"), [DocChange(_open_key(key, e), None, version) for e in entries]
    )


def drop(scope: Scope, name: str, places: Sequence[Place]) -> Op[None]:
    """Forget docs whose notes are gone or tell otherwise."""
    if places:
        version = scope.core.random(8)
        yield from scope.core.dialect.write_docs(
            space(scope, name), [DocChange(place.key, None, version) for place in places]
        )


def append(scope: Scope, key: ThreadKey, events: Sequence[tuple[str, str]]) -> Op[None]:
    """Add events to the feed, before the write they tell of; readers verify them against the notes."""
    feed = space(scope, "inbox-feed")
    while events:
        counter = yield from scope.core.dialect.get_docs(feed, [_COUNTER])
        last = int.from_bytes(counter[0].body, "big") if counter else 0
        version = scope.core.random(8)
        changes = [
            DocChange(
                _COUNTER, (last + len(events)).to_bytes(8, "big"), version, counter[0].version if counter else None
            )
        ]
        for number, (kind, interrupt_id) in enumerate(events, last + 1):
            changes.append(DocChange(_EVENT + number.to_bytes(8, "big"), _body(key, interrupt_id, kind), version, None))
        if (yield from scope.core.dialect.write_docs(feed, changes)):
            return


def open_places(scope: Scope, after: bytes, limit: int) -> Op[list[Place]]:
    """Docs of open interrupts, oldest first."""
    return _places((yield from scope.core.dialect.docs(space(scope, "inbox"), b"", after, limit)))


def closed_places(scope: Scope, after: bytes, limit: int) -> Op[list[Place]]:
    """Docs of closed interrupts, oldest first."""
    return _places((yield from scope.core.dialect.docs(space(scope, "inbox-closed"), b"", after, limit)))


def events(scope: Scope, after: bytes, limit: int) -> Op[list[Place]]:
    """The feed from a cursor on."""
    found = yield from scope.core.dialect.docs(space(scope, "inbox-feed"), _EVENT, after, limit)
    return _places(found)


def places_of_id(scope: Scope, interrupt_id: str) -> Op[list[Place]]:
    """Docs of the threads in which this id was asked."""
    prefix = _id_prefix(interrupt_id)
    return _places((yield from scope.core.dialect.docs(space(scope, "inbox-id"), prefix, b"", 1000)))


def _places(docs: list[Doc]) -> list[Place]:
    return [Place(doc.key, *ormsgpack.unpackb(doc.body)) for doc in docs]


def _body(key: ThreadKey, interrupt_id: str, kind: str = "") -> bytes:
    return ormsgpack.packb([key.thread, interrupt_id, kind])


def _open_key(key: ThreadKey, entry: Entry) -> bytes:
    return entry.created.to_bytes(8, "big") + _short(key.thread) + _short(entry.id.encode("utf-8", "surrogatepass"))


def _closed_key(key: ThreadKey, entry: Entry) -> bytes:
    return (entry.closed or 0).to_bytes(8, "big") + _open_key(key, entry)[8:]


def _id_prefix(interrupt_id: str) -> bytes:
    return hashlib.blake2b(interrupt_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _id_key(key: ThreadKey, interrupt_id: str) -> bytes:
    return _id_prefix(interrupt_id) + _short(key.thread)


def _short(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=8).digest()
