"""Removing several threads in few transactions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from typing_extensions import LiteralString

from stepvault._core.plan import Atomic, Batch, Op, Stmt
from stepvault._core.rows import Deleted, Note, ThreadRow

_DELETES = tuple(f"delete_all_{name}" for name in ("chunks", "checkpoints", "writes", "metas", "notes", "threads"))
_TOGETHER = 5000  # checkpoints


def delete_all(sql: Mapping[str, LiteralString], threads: Sequence[ThreadRow]) -> Op[list[Deleted | None]]:
    """See `Dialect`. In the order in which threads lie in the file, so that few pages are written more than once."""
    ordered = sorted(threads, key=lambda thread: thread.no)
    gone: dict[int, Deleted] = {}
    while ordered:
        removed, ordered = yield Atomic(_delete_some(sql, ordered), "write")
        gone.update(removed)
    return [gone.get(thread.no) for thread in threads]


def _delete_some(
    sql: Mapping[str, LiteralString], threads: Sequence[ThreadRow]
) -> Op[tuple[dict[int, Deleted], Sequence[ThreadRow]]]:
    """One transaction: threads from the first on, and those left. No other writer has a turn, so it is kept short."""
    (found,) = yield Batch([Stmt(sql["sizes"], (json.dumps([thread.no for thread in threads]),))])
    sizes = {no: count for no, rev, count in found}
    revs = {no: rev for no, rev, _ in found}
    end, total = 1, sizes.get(threads[0].no, 0)
    while end < len(threads) and total + sizes.get(threads[end].no, 0) <= _TOGETHER:
        total += sizes.get(threads[end].no, 0)
        end += 1
    uids = {thread.no: thread.uid for thread in threads[:end] if revs.get(thread.no) == thread.rev}
    if not uids:
        return {}, threads[end:]
    numbers = (json.dumps([*uids]),)
    rows, *_ = yield Batch([Stmt(sql[name], numbers) for name in ("notes_of_all", *_DELETES)])
    notes: dict[int, list[Note]] = {no: [] for no in uids}
    for no, key, body in rows:
        notes[no].append(Note(key, body))
    return {no: Deleted(sizes[no], uid, notes[no]) for no, uid in uids.items()}, threads[end:]
