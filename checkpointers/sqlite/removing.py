"""Removing several threads in one transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from typing_extensions import LiteralString

from stepvault._core.plan import Batch, Op, Stmt
from stepvault._core.rows import Deleted, Note, ThreadRow

_DELETES = tuple(f"delete_all_{name}" for name in ("chunks", "checkpoints", "writes", "metas", "notes", "threads"))
_TOGETHER = 5000  # checkpoints


def delete_all(sql: Mapping[str, LiteralString], threads: Sequence[ThreadRow]) -> Op[list[Deleted | None]]:
    """See `Dialect`. No other writer has a turn meanwhile, so what is large is left to transactions of its own."""
    asked = json.dumps([thread.no for thread in threads])
    (found,) = yield Batch([Stmt(sql["sizes"], (asked,))])
    sizes = {no: (rev, count) for no, rev, count in found}
    counts: dict[int, int] = {}
    total = 0
    for thread in threads:
        rev, count = sizes.get(thread.no, (None, 0))
        if rev == thread.rev and total + count <= _TOGETHER:
            total += count
            counts[thread.no] = count
    if not counts:
        return [None] * len(threads)
    numbers = (json.dumps([*counts]),)
    rows, *_ = yield Batch([Stmt(sql[name], numbers) for name in ("notes_of_all", *_DELETES)])
    notes: dict[int, list[Note]] = {no: [] for no in counts}
    for no, key, body in rows:
        notes[no].append(Note(key, body))
    return [
        Deleted(counts[thread.no], thread.uid, notes[thread.no]) if thread.no in counts else None for thread in threads
    ]
