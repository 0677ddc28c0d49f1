"""The keys of one vault: what savers and stores ask for a `Sealer`.

In the common case (an owner used within the last minute) asking costs no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from stepvault._core.blind_index import DOC, BlindIndex
from stepvault._core.crypto import frame
from stepvault._core.envelope import is_sealed
from stepvault._core.identity import scope
from stepvault._core.key_cache import KeyCache
from stepvault._core.keys import ERASED, ROOT, DataKey, KeyChain, chain, draft, living
from stepvault._core.plan import Call, Op
from stepvault._core.sealing import Sealer
from stepvault._core.wrapping import Wrapper
from stepvault._keystore.store import START, KeyStore, Linked
from stepvault.errors import ConfigurationError, KeyShreddedError

T = TypeVar("T")


class Runner(Protocol):
    """The driver of another database."""

    def run(self, op: Op[Any]) -> Any: ...
    async def arun(self, op: Op[Any]) -> Any: ...
    def close(self) -> None: ...
    async def aclose(self) -> None: ...


class Keys:
    """The keys of one deployment.

    Args:
        store: Where key rows are.
        wrapper: The keyring.
        cache: Unwrapped keys of recent owners.
        random: Source of keys and nonces.
        elsewhere: The key rows' own database, if it is not the one that operations run on.
    """

    def __init__(
        self,
        store: KeyStore,
        wrapper: Wrapper,
        cache: KeyCache,
        random: Callable[[int], bytes],
        elsewhere: Runner | None = None,
    ) -> None:
        self.store = store
        self.wrapper = wrapper
        self.cache = cache
        self.random = random
        self.elsewhere = elsewhere
        self.accept_plain = False  # while a database is being sealed or unsealed
        self.standing: Callable[[bytes, Sequence[bytes]], Op[set[bytes]]] | None = None  # owners of these places
        self.leaving = False  # while it is being unsealed: docs are not sealed any more
        self.grows_plain = False  # then, and before anything is sealed: new threads are not sealed
        self._index: BlindIndex | None = None

    def index(self) -> Op[BlindIndex]:
        """The tokens of this deployment; the first caller of all makes its root key.

        Raises:
            WrongKeyError, KeyNotFoundError: The keyring is not the one of this key store.
        """
        if self._index is None:
            rows = yield from self.at(self.store.load([ROOT]))
            if not rows:
                rows = yield from self._insert(ROOT, [])
            secrets = yield from self.wrapper.unwrap(rows)
            self._index = BlindIndex(secrets[rows[0].id])
        return self._index

    def mark(self, tenant: bytes, data: bytes) -> bytes:
        """What stands for an id in the key of a doc. Only after `index` was asked for."""
        assert self._index is not None
        return self._index.mark(DOC, frame((tenant, data)))

    def expect(self, deployment: bytes) -> Op[None]:
        """Make sure that a database was sealed with these keys: with others, its threads would look absent.

        Raises:
            ConfigurationError: It belongs to another key store.
        """
        if (yield from self.index()).deployment != deployment:
            raise ConfigurationError(
                "This database was sealed with the keys of another key store; check keys_url. Nothing was changed."
            )

    def sealer(self, tenant: bytes, owner: bytes, stored: Sequence[bytes] = ()) -> Op[Sealer]:
        """The sealer of an owner, which opens all of `stored` that can be opened."""
        return self._known(tenant, owner, stored) or (yield from self.sealers(tenant, {owner: stored}))[owner]

    def sealers(self, tenant: bytes, owners: Mapping[bytes, Sequence[bytes]]) -> Op[dict[bytes, Sealer]]:
        """The sealers of several owners, with one read for those not in the cache.

        Raises:
            WrongKeyError, KeyNotFoundError, KeyUnavailableError: A key cannot be unwrapped.
        """
        known = {owner: self._known(tenant, owner, stored) for owner, stored in owners.items()}
        missing = [owner for owner, sealer in known.items() if sealer is None]
        if missing:
            chains = yield from self._load(missing)
            index = yield from self.index()
            known.update({owner: self._sealer(index, tenant, chains[owner]) for owner in missing})
        return known  # type: ignore[return-value]

    def overtaken(self, sealed: Mapping[bytes, bytes], doubtful: Collection[bytes]) -> Op[bool]:
        """Whether of these keys, by their owners, some were destroyed; what took their place is read anew.

        A process knows a key for a minute after another has destroyed it. Asked after something was stored, this
        leaves nothing that nobody can read: what is destroyed later takes what was stored before along. Owners that
        are not `doubtful` are asked for once a second.
        """
        asked = [owner for owner in sealed if owner in doubtful or not self.cache.is_sure(owner)]
        if not asked:
            return False
        ticket = self.cache.ticket()
        rows = yield from self.at(self.store.load(asked))
        newest = {row.owner: row.id for row in sorted(rows, key=lambda row: row.gen)}
        living = {row.id for row in rows if row.wrapped is not None}
        gone = [owner for owner in asked if sealed[owner] not in living]
        for owner in asked:
            if newest.get(owner) == sealed[owner] and owner not in gone:
                self.cache.renew(owner, ticket)
        if gone:
            self.cache.purge(gone)
        return bool(gone)

    def _known(self, tenant: bytes, owner: bytes, stored: Sequence[bytes]) -> Sealer | None:
        """The sealer of an owner, if its keys are in the cache, and those that `stored` was sealed with among them."""
        keys = self.cache.get(owner)
        if keys is None or self._index is None or _names_others(keys, stored):
            return None
        return self._sealer(self._index, tenant, keys)

    def create(self, tenant: bytes, owner: bytes, subjects: Sequence[bytes] = (), place: bytes = b"") -> Op[Sealer]:
        """A stored first key for an owner that nobody else can know yet, a new thread, linked to its subjects."""
        index = self._index or (yield from self.index())
        ticket = self.cache.ticket()
        new = draft(owner, 1, self.random)
        (row,) = yield from self.wrapper.wrap([new])
        links = [link for subject in subjects for link in self.store.links(subject, [owner], place=place)]
        if not (yield from self.at(self.store.insert(row, (), links))):
            yield from self.refused()
        keys = chain(owner, [row], {row.id: new.secret})
        self.cache.put(keys, ticket)
        return self._sealer(index, tenant, keys)

    def discard(self, owner: bytes, subjects: Sequence[bytes] = ()) -> Op[None]:
        """Forget a created owner that nothing was stored for."""
        self.cache.purge([owner])
        yield from self.at(self.store.remove(owner))
        for subject in subjects:
            yield from self.at(self.store.unlink(subject, [owner]))

    def ensure(self, tenant: bytes, owner: bytes, *, readmit: bool = False) -> Op[Sealer]:
        """The sealer of an owner that several writers may meet first; makes its key if there is none.

        Raises:
            KeyShreddedError: The owner was shredded, and is not to be readmitted.
        """
        sealer = yield from self.sealer(tenant, owner)
        if sealer.keys.newest is not None:
            return sealer
        return (yield from self._next(tenant, owner, readmit=readmit))

    def renew(self, tenant: bytes, owner: bytes) -> Op[Sealer]:
        """Roll over to the next generation; what older ones sealed stays readable. See `keys.MESSAGES`.

        Raises:
            KeyShreddedError: The owner was shredded.
        """
        return (yield from self._next(tenant, owner, beside=True))

    def link(self, subject: bytes, *owners: bytes, whole: bool = False, place: bytes = b"") -> Op[None]:
        """Say whose data the keys of owners seal, before they do. See `KeyStore.link`."""
        yield from self.at(self.store.link(subject, owners, whole=whole, place=place))

    def unlink(self, subject: bytes, owner: bytes) -> Op[None]:
        """Undo `link`, before what was linked stops to be theirs: a living key must not seem to be theirs alone."""
        yield from self.at(self.store.unlink(subject, [owner]))

    def shred_whole(self, subject: bytes) -> Op[int]:
        """Destroy the keys of this subject's namespaces; how many were alive."""
        count = 0
        after: bytes | None = START
        while after is not None:
            linked, after = yield from self.at(self.store.linked_page(subject, after))
            gone = [link.owner for link in linked if link.whole]
            count += (yield from self.shred(gone)) if gone else 0
        return count

    def shred_linked(self, tenant: bytes, subject: bytes, *, shared: bool) -> Op[int]:
        """Destroy the keys that seal this subject's data alone; how many were alive.

        Not those of threads that are there: what becomes of these is decided by what they say of themselves.

        Args:
            tenant: Whose subject.
            subject: By the token that they are linked by.
            shared: Whether to destroy those that seal data of others too; if not, they are unlinked.
        """
        count = 0
        after: bytes | None = START
        while after is not None:
            linked, after = yield from self.at(self.store.linked_page(subject, after))
            count += yield from self._shred_linked(tenant, subject, linked, shared)
        return count

    def _shred_linked(self, tenant: bytes, subject: bytes, linked: Sequence[Linked], shared: bool) -> Op[int]:
        """Of one page. Most went with their threads: of the others alone is asked whose they are."""
        left = yield from self.at(self.store.undestroyed([link.owner for link in linked]))
        links = [link for link in linked if link.owner in left]
        places = [link.place for link in links if link.place]
        there = (yield from self.standing(tenant, places)) if places and self.standing is not None else set()
        gone: list[bytes] = []
        kept: list[bytes] = []
        for link in links:
            alone = shared or link.whole or (yield from self.at(self.store.subjects_of(link.owner))) == 1
            (gone if alone and link.owner not in there else kept).append(link.owner)
        if kept:
            yield from self.at(self.store.unlink(subject, kept))
        return (yield from self.shred(gone)) if gone else 0

    def shred(self, owners: Iterable[bytes]) -> Op[int]:
        """Destroy the keys of owners; how many there were. What they sealed cannot be read any more."""
        gone = list(owners)
        if ROOT in gone:
            raise ConfigurationError("The root key belongs to nobody and cannot be shredded.")
        try:
            return (yield from self.at(self.store.shred(gone)))
        finally:
            self.cache.purge(gone)

    def beside(self, driver: Runner) -> Keys:
        """The same keys for operations that run on another driver than `driver`, where their rows are."""
        return Keys(self.store, self.wrapper, self.cache, self.random, self.elsewhere or driver)

    def close(self) -> None:
        """Forget every unwrapped key, and close the key rows' own database."""
        self.cache.clear()
        if self.elsewhere is not None:
            self.elsewhere.close()

    async def aclose(self) -> None:
        """Async version of `close`."""
        self.cache.clear()
        if self.elsewhere is not None:
            await self.elsewhere.aclose()

    def at(self, op: Op[T]) -> Op[T]:
        """Run an operation where the key rows are."""
        elsewhere = self.elsewhere
        if elsewhere is None:
            return (yield from op)
        return (yield Call(lambda: elsewhere.run(op), lambda: elsewhere.arun(op)))  # type: ignore[no-any-return]

    def _next(self, tenant: bytes, owner: bytes, *, readmit: bool = False, beside: bool = False) -> Op[Sealer]:
        """Make the next generation: `beside` a living one, or in place of a shredded one, or the first."""
        rows = yield from self.at(self.store.load([owner]))
        last = max(rows, key=lambda row: row.gen, default=None)
        if last is not None and last.wrapped is None and not readmit:
            raise KeyShreddedError(ERASED)
        if last is None or last.wrapped is None or beside:
            yield from self._insert(owner, rows)
        self.cache.purge([owner])
        sealer = yield from self.sealer(tenant, owner)
        sealer.keys.to_seal()
        return sealer

    def _insert(self, owner: bytes, before: Sequence[DataKey]) -> Op[list[DataKey]]:
        """Store the next generation unless somebody was first; the owner's rows."""
        gen = max((row.gen for row in before), default=0) + 1
        (row,) = yield from self.wrapper.wrap([draft(owner, gen, self.random)])
        yield from self.at(self.store.insert(row, before))
        rows = yield from self.at(self.store.load([owner]))
        if not any(row.gen >= gen for row in rows):
            yield from self.refused()
        return rows

    def refused(self) -> Op[None]:
        """Say why a key was refused although nobody else made one."""
        if self.wrapper.primary in (yield from self.at(self.store.retired())):
            raise ConfigurationError(
                f"Key-encryption key {self.wrapper.primary!r} was retired by a rotation; restart with the new keyring."
            )
        raise KeyShreddedError(ERASED)

    def _load(self, owners: Sequence[bytes]) -> Op[dict[bytes, KeyChain]]:
        ticket = self.cache.ticket()
        rows = yield from self.at(self.store.load(owners))
        secrets = yield from self.wrapper.unwrap(living(rows))
        by_owner: dict[bytes, list[DataKey]] = {owner: [] for owner in owners}
        for row in rows:
            by_owner[row.owner].append(row)
        chains = {owner: chain(owner, found, secrets) for owner, found in by_owner.items()}
        for loaded in chains.values():
            self.cache.put(loaded, ticket)
        return chains

    def _sealer(self, index: BlindIndex, tenant: bytes, keys: KeyChain) -> Sealer:
        return Sealer(keys, scope(index.deployment, tenant, keys.owner), self.random, accept_plain=self.accept_plain)


def _names_others(keys: KeyChain, stored: Sequence[bytes]) -> bool:
    """Whether a payload names a key that a cached chain lacks: another process has rolled over."""
    known = keys.keys
    for payload in stored:
        name = payload[8:24]  # see `key_id_of`
        if name not in known and name not in keys.shredded and is_sealed(payload):
            return True
    return False
