"""A whole thread out of a database and into one, row by row: for copies whose rows have to be made anew.

The metadata's tokens are derived again, as sealed databases have others than unsealed ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from stepvault._core.chunks import ChunkRow, unpack_row
from stepvault._core.codec import unpack
from stepvault._core.ids import text_of
from stepvault._core.knowledge import ThreadKey
from stepvault._core.metadata import tokens
from stepvault._core.plan import Op
from stepvault._core.record import decode_record
from stepvault._core.rows import CheckpointRow, Elements, Guard, Note, Skeleton, ThreadRow, WriteRow
from stepvault._core.values import Decoder
from stepvault.checkpointers._dialect import Dialect
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.holding import HOLD, Holding
from stepvault.checkpointers._ops.inbox.entries import lenient
from stepvault.checkpointers._ops.load import metadata_of
from stepvault.checkpointers._ops.waiting import sleeping
from stepvault.errors import ConflictError

_ROWS, _BYTES = 256, 1 << 20  # of elements, per write
_PAUSE, _PATIENCE = 0.05, 3 * HOLD  # seconds: how often to try to hold what somebody else holds, and for how long


@dataclass(frozen=True, slots=True)
class Whole:
    """Everything of a thread."""

    thread: ThreadRow
    checkpoints: Sequence[tuple[CheckpointRow, Sequence[bytes]]]  # with the tokens of their metadata
    writes: Sequence[WriteRow]
    chunks: Sequence[ChunkRow]
    notes: Sequence[Note]


def take(scope: Scope, dialect: Dialect, skeleton: Skeleton) -> Op[Whole]:
    """The rest of a thread whose skeleton was read in the same transaction."""
    numbers = [number for number, _, _ in skeleton.chunks]
    chunks = (yield from dialect.chunks(skeleton.thread, numbers)).chunks if numbers else []
    notes = yield from dialect.notes(skeleton.thread, b"")
    elements: dict[int, bytes] = {}
    for chunk in chunks:
        unpack_row(chunk, elements)
    serde = lenient()
    decoder = Decoder(scope.port if scope.port.flag or not scope.port.splits else serde, serde, elements)
    checkpoints = [(row, tokens(metadata_of(decode_record(unpack(row.body)), decoder))) for row in skeleton.checkpoints]
    return Whole(skeleton.thread, checkpoints, skeleton.writes, chunks, notes)


def give(scope: Scope, dialect: Dialect, guard: Guard, whole: Whole, holding: Holding | None = None) -> Op[bool]:
    """Make a thread of these rows; False if it exists, or was taken away meanwhile, or the holding of its source was.

    In a write transaction.
    """
    thread = yield from dialect.begin_copy(guard)
    if thread is None:
        return False
    for step in _steps(dialect, whole):
        if holding is not None and not (yield from holding.keep()):
            return False
        guard = replace(guard, thread=thread, rev=scope.core.random(8))
        if (yield from step(guard)) is None:
            return False
        thread = thread._replace(rev=guard.rev)
    return (yield from dialect.finish_copy(replace(guard, thread=thread), None if holding is None else holding.hold))


def _steps(dialect: Dialect, whole: Whole) -> Iterator[Any]:
    """The writes that fill a thread."""
    for part in _portions(whole.chunks):
        yield lambda guard, part=part: dialect.put_writes(guard, Elements(part), ())
    for _, group in groupby(sorted(whole.writes, key=place), place):
        rows = list(group)
        yield lambda guard, rows=rows: dialect.put_writes(guard, Elements(), rows)
    for row, found in whole.checkpoints:
        yield lambda guard, row=row, found=found: dialect.put(guard, Elements(), row, found)
    if whole.notes:
        yield lambda guard: dialect.put_writes(guard, Elements(), (), whole.notes)


def place(row: WriteRow) -> tuple[bytes, bytes, bytes, int]:
    """Rows with the same can be stored by one write."""
    return row.ns, row.checkpoint, row.run or b"", row.created_at or 0


def _portions(chunks: Sequence[ChunkRow]) -> Iterator[list[ChunkRow]]:
    part: list[ChunkRow] = []
    size = 0
    for chunk in chunks:
        if part and (size + len(chunk.body) > _BYTES or len(part) >= _ROWS):
            yield part
            part, size = [], 0
        part.append(chunk)
        size += len(chunk.body)
    if part:
        yield part


def read(scope: Scope, dialect: Dialect, key: ThreadKey) -> Op[Whole | None]:
    """A whole thread, or None if there is none. In a transaction, or its revision tells whether it stood still."""
    skeleton = yield from dialect.skeleton(key)
    return None if skeleton is None else (yield from take(scope, dialect, skeleton))


def read_still(scope: Scope, dialect: Dialect, key: ThreadKey) -> Op[Whole | None]:
    """A whole thread as it stood at one moment, also where there are no transactions: then its writers wait."""
    if dialect.locks:
        yield from dialect.lock(key)
        return (yield from read(scope, dialect, key))
    until = scope.core.monotonic() + _PATIENCE  # longer than a hold lasts whose holder died
    while scope.core.monotonic() < until:
        holding = Holding.of(scope, dialect, key)
        if (yield from holding.during(holding.take())):
            whole = yield from holding.during(read(scope, dialect, key))
            lasted = holding.lasted()
            yield from holding.end()
            if lasted:
                return whole
        elif (yield from dialect.notes_at([(key, b"")]))[0][0] is None:
            return None
        yield sleeping(_PAUSE)
    raise ConflictError(f"Thread {text_of(key.thread)!r} is held by others without pause; repeat later.")
