"""DeltaChannel history: the writes of a checkpoint's ancestors, back to a stored value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from langgraph.checkpoint.base import PendingWrite

from stepvault._core.codec import unpack
from stepvault._core.plan import Op
from stepvault._core.record import decode_record
from stepvault._core.rows import CheckpointRow, WriteRow
from stepvault._core.values import Decoder
from stepvault.checkpointers._ops import evolution
from stepvault.checkpointers._ops.context import Address, Scope
from stepvault.checkpointers._ops.load import is_over_for, pending_writes, read, tuple_of

if TYPE_CHECKING:
    from langgraph.checkpoint.base import DeltaChannelHistory  # not in langgraph-checkpoint 4.0


def delta_history(scope: Scope, at: Address, channels: Sequence[str]) -> Op[dict[str, DeltaChannelHistory]]:
    """Per channel the ancestors' writes, oldest first, and the nearest stored value as `seed`.

    Walks the parent chain of the addressed checkpoint, each ancestor once. The writes of the addressed
    checkpoint itself are pending for the next step and left out; those of the seed's checkpoint count.
    """
    at = evolution.stored_at(at, (yield from evolution.stored_space(scope, at)))
    known = scope.core.knowledge.of(at.key)
    collected: dict[str, list[PendingWrite]] = {channel: [] for channel in channels}
    seeds: dict[str, object] = {}
    cursor, target = at.checkpoint, True
    while target or (cursor is not None and len(seeds) < len(collected)):
        loaded, elements, _ = yield from read(scope, known, at.key, at.ns, cursor)
        if not loaded.checkpoints or loaded.thread is None or (yield from is_over_for(scope, at, loaded.thread)):
            break
        row = loaded.checkpoints[0]
        cursor = row.parent
        if target:
            target = False
            continue
        values, writes = _stored(scope, at, row, loaded.writes, scope.decoder(elements))
        for write in reversed(writes):
            if write[1] in collected and write[1] not in seeds:
                collected[write[1]].append(write)
        for channel in collected:
            if channel not in seeds and channel in values:
                seeds[channel] = values[channel]()
    return {channel: _entry(writes, seeds, channel) for channel, writes in collected.items()}


def _stored(
    scope: Scope, at: Address, row: CheckpointRow, writes: list[WriteRow], decoder: Decoder
) -> tuple[Mapping[str, Callable[[], object]], list[PendingWrite]]:
    """The values and writes of an ancestor, values decoded when called; brought up to date where that is needed."""
    if scope.core.evolution:
        found = tuple_of(scope, at.key, row, writes, decoder)
        values = found.checkpoint["channel_values"]
        return {channel: partial(values.get, channel) for channel in values}, found.pending_writes or []
    forms = decode_record(unpack(row.body)).forms
    pending, _ = pending_writes(writes, decoder)
    return {channel: partial(decoder.value, form) for channel, form in forms.items()}, pending


def _entry(newest_first: list[PendingWrite], seeds: dict[str, object], channel: str) -> DeltaChannelHistory:
    entry: DeltaChannelHistory = {"writes": newest_first[::-1]}
    if channel in seeds:
        entry["seed"] = seeds[channel]
    return entry
