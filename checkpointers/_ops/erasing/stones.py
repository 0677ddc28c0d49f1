"""Tombstones: what closes the door behind a person. One keeps what stood there before, of an earlier erasure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import ormsgpack

from stepvault._core.plan import Op
from stepvault._core.rows import DocChange
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.spaces import space
from stepvault.checkpointers._ops.subjects import SUBJECTS, TOMBSTONES

Stone: TypeAlias = "dict[str, Any]"
_PAGE = 500


def read(scope: Scope, marks: Sequence[bytes]) -> Op[dict[bytes, Stone]]:
    """The tombstones of these people, those of people who were let in again too."""
    docs = yield from scope.core.dialect.get_docs(space(scope, TOMBSTONES), marks)
    return {doc.key: ormsgpack.unpackb(doc.body) for doc in docs}


def standing(scope: Scope) -> Op[dict[bytes, Stone]]:
    """Every tombstone that stands."""
    found: dict[bytes, Stone] = {}
    after = b""
    while True:
        docs = yield from scope.core.dialect.docs(space(scope, TOMBSTONES), b"", after, _PAGE)
        found.update((doc.key, stone) for doc in docs if (stone := ormsgpack.unpackb(doc.body)).get("standing"))
        if len(docs) < _PAGE:
            return found
        after = docs[-1].key


def bring(scope: Scope, brought: Mapping[bytes, Stone]) -> Op[list[bytes]]:
    """Write tombstones of another database, of whom this one knows nothing at all; whose they are."""
    present = yield from read(scope, list(brought))
    shut: list[bytes] = []
    for mark in brought.keys() - present.keys():
        if not (yield from scope.core.dialect.docs(space(scope, SUBJECTS), mark, b"", 1)):
            shut.append(mark)
    yield from _write(scope, {mark: brought[mark] for mark in shut})
    return shut


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


def _write(scope: Scope, stones: Mapping[bytes, Any]) -> Op[None]:
    changes = [
        DocChange(mark, None if stone is None else ormsgpack.packb(stone), scope.core.random(8))
        for mark, stone in stones.items()
    ]
    if changes:
        yield from scope.core.dialect.write_docs(space(scope, TOMBSTONES), changes, durable=True)
