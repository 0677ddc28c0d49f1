"""What stands in a sealed store in place of an item: its names, and the envelope with all the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import ormsgpack

from stepvault._core import identity
from stepvault._core.blind_index import BlindIndex
from stepvault._core.envelope import check
from stepvault._core.ids import text_of
from stepvault._core.sealing import Sealer
from stepvault.errors import PayloadError, TamperedError
from stepvault.stores._dialect import Find, Found, ItemRow, Match, Near
from stepvault.stores._ops.namespaces import ns_of
from stepvault.stores._ops.ranking import by_words, nearest

_KNOWN = 1024


class Inside(NamedTuple):
    """What an envelope holds beside the value."""

    ns: bytes
    key: bytes
    thread: bytes | None
    fields: str | None
    words: str
    vectors: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Names:
    """How namespaces and keys of one tenant stand in the database."""

    index: BlindIndex
    tenant: bytes
    hidden: bool
    _owners: dict[bytes, bytes] = field(default_factory=dict, repr=False)  # of namespaces as they are stored

    def ns(self, ns: bytes) -> bytes:
        """A namespace or prefix: itself, or a token for each label, which depends on the labels before it."""
        if not self.hidden:
            return ns
        above: tuple[bytes, ...] = ()
        out = b""
        for label in ns.split(b"\0")[:-1]:
            out += self.index.label(self.tenant, b"ns", _joined(above), label).hex().encode() + b"\0"
            above = (*above, label)
        return out

    def key(self, ns: bytes, key: bytes) -> bytes:
        if not self.hidden:
            return key
        return self.index.label(self.tenant, b"key", (ns,), key).hex().encode()

    def name(self, name: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
        return self.ns(name[0]), self.key(*name)

    def owner(self, ns: bytes) -> bytes:
        """Whose data key seals a namespace, by its stored form."""
        owner = self._owners.get(ns)
        if owner is None:
            if len(self._owners) >= _KNOWN:
                self._owners.clear()
            owner = self._owners[ns] = self.index.owner(self.tenant, ns)
        return owner


def _joined(above: tuple[bytes, ...]) -> tuple[bytes, ...]:
    return (b"\0".join(above),)


class Open(NamedTuple):
    row: ItemRow
    words: str
    vectors: Sequence[bytes]


def packed(inside: Inside, body: bytes) -> bytes:
    head = ormsgpack.packb([*inside[:5], b"".join(inside.vectors)])
    return len(head).to_bytes(4, "big") + head + body


def opened(sealer: Sealer, row: ItemRow) -> Open:
    """A row opened.

    Raises:
        PayloadError: It cannot be; the message names its place, by tokens where names are hidden.
    """
    try:
        payload = sealer.open(identity.item(b"value", row.ns, row.key), row.body)
        if payload is row.body:  # not sealed, which the sealer lets pass while threads are being sealed
            check(payload)
    except PayloadError as exc:
        exc.args = (f"{exc} (item {text_of(row.key)!r} in {ns_of(row.ns)!r})",)
        raise
    (ns, key, thread, _, words, vectors), body = _parts(payload)
    real = ItemRow(row.no, ns, key, row.created_at, row.updated_at, row.ttl, thread, row.checkpoint, body)
    return Open(real, words, (vectors,) if vectors else ())


def unpacked(payload: bytes) -> tuple[Inside, bytes]:
    """Undo `packed`; the vectors one behind the other."""
    (*named, vectors), body = _parts(payload)
    return Inside._make([*named, (vectors,) if vectors else ()]), body


def _parts(payload: bytes) -> tuple[list[Any], bytes]:
    end = 4 + int.from_bytes(payload[:4], "big")
    if len(payload) < end:
        raise TamperedError
    return ormsgpack.unpackb(payload[4:end]), payload[end:]


def keyed(names: Names, tokens: bytes | None) -> bytes | None:
    if tokens is None:
        return None
    return b"".join(names.index.item(names.tenant, tokens[at : at + 8]) for at in range(0, len(tokens), 8))


def in_order(find: Find, rows: list[Open]) -> list[Found]:
    """A ranking in the process."""
    rows.sort(key=lambda entry: -entry.row.no)
    if isinstance(find, Near):
        ranked = _by_meaning(find, rows)
    else:
        assert isinstance(find, Match)
        ranked = _by_words(find, rows)
    return ranked[find.offset : find.offset + find.limit]


def _by_meaning(find: Near, rows: Sequence[Open]) -> list[Found]:
    found = [((place,), b"".join(entry.vectors)) for place, entry in enumerate(rows)]
    ranked = nearest(found, find.vector, find.distance, find.offset + find.limit)
    return [Found(rows[place].row, score) for place, score in ranked]


def _by_words(find: Match, rows: Sequence[Open]) -> list[Found]:
    wanted = [f" {word} " for word in find.words]
    having, length = [], 0
    for place, entry in enumerate(rows):
        words = entry.words
        length += words.count(" ") + 1 if words else 0
        padded = f" {words} "
        if any(word in padded for word in wanted):
            having.append((place, Counter(words.split())))
    ranked = by_words(find.words, having, len(rows), length)
    return [Found(rows[place].row, score) for place, score in ranked]
