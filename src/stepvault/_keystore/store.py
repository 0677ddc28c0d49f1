"""Where wrapped data keys are kept: docs of any backend, one per owner with all its generations.

A doc is changed by compare-and-set, so of two writers one sees what the other did. That is all a key store needs, and
every backend has it: the keys may live beside the payloads or in any other database.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import ormsgpack

from stepvault._core.keys import DataKey
from stepvault._core.plan import Op
from stepvault._core.rows import Doc, DocChange

SPACE = b"keys"  # which no tenant's space can be called: those have a NUL
_OWNER, _RETIRED, _LINK, _SUBJECT = b"k", b"r", b"l", b"s"
_WHOLE, _THREAD = b"w", b"t"  # kinds of links
_PAGE = 500

START = b""


class Docs(Protocol):
    """The part of a backend that a key store needs; see the savers' `Dialect`."""

    def setup(self) -> Op[None]: ...
    def docs(self, space: bytes, prefix: bytes, after: bytes, limit: int) -> Op[list[Doc]]: ...
    def get_docs(self, space: bytes, keys: Sequence[bytes]) -> Op[list[Doc]]: ...
    def write_docs(self, space: bytes, changes: Sequence[DocChange], *, durable: bool = False) -> Op[bool]: ...
    def now(self) -> Op[int]: ...


class KekUse(NamedTuple):
    """How many live data keys a key-encryption key wraps."""

    kek: str
    keys: int


class Linked(NamedTuple):
    """An owner linked to a subject, and to how many subjects it is linked in all.

    `subjects`: 0 where nobody counted.
    `whole`: what it seals goes with any one of them, as a namespace does, and not only with the last.
    `place`: of a thread, what stands in its column.
    """

    owner: bytes
    subjects: int
    whole: bool = False
    place: bytes = b""


@dataclass(frozen=True, slots=True)
class Stored:
    """The keys of an owner as they are stored."""

    owner: bytes
    rows: tuple[DataKey, ...] = ()
    shredded: int = 0  # when, in milliseconds since 1970
    version: bytes | None = None  # None: there is no doc yet

    @property
    def alive(self) -> list[DataKey]:
        return [row for row in self.rows if row.wrapped is not None]


class Page(NamedTuple):
    """Keys of one page of owners, and where the next page starts (None: there is none)."""

    rows: list[DataKey]
    after: bytes | None


class KeyStore:
    """The key rows of one deployment.

    Args:
        docs: The backend.
        random: Source of versions.
        durable: Commit past a power loss: keys in a database of their own must not be lost before the payloads are.
    """

    def __init__(self, docs: Docs, random: Callable[[int], bytes], *, durable: bool = False) -> None:
        self._docs = docs
        self._random = random
        self._durable = durable

    def setup(self) -> Op[None]:
        """Create or migrate the tables; idempotent, safe with many callers at once."""
        yield from self._docs.setup()

    def load(self, owners: Sequence[bytes]) -> Op[list[DataKey]]:
        """Every generation of these owners, shredded ones too."""
        return [row for stored in (yield from self._stored(owners)) for row in stored.rows]

    def insert(self, key: DataKey, before: Sequence[DataKey] = (), links: Sequence[DocChange] = ()) -> Op[bool]:
        """Add a generation; False if the owner has other keys than those `before` it, or its wrapping key is retired.

        Whose data the key will seal can be said along, see `link`.

        Whether that was retired is asked after the key is stored, and the key is used only after the answer: so it
        was found by the rotation that retired, or is not used.
        """
        if not (yield from self.insert_all([key], before, links)):
            return False
        if key.kek not in (yield from self.retired()):
            return True
        (stored,) = yield from self._stored([key.owner])
        if stored.rows == (*before, key):
            yield from self._write([replace(stored, rows=tuple(before))])
        return False

    def insert_all(
        self, keys: Sequence[DataKey], before: Sequence[DataKey] = (), links: Sequence[DocChange] = ()
    ) -> Op[bool]:
        """Add keys of several owners, unless one of them has other keys than those `before`."""
        owners = [key.owner for key in keys]
        present = (yield from self._stored(owners)) if before else [Stored(owner) for owner in owners]
        if any(stored.rows != tuple(before) for stored in present):
            return False
        new = [replace(stored, rows=(*before, key)) for stored, key in zip(present, keys, strict=True)]
        return (yield from self._write(new, links))

    def remove(self, owner: bytes) -> Op[None]:
        """Forget an owner that nothing was sealed for."""
        yield from self._docs.write_docs(SPACE, [DocChange(_OWNER + owner, None, b"")])

    def page(self, kek: str, after: bytes, limit: int = _PAGE) -> Op[Page]:
        """Live keys that are wrapped by another key-encryption key than this, of the next owners in order."""
        docs = yield from self._docs.docs(SPACE, _OWNER, after, limit)
        rows = [row for doc in docs for row in _stored(doc).alive if row.kek != kek]
        return Page(rows, docs[-1].key if len(docs) == limit else None)

    def rewrap(self, changes: Sequence[tuple[DataKey, DataKey]]) -> Op[int]:
        """Replace wrapped forms that are still as given; how many were."""
        new = dict(changes)
        while True:
            present = yield from self._stored(list(dict.fromkeys(old.owner for old in new)))
            after = [replace(stored, rows=tuple(new.get(row, row) for row in stored.rows)) for stored in present]
            count = sum(row in new for stored in present for row in stored.rows)
            if (yield from self._write([stored for stored in after if stored.version is not None])):
                return count

    def shred(self, owners: Sequence[bytes]) -> Op[int]:
        """Destroy every key of these owners and leave tombstones, also of owners without one; how many were live."""
        count = 0
        for at in range(0, len(owners), _PAGE):
            count += yield from self._shred(owners[at : at + _PAGE])
        return count

    def _shred(self, owners: Sequence[bytes]) -> Op[int]:
        while True:
            present = yield from self._stored(owners)
            now = yield from self._docs.now()
            buried = [_buried(stored, now) for stored in present if stored.alive or not stored.rows]
            if (yield from self._write(buried)):
                return sum(len(stored.alive) for stored in present)

    def forget(self, before: int, limit: int) -> Op[int]:
        """Remove the tombstones and links of at most `limit` owners shredded before a time (ms since 1970)."""
        gone, after = 0, START
        while gone < limit:
            docs = yield from self._docs.docs(SPACE, _OWNER, after, _PAGE)
            old = [doc for doc in docs if not (stored := _stored(doc)).alive and 0 < stored.shredded < before]
            for doc in old[: limit - gone]:
                gone += yield from self._forget(doc)
            if len(docs) < _PAGE:
                break
            after = docs[-1].key
        return gone

    def _forget(self, doc: Doc) -> Op[bool]:
        owner = doc.key[1:]
        links = yield from self._docs.docs(SPACE, _LINK + owner, b"", _PAGE)
        changes = [DocChange(link.key, None, b"") for link in links]
        changes += [DocChange(_SUBJECT + _framed(link.body) + owner, None, b"") for link in links]
        return (yield from self._docs.write_docs(SPACE, [DocChange(doc.key, None, b"", doc.version), *changes]))

    # -- whose data a key seals

    def link(self, subject: bytes, owners: Sequence[bytes], *, whole: bool = False, place: bytes = b"") -> Op[None]:
        """Say whose data these owners' keys seal. Idempotent."""
        for at in range(0, len(owners), _PAGE):
            changes = self.links(subject, owners[at : at + _PAGE], whole=whole, place=place)
            yield from self._docs.write_docs(SPACE, changes, durable=self._durable)

    def links(
        self, subject: bytes, owners: Sequence[bytes], *, whole: bool = False, place: bytes = b""
    ) -> list[DocChange]:
        """The docs of `link`, to be written along with a key."""
        changes = []
        for owner in owners:
            body = owner + (_WHOLE if whole else _THREAD) + place
            changes.append(DocChange(_SUBJECT + _framed(subject) + owner, body, self._random(8)))
            changes.append(DocChange(_LINK + owner + subject, subject, self._random(8)))
        return changes

    def unlink(self, subject: bytes, owners: Sequence[bytes]) -> Op[None]:
        """Undo `link`."""
        gone = [place for owner in owners for place in (_SUBJECT + _framed(subject) + owner, _LINK + owner + subject)]
        yield from self._docs.write_docs(SPACE, [DocChange(place, None, b"") for place in gone], durable=self._durable)

    def linked(self, subject: bytes) -> Op[list[Linked]]:
        """The owners linked to a subject, and to how many each is linked."""
        found: list[Linked] = []
        after: bytes | None = START
        while after is not None:
            page, after = yield from self.linked_page(subject, after)
            for link in page:
                found.append(link._replace(subjects=(yield from self.subjects_of(link.owner))))
        return found

    def linked_page(self, subject: bytes, after: bytes) -> Op[tuple[list[Linked], bytes | None]]:
        """Some of them, uncounted, and where the next page starts."""
        prefix = _SUBJECT + _framed(subject)
        docs = yield from self._docs.docs(SPACE, prefix, after, _PAGE)
        found = []
        for doc in docs:
            owner = bytes(doc.key[len(prefix) :])
            kind, place = doc.body[len(owner) : len(owner) + 1], bytes(doc.body[len(owner) + 1 :])
            found.append(Linked(owner, 0, kind == _WHOLE, place))
        return found, docs[-1].key if len(docs) == _PAGE else None

    def subjects_of(self, owner: bytes) -> Op[int]:
        """To how many subjects an owner is linked."""
        return len((yield from self._docs.docs(SPACE, _LINK + owner, b"", _PAGE)))

    def undestroyed(self, owners: Sequence[bytes]) -> Op[set[bytes]]:
        """Those of these owners whose keys were not destroyed."""
        return {stored.owner for stored in (yield from self._stored(owners)) if stored.alive or not stored.rows}

    # -- key-encryption keys

    def retire(self, keks: Sequence[str]) -> Op[None]:
        """From now on, refuse new data keys wrapped by these. Idempotent."""
        changes = [DocChange(_RETIRED + kek.encode(), b"", self._random(8)) for kek in keks]
        yield from self._docs.write_docs(SPACE, changes, durable=self._durable)

    def retired(self) -> Op[list[str]]:
        """The retired key-encryption keys."""
        docs = yield from self._docs.docs(SPACE, _RETIRED, b"", _PAGE)
        return [doc.key[1:].decode() for doc in docs]

    def uses(self) -> Op[list[KekUse]]:
        """Live data keys by key-encryption key."""
        counts: Counter[str] = Counter()
        after: bytes | None = START
        while after is not None:
            page = yield from self.page("", after)
            counts.update(row.kek for row in page.rows)
            after = page.after
        return [KekUse(*use) for use in sorted(counts.items())]

    # -- docs

    def _stored(self, owners: Sequence[bytes]) -> Op[list[Stored]]:
        docs = yield from self._docs.get_docs(SPACE, [_OWNER + owner for owner in owners])
        found = {doc.key[1:]: _stored(doc) for doc in docs}
        return [found.get(owner) or Stored(owner) for owner in owners]

    def _write(self, changed: Sequence[Stored], links: Sequence[DocChange] = ()) -> Op[bool]:
        """Store all of these, or none and False if one was changed meanwhile."""
        if not changed:
            return True
        changes = [
            DocChange(_OWNER + stored.owner, _packed(stored) if stored.rows else None, self._random(8), stored.version)
            for stored in changed
        ]
        return (yield from self._docs.write_docs(SPACE, [*changes, *links], durable=self._durable))


def _buried(stored: Stored, now: int) -> Stored:
    rows = tuple(row._replace(wrapped=None) for row in stored.rows) or (DataKey(stored.owner, 0, bytes(16), "", None),)
    return replace(stored, rows=rows, shredded=now)


def _stored(doc: Doc) -> Stored:
    owner = bytes(doc.key[1:])
    shredded, rows = ormsgpack.unpackb(doc.body)
    return Stored(owner, tuple(DataKey(owner, *row) for row in rows), shredded, doc.version)


def _packed(stored: Stored) -> bytes:
    rows: list[Any] = [list(row[1:]) for row in stored.rows]
    return ormsgpack.packb([stored.shredded, rows])


def _framed(subject: bytes) -> bytes:
    return bytes((len(subject),)) + subject
