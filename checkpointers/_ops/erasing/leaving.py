"""Memory of threads that are anonymised: noted before and deleted after, so that no other change takes it along.

Who is killed in between leaves the note in the request. A thread that has another generation by then was anonymised
or removed, and its memory goes; one that has not was spared, and keeps it.
"""

from __future__ import annotations

from dataclasses import replace

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.rows import ThreadRow
from stepvault._core.state import State
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.erasing import requests
from stepvault.checkpointers._ops.erasing.items import Items
from stepvault.checkpointers._ops.erasing.requests import Request


def with_memory(
    scope: Scope, items: Items, request_id: str, key: ThreadKey, thread: ThreadRow, change: Op[bool]
) -> Op[tuple[bool, int]]:
    """Delete the memory of a thread after a change of it, if that was made; how many items it had."""
    if not items.has_scopes:
        return (yield from change), 0
    entry = [bytes(key.thread), _generation(thread)]
    yield from _note(scope, request_id, entry, gone=False)
    done = yield from change
    count = (yield from items.delete_scopes([key])) if done else 0
    yield from _note(scope, request_id, entry, gone=True)
    return done, count


def _note(scope: Scope, request_id: str, entry: list[bytes], *, gone: bool) -> Op[None]:
    def alter(present: Request) -> Request:
        others = [other for other in present.leaving if other[0] != entry[0]]
        return replace(present, leaving=others if gone or present.state != "tombstoned" else [*others, entry])

    yield from requests.change(scope, request_id, alter)


def settle(scope: Scope, items: Items, request_id: str) -> Op[int]:
    """After all threads were seen to: delete the memory that killed workers have left; how many items there were."""
    entries = (yield from requests.get(scope, request_id)).leaving
    keys = [ThreadKey(scope.tenant, thread) for thread, _ in entries]
    found = yield from scope.core.dialect.notes_at([(key, b"") for key in keys])
    changed = [
        key
        for key, (_, generation), (thread, _) in zip(keys, entries, found, strict=True)
        if thread is None or _generation(thread) != generation
    ]
    return (yield from items.delete_scopes(changed))


def _generation(thread: ThreadRow) -> bytes:
    return State.unpack(thread.extents).generation(bytes(thread.uid))
