"""`vault.keys`: the key-encryption keys of a deployment and their rotation, sync and async."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from stepvault._core.plan import Op
from stepvault._keystore import rotation
from stepvault._keystore.keys import Keys
from stepvault._keystore.rotation import Progress
from stepvault.checkpointers._ops.subjects import token
from stepvault.encryption import Keyring
from stepvault.errors import ConfigurationError

if TYPE_CHECKING:
    from stepvault.checkpointers._saver import BaseSaver

_BATCH = 1000
Report = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """A key-encryption key.

    Attributes:
        id: Its id.
        primary: Whether it wraps new data keys.
        available: Whether the keyring has it, or a key service to ask for it.
        retired: Whether a rotation ended its use for good.
        wraps: How many live data keys it wraps.
    """

    id: str
    primary: bool
    available: bool
    retired: bool
    wraps: int


@dataclass(frozen=True, slots=True)
class DataKeyInfo:
    """The data key of a thread or of a namespace, by whose data it seals.

    Attributes:
        owner: What stands for the thread or the namespace in the key store, in hex.
        kind: `"thread"` or `"namespace"`.
        subjects: To how many people it is linked; of a namespace, to how many ids its labels may be.
        generations: How many there are; the newest seals.
        wrapped_by: The key-encryption key of the newest; None if it was destroyed.
    """

    owner: str
    kind: str
    subjects: int
    generations: int
    wrapped_by: str | None


@dataclass(frozen=True, slots=True)
class Rotation:
    """What a rotation did.

    Attributes:
        rewrapped: Data keys that were moved to the primary key.
        destroyable: Ids of the key-encryption keys that nothing needs any more: destroy them where they are kept.
    """

    rewrapped: int
    destroyable: Sequence[str] = ()


class VaultKeys:
    """The key-encryption keys of a sealed vault. Operations may be killed, repeated, and run while the app does."""

    def __init__(self, saver: BaseSaver) -> None:
        self._saver = saver

    def list(self) -> Sequence[KeyInfo]:
        """Every key-encryption key that is in the keyring, in use or retired."""
        return self._saver._run(self._list())

    async def alist(self) -> Sequence[KeyInfo]:
        """Async version of `list`."""
        return await self._saver._arun(self._list())

    def _list(self) -> Op[Sequence[KeyInfo]]:
        keys, ring = self._keys, self._ring
        uses = dict((yield from keys.at(keys.store.uses())))
        retired = yield from keys.at(keys.store.retired())
        return [
            KeyInfo(id_, id_ == ring.primary, keys.wrapper.can_open(id_), id_ in retired, uses.get(id_, 0))
            for id_ in dict.fromkeys((*ring.ids, *sorted(uses), *retired))
        ]

    def of(self, subject: str) -> Sequence[DataKeyInfo]:
        """The data keys that are linked to a person: an erasure destroys those that are theirs alone."""
        return self._saver._run(self._of(subject))

    async def aof(self, subject: str) -> Sequence[DataKeyInfo]:
        """Async version of `of`."""
        return await self._saver._arun(self._of(subject))

    def _of(self, subject: str) -> Op[Sequence[DataKeyInfo]]:
        keys = self._keys
        linked = yield from keys.at(keys.store.linked(token(self._saver._scope, subject)))
        rows = yield from keys.at(keys.store.load([link.owner for link in linked]))
        found = []
        for link in linked:
            mine = sorted((row for row in rows if row.owner == link.owner), key=lambda row: row.gen)
            alive = [row.kek for row in mine if row.wrapped is not None]
            kind = "namespace" if link.whole else "thread"
            wrapped_by = alive[-1] if alive else None
            found.append(DataKeyInfo(link.owner.hex(), kind, link.subjects, len(mine), wrapped_by))
        return found

    def generate(self, key_id: str | None = None) -> Keyring:
        """A keyring with a fresh primary key beside the present ones. Deploy it everywhere, then `rotate` with it."""
        return self._ring.rotated(key_id)

    def rotate(self, *, destroy_old: bool = False, report: Report | None = None) -> Rotation:
        """Wrap every data key anew under the primary key; no payload is touched.

        Args:
            destroy_old: Retire every other key for good, and end only when nothing needs them.
            report: Called after each page of 500 data keys.

        Raises:
            ConfigurationError: The primary key was retired by an earlier rotation.
            KeyNotFoundError: Data keys are under a key that the keyring does not have; nothing was changed.
            WrongKeyError: Some do not open with the key they name; the others were rewrapped.
        """
        return self._saver._run(self._rotate(destroy_old, report))

    async def arotate(self, *, destroy_old: bool = False, report: Report | None = None) -> Rotation:
        """Async version of `rotate`."""
        return await self._saver._arun(self._rotate(destroy_old, report))

    def _rotate(self, destroy_old: bool, report: Report | None) -> Op[Rotation]:
        keys = self._keys
        last = Progress()

        def noted(progress: Progress) -> None:
            nonlocal last
            last = progress
            if report is not None:
                report(progress)

        gone: Sequence[str] = ()
        if destroy_old:
            gone = yield from keys.at(rotation.destroy_old(keys.store, keys.wrapper, noted))
        else:
            yield from keys.at(rotation.rotate(keys.store, keys.wrapper, noted))
        self._saver._scope.tell("rotated", numbers={"rewrapped": last.rewrapped, "destroyable": len(gone)})
        return Rotation(last.rewrapped, tuple(gone))

    def forget(self, older_than: timedelta) -> int:
        """Remove the tombstones of keys that were destroyed longer ago, and say how many.

        A tombstone says of a restored row that its key was destroyed and is not just missing; keep them for as long
        as backups are kept.
        """
        return self._saver._run(self._forget(older_than))

    async def aforget(self, older_than: timedelta) -> int:
        """Async version of `forget`."""
        return await self._saver._arun(self._forget(older_than))

    def _forget(self, older_than: timedelta) -> Op[int]:
        store, gone = self._keys.store, 0
        before = (yield from self._saver._core.dialect.now()) - older_than // timedelta(milliseconds=1)
        while True:
            count = yield from self._keys.at(store.forget(before, _BATCH))
            gone += count
            if count < _BATCH:
                return gone

    @property
    def _keys(self) -> Keys:
        keys = self._saver._core.keys
        if keys is None:
            raise ConfigurationError("This vault is not sealed: it was opened without keyring=.")
        return keys

    @property
    def _ring(self) -> Keyring:
        ring = self._saver._core.keyring
        if ring is None:
            raise ConfigurationError("This vault is not sealed: it was opened without keyring=.")
        return ring
