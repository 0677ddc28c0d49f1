"""What an erasure would touch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from typing import NamedTuple

import ormsgpack

from stepvault._core.ids import text_of
from stepvault._core.plan import Op
from stepvault._core.rows import DocChange
from stepvault._core.state import State
from stepvault.checkpointers._ops import people
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.erasing.items import Items
from stepvault.checkpointers._ops.inbox import decisions
from stepvault.checkpointers._ops.spaces import space
from stepvault.checkpointers._ops.subjects import TOMBSTONES, token
from stepvault.erasure import ErasurePlan, PlannedThread
from stepvault.errors import HoldError

HOLDS = "holds"
_PAGE = 200


class _Threads(NamedTuple):
    theirs: list[PlannedThread]
    nobodys: int


def plan(scope: Scope, subject: str, items: Items, *, derived: bool = False) -> Op[ErasurePlan]:
    """Everything of a person that an erasure would touch."""
    ids = yield from people.ids_of(scope, subject)
    marks = {token(scope, name) for name in ids}
    threads = yield from _threads(scope, marks)
    namespaces = yield from items.count(lambda name: name in ids)
    decided = 0
    for mark in marks:
        decided += yield from _decisions(scope, mark)
    content = [
        sorted((thread.thread_id, thread.shared) for thread in threads.theirs),
        sorted((list(namespace), count) for namespace, count in namespaces.items()),
        decided,
    ]
    digest = hashlib.sha256(json.dumps([sorted(ids), content], sort_keys=True).encode()).hexdigest()
    other = yield from items.unattributed()
    held = yield from hold_of(scope, list(marks))
    written = None
    if derived:
        mine = {thread.thread_id for thread in threads.theirs}
        written = yield from items.derived(mine, lambda name: name in ids)
    return ErasurePlan(
        subject, ids, threads.theirs, namespaces, decided, threads.nobodys, other, held, digest, written
    )  # fmt: skip


def _threads(scope: Scope, marks: Collection[bytes]) -> Op[_Threads]:
    """Their threads and how many are nobody's, from the threads themselves: no index can be wrong about it."""
    found: list[PlannedThread] = []
    nobodys, after = 0, None
    while True:
        rows = yield from scope.core.dialect.threads(scope.tenant, _PAGE, after)
        for row in rows:
            state = State.unpack(row.extents) if row.extents else State()
            owners = set(state.subjects)
            nobodys += not owners and not state.fenced
            if not owners.isdisjoint(marks):
                found.append(PlannedThread(text_of(row.thread), not owners <= set(marks)))
        if len(rows) < _PAGE:
            return _Threads(found, nobodys)
        after = rows[-1].no


def _decisions(scope: Scope, mark: bytes) -> Op[int]:
    count, after = 0, b""
    while True:
        docs, found = yield from decisions.decided_by(scope, mark, after)
        count += len(found)
        if len(docs) < decisions.DECISIONS:
            return count
        after = docs[-1].key


def hold_of(scope: Scope, marks: Sequence[bytes]) -> Op[str | None]:
    """The reason of a hold on one of these ids, if there is one."""
    docs = yield from scope.core.dialect.get_docs(space(scope, HOLDS), marks)
    return str(ormsgpack.unpackb(docs[0].body)) if docs else None


def hold(scope: Scope, subject: str, reason: str | None) -> Op[None]:
    """Hold a person's data against erasure; None lifts the hold.

    Raises:
        HoldError: An erasure has begun already.
    """
    marks = [token(scope, name) for name in (yield from people.ids_of(scope, subject))]
    body = ormsgpack.packb(reason) if reason is not None else None
    changes = [DocChange(mark, body, scope.core.random(8)) for mark in marks]
    yield from scope.core.dialect.write_docs(space(scope, HOLDS), changes, durable=True)
    if reason is None:
        return
    for stone in (yield from scope.core.dialect.get_docs(space(scope, TOMBSTONES), marks)):
        if ormsgpack.unpackb(stone.body).get("standing"):
            raise HoldError("The hold is noted, but an erasure of this person had begun: what is gone is gone.")
