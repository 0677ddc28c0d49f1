"""Tombstones: what closes the door behind a person. One keeps what stood there before, of an earlier erasure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import ormsgpack

from stepvault._core.plan import Op
from stepvault._core.rows import DocChange
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.spaces import space
from stepvault.checkpointers._ops.subjects import TOMBSTONES

Stone: TypeAlias = "dict[str, Any]"


def read(scope: Scope, marks: Sequence[bytes]) -> Op[dict[bytes, Stone]]:
    """The tombstones of these people, those of people who were let in again too."""
    docs = yield from scope.core.dialect.get_docs(space(scope, TOMBSTONES), marks)
    return {doc.key: ormsgpack.unpackb(doc.body) for doc in docs}


def close(scope: Scope, marks: Sequence[bytes], request_id: str, now: int) -> Op[None]:
    """Write the tombstones of a request. Idempotent."""
    present = yield from read(scope, marks)
    after: dict[bytes, Stone] = {}
    for mark in marks:
        before = present.get(mark)
        if before is not None and before.get("request") == request_id:
            before = before.get("before")
        stone = {"standing": True, "request": request_id, "at": now}
        after[mark] = stone if before is None else {**stone, "before": before}
    yield from _write(scope, after)


def take_back(scope: Scope, marks: Sequence[bytes], request_id: str) -> Op[None]:
    """Remove the tombstones of a request that does not begin after all; what stood there before stands again."""
    present = yield from read(scope, marks)
    yield from _write(
        scope,
        {mark: stone.get("before") for mark, stone in present.items() if stone.get("request") == request_id},
    )


def lift(scope: Scope, mark: bytes, stone: Stone) -> Op[None]:
    """Have a tombstone stand no more."""
    yield from _write(scope, {mark: {**stone, "standing": False}})


def _write(scope: Scope, stones: dict[bytes, Any]) -> Op[None]:
    changes = [
        DocChange(mark, None if stone is None else ormsgpack.packb(stone), scope.core.random(8))
        for mark, stone in stones.items()
    ]
    if changes:
        yield from scope.core.dialect.write_docs(space(scope, TOMBSTONES), changes, durable=True)
