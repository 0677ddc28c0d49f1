"""Removing sealed threads: what their notes say is opened, then their keys are destroyed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.rows import Deleted, Note, ThreadRow
from stepvault._keystore.keys import Keys
from stepvault.checkpointers import _sealing as rows_of
from stepvault.checkpointers._dialect import Dialect
from stepvault.checkpointers._removal import RemovalByPerson
from stepvault.checkpointers._sealed_lists import place_of, placed
from stepvault.checkpointers._sealing import REAL_ID


class SealedRemoval(RemovalByPerson):
    """See `Dialect`."""

    _inner: Dialect
    _keys: Keys

    def delete(self, key: ThreadKey, rev: bytes | None = None) -> Op[Deleted | None]:
        """See `Dialect`; the thread's key goes after it."""
        token = yield from self._token(key)
        if not self._keys.accept_plain:
            return (yield from self._delete_sealed(key, token, rev))
        ((thread, _),) = yield from self._inner.notes_at([(token, b"")])
        plain, sealed = self._inner.delete(key, rev), self._delete_sealed(key, token, rev)
        first, then = (plain, sealed) if thread is None else (sealed, plain)
        removed = yield from first
        found = removed is not None and removed.uid is not None
        if found and rev is not None:
            return removed
        other = yield from then  # it may have moved between the two, or be in both places for a moment
        return removed if found else other

    def _delete_sealed(self, key: ThreadKey, token: ThreadKey, rev: bytes | None) -> Op[Deleted | None]:
        removed = yield from self._inner.delete(token, rev)
        if removed is None or removed.uid is None:
            return removed
        uid = bytes(removed.uid)
        notes = yield from self._opened_notes(key.tenant, {uid: removed.notes})
        yield from self._keys.shred([uid])
        return removed._replace(notes=notes[uid])

    def delete_all(self, threads: Sequence[tuple[ThreadKey, ThreadRow]]) -> Op[list[Deleted | None]]:
        """See `Dialect`; the threads' keys go after them."""
        if not threads:
            return []
        index, tenant = (yield from self._keys.index()), threads[0][0].tenant
        places = [place_of(thread) for _, thread in threads]
        found = yield from self._inner.delete_all([
            (key if place.plain else ThreadKey(tenant, index.thread(*key)), thread._replace(no=place.no))
            for (key, thread), place in zip(threads, places, strict=True)
        ])  # fmt: skip
        sealed = {
            bytes(removed.uid): removed.notes
            for removed, place in zip(found, places, strict=True)
            if removed is not None and removed.uid is not None and not place.plain
        }
        notes = yield from self._opened_notes(tenant, sealed)
        if sealed:
            yield from self._keys.shred(sealed)
        uids = [bytes(removed.uid) if removed is not None and removed.uid is not None else b"" for removed in found]
        return [
            removed._replace(notes=notes[uid]) if removed is not None and uid in notes else removed
            for uid, removed in zip(uids, found, strict=True)
        ]

    def remains(self, keys: Sequence[ThreadKey]) -> Op[list[ThreadRow | None]]:
        """See `Dialect`; what is left of a thread is sealed as it was."""
        if not keys:
            return []
        index, tenant = (yield from self._keys.index()), keys[0].tenant
        tokens = [ThreadKey(tenant, index.thread(*key)) for key in keys]
        found = [row and placed(row, tenant) for row in (yield from self._inner.remains(tokens))]
        if self._keys.accept_plain:
            plain = yield from self._inner.remains(keys)
            plain = [row and placed(row, tenant, plain=True) for row in plain]
            standing = yield from self._plain_or_sealed(keys)
            found = [None if there else row or other for row, other, there in zip(found, plain, standing, strict=True)]
        return found

    def _plain_or_sealed(self, keys: Sequence[ThreadKey]) -> Op[list[bool]]:
        """Whether threads stand, in either form."""
        places = [(key, b"") for key in keys]
        for key in keys:
            places.append(((yield from self._token(key)), b""))
        found = yield from self._inner.notes_at(places)
        there = [thread is not None for thread, _ in found]
        return [plain or sealed for plain, sealed in zip(there[: len(keys)], there[len(keys) :], strict=True)]

    def _opened_notes(self, tenant: bytes, found: Mapping[bytes, Sequence[Note]]) -> Op[dict[bytes, list[Note]]]:
        """Notes by the owner of their keys."""
        sealed = {
            uid: [(note.key, note.body) for note in notes if note.key != REAL_ID and note.body is not None]
            for uid, notes in found.items()
        }
        seals = yield from self._keys.sealers(
            tenant, {uid: [body for _, body in notes] for uid, notes in sealed.items() if notes}
        )
        return {uid: rows_of.opened_notes(seals[uid], notes) if notes else [] for uid, notes in sealed.items()}

    def _token(self, key: ThreadKey) -> Op[ThreadKey]:
        index = yield from self._keys.index()
        return ThreadKey(key.tenant, index.thread(key.tenant, key.thread))
