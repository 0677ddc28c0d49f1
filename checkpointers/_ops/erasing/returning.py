"""People who come back: let in again by themselves, or brought back by a restore, which they are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ormsgpack

from stepvault._core.plan import Call, Op
from stepvault._core.rows import DocChange
from stepvault.checkpointers._ops import people
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.erasing import requests
from stepvault.checkpointers._ops.erasing.requests import Request
from stepvault.checkpointers._ops.erasing.steps import Eraser, advance
from stepvault.checkpointers._ops.inbox import decisions
from stepvault.checkpointers._ops.spaces import space
from stepvault.checkpointers._ops.subjects import SUBJECTS, TOMBSTONES, token
from stepvault.erasure import ErasureRequest


def readmit(scope: Scope, eraser: Eraser, subject: str) -> Op[None]:
    """Let a person who was erased come back: what they write from now on is stored."""
    for name in (yield from people.ids_of(scope, subject)):
        mark = token(scope, name)
        if (yield from _lift(scope, eraser, mark)) and eraser.journal is not None:
            now = yield from scope.core.dialect.now()
            line = {"token": mark.hex(), "tenant": scope.tenant.hex(), "readmitted": True, "at": now}
            yield Call(lambda line=line: eraser.journal(line))  # type: ignore[misc]


def _lift(scope: Scope, eraser: Eraser, mark: bytes) -> Op[bool]:
    """Have a tombstone stand no more; whether it did. The store's goes first: if this is killed, it is done again."""
    yield from eraser.items.refuse([mark], erased=False)
    docs = yield from scope.core.dialect.get_docs(space(scope, TOMBSTONES), [mark])
    stone = ormsgpack.unpackb(docs[0].body) if docs else {}
    if not stone.get("standing"):
        return False
    change = DocChange(mark, ormsgpack.packb({**stone, "standing": False}), scope.core.random(8))
    yield from scope.core.dialect.write_docs(space(scope, TOMBSTONES), [change], durable=True)
    return True


def reconcile(scope: Scope, eraser: Eraser, journaled: Sequence[dict[str, Any]]) -> Op[list[ErasureRequest]]:
    """Erase again whom the journal says to be erased, where the database does not know it (any more).

    Names are not in the journal; tokens find threads and namespaces all the same. What becomes of threads is what was
    chosen then.
    """
    last = {bytes.fromhex(line["token"]): line for line in journaled}
    erased = {bytes.fromhex(line["token"]): line for line in journaled if not line.get("readmitted")}
    lost: list[bytes] = []
    for mark in erased:
        if not (yield from _is_known(scope, eraser, mark)):
            lost.append(mark)
    done: list[ErasureRequest] = []
    for mark in lost:
        now = yield from scope.core.dialect.now()
        shared, own = erased[mark].get("shared", "keep"), erased[mark].get("own", "erase")
        made = Request(scope.core.random(16).hex(), "received", [], [mark], shared, "reconcile", now, own=own)
        made = yield from requests.create(scope, made)
        done.append((yield from advance(scope, eraser, made.id)).shown())
    for mark, line in last.items():
        if line.get("readmitted") and mark in lost:
            yield from _lift(scope, eraser, mark)
    return done


def _is_known(scope: Scope, eraser: Eraser, mark: bytes) -> Op[bool]:
    """Whether the database has the tombstone, and nothing of the person that it should not have.

    The store is told again of those that stand: its own may be lost where it lies in other places.
    """
    stones = yield from scope.core.dialect.get_docs(space(scope, TOMBSTONES), [mark])
    if not stones:
        return False
    if not ormsgpack.unpackb(stones[0].body).get("standing"):
        return True
    yield from eraser.items.refuse([mark])
    _, decided = yield from decisions.decided_by(scope, mark, b"")
    return not decided and not (yield from scope.core.dialect.docs(space(scope, SUBJECTS), mark, b"", 1))
