"""A store whose every value is sealed: the same primitives over another dialect.

The database sees tokens and envelopes. Words and vectors go inside the envelope, so that a ranking opens what it
ranks, in the process; a filter by equality still narrows by tokens. One data key seals one namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from stepvault._core import identity
from stepvault._core.envelope import check, is_sealed, key_id_of
from stepvault._core.labels import THREAD_ROOT
from stepvault._core.people import digest_of, named_in
from stepvault._core.plan import Op
from stepvault._core.sealing import Sealer
from stepvault._keystore.keys import Keys
from stepvault.errors import KeyShreddedError, StorageUnavailableError
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
    Whole,
    Work,
    keyed_mark,
)
from stepvault.stores._mixed import Mixed
from stepvault.stores._reembedding import Reembedding
from stepvault.stores._sealed_items import Inside, Names, Open, in_order, keyed, packed, unpacked
from stepvault.stores._sealed_items import opened as opened_row
from stepvault.stores._sealed_namespaces import Namespaces

_PAGE = 1000
_TENANTS = 64
_AGAIN = 4  # times that a put is sealed anew
_OF_THREADS = f"{THREAD_ROOT}\0".encode()  # a thread's memory: its keys go with it, and its id is soon used again


class SealedDialect(Namespaces, Reembedding, Mixed):
    """See `Dialect`.

    Args:
        inner: Where rows are stored.
        keys: What they are sealed with.
        hide_names: Whether namespaces and keys are stored as tokens.
        plain_vectors: Whether vectors are stored as they are, for the database to rank.
        patterns: Which namespaces are whose, see `people.named_in`.
    """

    def __init__(
        self,
        inner: Dialect,
        keys: Keys,
        *,
        hide_names: bool,
        plain_vectors: bool,
        patterns: Sequence[Sequence[str]] | None = None,
    ) -> None:
        self.inner = inner
        self.automatic_setup = inner.automatic_setup
        self.keys = keys
        self.mixed = False  # while a database is being sealed or unsealed: items may be plain
        self.leaving = False  # while it is being unsealed: items move from their sealed place
        self.grows_plain = False  # then, and before anything is sealed: what is new is not sealed
        self._hide_names = hide_names
        self._plain_vectors = plain_vectors
        self._patterns = patterns
        self._known: dict[bytes, Names] = {}  # by tenant

    def setup(self) -> Op[None]:
        yield from self.inner.setup()
        yield from self.keys.at(self.keys.store.setup())
        yield from self.keys.index()

    def snapshot(self, op: Op[Any]) -> Op[Any]:
        return (yield from self.inner.snapshot(op))

    def transaction(self, op: Op[Any]) -> Op[Any]:
        return (yield from self.inner.transaction(op))

    def _names(self, tenant: bytes) -> Op[Names]:
        names = self._known.get(tenant)
        if names is None:
            if len(self._known) >= _TENANTS:
                self._known.clear()
            names = self._known[tenant] = Names((yield from self.keys.index()), tenant, self._hide_names)
        return names

    # -- one batch

    def work(self, tenant: bytes, work: Work) -> Op[Reply]:
        names = yield from self._names(tenant)
        if self.mixed:
            return (yield from self._mixed(names, work))
        asked = yield from self._asked(names, work)
        found = yield from self.inner.work(tenant, asked)
        if asked.puts:
            yield from self._confirm(names, work, asked)
        rows = [row for row in found.gets if row]
        for hits in found.finds:
            rows += [hit.row for hit in hits]
        opened = iter((yield from self._opened(names, rows)) if rows else ())
        reply = Reply(gets=[row and _row(next(opened)) for row in found.gets])
        plain = zip(asked.finds, found.finds, strict=True)
        for find in work.finds:
            if self._ranks(find):
                reply.finds.append((yield from self._ranked(names, find)))
            else:
                stored, hits = next(plain)
                reply.finds.append((yield from self._filled(names, stored, hits, islice(opened, len(hits)))))
        for listed in found.namespaces:
            reply.namespaces.append((yield from self._listed(names, listed)))
        return reply

    def _confirm(self, names: Names, work: Work, asked: Work) -> Op[None]:
        """Store again what was sealed with a key that was destroyed meanwhile, by another process even."""
        for _ in range(_AGAIN):
            used = {names.owner(put.ns): key_id_of(put.body) for put in asked.puts if is_sealed(put.body)}
            pairs = zip(work.puts, asked.puts, strict=True)
            of_threads = {names.owner(put.ns) for plain, put in pairs if plain.ns.startswith(_OF_THREADS)}
            if not (yield from self.keys.overtaken(used, of_threads)):
                return
            asked = Work(puts=(yield from self._sealed(names, work.puts, work.people)))
            asked.people = self._marks(names, work.people)
            yield from self.inner.work(names.tenant, asked)
        raise StorageUnavailableError("Keys of these namespaces are destroyed again and again; repeat the write later.")

    def _asked(self, names: Names, work: Work) -> Op[Work]:
        """What the database is asked: all but rankings by what is inside the envelopes."""
        asked = Work(gets=[names.name(name) for name in work.gets] if names.hidden else work.gets)
        if work.finds:
            asked.finds = [self._find(names, find) for find in work.finds if not self._ranks(find)]
        if work.namespaces:
            asked.namespaces = [names.ns(prefix) for prefix in work.namespaces]
        if work.puts:
            asked.puts = yield from self._sealed(names, work.puts, work.people)
        if work.deletes:
            asked.deletes = [names.name(name) for name in work.deletes]
        if work.people:
            asked.people = self._marks(names, work.people)
        return asked

    def _ranks(self, find: Find) -> bool:
        """Whether what this search ranks by is inside the envelopes."""
        return isinstance(find, Match) or (isinstance(find, Near) and not self._plain_vectors)

    def _find(self, names: Names, find: Find) -> Find:
        tokens = [names.index.item(names.tenant, token) for token in find.tokens]
        return replace(find, prefix=names.ns(find.prefix), tokens=tokens)

    def _sealed(self, names: Names, puts: Sequence[NewItem], people: Sequence[bytes] = ()) -> Op[list[NewItem]]:
        sealed = []
        for put in puts:
            ns, key = names.name((put.ns, put.key))
            sealer = yield from self._sealer(names, put.ns, names.owner(ns), people)
            kept = () if self._plain_vectors else put.vectors
            inside = Inside(put.ns, put.key, put.thread, put.fields, put.words, kept)
            sealed.append(put._replace(
                ns=ns,
                key=key,
                thread=None if put.thread is None else names.index.thread(names.tenant, put.thread),
                tokens=keyed(names, put.tokens),
                fields=None,
                words="",
                vectors=put.vectors if self._plain_vectors else (),
                body=sealer.seal(identity.item(b"value", ns, key), packed(inside, put.body)),
            ))  # fmt: skip
        return sealed

    def _sealer(self, names: Names, ns: bytes, owner: bytes, people: Sequence[bytes]) -> Op[Sealer]:
        """The sealer of a namespace; its first key is linked to whom the namespace names before it seals."""
        sealer = yield from self.keys.sealer(names.tenant, owner)
        if sealer.keys.newest is not None:
            return sealer
        if people:  # nobody who was erased gets a new key
            yield from self.inner.work(names.tenant, Work(people=self._marks(names, people)))
        for subject in named_in(
            self._patterns, [label.decode("utf-8", "surrogatepass") for label in ns.split(b"\0")[:-1]]
        ):
            text = subject.encode("utf-8", "surrogatepass")
            mark = self.keys.mark(names.tenant, digest_of(names.tenant, text))
            yield from self.keys.link(mark, owner, whole=True)
        try:
            return (yield from self.keys.ensure(names.tenant, owner, readmit=True))
        except KeyShreddedError:  # at this very moment, by the erasure of whom it names, or of somebody else
            if people:
                yield from self.inner.work(names.tenant, Work(people=self._marks(names, people)))
            return (yield from self.keys.ensure(names.tenant, owner, readmit=True))

    def _marks(self, names: Names, people: Sequence[bytes]) -> list[bytes]:
        keyed = [keyed_mark(self.keys.mark(names.tenant, digest)) for digest in people]
        return [*keyed, *people] if self.mixed else keyed  # those from before it was sealed

    def set_erased(self, tenant: bytes, marks: Sequence[bytes], *, erased: bool) -> Op[None]:
        yield from self.inner.set_erased(tenant, [keyed_mark(token) for token in marks], erased=erased)

    def erased(self) -> Op[list[tuple[bytes, bytes]]]:
        return (yield from self.inner.erased())

    # -- one item in its other form, see `_conversion`

    def sealed_item(self, tenant: bytes, item: NewItem) -> Op[NewItem]:
        """A plain item sealed."""
        names = yield from self._names(tenant)
        (sealed,) = yield from self._sealed(names, [item])
        return sealed

    def opened_item(self, tenant: bytes, item: NewItem) -> Op[NewItem]:
        """A sealed item as it was put, without its tokens; its vectors one behind the other."""
        names = yield from self._names(tenant)
        sealer = yield from self.keys.sealer(tenant, names.owner(item.ns), [item.body])
        check(item.body)
        inside, body = unpacked(sealer.open(identity.item(b"value", item.ns, item.key), item.body))
        return item._replace(
            ns=inside.ns,
            key=inside.key,
            thread=inside.thread,
            tokens=None,
            fields=inside.fields,
            words=inside.words,
            vectors=item.vectors or inside.vectors,
            body=body,
        )

    def _opened(self, names: Names, rows: Sequence[ItemRow]) -> Op[list[Open | None]]:
        """What rows hold; None in place of those whose key was destroyed, which are as good as gone."""
        mixed = self.mixed
        bodies: dict[bytes, list[bytes]] = {}
        for row in rows:
            if not mixed or is_sealed(row.body):
                bodies.setdefault(row.ns, []).append(row.body)
        owned = {names.owner(ns): stored for ns, stored in bodies.items()}
        sealers = (yield from self.keys.sealers(names.tenant, owned)) if owned else {}
        opened: list[Open | None] = []
        for row in rows:
            if mixed and not is_sealed(row.body):
                opened.append(Open(row, "", ()))
                continue
            try:
                opened.append(opened_row(sealers[names.owner(row.ns)], row))
            except KeyShreddedError:
                opened.append(None)
        return opened

    # -- rankings in the process

    def _ranked(self, names: Names, find: Find) -> Op[list[Found]]:
        base = Find(find.prefix, _PAGE, tokens=find.tokens, max_age=find.max_age)
        return in_order(find, (yield from self._below(names, self._find(names, base), None)))

    def _below(self, names: Names, find: Find, wanted: int | None, known: Iterable[ItemRow] = ()) -> Op[list[Open]]:
        """What is below a stored prefix, opened: as many as are wanted, or all; without rows that are known."""
        rows: list[Open] = []
        seen = {(row.ns, row.key, row.no) for row in known}
        while True:
            (hits,) = (yield from self.inner.work(names.tenant, Work(finds=[find]))).finds
            fresh = [hit.row for hit in hits]
            if seen:
                fresh = [row for row in fresh if (row.ns, row.key, row.no) not in seen]
            rows += filter(None, (yield from self._opened(names, fresh)))
            if (wanted is not None and len(rows) >= wanted) or len(hits) < find.limit or not fresh:
                return rows[:wanted]
            seen |= {(row.ns, row.key, row.no) for row in fresh}
            find = replace(find, before=hits[-1].row.no, offset=0)

    def _filled(
        self, names: Names, find: Find, hits: Sequence[Found], opened: Iterable[Open | None]
    ) -> Op[list[Found]]:
        """Hits that are there; in place of those whose key was destroyed, the next ones: a short page is the last."""
        rows = _hits(opened, hits)
        if len(rows) == len(hits) or len(hits) < find.limit:
            return rows
        if not isinstance(find, Near):
            on = replace(find, before=hits[-1].row.no, offset=0)
            more = yield from self._below(names, on, find.limit - len(rows), [hit.row for hit in hits])
            return rows + [Found(entry.row) for entry in more]
        asked: Find = find
        while len(rows) < find.limit and len(hits) == asked.limit:
            asked = replace(asked, limit=2 * asked.limit)
            (hits,) = (yield from self.inner.work(names.tenant, Work(finds=[asked]))).finds
            rows = _hits((yield from self._opened(names, [hit.row for hit in hits])), hits)
        return rows[: find.limit]

    # -- lifetime

    def touch(self, tenant: bytes, rows: Sequence[ItemRow]) -> Op[None]:
        yield from self.inner.touch(tenant, (yield from self._as_stored(tenant, rows)))

    def drop(self, tenant: bytes, rows: Sequence[ItemRow]) -> Op[None]:
        yield from self.inner.drop(tenant, (yield from self._as_stored(tenant, rows)))

    def _as_stored(self, tenant: bytes, rows: Sequence[ItemRow]) -> Op[list[ItemRow]]:
        """Rows under the names that they may be stored under."""
        names = yield from self._names(tenant)
        stored = []
        for row in rows:
            ns, key = names.name((row.ns, row.key))
            stored.append(row._replace(ns=ns, key=key))
            if self.mixed and names.hidden:
                stored.append(row)
        return stored

    def pin(self, tenant: bytes, names: Sequence[tuple[bytes, bytes]], *, pinned: bool) -> Op[None]:
        stored = yield from self._names(tenant)
        asked = [stored.name(name) for name in names]
        if self.mixed and stored.hidden:
            asked += names
        yield from self.inner.pin(tenant, asked, pinned=pinned)

    def delete_below(self, tenant: bytes, prefixes: Sequence[bytes]) -> Op[Removed]:
        names = yield from self._names(tenant)
        removed = yield from self.inner.delete_below(tenant, [names.ns(prefix) for prefix in prefixes])
        if self.mixed and names.hidden:
            plain = yield from self.inner.delete_below(tenant, prefixes)
            removed = Removed(removed.items + plain.items, removed.vectors + plain.vectors)
        return removed

    def sweep(self, limit: int) -> Op[int]:
        return (yield from self.inner.sweep(limit))

    def overdue(self) -> Op[int]:
        return (yield from self.inner.overdue())

    # -- vector index

    def index(self) -> Op[IndexRecord | None]:
        return (yield from self.inner.index())

    def make_index(self, record: IndexRecord) -> Op[None]:
        if not record.ready:
            self._check_whole()
        yield from self.inner.make_index(record)

    def finish_index(self, record: IndexRecord) -> Op[None]:
        yield from self.inner.finish_index(record)

    def names(self, tenant: bytes, rows: Sequence[ItemRow]) -> list[Any]:
        raise NotImplementedError  # of the database's own rows, see `_conversion`

    def whole(self, names: Sequence[Any]) -> Op[list[Whole]]:
        raise NotImplementedError
        yield

    def exchange(self, changes: Sequence[tuple[Whole, NewItem | None]]) -> Op[None]:
        raise NotImplementedError
        yield

    def now(self) -> Op[int]:
        return (yield from self.inner.now())


def _row(entry: Open | None) -> ItemRow | None:
    return entry and entry.row


def _hits(opened: Iterable[Open | None], found: Sequence[Found]) -> list[Found]:
    return [Found(entry.row, hit.score) for entry, hit in zip(opened, found, strict=True) if entry]
