"""Sealing a database that holds unsealed threads, while the app runs.

A marker opens a window in which processes with keys read both kinds and processes without are turned away. Thread by
thread is copied sealed, under its token and with the same generation, and deleted where it was; a thread that was
written meanwhile is copied again. When a pass finds nothing more, and every process without keys must have looked at
the marker, the window is closed. Killed anywhere, the next run goes on: what is left is found by looking.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from stepvault._core.envelope import is_sealed
from stepvault._core.ids import text_of
from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Atomic, Call, Op
from stepvault._core.rows import DocChange, Guard, Note
from stepvault._core.state import State
from stepvault._keystore import marker
from stepvault._keystore.keys import Keys
from stepvault._keystore.marker import MARKER_KEY, MARKER_SPACE
from stepvault.checkpointers._ops import admission, subjects, transfer
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.doc_marks import SPACES, marked
from stepvault.checkpointers._ops.inbox import keeping
from stepvault.checkpointers._ops.spaces import space
from stepvault.checkpointers._ops.transfer import Whole
from stepvault.checkpointers._sealed import SealedDialect
from stepvault.erasure import PurgeStep
from stepvault.errors import ConfigurationError, ConflictError

SETTLE = admission.RECHECK + 5.0  # seconds until every process has looked at the marker
_WINDOW = 600_000  # milliseconds that the marker is good for; renewed on the way
_PAGE = 100
_TRIES = 8


@dataclass(frozen=True, slots=True)
class SealProgress:
    """How far sealing got.

    Attributes:
        threads: Threads that this run sealed.
        passes: Times it went through all threads.
        conflicts: Ids of threads that exist twice, as a process without keys wrote one anew; the sealed one is read.
        purged: What was done at the end to have the unsealed rows leave files too, and what was not.
    """

    threads: int = 0
    passes: int = 0
    conflicts: tuple[str, ...] = ()
    purged: tuple[PurgeStep, ...] = ()


Report = Callable[[SealProgress], None]


def seal(scope: Scope, settle: float = SETTLE, report: Report | None = None) -> Op[SealProgress]:
    """Seal every thread of every tenant.

    Raises:
        ConfigurationError: There is no keyring, or an erasure is under way.
        ConflictError: A thread exists sealed and unsealed; delete the one that is not wanted, and run again.
    """
    core = scope.core
    if core.keys is None or not isinstance(core.dialect, SealedDialect):
        raise ConfigurationError("seal() needs a vault that was opened with keyring=.")
    yield from core.dialect.setup()
    yield from core.keys.at(core.keys.store.setup())
    run = _Run(scope, core.dialect, core.keys, report)
    if not (yield from run.renew()):
        return run.progress  # it is sealed
    core.tables.ready = True
    began = core.monotonic()
    while True:
        found = yield from run.once()
        waiting = settle - (core.monotonic() - began)
        if not found and waiting <= 0:
            break
        if not found:
            yield _sleep(min(1.0, waiting))
    if run.progress.conflicts:
        raise ConflictError(f"{len(run.progress.conflicts)} threads exist sealed and unsealed, see the progress.")
    yield from run.close()
    return run.progress


class _Run:
    """One run of `seal`."""

    def __init__(self, scope: Scope, sealed: SealedDialect, keys: Keys, report: Report | None) -> None:
        self._scope = scope
        self._sealed = sealed
        self._plain = sealed.inner
        self._keys = keys
        self._report = report
        self.progress = SealProgress()

    def renew(self) -> Op[bool]:
        """Open the window or keep it open; False if the database is sealed."""
        index = yield from self._keys.index()
        docs = yield from self._plain.get_docs(MARKER_SPACE, [MARKER_KEY])
        now = yield from self._plain.now()
        if docs:
            found = marker.Marker.of(docs[0])
            yield from self._keys.expect(found.deployment)
            if found.window is None:
                self._keys.accept_plain = False
                return False
        body = marker.sealing(index, now + _WINDOW).body()
        change = DocChange(MARKER_KEY, body, self._scope.core.random(8), docs[0].version if docs else None)
        if not (yield from self._plain.write_docs(MARKER_SPACE, [change], durable=True)):
            return (yield from self.renew())
        self._keys.accept_plain = True
        self._scope.core.tables.admitted = self._scope.core.monotonic()
        return True

    def close(self) -> Op[None]:
        """Close the window."""
        index = yield from self._keys.index()
        (doc,) = yield from self._plain.get_docs(MARKER_SPACE, [MARKER_KEY])
        change = DocChange(MARKER_KEY, marker.sealed(index).body(), self._scope.core.random(8), doc.version)
        yield from self._plain.write_docs(MARKER_SPACE, [change], durable=True)
        self._keys.accept_plain = False
        self.progress = replace(self.progress, purged=tuple((yield from self._plain.purge())))

    def once(self) -> Op[int]:
        """Seal what is not sealed yet; how much there was."""
        found = 0
        for tenant in (yield from self._plain.tenants()):
            scope = replace(self._scope, tenant=tenant)
            found += yield from self._docs(scope)
            threads = yield from self._threads(scope)
            if threads:
                yield from keeping.rebuild(scope)
            found += threads
        self.progress = replace(self.progress, passes=self.progress.passes + 1)
        return found

    # -- threads

    def _threads(self, scope: Scope) -> Op[int]:
        found, after = 0, None
        while True:
            yield from self.renew()
            rows = yield from self._plain.threads(scope.tenant, _PAGE, after)
            for thread in (yield from self._sealed.unsealed(scope.tenant, [row.thread for row in rows])):
                found += yield from self._thread(scope, ThreadKey(scope.tenant, thread))
            if len(rows) < _PAGE:
                return found
            after = rows[-1].no

    def _thread(self, scope: Scope, key: ThreadKey) -> Op[int]:
        for _ in range(_TRIES):
            once = self._once(scope, key)
            done = (yield Atomic(once, "write")) if self._plain.locks else (yield from once)
            if done is None:
                continue
            scope.core.knowledge.forget(key)
            if not done:
                known = dict.fromkeys((*self.progress.conflicts, text_of(key.thread)))
                self.progress = replace(self.progress, conflicts=tuple(known))
                return 0
            self.progress = replace(self.progress, threads=self.progress.threads + 1)
            if self._report is not None:
                self._report(self.progress)
            return 1
        return 1  # written without pause: the next pass looks again

    def _once(self, scope: Scope, key: ThreadKey) -> Op[bool | None]:
        """Seal one thread; None: it was written meanwhile, False: it exists sealed too."""
        yield from self._plain.lock(key)
        whole = yield from transfer.read(scope, self._plain, key)
        if whole is None:
            return True
        whole, state = self._converted(scope, whole)
        uid, rev = bytes(whole.thread.uid), scope.core.random(8)
        sealed = yield from transfer.give(scope, self._sealed, Guard(key, None, uid, rev, state.pack()), whole)
        if not sealed:
            return False
        if (yield from self._plain.delete(key, whole.thread.rev)) is not None:
            return True
        yield from self._sealed.withdraw(key)
        return None

    def _converted(self, scope: Scope, whole: Whole) -> tuple[Whole, State]:
        """The subjects of a thread under the tokens of a sealed database."""
        state = State.unpack(whole.thread.extents)
        names = [scope.native.loads(note.body) for note in whole.notes if note.key[:1] == subjects.PREFIX and note.body]
        people = {subjects.token(scope, name): name for name in names}
        notes = [note for note in whole.notes if note.key[:1] != subjects.PREFIX]
        notes += [Note(subjects.PREFIX + token, scope.native.dumps(name)) for token, name in people.items()]
        return replace(whole, notes=notes), replace(state, subjects=tuple(people))

    # -- docs

    def _docs(self, scope: Scope) -> Op[int]:
        found = 0
        for name in SPACES:
            where = space(scope, name)
            after = b""
            while True:
                docs = yield from self._plain.docs(where, b"", after, _PAGE)
                for doc in docs:
                    if is_sealed(doc.body):
                        continue
                    if name == "erasures" and doc.key[:1] == b"o":
                        raise ConfigurationError("An erasure is under way; finish it with vault.erasure before.")
                    found += yield from self._doc(scope, where, marked(name, doc.key, scope.mark), doc)
                if len(docs) < _PAGE:
                    break
                after = docs[-1].key
        return found

    def _doc(self, scope: Scope, where: bytes, key: bytes, doc: Any) -> Op[bool]:
        body = yield from self._sealed.sealed_doc(where, key, doc.body)
        if key == doc.key:
            changes = [DocChange(key, body, scope.core.random(8), doc.version)]
        else:
            changes = [DocChange(key, body, scope.core.random(8)), DocChange(doc.key, None, b"", doc.version)]
        return (yield from self._plain.write_docs(where, changes))


def _sleep(seconds: float) -> Call:
    return Call(lambda: time.sleep(seconds), lambda: asyncio.sleep(seconds))
