"""Threads that leave: what led to them and their memory go after them in any case, whoever is killed in between.

The hints to a person's threads stand until nothing is left of these, so who goes on comes by again. Where there is no
thread by then, nobody can tell any more what led to it: it is noted in the request, and looked for at the end. Where
another of that id stands, which is younger than the tombstone, older memory was not its. A thread that is anonymised
is noted before, with its generation: one that stands unchanged was spared, and keeps its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.rows import ThreadRow
from stepvault._core.state import State
from stepvault.checkpointers._ops import expiry, reads, remains
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.erasing import requests
from stepvault.checkpointers._ops.erasing.items import Items
from stepvault.checkpointers._ops.erasing.requests import Request
from stepvault.checkpointers._ops.spaces import drop_docs, space

_PAGE = 500


def note(scope: Scope, request_id: str, key: ThreadKey, thread: ThreadRow) -> Op[bytes]:
    """Note a thread that is about to be anonymised.

    Returns:
        What the note is known by: another worker may note the same thread.
    """
    mark = scope.core.random(8)
    entry = [bytes(key.thread), _generation(thread), (yield from scope.core.dialect.now()), mark]

    def alter(present: Request) -> Request:
        noted = [*present.leaving, entry] if present.state == "tombstoned" else present.leaving
        return replace(present, leaving=noted)

    yield from requests.change(scope, request_id, alter, durable=False)
    return mark


def missed(request: Request, keys: Sequence[ThreadKey]) -> Request:
    """A request that says of threads that they were gone before somebody could see to what led to them."""
    entries = [[bytes(key.thread), b"", request.tombstoned + 1] for key in keys]
    return replace(request, leaving=[*request.leaving, *entries]) if entries else request


def outgrow(scope: Scope, key: ThreadKey, thread: ThreadRow, since: int) -> Op[None]:
    """Take from a thread that was made since a time the memory of one that had its id before."""
    if scope.core.wired.store is not None:
        born = yield from scope.core.dialect.born(thread)
        if born is not None and born > since:
            yield from reads.forget_before(scope, key, since + 1)  # to the end of that millisecond


def with_memory(
    scope: Scope, items: Items, request_id: str, key: ThreadKey, thread: ThreadRow, change: Op[bool]
) -> Op[tuple[bool, int]]:
    """Delete the memory of a thread after a change of it, if that was made; how many items it had."""
    if not items.has_scopes:
        return (yield from change), 0
    mark = yield from note(scope, request_id, key, thread)
    done = yield from change
    count = (yield from items.delete_scopes([key])) if done else 0

    def alter(present: Request) -> Request:
        return replace(present, leaving=[entry for entry in present.leaving if mark not in entry])

    yield from requests.change(scope, request_id, alter)
    return done, count


def settle(scope: Scope, items: Items, request_id: str) -> Op[int]:
    """Remove what is left of threads whose notes still stand; how many items their memory had."""
    entries = (yield from requests.get(scope, request_id)).leaving
    keys = [ThreadKey(scope.tenant, entry[0]) for entry in entries]
    found = yield from scope.core.dialect.notes_at([(key, b"") for key in keys])
    gone: list[ThreadKey] = []
    emptied: list[ThreadKey] = []
    for key, (_, generation, *noted), (thread, _) in zip(keys, entries, found, strict=True):
        if thread is None or remains.is_gone(thread):
            gone.append(key)
        elif thread.uid != generation[:16] and noted and scope.core.wired.store is not None:
            yield from reads.forget_before(scope, key, noted[0])
        elif _generation(thread) != generation:
            emptied.append(key)
    count = yield from items.delete_scopes([*gone, *emptied])
    yield from remains.seek(scope, gone)
    return count


def _generation(thread: ThreadRow) -> bytes:
    return State.unpack(thread.extents).generation(bytes(thread.uid))


def unwatch(scope: Scope, goes: Callable[[ThreadRow], bool]) -> Op[None]:
    """Have sweeps look no more at threads that go.

    While they still stand: what tells sweeps of a thread is written before it is made, so nobody could say later
    whether it is of the one that went or of the next of that id.
    """
    after = b""
    while True:
        docs = yield from scope.core.dialect.docs(space(scope, expiry.SPACE), b"", after, _PAGE)
        if not docs:
            return
        found = yield from scope.core.dialect.notes_at([(ThreadKey(scope.tenant, doc.body), b"") for doc in docs])
        gone = [doc.key for doc, (row, _) in zip(docs, found, strict=True) if row is not None and goes(row)]
        yield from drop_docs(scope, expiry.SPACE, gone)
        after = docs[-1].key


def watch(scope: Scope, key: ThreadKey, thread: ThreadRow) -> Op[None]:
    """Have sweeps look at a thread that stays after all."""
    when = State.unpack(thread.extents).expires_at
    if when is not None:
        yield from expiry.watch(scope, key, when)
