"""Going back to a checkpoint that can be read: a fork of it becomes the head."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple

from stepvault._core.chunks import unpack_row
from stepvault._core.codec import unpack
from stepvault._core.ids import id_key, id_of, text_of
from stepvault._core.plan import Op
from stepvault._core.record import Record, decode_record
from stepvault._core.rows import Loaded
from stepvault._core.state import State
from stepvault._core.values import Decoder
from stepvault.checkpointers._ops.context import Address, Scope, config_of
from stepvault.checkpointers._ops.load import tuple_of
from stepvault.checkpointers._ops.put import put
from stepvault.errors import ConfigurationError, PayloadError


def repair(scope: Scope, thread_id: Any, to: str, fresh: str) -> Op[str]:
    """Store a copy of a checkpoint as the head; returns its id.

    Like LangGraph's own copies it stands beside the original, under the same parent: what DeltaChannels are rebuilt
    from is the same. What was under way at the original begins anew.

    Raises:
        ConfigurationError: The thread has no such checkpoint.
        PayloadError: It cannot be read either; nothing was changed.
    """
    key = scope.key(thread_id)
    loaded = yield from scope.core.dialect.load(key, b"", id_key("checkpoint_id", to), None)
    if loaded.thread is None or not loaded.checkpoints:
        raise ConfigurationError(f"Thread {text_of(key.thread)!r} has no checkpoint {to!r} to go back to.")
    row = loaded.checkpoints[0]
    scope = as_stored(scope, decode_record(unpack(row.body)))
    found = tuple_of(scope, key, row, loaded.writes, _decoder(scope, loaded))
    parent = row.parent
    if parent is not None and not (yield from _is_readable(scope, Address(key, b"", parent, None))):
        if found.metadata.get("counters_since_delta_snapshot"):
            raise PayloadError(f"Checkpoint {to!r} is rebuilt from its parent, which cannot be read; choose another.")
        parent = None
    head = State.unpack(loaded.thread.extents).head
    checkpoint_id = fresh if head is None or id_key("checkpoint_id", fresh) > head else after(id_of(head))
    checkpoint = cast(Checkpoint, {**found.checkpoint, "id": checkpoint_id})
    at = Address(key, b"", parent, None)
    config: RunnableConfig = {"configurable": {"thread_id": text_of(key.thread)}}
    if parent is not None:
        config = config_of(key, b"", id_of(parent))
    yield from put(scope, at, config, checkpoint, _metadata(found, to), checkpoint["channel_versions"])
    scope.tell("repaired", key=key)
    return checkpoint_id


def as_stored(scope: Scope, record: Record) -> Scope:
    """Without the application's options a state keeps the version it has."""
    if scope.core.evolution.version is not None or record.state_version is None:
        return scope
    evolution = replace(scope.core.evolution, version=record.state_version)
    return replace(scope, core=replace(scope.core, evolution=evolution))


def _is_readable(scope: Scope, at: Address) -> Op[bool]:
    try:
        loaded = yield from scope.core.dialect.load(at.key, at.ns, at.checkpoint, None)
        for row in loaded.checkpoints:
            tuple_of(scope, at.key, row, loaded.writes, _decoder(scope, loaded))
    except PayloadError:
        return False
    return bool(loaded.checkpoints)


def _decoder(scope: Scope, loaded: Loaded) -> Decoder:
    elements: dict[int, bytes] = {}
    for chunk in loaded.chunks:
        unpack_row(chunk, elements)
    return scope.decoder(elements)


def _metadata(found: CheckpointTuple, to: str) -> CheckpointMetadata:
    step = found.metadata.get("step")
    return cast(
        CheckpointMetadata,
        {**found.metadata, "source": "fork", "step": step + 1 if type(step) is int else 0, "repaired_from": to},
    )


def after(head: str) -> str:
    """An id greater than the head, which a clock ahead of ours has made."""
    digits = head.replace("-", "")
    try:
        following = f"{int(digits, 16) + 1:032x}"
    except ValueError:
        return head + "0"
    if len(digits) != 32 or len(following) != 32:
        return head + "0"
    return "-".join((following[:8], following[8:12], following[12:16], following[16:20], following[20:]))
