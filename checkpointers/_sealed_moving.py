"""What `_conversion` and copies need of a sealed dialect: the rows as they are stored, and which form they have."""

from __future__ import annotations

from collections.abc import Sequence

from stepvault._core import identity
from stepvault._core.keys import ROOT
from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.rows import Hold
from stepvault.checkpointers._dialect import Dialect
from stepvault.checkpointers._sealed_lists import SealedLists
from stepvault.checkpointers._sealed_removal import SealedRemoval
from stepvault.checkpointers._sealing import REAL_ID, opened_id
from stepvault.errors import KeyShreddedError


class SealedMoving(SealedLists, SealedRemoval):
    """See `SealedDialect`."""

    @property
    def inner(self) -> Dialect:
        """Rows as they are stored."""
        return self._inner

    def unsealed(self, tenant: bytes, stored: Sequence[bytes]) -> Op[list[bytes]]:
        """Which of these thread columns hold a real id."""
        found = yield from self._inner.notes_at([(ThreadKey(tenant, thread), REAL_ID) for thread in stored])
        return [thread for thread, (row, body) in zip(stored, found, strict=True) if row is not None and body is None]

    def still_sealed(self, tenant: bytes, stored: Sequence[bytes]) -> Op[list[ThreadKey]]:
        """The real ids of those of these thread columns that hold a token; rows whose key is destroyed go."""
        rows = yield from self._inner.notes_at([(ThreadKey(tenant, thread), REAL_ID) for thread in stored])
        found = {thread: (row, body) for thread, (row, body) in zip(stored, rows, strict=True) if row and body}
        seals = yield from self._keys.sealers(tenant, {bytes(row.uid): [body] for row, body in found.values()})
        left = []
        for thread, (row, body) in found.items():
            try:
                left.append(ThreadKey(tenant, opened_id(seals[bytes(row.uid)], body)))
            except KeyShreddedError:
                yield from self._inner.delete(ThreadKey(tenant, thread), row.rev)
        return left

    def sealed_key(self, key: ThreadKey) -> Op[ThreadKey]:
        """What stands in the thread column of a sealed thread."""
        return (yield from self._token(key))

    def hold(self, hold: Hold, *, again: bool = False) -> Op[bool]:
        """See `Dialect`."""
        return (yield from self._inner.hold((yield from self._held(hold)), again=again))

    def let_go(self, hold: Hold) -> Op[None]:
        """See `Dialect`."""
        yield from self._inner.let_go((yield from self._held(hold)))

    def _held(self, hold: Hold) -> Op[Hold]:
        token = yield from self._token(hold.key)
        if self._keys.accept_plain:
            ((thread, _),) = yield from self._inner.notes_at([(token, b"")])
            return hold if thread is None else hold._replace(key=token)
        return hold._replace(key=token)

    def sealed_doc(self, space: bytes, key: bytes, body: bytes) -> Op[bytes]:
        """A doc's body as it is stored."""
        seal = yield from self._keys.sealer(b"", ROOT)
        return seal.seal(identity.doc(space, key), body)

    def opened_doc(self, space: bytes, key: bytes, body: bytes) -> Op[bytes]:
        """A doc's body as it was before `sealed_doc`."""
        seal = yield from self._keys.sealer(b"", ROOT, [body])
        return seal.open(identity.doc(space, key), body)
