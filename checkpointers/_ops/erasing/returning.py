"""People who come back: let in again by themselves, or brought back by a restore, which they are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from stepvault._core.key_cache import SURE
from stepvault._core.plan import Call, Op
from stepvault.checkpointers._ops import people
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.erasing import requests, stones
from stepvault.checkpointers._ops.erasing.requests import Request
from stepvault.checkpointers._ops.erasing.steps import Eraser, advance
from stepvault.checkpointers._ops.erasing.stones import Stone
from stepvault.checkpointers._ops.inbox import decisions
from stepvault.checkpointers._ops.spaces import space
from stepvault.checkpointers._ops.subjects import SUBJECTS, token
from stepvault.checkpointers._ops.waiting import sleeping
from stepvault.erasure import ErasureRequest
from stepvault.errors import HoldError

Line: TypeAlias = "dict[str, Any]"  # of the journal


def readmit(scope: Scope, eraser: Eraser, subject: str) -> Op[None]:
    """Let a person who was erased come back: what they write from now on is stored."""
    for name in (yield from people.ids_of(scope, subject)):
        mark = token(scope, name)
        stone = (yield from stones.read(scope, [mark])).get(mark)
        if stone is not None:
            yield from _let_in(scope, eraser, mark, stone)


def _let_in(scope: Scope, eraser: Eraser, mark: bytes, stone: Stone) -> Op[None]:
    """The journal first: `reconcile` lets in whom it says to be let in. If this is killed, it is done again."""
    if eraser.journal is not None:
        now = yield from scope.core.dialect.now()
        line = {"token": mark.hex(), "tenant": scope.tenant.hex(), "readmitted": True, "at": now}
        yield Call(lambda: eraser.journal(line))  # type: ignore[misc]
    if stone.get("standing") and scope.core.keys is not None:
        yield sleeping(SURE)  # until no process seals with a key that the erasure has destroyed
    yield from eraser.items.refuse([mark], erased=False)
    if stone.get("standing"):
        yield from stones.lift(scope, mark, stone)


def reconcile(scope: Scope, eraser: Eraser, journaled: Sequence[Line]) -> Op[list[ErasureRequest]]:
    """Erase again whom the journal says to be erased, where the database does not know it (any more).

    Names are not in the journal; tokens find threads and namespaces all the same. What becomes of threads is what was
    chosen then. Whom the journal says to be let in again is let in. One that a hold stops is returned as it is. Items
    that nobody can read or name any more go last, whoever's they were.
    """
    last = {bytes.fromhex(line["token"]): line for line in journaled}
    erased = {bytes.fromhex(line["token"]): line for line in journaled if not line.get("readmitted")}
    lost: list[bytes] = []
    for mark, line in erased.items():
        if not (yield from _is_known(scope, eraser, mark, line)):
            lost.append(mark)
    done: list[ErasureRequest] = []
    for mark in lost:
        now = yield from scope.core.dialect.now()
        shared, own = erased[mark].get("shared", "keep"), erased[mark].get("own", "erase")
        fields = [[name.split("."), None] for name in erased[mark].get("fields", ())]
        made = Request(
            scope.core.random(16).hex(), "received", [], [mark], shared, "reconcile", now, own=own, fields=fields
        )
        made = yield from requests.create(scope, made)
        try:
            made = yield from advance(scope, eraser, made.id)
        except HoldError:
            made = yield from requests.get(scope, made.id)
        done.append(made.shown())
    yield from eraser.items.drop_shut()
    for mark, line in last.items():
        stone = (yield from stones.read(scope, [mark])).get(mark, {}) if line.get("readmitted") else {}
        if stone.get("standing") and (mark in lost or stone.get("at", 0) <= line.get("at", 0)):
            yield from _let_in(scope, eraser, mark, stone)
    return done


def _is_known(scope: Scope, eraser: Eraser, mark: bytes, line: Line) -> Op[bool]:
    """Whether the database has the tombstone, and nothing of the person that it should not have.

    One that stands no more is that of a person who was let in again: after this erasure, or after one before it.
    The store is told again of those that stand: its own may be lost where it lies in other places.
    """
    stone = (yield from stones.read(scope, [mark])).get(mark)
    if stone is None:
        return False
    if not stone.get("standing"):
        return stone.get("request") == line.get("request") or stone.get("at", 0) >= line.get("at", 0)
    yield from eraser.items.refuse([mark])
    _, decided = yield from decisions.decided_by(scope, mark, b"")
    return not decided and not (yield from scope.core.dialect.docs(space(scope, SUBJECTS), mark, b"", 1))
