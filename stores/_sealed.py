"""A store whose every value is sealed: the same primitives over another dialect.

The database sees tokens and envelopes. Words and vectors go inside the envelope, so that a ranking opens what it
ranks, in the process; a filter by equality still narrows by tokens. One data key seals one namespace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import ormsgpack

from stepvault._core import identity
from stepvault._core.blind_index import BlindIndex
from stepvault._core.plan import Op
from stepvault._core.sealing import Sealer
from stepvault._keystore.keys import Keys
from stepvault.errors import ConfigurationError, KeyShreddedError, TamperedError
from stepvault.stores._dialect import (
    Dialect,
    Find,
    Found,
    IndexRecord,
    ItemRow,
    Match,
    Near,
    NewItem,
    Removed,
    Reply,
    Work,
)
from stepvault.stores._ops.ranking import by_words, nearest

_PAGE = 1000


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
        return self.index.owner(self.tenant, ns)


def _joined(above: tuple[bytes, ...]) -> tuple[bytes, ...]:
    return (b"\0".join(above),)


class SealedDialect:
    """See `Dialect`.

    Args:
        inner: Where rows are stored.
        keys: What they are sealed with.
        hide_names: Whether namespaces and keys are stored as tokens.
        plain_vectors: Whether vectors are stored as they are, for the database to rank.
    """

    automatic_setup = True

    def __init__(self, inner: Dialect, keys: Keys, *, hide_names: bool, plain_vectors: bool) -> None:
        self._inner = inner
        self._keys = keys
        self._hide_names = hide_names
        self._plain_vectors = plain_vectors

    def setup(self) -> Op[None]:
        yield from self._inner.setup()
        yield from self._keys.at(self._keys.store.setup())
        yield from self._keys.index()

    def snapshot(self, op: Op[Any]) -> Op[Any]:
        return (yield from self._inner.snapshot(op))

    def transaction(self, op: Op[Any]) -> Op[Any]:
        return (yield from self._inner.transaction(op))

    def _names(self, tenant: bytes) -> Op[Names]:
        return Names((yield from self._keys.index()), tenant, self._hide_names)

    # -- one batch

    def work(self, tenant: bytes, work: Work) -> Op[Reply]:
        names = yield from self._names(tenant)
        asked = Work(
            gets=[names.name(name) for name in work.gets],
            finds=[self._find(names, find) for find in work.finds if not self._ranks(find)],
            namespaces=[names.ns(prefix) for prefix in work.namespaces],
            puts=(yield from self._sealed(names, work.puts)),
            deletes=[names.name(name) for name in work.deletes],
        )
        found = yield from self._inner.work(tenant, asked)
        rows = [row for row in found.gets if row] + [hit.row for hits in found.finds for hit in hits]
        opened = yield from self._opened(names, rows)
        reply = Reply(gets=[row and _row(opened, row) for row in found.gets])
        plain = iter(found.finds)
        for find in work.finds:
            if self._ranks(find):
                reply.finds.append((yield from self._ranked(names, find)))
            else:
                reply.finds.append(list(_hits(opened, next(plain))))
        for listed in found.namespaces:
            reply.namespaces.append((yield from self._listed(names, listed)))
        return reply

    def _ranks(self, find: Find) -> bool:
        """Whether what this search ranks by is inside the envelopes."""
        return isinstance(find, Match) or (isinstance(find, Near) and not self._plain_vectors)

    def _find(self, names: Names, find: Find) -> Find:
        tokens = [names.index.item(names.tenant, token) for token in find.tokens]
        return replace(find, prefix=names.ns(find.prefix), tokens=tokens)

    def _sealed(self, names: Names, puts: Sequence[NewItem]) -> Op[list[NewItem]]:
        sealed = []
        for put in puts:
            ns, key = names.name((put.ns, put.key))
            sealer = yield from self._keys.ensure(names.tenant, names.owner(ns), readmit=True)
            kept = () if self._plain_vectors else put.vectors
            inside = Inside(put.ns, put.key, put.thread, put.fields, put.words, kept)
            sealed.append(put._replace(
                ns=ns,
                key=key,
                thread=None if put.thread is None else names.index.thread(names.tenant, put.thread),
                tokens=_keyed(names, put.tokens),
                fields=None,
                words="",
                vectors=put.vectors if self._plain_vectors else (),
                body=sealer.seal(identity.item(b"value", ns, key), _packed(inside, put.body)),
            ))  # fmt: skip
        return sealed

    def _opened(self, names: Names, rows: Iterable[ItemRow]) -> Op[dict[tuple[bytes, bytes], _Open]]:
        """What rows hold, by their stored names; those whose key was destroyed are as good as gone."""
        listed = list(rows)
        bodies: dict[bytes, list[bytes]] = {}
        for row in listed:
            bodies.setdefault(names.owner(bytes(row.ns)), []).append(row.body)
        sealers = (yield from self._keys.sealers(names.tenant, bodies)) if bodies else {}
        opened = {}
        for row in listed:
            try:
                opened[(bytes(row.ns), bytes(row.key))] = _open(sealers[names.owner(bytes(row.ns))], row)
            except KeyShreddedError:
                continue
        return opened

    # -- rankings in the process

    def _ranked(self, names: Names, find: Find) -> Op[list[Found]]:
        rows: list[_Open] = []
        base = Find(find.prefix, _PAGE, tokens=find.tokens, max_age=find.max_age)
        asked = self._find(names, base)
        seen: set[tuple[bytes, bytes, int]] = set()
        while True:
            (hits,) = (yield from self._inner.work(names.tenant, Work(finds=[asked]))).finds
            fresh = [hit.row for hit in hits if (hit.row.ns, hit.row.key, hit.row.no) not in seen]
            seen |= {(row.ns, row.key, row.no) for row in fresh}
            rows += (yield from self._opened(names, fresh)).values()
            if len(hits) < _PAGE or not fresh:
                break
            asked = replace(asked, before=hits[-1].row.no)
        rows.sort(key=lambda entry: -entry.row.no)
        if isinstance(find, Near):
            ranked = _by_meaning(find, rows)
        else:
            assert isinstance(find, Match)
            ranked = _by_words(find, rows)
        return ranked[find.offset : find.offset + find.limit]

    # -- namespaces

    def _listed(self, names: Names, stored: list[bytes]) -> Op[list[bytes]]:
        """Real namespaces; where they are hidden, an item of each says what it is called."""
        if not names.hidden or not stored:
            return stored
        finds = [Find(ns, 1) for ns in stored]
        reply = yield from self._inner.work(names.tenant, Work(finds=finds))
        opened = yield from self._opened(names, [hit.row for hits in reply.finds for hit in hits])
        found = []
        for ns, hits in zip(stored, reply.finds, strict=True):
            for hit in hits:
                entry = opened.get((bytes(hit.row.ns), bytes(hit.row.key)))
                if entry is not None:
                    labels = entry.row.ns.split(b"\0")[: ns.count(b"\0")]
                    found.append(b"".join(label + b"\0" for label in labels))
        return sorted(found)

    # -- lifetime

    def touch(self, tenant: bytes, rows: Sequence[ItemRow]) -> Op[None]:
        names = yield from self._names(tenant)
        stored = []
        for row in rows:
            ns, key = names.name((row.ns, row.key))
            stored.append(row._replace(ns=ns, key=key))
        yield from self._inner.touch(tenant, stored)

    def pin(self, tenant: bytes, names: Sequence[tuple[bytes, bytes]], *, pinned: bool) -> Op[None]:
        stored = yield from self._names(tenant)
        yield from self._inner.pin(tenant, [stored.name(name) for name in names], pinned=pinned)

    def delete_prefix(self, tenant: bytes, prefix: bytes) -> Op[Removed]:
        names = yield from self._names(tenant)
        return (yield from self._inner.delete_prefix(tenant, names.ns(prefix)))

    def sweep(self, limit: int) -> Op[int]:
        return (yield from self._inner.sweep(limit))

    # -- vector index

    def index(self) -> Op[IndexRecord | None]:
        return (yield from self._inner.index())

    def make_index(self, record: IndexRecord) -> Op[None]:
        if not record.ready:
            raise ConfigurationError("A sealed store cannot be reindexed; put its items again.")
        yield from self._inner.make_index(record)

    def finish_index(self, record: IndexRecord) -> Op[None]:
        yield from self._inner.finish_index(record)

    def page(self, after: Any, limit: int) -> Op[tuple[list[tuple[Any, str | None, bytes]], Any]]:
        raise ConfigurationError("A sealed store cannot be reindexed; put its items again.")
        yield

    def set_vectors(self, vectors: Sequence[tuple[Any, Sequence[bytes]]]) -> Op[None]:
        raise ConfigurationError("A sealed store cannot be reindexed; put its items again.")
        yield


class _Open(NamedTuple):
    row: ItemRow
    words: str
    vectors: Sequence[bytes]


def _packed(inside: Inside, body: bytes) -> bytes:
    head = ormsgpack.packb([*inside[:5], b"".join(inside.vectors)])
    return len(head).to_bytes(4, "big") + head + body


def _open(sealer: Sealer, row: ItemRow) -> _Open:
    payload = sealer.open(identity.item(b"value", bytes(row.ns), bytes(row.key)), row.body)
    end = 4 + int.from_bytes(payload[:4], "big")
    if len(payload) < end:
        raise TamperedError
    ns, key, thread, _, words, vectors = ormsgpack.unpackb(payload[4:end])
    return _Open(row._replace(ns=ns, key=key, thread=thread, body=payload[end:]), words, [vectors] if vectors else [])


def _row(opened: dict[tuple[bytes, bytes], _Open], row: ItemRow) -> ItemRow | None:
    entry = opened.get((bytes(row.ns), bytes(row.key)))
    return entry.row if entry is not None else None


def _hits(opened: dict[tuple[bytes, bytes], _Open], found: Sequence[Found]) -> Iterator[Found]:
    for hit in found:
        row = _row(opened, hit.row)
        if row is not None:
            yield Found(row, hit.score)


def _keyed(names: Names, tokens: bytes | None) -> bytes | None:
    if tokens is None:
        return None
    return b"".join(names.index.item(names.tenant, tokens[at : at + 8]) for at in range(0, len(tokens), 8))


def _by_meaning(find: Near, rows: Sequence[_Open]) -> list[Found]:
    found = [((place,), b"".join(entry.vectors)) for place, entry in enumerate(rows)]
    ranked = nearest(found, find.vector, find.distance, find.offset + find.limit)
    return [Found(rows[place].row, score) for place, score in ranked]


def _by_words(find: Match, rows: Sequence[_Open]) -> list[Found]:
    counts = [Counter(entry.words.split()) for entry in rows]
    having = [(place, count) for place, count in enumerate(counts) if any(word in count for word in find.words)]
    length = sum(sum(count.values()) for count in counts)
    ranked = by_words(find.words, having, len(rows), length)
    return [Found(rows[place].row, score) for place, score in ranked]
