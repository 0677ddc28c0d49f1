"""What an erasure would touch."""

from __future__ import annotations

import hashlib
import json

import ormsgpack

from stepvault._core.ids import text_of
from stepvault._core.plan import Op
from stepvault._core.rows import DocChange
from stepvault._core.state import State
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.erasing.items import Items
from stepvault.checkpointers._ops.spaces import space
from stepvault.checkpointers._ops.subjects import DECIDERS, threads_of, token
from stepvault.erasure import ErasurePlan, PlannedThread

HOLDS = "holds"
_PAGE = 200


def plan(scope: Scope, subject: str, items: Items) -> Op[ErasurePlan]:
    """Everything of a person that an erasure would touch."""
    mark = token(scope, subject)
    threads = yield from _threads(scope, subject, mark)
    namespaces = yield from items.count(subject)
    decisions = yield from _decisions(scope, mark)
    content = [
        sorted((thread.thread_id, thread.shared) for thread in threads),
        sorted((list(namespace), count) for namespace, count in namespaces.items()),
        decisions,
    ]
    digest = hashlib.sha256(json.dumps([subject, content], sort_keys=True).encode()).hexdigest()
    unattributed = yield from _unattributed(scope)
    held = yield from hold_of(scope, mark)
    return ErasurePlan(subject, threads, namespaces, decisions, unattributed, held, digest)


def _threads(scope: Scope, subject: str, mark: bytes) -> Op[list[PlannedThread]]:
    found: list[PlannedThread] = []
    after = b""
    while True:
        hints = yield from threads_of(scope, subject, after)
        for place, key in hints:
            after = place
            loaded = yield from scope.core.dialect.load(key, b"", b"\x00", None)
            state = State.unpack(loaded.thread.extents) if loaded.thread else State()
            if mark in state.subjects:
                found.append(PlannedThread(text_of(key.thread), len(state.subjects) > 1))
        if not hints:
            return found


def _decisions(scope: Scope, mark: bytes) -> Op[int]:
    count, after = 0, b""
    while True:
        docs = yield from scope.core.dialect.docs(space(scope, DECIDERS), mark, after, _PAGE)
        count += len(docs)
        if len(docs) < _PAGE:
            return count
        after = docs[-1].key


def _unattributed(scope: Scope) -> Op[int]:
    count, after = 0, None
    while True:
        rows = yield from scope.core.dialect.threads(scope.tenant, _PAGE, after)
        count += sum(not (row.extents and State.unpack(row.extents).subjects) for row in rows)
        if len(rows) < _PAGE:
            return count
        after = rows[-1].no


def hold_of(scope: Scope, mark: bytes) -> Op[str | None]:
    """The reason of a person's hold, if there is one."""
    docs = yield from scope.core.dialect.get_docs(space(scope, HOLDS), [mark])
    return str(ormsgpack.unpackb(docs[0].body)) if docs else None


def hold(scope: Scope, subject: str, reason: str | None) -> Op[None]:
    """Hold a person's data against erasure; None lifts the hold."""
    body = ormsgpack.packb(reason) if reason is not None else None
    change = DocChange(token(scope, subject), body, scope.core.random(8))
    yield from scope.core.dialect.write_docs(space(scope, HOLDS), [change], durable=True)
