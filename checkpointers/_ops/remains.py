"""What sweeps leave that are killed: hints to threads that are no more, which nothing but the threads could name.

A sweep notes which threads it is about to remove, in a doc of its own, and drops that when nothing is left of them. So
a note that is older than that takes says that hints may be left. They are sought by looking through all there are;
that is slow, and happens after a crash alone.
"""

from __future__ import annotations

from collections.abc import Iterable

import ormsgpack

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.rows import Doc, DocChange, ThreadRow
from stepvault._core.state import State
from stepvault.checkpointers._ops import effect_hints, reads, subjects
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.expiry import MINUTE
from stepvault.checkpointers._ops.inbox import index
from stepvault.checkpointers._ops.spaces import drop_docs, space

SPACE = "sweeps"
GRACE = 5 * MINUTE  # a sweep that began longer ago with a page of threads, and has not ended it, was killed
_PAGE = 500
_LEADING = {index.SPACE: 0, effect_hints.SPACE: 0, subjects.SUBJECTS: 1, subjects.DECIDERS: 0}  # where threads stand


def note(scope: Scope, sweep: bytes, threads: Iterable[ThreadKey], now: int) -> Op[None]:
    """Note which threads a sweep is about to remove; what it noted before is done."""
    body = ormsgpack.packb([now, [key.thread for key in threads]])
    yield from scope.core.dialect.write_docs(space(scope, SPACE), [DocChange(sweep, body, scope.core.random(8))])


def done(scope: Scope, sweep: bytes) -> Op[None]:
    """Nothing is left of what a sweep noted."""
    yield from drop_docs(scope, SPACE, [sweep])


def clear(scope: Scope, now: int) -> Op[None]:
    """Remove what is left of threads that killed sweeps removed."""
    after = b""
    while True:
        docs = yield from scope.core.dialect.docs(space(scope, SPACE), b"", after, _PAGE)
        for doc in docs:
            began, threads = ormsgpack.unpackb(doc.body)
            if began <= now - GRACE:
                yield from seek(scope, [ThreadKey(scope.tenant, thread) for thread in threads])
                gone = DocChange(doc.key, None, b"", doc.version)  # a slow sweep may have noted its next threads there
                yield from scope.core.dialect.write_docs(space(scope, SPACE), [gone])
        if len(docs) < _PAGE:
            return
        after = docs[-1].key


def seek(scope: Scope, keys: list[ThreadKey]) -> Op[None]:
    """Remove whatever leads to those of these threads that are no more, and their memory, by looking through all."""
    found = yield from scope.core.dialect.notes_at([(key, b"") for key in keys])
    gone = {key.thread: key for key, (row, _) in zip(keys, found, strict=True) if is_gone(row)}
    if gone:
        yield from reads.forget_all(scope, [(key, ()) for key in gone.values()])
        for name, place in _LEADING.items():
            yield from _drop_hints(scope, name, place, gone)


def is_gone(row: ThreadRow | None) -> bool:
    """Whether there is no thread, or an empty one in its place."""
    return row is None or State.unpack(row.extents).fenced


def _drop_hints(scope: Scope, name: str, place: int, gone: dict[bytes, ThreadKey]) -> Op[None]:
    """Drop every hint of a space that leads to one of these threads, unless it is there again."""
    after = b""
    while True:
        docs = yield from scope.core.dialect.docs(space(scope, name), b"", after, _PAGE)
        led = [(doc, gone[thread]) for doc in docs if (thread := _thread_of(doc, place)) in gone]
        found = yield from scope.core.dialect.notes_at([(key, b"") for _, key in led])
        for (doc, _), (row, _) in zip(led, found, strict=True):
            if is_gone(row):
                change = DocChange(doc.key, None, b"", doc.version)
                yield from scope.core.dialect.write_docs(space(scope, name), [change])
        if len(docs) < _PAGE:
            return
        after = docs[-1].key


def _thread_of(doc: Doc, place: int) -> bytes:
    return b"" if doc.key == index.COUNTER else ormsgpack.unpackb(doc.body)[place]
