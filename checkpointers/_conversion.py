"""Sealing a database that holds unsealed rows, and back, while the app runs.

A marker opens a window in which processes with keys read both kinds and processes without are turned away. When every
process must have looked at it, thread by thread is copied in its new form, with the same generation, and deleted where
it was; a thread that was written meanwhile is copied again. When a pass finds nothing more, the window is closed.
Killed anywhere, the next run goes on: what is left is found by looking.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias

from stepvault._core.ids import text_of
from stepvault._core.knowledge import ThreadKey
from stepvault._core.numbers import check_seconds
from stepvault._core.plan import Atomic, Op
from stepvault._core.rows import Doc, DocChange, Guard, ThreadRow
from stepvault._core.state import State
from stepvault._keystore.keys import Keys
from stepvault._keystore.marker import MARKER_KEY, MARKER_SPACE, RECHECK, WINDOW, Marker
from stepvault.checkpointers._dialect import Dialect
from stepvault.checkpointers._ops import remains, transfer
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.doc_marks import SPACES
from stepvault.checkpointers._ops.expiry import SPACE as EXPIRY
from stepvault.checkpointers._ops.holding import Holding
from stepvault.checkpointers._ops.inbox import keeping
from stepvault.checkpointers._ops.spaces import is_of_tenant, space, tenant_of
from stepvault.checkpointers._ops.transfer import Whole
from stepvault.checkpointers._ops.waiting import sleeping
from stepvault.checkpointers._sealed import SealedDialect
from stepvault.erasure import PurgeStep
from stepvault.errors import ConfigurationError, ConflictError

SETTLE = RECHECK + 5.0  # seconds until every process has looked at the marker
_PAGE = 100
_TRIES, _PAUSE = 8, 0.05  # to convert a thread that another process is at, and seconds between


@dataclass(frozen=True, slots=True)
class SealProgress:
    """How far sealing or unsealing got.

    Attributes:
        threads: Threads that this run converted.
        passes: Times it went through everything.
        conflicts: Ids of threads that exist twice, as a process without keys wrote one anew; the sealed one is read.
        purged: What was done at the end to have the unsealed rows leave files too, and what was not.
        items: Items of the store that this run converted.
    """

    threads: int = 0
    passes: int = 0
    conflicts: tuple[str, ...] = ()
    purged: tuple[PurgeStep, ...] = ()
    items: int = 0


Report = Callable[[SealProgress], None]
Outcome: TypeAlias = Literal["done", "gone", "again", "twice"]  # of one thread; again: its turn did not come


class Memory(Protocol):
    """The items that are converted along; the store has a window of its own."""

    def renew(self, *, known: bool) -> Op[bool]: ...
    def once(self) -> Op[int]: ...
    def close(self) -> Op[None]: ...


class Conversion:
    """One run in one direction; a subclass says which."""

    def __init__(self, scope: Scope, report: Report | None, memory: Memory | None) -> None:
        core = scope.core
        if core.keys is None or not isinstance(core.dialect, SealedDialect):
            raise ConfigurationError(f"{self.name}() needs a vault that was opened with keyring=.")
        self.scope = scope
        self.sealed = core.dialect
        self.plain = core.dialect.inner
        self.keys: Keys = core.keys
        self.progress = SealProgress()
        self._report = report
        self._memory = memory
        self._open = False  # whether there are threads to look at
        self._version = b""  # of the marker
        self._known = False  # whether every process must know that something changes

    # -- what a direction decides

    name: str
    target: Dialect
    settles_last: bool  # whether every process has to know, before the end, that it has begun

    def window(self, found: Marker | None, until: int) -> Op[Marker | None]:
        """The marker of the open window; None: there is nothing to do."""
        raise NotImplementedError

    def closed(self) -> Op[Marker]:
        """The marker of the end."""
        raise NotImplementedError

    def waiting(self, tenant: bytes, stored: Sequence[bytes]) -> Op[list[ThreadKey]]:
        """Which of these thread columns are of threads to convert."""
        raise NotImplementedError

    def places(self, key: ThreadKey) -> Op[tuple[ThreadKey, ThreadKey]]:
        """What stands in the thread column before and after."""
        raise NotImplementedError

    def read(self, scope: Scope, key: ThreadKey) -> Op[Whole | None]:
        """A thread that is to be converted, None if it is there no more."""
        raise NotImplementedError

    def turned_thread(self, scope: Scope, whole: Whole) -> tuple[Whole, State]:
        """A thread in its new form, and its state."""
        raise NotImplementedError

    def left_over(self, source: ThreadKey, target: ThreadKey, whole: Whole) -> Op[Outcome]:
        """A thread that is in both places, as the run that copied it was killed before it deleted the original."""
        raise NotImplementedError

    def turned(self, scope: Scope, name: str, doc: Doc) -> Op[Doc | None]:
        """A doc in its new form; None if it has it."""
        raise NotImplementedError

    # -- the run

    def run(self, settle: float, *, rewrite: bool = False) -> Op[SealProgress]:
        """Convert everything of every tenant; `rewrite`: see `Dialect.purge`."""
        check_seconds("settle", settle)
        core = self.scope.core
        yield from self.sealed.setup()
        yield from self.keys.at(self.keys.store.setup())
        if not (yield from self.renew()):
            return self.progress
        core.tables.ready = True
        began = core.monotonic()
        while core.monotonic() - began < settle:
            yield sleeping(min(1.0, settle))
            yield from self.renew()
        self._known = True
        yield from self.renew()
        if self.settles_last:
            began = core.monotonic()
        while True:
            found = yield from self._once()
            waiting = settle - (core.monotonic() - began)
            if not found and waiting <= 0:
                break
            if not found:
                yield sleeping(min(1.0, waiting))
        if self.progress.conflicts:
            raise ConflictError(f"{len(self.progress.conflicts)} threads exist sealed and unsealed, see the progress.")
        yield from self._close()
        self.progress = replace(self.progress, purged=tuple((yield from self.plain.purge(rewrite=rewrite))))
        return self.progress

    def renew(self) -> Op[bool]:
        """Open the windows or keep them open; False if there is nothing to do."""
        self._open = yield from self._renew()
        items = (yield from self._memory.renew(known=self._known)) if self._memory is not None else False
        return self._open or items

    def _renew(self) -> Op[bool]:
        while True:
            docs = yield from self.plain.get_docs(MARKER_SPACE, [MARKER_KEY])
            now = yield from self.plain.now()
            found = Marker.of(docs[0]) if docs else None
            if found is not None:
                yield from self.keys.expect(found.deployment)
            wanted = yield from self.window(found, now + WINDOW)
            if wanted is None:
                self.keys.accept_plain = self.keys.leaving = self.keys.grows_plain = False
                return False
            version = docs[0].version if docs else None
            change = DocChange(MARKER_KEY, wanted.body(), self.scope.core.random(8), version)
            if (yield from self.plain.write_docs(MARKER_SPACE, [change], durable=True)):
                self.keys.accept_plain, self.keys.leaving = True, wanted.is_leaving
                self.keys.grows_plain = wanted.grows_plain
                self.scope.core.tables.admitted = self.scope.core.monotonic()
                self._version = change.version
                return True

    def _close(self) -> Op[None]:
        if self._memory is not None:
            yield from self._memory.close()
        wanted = yield from self.closed()
        while self._open:
            change = DocChange(MARKER_KEY, wanted.body(), self.scope.core.random(8), self._version)
            if (yield from self.plain.write_docs(MARKER_SPACE, [change], durable=True)):
                self.keys.accept_plain = self.keys.leaving  # whoever is in between ends in the form that he began
                self.scope.core.tables.admitted = float("-inf")
                break
            self._open = yield from self._renew()  # another process has renewed it, or closed it

    def _once(self) -> Op[int]:
        """Convert what is not yet; how much there was."""
        found = (yield from self._tenants()) if self._open else 0
        if self._memory is not None:
            items = yield from self._memory.once()
            self._note(items=self.progress.items + items)
            found += items
        self.progress = replace(self.progress, passes=self.progress.passes + 1)
        return found

    def _tenants(self) -> Op[int]:
        found = 0
        spaces = yield from self.plain.spaces()
        tenants = {*(yield from self.plain.tenants()), *map(tenant_of, filter(is_of_tenant, spaces)), self.scope.tenant}
        for tenant in sorted(tenants):
            scope = replace(self.scope, tenant=tenant)
            found += yield from self._docs(scope)
            yield from self._remains(scope)
            threads = yield from self._threads(scope)
            if threads:
                yield from keeping.rebuild(scope)
            found += threads
        return found

    def _note(self, **fields: Any) -> None:
        before, self.progress = self.progress, replace(self.progress, **fields)
        if self._report is not None and self.progress != before:
            self._report(self.progress)

    # -- threads

    def _threads(self, scope: Scope) -> Op[int]:
        found, after = 0, None
        while True:
            yield from self.renew()
            if not self._open:  # another process has ended it
                return found
            rows = yield from self.plain.threads(scope.tenant, _PAGE, after)
            for key in (yield from self.waiting(scope.tenant, [row.thread for row in rows])):
                found += yield from self._thread(scope, key)
            if len(rows) < _PAGE:
                return found
            after = rows[-1].no

    def _thread(self, scope: Scope, key: ThreadKey) -> Op[int]:
        for _ in range(_TRIES):
            once = self._locked(scope, key)
            outcome = (yield Atomic(once, "write")) if self.plain.locks else (yield from self._held(scope, key))
            if outcome == "again":
                continue
            scope.core.knowledge.forget(key)
            if outcome == "twice":
                known = dict.fromkeys((*self.progress.conflicts, text_of(key.thread)))
                self.progress = replace(self.progress, conflicts=tuple(known))
                return 0
            if outcome == "done":
                self._note(threads=self.progress.threads + 1)
            return 1
        return 1  # another process is at it: the next pass looks again

    def _locked(self, scope: Scope, key: ThreadKey) -> Op[Outcome]:
        yield from self.sealed.lock(key)
        return (yield from self._read_and_turn(scope, key, None))

    def _held(self, scope: Scope, key: ThreadKey) -> Op[Outcome]:
        """Where there are no locks: while its writers wait."""
        place, _ = yield from self.places(key)
        holding = Holding.of(scope, self.plain, place)
        if not (yield from holding.during(holding.take())):
            if (yield from self._at(place)) is None:
                return "gone"
            yield sleeping(_PAUSE)
            return "again"
        outcome = yield from holding.during(self._read_and_turn(scope, key, holding))
        if outcome != "done":
            yield from holding.end()
        return outcome

    def _read_and_turn(self, scope: Scope, key: ThreadKey, holding: Holding | None) -> Op[Outcome]:
        whole = yield from self.read(scope, key)
        return "gone" if whole is None else (yield from self._turn(scope, key, whole, holding))

    def _turn(self, scope: Scope, key: ThreadKey, whole: Whole, holding: Holding | None) -> Op[Outcome]:
        """Copy a thread and delete it where it was."""
        source, target = yield from self.places(key)
        whole, state = self.turned_thread(scope, whole)
        uid = bytes(whole.thread.uid)
        guard = Guard(key, None, uid, scope.core.random(8), state.pack())  # a new thread of the same generation
        if not (yield from transfer.give(scope, self.target, guard, whole, holding)):
            there = yield from self._at(target)
            if there is None:
                return "again"
            return "twice" if bytes(there.uid) != uid else (yield from self.left_over(source, target, whole))
        if (yield from self.plain.delete(source, whole.thread.rev)) is not None:
            return "done"
        if (yield from self._at(source)) is None and holding is not None and holding.lasted():
            yield from self._withdraw(target, uid)  # somebody has deleted it, and means the copy too
        return "again"

    def _withdraw(self, target: ThreadKey, uid: bytes) -> Op[None]:
        while (there := (yield from self._at(target))) is not None and bytes(there.uid) == uid:
            yield from self.plain.delete(target, there.rev)
        yield from self.keys.shred([uid])

    def _at(self, place: ThreadKey) -> Op[ThreadRow | None]:
        ((thread, _),) = yield from self.plain.notes_at([(place, b"")])
        return thread

    # -- docs

    def _remains(self, scope: Scope) -> Op[None]:
        """Clear what is left of threads that went by themselves, and by runs that were killed as they moved one."""
        after = b""
        while not self.plain.locks:
            docs = yield from self.sealed.docs(space(scope, EXPIRY), b"", after, _PAGE)
            keys = list(dict.fromkeys(ThreadKey(scope.tenant, doc.body) for doc in docs))
            gone = zip(keys, (yield from self.sealed.remains(keys)), strict=True)
            going = [(key, row) for key, row in gone if row is not None]
            if going:
                name, now = scope.core.random(12), (yield from self.plain.now())
                yield from remains.note(scope, name, [key for key, _ in going], now)
                yield from self.sealed.delete_all(going)
                yield from remains.seek(scope, [key for key, _ in going])  # hints may be of either form by now
                yield from remains.done(scope, name)
            sources = []
            for key in keys:
                sources.append((yield from self.places(key))[0])
            left = zip(sources, (yield from self.plain.remains(sources)), strict=True)
            yield from self.plain.delete_all([(source, row) for source, row in left if row is not None])
            if len(docs) < _PAGE:
                return
            after = docs[-1].key

    def _docs(self, scope: Scope) -> Op[int]:
        found = 0
        for name in SPACES:
            where, after = space(scope, name), b""
            while True:
                docs = yield from self.plain.docs(where, b"", after, _PAGE)
                for doc in docs:
                    new = yield from self.turned(scope, name, doc)
                    if new is not None:
                        found += yield from self._put_doc(scope, where, doc, new)
                if len(docs) < _PAGE:
                    break
                after = docs[-1].key
        return found

    def _put_doc(self, scope: Scope, where: bytes, old: Doc, new: Doc) -> Op[bool]:
        version = scope.core.random(8)
        if new.key == old.key:
            changes = [DocChange(new.key, new.body, version, old.version)]
        else:
            changes = [DocChange(new.key, new.body, version), DocChange(old.key, None, b"", old.version)]
        return (yield from self.plain.write_docs(where, changes))
