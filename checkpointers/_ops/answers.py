"""Answers are used once: which stored `__resume__` values a run gets to see.

LangGraph keeps the answer of `Command(resume=...)` as a write of task "nobody" at the checkpoint that asked, and
gives it to the next `interrupt()` of any run that loads the checkpoint, used or not: a later `invoke(None)` then
answers question two with the answer to question one, a second click approves the next turn's question, and a replay
with another answer returns the first. The rules, each on what is stored:

1. Nobody's answer is hidden once a task has used an answer after it was given, here or in a subgraph below.
2. It is hidden where the checkpoint asks nothing.
3. A run that names an older checkpoint itself gets none of the answers that were given there or in subgraphs.

An answer that no task has used yet (the worker died in between) is still delivered.
"""

from __future__ import annotations

from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME

from stepvault._core.codec import unpack
from stepvault._core.ids import id_key
from stepvault._core.record import decode_writes
from stepvault._core.rows import CheckpointRow, WriteRow
from stepvault._core.state import State
from stepvault.checkpointers._ops.context import Address

NOBODY = id_key("task_id", "00000000-0000-0000-0000-000000000000")
_RESUME, _INTERRUPT = WRITES_IDX_MAP[RESUME], WRITES_IDX_MAP[INTERRUPT]


def unused(at: Address, row: CheckpointRow, writes: list[WriteRow], state: State) -> list[WriteRow]:
    """The writes of a checkpoint without answers that the run asking for it must not get."""
    if at.run is None:
        return writes
    if not at.ns:
        at.run.replays = at.addressed and row.id != state.head
    if not any(write.k == _RESUME for write in writes):
        return writes
    if at.run.replays:
        return [write for write in writes if write.k != _RESUME]
    if at.ns:
        return writes
    asks = any(write.k == _INTERRUPT for write in writes)
    return [write for write in writes if not _used(write, asks, state)]


def _used(write: WriteRow, asks: bool, state: State) -> bool:
    if write.k != _RESUME or write.task != NOBODY:
        return False
    return not asks or state.answered > decode_writes(unpack(write.body)).tick
