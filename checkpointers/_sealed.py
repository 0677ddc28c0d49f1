"""A backend whose every payload is sealed: the same primitives over another dialect.

Operations see real thread ids and plain bodies, the database sees tokens and envelopes. While an unsealed database is
being sealed, threads that are still plain are read and written as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from stepvault._core import identity
from stepvault._core.blind_index import BlindIndex
from stepvault._core.crypto import frame
from stepvault._core.keys import ROOT
from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.rows import (
    SUBJECT,
    CheckpointRow,
    Doc,
    DocChange,
    Elements,
    Guard,
    Held,
    Hold,
    Loaded,
    Note,
    Removal,
    Skeleton,
    ThreadRow,
    WriteRow,
)
from stepvault._core.sealing import Plain, Seal
from stepvault._keystore.keys import Keys
from stepvault._keystore.marker import MARKER_SPACE
from stepvault.checkpointers import _sealing as rows_of
from stepvault.checkpointers._dialect import Dialect
from stepvault.checkpointers._sealed_lists import Place, place_of, placed
from stepvault.checkpointers._sealed_moving import SealedMoving
from stepvault.erasure import PurgeStep
from stepvault.errors import KeyShreddedError

_PLAIN = Plain()

Noted: TypeAlias = "tuple[ThreadRow | None, bytes | None]"  # a thread and one of its notes, where there are


class Opening(NamedTuple):
    """A guard as the database knows the thread, its seal, notes to write along, and whom a new key is linked to."""

    guard: Guard
    seal: Seal
    notes: Sequence[Note]
    people: Sequence[bytes] = ()


class SealedDialect(SealedMoving):
    """See `Dialect`.

    Args:
        inner: Where rows are stored.
        keys: What they are sealed with.
    """

    def __init__(self, inner: Dialect, keys: Keys) -> None:
        self.automatic_setup = inner.automatic_setup
        self.locks = inner.locks
        self._inner = inner
        self._keys = keys
        keys.standing = self.standing

    def setup(self) -> Op[None]:
        yield from self._inner.setup()

    def only_theirs(self) -> Op[bool]:
        return (yield from self._inner.only_theirs())

    def now(self) -> Op[int]:
        return (yield from self._inner.now())

    def warnings(self) -> Op[list[str]]:
        return (yield from self._inner.warnings())

    def tenants(self) -> Op[list[bytes]]:
        return (yield from self._inner.tenants())

    def tenants_with(self, name: bytes) -> Op[list[bytes]]:
        return (yield from self._inner.tenants_with(name))

    def spaces(self) -> Op[list[bytes]]:
        return (yield from self._inner.spaces())

    def purge(self, *, rewrite: bool = False) -> Op[list[PurgeStep]]:
        return (yield from self._inner.purge(rewrite=rewrite))

    def reclaim(self) -> Op[None]:
        yield from self._inner.reclaim()

    def lock(self, key: ThreadKey) -> Op[None]:
        yield from self._inner.lock((yield from self._token(key)))
        if self._keys.accept_plain:
            yield from self._inner.lock(key)

    # -- reading

    def load(self, key: ThreadKey, ns: bytes, checkpoint: bytes | None, held: Held | None) -> Op[Loaded]:
        token = yield from self._token(key)
        loaded = yield from self._inner.load(token, ns, checkpoint, held)
        if loaded.thread is None and self._keys.accept_plain:
            loaded = yield from self._inner.load(key, ns, checkpoint, held)
            if loaded.thread is not None:
                return replace(loaded, thread=placed(loaded.thread, key.tenant, plain=True))
            loaded = yield from self._inner.load(token, ns, checkpoint, held)  # sealed between the two
        return (yield from self._opened(key.tenant, loaded))

    def _opened(self, tenant: bytes, loaded: Loaded) -> Op[Loaded]:
        if loaded.thread is None:
            return loaded
        thread = placed(loaded.thread, tenant)
        bodies = rows_of.bodies_of(loaded)
        if not bodies:
            return Loaded(thread)
        seal = yield from self._keys.sealer(tenant, bytes(thread.uid), bodies)
        return replace(rows_of.opened(seal, loaded), thread=thread)

    def skeleton(self, key: ThreadKey) -> Op[Skeleton | None]:
        token = yield from self._token(key)
        found = yield from self._inner.skeleton(token)
        if found is None and self._keys.accept_plain:
            plain = yield from self._inner.skeleton(key)
            if plain is not None:
                return replace(plain, thread=placed(plain.thread, key.tenant, plain=True))
            found = yield from self._inner.skeleton(token)  # sealed between the two
        if found is None:
            return None
        loaded = yield from self._opened(key.tenant, Loaded(found.thread, found.checkpoints, found.writes))
        thread = placed(found.thread, key.tenant)
        return Skeleton(thread, loaded.checkpoints, loaded.writes, found.chunks)

    def chunks(self, thread: ThreadRow, numbers: Sequence[int]) -> Op[Loaded]:
        place = place_of(thread)
        loaded = yield from self._inner.chunks(thread._replace(no=place.no), numbers)
        return replace(loaded, thread=thread) if place.plain else (yield from self._opened(place.tenant, loaded))

    # -- writing

    def put(
        self,
        guard: Guard,
        elements: Elements,
        row: CheckpointRow,
        tokens: Sequence[bytes],
        notes: Sequence[Note] = (),
    ) -> Op[Any]:
        opening = yield from self._opening(guard, notes)
        seal, tenant = opening.seal, guard.key.tenant
        if seal is not _PLAIN:
            index = yield from self._keys.index()
            elements = rows_of.sealed_elements(seal, elements)
            row = rows_of.sealed_checkpoint(seal, row)
            tokens = [index.metadata(tenant, token) for token in tokens]
        no = yield from self._inner.put(opening.guard, elements, row, tokens, opening.notes)
        return (yield from self._stored(guard, opening, no))

    def put_writes(
        self,
        guard: Guard,
        elements: Elements,
        rows: Sequence[WriteRow],
        notes: Sequence[Note] = (),
        *,
        replace_rows: bool = False,
    ) -> Op[tuple[Any, bool] | None]:
        opening = yield from self._opening(guard, notes)
        if opening.seal is not _PLAIN:
            elements = rows_of.sealed_elements(opening.seal, elements)
            rows = rows_of.sealed_writes(opening.seal, rows)
        done = yield from self._inner.put_writes(
            opening.guard, elements, rows, opening.notes, replace_rows=replace_rows
        )
        place = yield from self._stored(guard, opening, done and done[0])
        return (place, done[1]) if done else None

    def _opening(self, guard: Guard, notes: Sequence[Note] = ()) -> Op[Opening]:
        """How to write a thread: a new one gets a key first, and its real id goes along."""
        if guard.thread is not None:
            place = place_of(guard.thread)
            bare = replace(guard, thread=guard.thread._replace(no=place.no))
            if place.plain:
                return Opening(bare, _PLAIN, notes)
            seal = yield from self._keys.sealer(guard.key.tenant, bytes(guard.uid))
            yield from self._link(guard, notes)
            return (yield from self._sealing(bare, seal, notes))
        if self._keys.grows_plain:
            return Opening(guard, _PLAIN, notes)
        token = yield from self._token(guard.key)
        people = rows_of.subjects_in(notes)
        seal = yield from self._keys.create(guard.key.tenant, bytes(guard.uid), people, token.thread)
        opening = yield from self._sealing(guard, seal, notes)
        return opening._replace(notes=[rows_of.sealed_id(seal, guard.key.thread), *opening.notes], people=people)

    def _link(self, guard: Guard, notes: Sequence[Note]) -> Op[None]:
        """Link a thread's key to who joins it, and unlink who leaves."""
        for note in notes:
            if note.key[:1] == SUBJECT and note.body is not None:
                token = yield from self._token(guard.key)
                yield from self._keys.link(note.key[1:], bytes(guard.uid), place=token.thread)
            elif note.key[:1] == SUBJECT:
                yield from self._keys.unlink(note.key[1:], bytes(guard.uid))

    def standing(self, tenant: bytes, places: Sequence[bytes]) -> Op[set[bytes]]:
        """Whose keys seal the threads that stand at these places."""
        found = yield from self._inner.notes_at([(ThreadKey(tenant, place), b"") for place in places])
        return {bytes(thread.uid) for thread, _ in found if thread is not None}

    def _sealing(self, guard: Guard, seal: Seal, notes: Sequence[Note]) -> Op[Opening]:
        index = yield from self._keys.index()
        sealed = [rows_of.sealed_note(seal, _note_place(index, guard.key, note.key), note) for note in notes]
        return Opening(replace(guard, key=(yield from self._token(guard.key))), seal, sealed)

    def _stored(self, guard: Guard, opening: Opening, no: Any) -> Op[Place | None]:
        """Where a written thread is; the key of one that somebody else created first is forgotten."""
        if no is None:
            if guard.thread is None and opening.seal is not _PLAIN:
                yield from self._keys.discard(bytes(guard.uid), opening.people)
            return None
        return Place(no, guard.key.tenant, opening.seal is _PLAIN)

    def remove(self, guard: Guard, removal: Removal) -> Op[bool]:
        opening = yield from self._opening(guard)
        if opening.seal is not _PLAIN:
            removal = replace(removal, rewritten=rows_of.sealed_chunks(opening.seal, removal.rewritten))
        return (yield from self._inner.remove(opening.guard, removal))

    def copy(self, source: ThreadRow, guard: Guard) -> Op[bool]:
        raise NotImplementedError("Rows are bound to their thread: a copy is sealed anew, see `_ops.transfer`.")
        yield

    def begin_copy(self, guard: Guard) -> Op[ThreadRow | None]:
        """See `Dialect`; a key that was made for it before stays, for whoever goes on with an interrupted copy."""
        if self._keys.grows_plain:
            plain = yield from self._inner.begin_copy(guard)
            return plain and placed(plain, guard.key.tenant, plain=True)
        seal = yield from self._keys.ensure(guard.key.tenant, bytes(guard.uid))
        opening = yield from self._sealing(guard, seal, ())
        thread = yield from self._inner.begin_copy(opening.guard)
        if thread is None:
            return None
        named = replace(opening.guard, thread=thread, rev=self._keys.random(8))
        done = yield from self._inner.put_writes(named, Elements(), (), [rows_of.sealed_id(seal, guard.key.thread)])
        return done and placed(ThreadRow(done[0], guard.uid, named.rev, b""), guard.key.tenant)

    def finish_copy(self, guard: Guard, hold: Hold | None = None) -> Op[bool]:
        """See `Dialect`; the hold is of a thread as it is stored."""
        opening = yield from self._opening(guard)
        return (yield from self._inner.finish_copy(opening.guard, hold))

    # -- notes and docs

    def born(self, thread: ThreadRow) -> Op[int | None]:
        return (yield from self._inner.born(thread._replace(no=place_of(thread).no)))

    def notes(self, thread: ThreadRow, prefix: bytes) -> Op[list[Note]]:
        place = place_of(thread)
        assert len(prefix) <= 1, "longer ones are not kept in the order of keys"
        found = yield from self._inner.notes(thread._replace(no=place.no), prefix)
        if place.plain:
            return found
        uid = bytes(thread.uid)
        return (yield from self._opened_notes(place.tenant, {uid: found}))[uid]

    def notes_at(self, places: Sequence[tuple[ThreadKey, bytes]]) -> Op[list[Noted]]:
        found = yield from self._sealed_at(places)
        for look in (self._plain_at, self._sealed_at) if self._keys.accept_plain else ():  # sealed between the two
            missing = [i for i, (thread, _) in enumerate(found) if thread is None]
            for i, noted in zip(missing, (yield from look([places[i] for i in missing])), strict=True):
                found[i] = noted
        return found

    def _plain_at(self, places: Sequence[tuple[ThreadKey, bytes]]) -> Op[list[Noted]]:
        found = yield from self._inner.notes_at(places)
        return [
            (thread and placed(thread, key.tenant, plain=True), body)
            for (key, _), (thread, body) in zip(places, found, strict=True)
        ]

    def _sealed_at(self, places: Sequence[tuple[ThreadKey, bytes]]) -> Op[list[Noted]]:
        if not places:
            return []
        index, tenant = (yield from self._keys.index()), places[0][0].tenant
        asked = [(ThreadKey(tenant, index.thread(*key)), _note_place(index, key, note)) for key, note in places]
        found = yield from self._inner.notes_at(asked)
        owners: dict[bytes, list[bytes]] = {}
        for thread, body in found:
            if thread is not None and body is not None:
                owners.setdefault(bytes(thread.uid), []).append(body)
        seals = yield from self._keys.sealers(tenant, owners)
        opened: list[Noted] = []
        for (_, place), (thread, body) in zip(asked, found, strict=True):
            try:
                if thread is not None and body is not None:
                    body = rows_of.opened_note(seals[bytes(thread.uid)], place, body).body
                opened.append((thread and placed(thread, tenant), body))
            except KeyShreddedError:
                opened.append((None, None))  # as good as gone: a hint to it must not break a list
        return opened

    def docs(self, space: bytes, prefix: bytes, after: bytes, limit: int, *, oldest: bool = False) -> Op[list[Doc]]:
        docs = yield from self._inner.docs(space, prefix, after, limit, oldest=oldest)
        return (yield from self._opened_docs(space, docs))

    def get_docs(self, space: bytes, keys: Sequence[bytes]) -> Op[list[Doc]]:
        return (yield from self._opened_docs(space, (yield from self._inner.get_docs(space, keys))))

    def _opened_docs(self, space: bytes, docs: list[Doc]) -> Op[list[Doc]]:
        if not docs or space == MARKER_SPACE:
            return docs
        seal = yield from self._keys.sealer(b"", ROOT, [doc.body for doc in docs])
        return [doc._replace(body=seal.open(identity.doc(space, doc.key), doc.body)) for doc in docs]

    def write_docs(self, space: bytes, changes: Sequence[DocChange], *, durable: bool = False) -> Op[bool]:
        if changes and space != MARKER_SPACE and not self._keys.leaving:
            seal = yield from self._keys.sealer(b"", ROOT)
            changes = [
                change
                if change.body is None
                else change._replace(body=seal.seal(identity.doc(space, change.key), change.body))
                for change in changes
            ]
        return (yield from self._inner.write_docs(space, changes, durable=durable))


def _note_place(index: BlindIndex, key: ThreadKey, note: bytes) -> bytes:
    """What stands for the key of a note: its kind in clear, the rest as a token of this thread."""
    return note[:1] + index.mark(b"note", frame((key.tenant, key.thread, note))) if note else note
