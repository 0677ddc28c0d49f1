"""DeltaChannel history: the writes of a checkpoint's ancestors, back to a stored value."""

from __future__ import annotations

from collections.abc import Sequence

from langgraph.checkpoint.base import DeltaChannelHistory, PendingWrite

from stepvault._core.codec import unpack
from stepvault._core.plan import Op
from stepvault._core.record import decode_record
from stepvault.checkpointers._ops.context import Address, Scope
from stepvault.checkpointers._ops.load import pending_writes, read


def delta_history(scope: Scope, at: Address, channels: Sequence[str]) -> Op[dict[str, DeltaChannelHistory]]:
    """Per channel the ancestors' writes, oldest first, and the nearest stored value as `seed`.

    Walks the parent chain of the addressed checkpoint, each ancestor once. The writes of the addressed
    checkpoint itself are pending for the next step and left out; those of the seed's checkpoint count.
    """
    known = scope.core.knowledge.of(at.key)
    collected: dict[str, list[PendingWrite]] = {channel: [] for channel in channels}
    seeds: dict[str, object] = {}
    cursor, target = at.checkpoint, True
    while target or (cursor is not None and len(seeds) < len(collected)):
        loaded, elements, _ = yield from read(scope, known, at.key, at.ns, cursor)
        if not loaded.checkpoints:
            break
        row = loaded.checkpoints[0]
        cursor = row.parent
        if target:
            target = False
            continue
        decoder = scope.decoder(elements)
        forms = decode_record(unpack(row.body)).forms
        for write in reversed(pending_writes(loaded.writes, decoder)):
            if write[1] in collected and write[1] not in seeds:
                collected[write[1]].append(write)
        for channel in collected:
            if channel not in seeds and channel in forms:
                seeds[channel] = decoder.value(forms[channel])
    return {channel: _entry(writes, seeds, channel) for channel, writes in collected.items()}


def _entry(newest_first: list[PendingWrite], seeds: dict[str, object], channel: str) -> DeltaChannelHistory:
    entry: DeltaChannelHistory = {"writes": newest_first[::-1]}
    if channel in seeds:
        entry["seed"] = seeds[channel]
    return entry
