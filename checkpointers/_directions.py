"""The two directions of `_conversion`.

Both wait before they begin: whoever has not noticed would take a converted thread for a missing one. Until then, new
threads are unsealed, which every process can read. To seal waits before its end too: processes with keys go on making
unsealed threads until they notice that it has begun. An unsealed database keeps the marks of a sealed one in the keys
of its docs, and the key they are made with: tombstones hold nothing else that they could be found by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stepvault._core.envelope import is_sealed
from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.rows import Doc, Note
from stepvault._core.state import State
from stepvault._keystore import marker
from stepvault._keystore.marker import Marker
from stepvault.checkpointers._conversion import SETTLE, Conversion, Memory, Outcome, Report, SealProgress
from stepvault.checkpointers._ops import subjects, transfer
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.doc_marks import marked
from stepvault.checkpointers._ops.spaces import space
from stepvault.checkpointers._ops.transfer import Whole
from stepvault.checkpointers._sealed_lists import place_of
from stepvault.errors import ConfigurationError


def seal(
    scope: Scope,
    settle: float = SETTLE,
    report: Report | None = None,
    memory: Memory | None = None,
    rewrite: bool = False,
) -> Op[SealProgress]:
    """Seal everything of every tenant.

    Raises:
        ConfigurationError: There is no keyring, or an erasure is under way, or the database is being unsealed.
        ConflictError: A thread exists sealed and unsealed; delete the one that is not wanted, and run again.
    """
    return (yield from Sealing(scope, report, memory).run(settle, rewrite=rewrite))


def unseal(
    scope: Scope,
    settle: float = SETTLE,
    report: Report | None = None,
    memory: Memory | None = None,
    rewrite: bool = False,
) -> Op[SealProgress]:
    """Unseal everything of every tenant.

    Raises:
        ConfigurationError: There is no keyring, or the database is being sealed.
        ConflictError: A thread exists sealed and unsealed.
        PayloadError: Something cannot be opened; what was not converted is still sealed.
    """
    return (yield from Unsealing(scope, report, memory).run(settle, rewrite=rewrite))


class Sealing(Conversion):
    """Unsealed rows become sealed."""

    name = "seal"
    settles_last = True
    _marked = False  # what is unsealed was sealed before

    def window(self, found: Marker | None, until: int) -> Op[Marker | None]:
        if found is not None and found.is_leaving:
            raise ConfigurationError("This database is being unsealed; let vault.unseal() end before.")
        if found is not None and found.is_sealed:
            return None
        self.target = self.sealed
        self._marked = found is not None and found.marked
        begun = found is not None and not (found.is_unsealed or found.is_preparing)
        of = marker.sealing if begun or self._known else marker.preparing
        return of((yield from self.keys.index()), until, marked=self._marked)

    def closed(self) -> Op[Marker]:
        return marker.sealed((yield from self.keys.index()))

    def waiting(self, tenant: bytes, stored: Sequence[bytes]) -> Op[list[ThreadKey]]:
        return [ThreadKey(tenant, thread) for thread in (yield from self.sealed.unsealed(tenant, stored))]

    def places(self, key: ThreadKey) -> Op[tuple[ThreadKey, ThreadKey]]:
        return key, (yield from self.sealed.sealed_key(key))

    def read(self, scope: Scope, key: ThreadKey) -> Op[Whole | None]:
        return (yield from transfer.read(scope, self.plain, key))

    def turned_thread(self, scope: Scope, whole: Whole) -> tuple[Whole, State]:
        return _with_marks(scope, whole)

    def left_over(self, source: ThreadKey, target: ThreadKey, whole: Whole) -> Op[Outcome]:
        """The sealed one is looked for first, so it is the one that was written since."""
        return "again" if (yield from self.plain.delete(source, whole.thread.rev)) is None else "done"

    def turned(self, scope: Scope, name: str, doc: Doc) -> Op[Doc | None]:
        if is_sealed(doc.body):
            return None
        if name == "erasures" and doc.key[:1] == b"o":
            raise ConfigurationError("An erasure is under way; finish it with vault.erasure before.")
        key = doc.key if self._marked else marked(name, doc.key, scope.mark)
        return doc._replace(key=key, body=(yield from self.sealed.sealed_doc(space(scope, name), key, doc.body)))


class Unsealing(Conversion):
    """Sealed rows become unsealed; marks stay."""

    name = "unseal"
    settles_last = False

    def window(self, found: Marker | None, until: int) -> Op[Marker | None]:
        if found is not None and not (found.is_leaving or found.is_sealed or found.is_unsealed):
            raise ConfigurationError("This database is being sealed; let vault.seal() end before.")
        if found is None or found.is_unsealed:
            return None
        self.target = self.plain
        return marker.unsealing((yield from self.keys.index()), until)

    def closed(self) -> Op[Marker]:
        return marker.unsealed((yield from self.keys.index()))

    def waiting(self, tenant: bytes, stored: Sequence[bytes]) -> Op[list[ThreadKey]]:
        return (yield from self.sealed.still_sealed(tenant, stored))

    def places(self, key: ThreadKey) -> Op[tuple[ThreadKey, ThreadKey]]:
        return (yield from self.sealed.sealed_key(key)), key

    def read(self, scope: Scope, key: ThreadKey) -> Op[Whole | None]:
        whole = yield from transfer.read(scope, self.sealed, key)
        return None if whole is None or place_of(whole.thread).plain else whole

    def turned_thread(self, scope: Scope, whole: Whole) -> tuple[Whole, State]:
        return whole, State.unpack(whole.thread.extents)

    def left_over(self, source: ThreadKey, target: ThreadKey, whole: Whole) -> Op[Outcome]:
        """The sealed one is looked for first, so nobody has seen the other."""
        yield from self.plain.delete(target)
        return "again"

    def turned(self, scope: Scope, name: str, doc: Doc) -> Op[Doc | None]:
        if not is_sealed(doc.body):
            return None
        return doc._replace(body=(yield from self.sealed.opened_doc(space(scope, name), doc.key, doc.body)))


def _with_marks(scope: Scope, whole: Whole) -> tuple[Whole, State]:
    """The subjects of a thread under the tokens of a sealed database."""
    state = State.unpack(whole.thread.extents)
    names = [scope.native.loads(note.body) for note in whole.notes if note.key[:1] == subjects.PREFIX and note.body]
    people = {subjects.token(scope, name): name for name in names}
    notes = [note for note in whole.notes if note.key[:1] != subjects.PREFIX]
    notes += [Note(subjects.PREFIX + token, scope.native.dumps(name)) for token, name in people.items()]
    return replace(whole, notes=notes), replace(state, subjects=tuple(people))
