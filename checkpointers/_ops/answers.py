"""Answers are used once: which stored `__resume__` values a run gets to see.

LangGraph keeps the answer of `Command(resume=...)` as a write of task "nobody" at the checkpoint that asked, and
gives it to the next `interrupt()` of any run that loads the checkpoint, used or not: a later `invoke(None)` then
answers question two with the answer to question one, a second click approves the next turn's question, and a replay
with another answer returns the first. The rules, each on what is stored:

1. Nobody's answer is hidden once a task has used an answer after it was given, here or in a subgraph below.
2. It is hidden where the checkpoint asks nothing.
3. A run that names an older checkpoint itself gets none of the answers that were given there or in subgraphs. Its
   subgraphs begin again where they first asked, without what the asking tasks have made of their answers.

An answer that no task has used yet (the worker died in between) is still delivered.
"""

from __future__ import annotations

from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME

from stepvault._core.codec import unpack
from stepvault._core.ids import id_key
from stepvault._core.plan import Op
from stepvault._core.record import decode_writes
from stepvault._core.rows import CheckpointRow, Query, WriteRow
from stepvault._core.state import State
from stepvault.checkpointers._ops.context import Address, Scope

NOBODY = id_key("task_id", "00000000-0000-0000-0000-000000000000")
_PAGE = 50
_RESUME, _INTERRUPT = WRITES_IDX_MAP[RESUME], WRITES_IDX_MAP[INTERRUPT]


def unused(at: Address, row: CheckpointRow, writes: list[WriteRow], state: State) -> list[WriteRow]:
    """The writes of a checkpoint without answers that the run asking for it must not get."""
    if at.run is None:
        return writes
    if not at.ns and at.checkpoint is not None:  # LangGraph then looks at the head too
        at.run.replays = row.id if at.addressed and row.id != state.head else None
    if at.run.replays is not None and not (at.ns and at.bound):
        return _unanswered(writes) if at.ns else [write for write in writes if write.k != _RESUME]
    if at.ns or not any(write.k == _RESUME for write in writes):
        return writes
    asks = any(write.k == _INTERRUPT for write in writes)
    return [write for write in writes if not _used(write, asks, state)]


def _used(write: WriteRow, asks: bool, state: State) -> bool:
    if write.k != _RESUME or write.task != NOBODY:
        return False
    return not asks or state.answered > decode_writes(unpack(write.body)).tick


def _unanswered(writes: list[WriteRow]) -> list[WriteRow]:
    """The writes of tasks that did not ask."""
    asking = {write.task for write in writes if write.k in (_INTERRUPT, _RESUME)}
    return [write for write in writes if write.task not in asking]


def begins_again(scope: Scope, at: Address) -> Op[bytes | None]:
    """Where a subgraph of a replay that brings another answer begins: the checkpoint in which it first asked.

    LangGraph would go on at its newest, where every question has its old answer. None: as any other read.
    """
    run = at.run
    if run is None or run.replays is None or not at.ns or at.bound or at.ns in run.entered:
        return None
    run.entered.add(at.ns)
    first = None
    after: tuple[bytes, bytes, bytes] | None = None
    while True:
        found = yield from scope.core.dialect.page(Query(*at.key, ns=at.ns, after=after, limit=_PAGE))
        rows = [row for _, loaded in found for row in loaded.checkpoints]
        asked = {write.checkpoint for _, loaded in found for write in loaded.writes if write.k == _INTERRUPT}
        for row in rows:
            if row.id > run.replays and row.id in asked:
                first = row.id
        if len(rows) < _PAGE or rows[-1].id <= run.replays:
            return first
        after = (rows[-1].id, at.ns, at.key.thread)
