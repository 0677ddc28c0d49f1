"""Storing a checkpoint: new channel versions as elements, unchanged channels as their parent has them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata

from stepvault._core.ids import LIMITS, check_names, id_key, text_key
from stepvault._core.knowledge import View
from stepvault._core.metadata import collect, tokens
from stepvault._core.plan import Op
from stepvault._core.record import Record, encode_record, rest_of, typed_form
from stepvault._core.rows import CheckpointRow
from stepvault._core.state import State
from stepvault._core.values import INLINE_LIMIT, Encoder
from stepvault.checkpointers._ops import evolution
from stepvault.checkpointers._ops.context import Address, Scope
from stepvault.checkpointers._ops.expiry import touched
from stepvault.checkpointers._ops.guarded import elements_for, encoder_for, guard_for, settle, state_of, store
from stepvault.checkpointers._ops.inbox import index
from stepvault.checkpointers._ops.inbox.queries import withdrawing
from stepvault.checkpointers._ops.inbox.upkeep import Upkeep, on_checkpoint
from stepvault.checkpointers._ops.reads import INSIDE, Along, along
from stepvault.checkpointers._ops.subjects import NOBODY, confirm, joined, matters

_INPUT = "__start__"


def put(
    scope: Scope,
    at: Address,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
    *,
    compacts: bool = False,
) -> Op[RunnableConfig]:
    """Store a checkpoint under `at`, whose checkpoint is the parent.

    Idempotent: storing the same id again replaces it. `compacts` marks what `compact_thread` makes, which is no
    activity.
    """
    checkpoint_id = id_key("checkpoint_id", checkpoint["id"])
    _check(checkpoint)
    kept = collect(config, metadata, scope.core.credentials)
    asked = at
    if scope.core.evolution.aliases:
        at = evolution.stored_at(at, (yield from evolution.stored_space(scope, at)))
    known, values = scope.core.knowledge.of(at.key), checkpoint["channel_values"]
    inherits = _inherits(checkpoint, new_versions)
    size = sum(_weight(values[channel]) for channel in new_versions if channel in values)

    def needs(view: View) -> bool:
        return inherits and at.checkpoint is not None and (at.ns, at.checkpoint) not in view.records

    def attempt(carried: Along, view: View | None) -> Op[RunnableConfig | None]:
        encoder = encoder_for(scope, view, INLINE_LIMIT)
        parent = view.records.get((at.ns, at.checkpoint)) if view and at.checkpoint else None
        record = yield from scope.core.compute(
            lambda: record_of(scope, at, encoder, checkpoint, kept, new_versions, parent), size
        )
        upkeep = yield from _upkeep(scope, at, view, checkpoint_id, kept.get("source"), carried)
        state, names = upkeep.state, NOBODY
        if matters(scope, at, state):
            state, names = yield from joined(scope, at, state if compacts else (yield from touched(scope, at, state)))
        state = _moved(scope, state, encoder, at, checkpoint_id, compacts)
        fenced = view is not None and view.state.fenced
        guard = guard_for(scope, at, view, state)
        body = scope.core.codec.pack(encode_record(record), record=True)
        row = CheckpointRow(at.ns, checkpoint_id, at.checkpoint, *_routing(at, kept), None, record.refs(), body)
        elements = elements_for(scope, view, encoder)
        if at.run is not None and not at.ns:
            at.run.putting[at.key] = at.run.stands[at.key] = checkpoint_id
        notes = [*upkeep.notes, *names, *carried.notes]
        no = yield from scope.core.dialect.put(guard, elements, row, tokens(kept), notes)
        if no is None:
            return None
        carried.moved(state_of(view), state)
        settle(at, known, view, guard, no, state, encoder).keep(at.ns, checkpoint_id, record)
        if at.run is not None and not at.ns:
            at.run.heads[at.key] = state.run_head
        if upkeep.changed:
            yield from index.forget(scope, at.key, upkeep.changed)
        if names and (view is None or fenced):
            yield from confirm(scope, at)
        return asked.config(checkpoint["id"])

    def write(carried: Along) -> Op[RunnableConfig]:
        op = store(scope, at, known, partial(attempt, carried), needs, at.checkpoint)
        return (yield from withdrawing(scope, at.key, carried.announced, op))

    return (yield from along(scope, at, INSIDE if at.ns else checkpoint["id"], write))


def _upkeep(
    scope: Scope, at: Address, view: View | None, checkpoint_id: bytes, source: Any, carried: Along
) -> Op[Upkeep]:
    state = state_of(view)
    if not state.pending:
        return Upkeep((), state)
    upkeep = yield from on_checkpoint(scope, at, view, state, checkpoint_id, source)
    carried.announced += upkeep.announced
    return upkeep


def record_of(
    scope: Scope,
    at: Address,
    encoder: Encoder,
    checkpoint: Checkpoint,
    metadata: Mapping[str, Any],
    new_versions: ChannelVersions,
    parent: Record | None,
) -> Record:
    """The record of a checkpoint. `new_versions` names the channels to store; a new one without value is empty.

    A parent of another state version lends no values: those that did not change since were migrated when it was read.
    """
    values, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
    record = Record(
        checkpoint["v"],
        checkpoint["ts"],
        dict(versions),
        seen={node: dict(seen) for node, seen in checkpoint["versions_seen"].items()},
        updated=checkpoint.get("updated_channels"),
        rest=typed_form(scope.port, "further fields", rest_of(checkpoint)),
        metadata=typed_form(scope.port, "metadata", metadata),
        state_version=evolution.version_at(scope, at),
    )
    parent = evolution.lender(scope, at, parent)
    for channel, version in versions.items():
        if channel not in new_versions and parent is not None and parent.versions.get(channel) == version:
            form = parent.forms.get(channel, record)
            if form is not record:
                record.forms[channel] = encoder.promoted(channel, form) if type(form) is bytes else form
        elif channel == _INPUT and channel in values:
            record.forms[channel] = encoder.nested(channel, values[channel])
        elif channel in values:
            record.forms[channel] = encoder.form(channel, values[channel])
    for channel in values.keys() - versions.keys():
        record.forms[channel] = encoder.form(channel, values[channel])
    return record


def _check(checkpoint: Checkpoint) -> None:
    """Refuse names that are no text."""
    check_names("A channel", checkpoint["channel_values"])
    check_names("A channel", checkpoint["channel_versions"])
    check_names("A channel", checkpoint.get("updated_channels") or ())
    check_names("A node", checkpoint["versions_seen"])
    for seen in checkpoint["versions_seen"].values():
        check_names("A channel", seen)


def _moved(scope: Scope, state: State, encoder: Encoder, at: Address, checkpoint_id: bytes, compacts: bool) -> State:
    """The state after a checkpoint: its numbers are taken, the head of the root namespace may be it."""
    if at.ns:
        return state.with_extents(encoder.extents)
    head = max(state.head or b"", checkpoint_id)
    run_head = checkpoint_id if at.run is not None else state.run_head
    since = state.since_trim + 1 if scope.core.retention is not None else 0
    compacted = compacts if head == checkpoint_id else state.compacted
    return state.moved(encoder.extents, head, run_head, since, compacted)


def _weight(value: Any) -> int:
    """About how many bytes a value takes, without looking far into it."""
    if isinstance(value, (str, bytes, bytearray)):
        return len(value)
    return 256 * len(value) if isinstance(value, (list, dict)) else 256


def _inherits(checkpoint: Checkpoint, new_versions: ChannelVersions) -> bool:
    """Whether a channel is neither new nor given: its value is the parent's."""
    missing = checkpoint["channel_versions"].keys() - checkpoint["channel_values"].keys()
    return not missing <= new_versions.keys()


def _routing(at: Address, metadata: Mapping[str, Any]) -> tuple[bytes | None, bytes | None, int | None]:
    """The clear columns: run, source, step."""
    return run_of(at, metadata), source_key(metadata.get("source")), step_key(metadata.get("step"))


def run_of(at: Address, metadata: Mapping[str, Any] | None = None) -> bytes | None:
    """The run a row belongs to: as its metadata says, else as the run's root call said."""
    run_id = (metadata or {}).get("run_id") or (at.run.run_id if at.run else None)
    return run_key(run_id) if run_id is not None else None


def run_key(run_id: Any) -> bytes:
    """A run id as rows hold it; the end of a long one is replaced by its hash."""
    key = str(run_id).encode("utf-8", "surrogatepass")
    limit = LIMITS["checkpoint_id"]
    return key if len(key) <= limit else key[: limit - 32] + hashlib.blake2b(key, digest_size=32).digest()


def source_key(source: Any) -> bytes | None:
    """A metadata source as its column holds it, if it fits."""
    return text_key("checkpoint_id", source) if type(source) is str and len(source) < 64 else None


def step_key(step: Any) -> int | None:
    """A metadata step as its column holds it, if it fits."""
    return int(step) if isinstance(step, int) and abs(step) < 2**62 else None
