"""Storing the writes of a task: the first ordinary write of an index wins, the last special one does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.types import ERROR, RESUME

from stepvault._core.codec import unpack
from stepvault._core.ids import check_names, id_key
from stepvault._core.knowledge import Known, View
from stepvault._core.plan import Op
from stepvault._core.record import decode_writes, encode_writes
from stepvault._core.rows import Elements, WriteRow
from stepvault._core.state import State
from stepvault._core.values import WRITE_INLINE_LIMIT, Encoder, Form, refs_of
from stepvault.checkpointers._ops import answers, evolution
from stepvault.checkpointers._ops.context import Address, Scope
from stepvault.checkpointers._ops.expiry import touched
from stepvault.checkpointers._ops.guarded import elements_for, encoder_for, guard_for, settle, state_of, store
from stepvault.checkpointers._ops.inbox import index
from stepvault.checkpointers._ops.inbox.queries import withdrawing
from stepvault.checkpointers._ops.inbox.upkeep import Upkeep, asks, on_writes
from stepvault.checkpointers._ops.put import run_of
from stepvault.checkpointers._ops.reads import ASKED, DONE, Along, along
from stepvault.checkpointers._ops.subjects import NOBODY, check_named, confirm, joined, matters
from stepvault.errors import ConfigurationError


def put_writes(scope: Scope, at: Address, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str) -> Op[None]:
    """Store the writes of one task at a checkpoint, which need not exist yet.

    Idempotent: an ordinary write that is stored stays as it is.

    Raises:
        ConfigurationError: The config names no checkpoint.
    """
    if at.checkpoint is None:
        raise ConfigurationError("put_writes needs the checkpoint_id that the writes belong to in its config.")
    if scope.core.evolution.aliases:
        at = evolution.stored_at(at, (yield from evolution.stored_space(scope, at)))
        task_id, task_path, writes = evolution.inward(at, task_id, task_path, writes)
    task = id_key("task_id", task_id)
    check_names("A channel", (channel for channel, _ in writes))
    indexed = [(WRITES_IDX_MAP.get(channel, idx), channel, value) for idx, (channel, value) in enumerate(writes)]
    if not indexed:
        return

    def write(carried: Along) -> Op[None]:
        if not (yield from _store_rows(scope, at, task, task_path, indexed, 0, carried)):
            ordinary = [write for write in indexed if write[0] >= 0]
            yield from _add_missing(scope, at, task, task_path, ordinary)

    yield from along(scope, at, ASKED if asks(writes) else DONE, write)


def _add_missing(scope: Scope, at: Address, task: bytes, path: str, ordinary: list[tuple[int, str, Any]]) -> Op[None]:
    """The task has ordinary writes already: add those at indexes that it does not have."""
    while True:
        loaded = yield from scope.core.dialect.load(at.key, at.ns, at.checkpoint, None)
        mine = [row for row in loaded.writes if row.task == task and row.k >= 0]
        stored = {write.idx for row in mine for write in decode_writes(unpack(row.body)).writes}
        missing = [write for write in ordinary if write[0] not in stored]
        if not missing:
            return
        k = max((row.k for row in mine), default=-1) + 1
        if (yield from _store_rows(scope, at, task, path, missing, k, Along())):
            return


def _store_rows(
    scope: Scope, at: Address, task: bytes, path: str, writes: list[tuple[int, str, Any]], k: int, carried: Along
) -> Op[bool]:
    """Store writes as one row for ordinary channels and one per special channel; False if the former exists."""
    known = scope.core.knowledge.of(at.key)
    plain = [(channel, value) for _, channel, value in writes]
    asking = asks(plain)

    def attempt(view: View | None) -> Op[bool | None]:
        if view is None and asking:  # what announces an interrupt names the revision of its thread
            yield from check_named(scope, at)
            yield from _create(scope, at, known)
            return None
        encoder = encoder_for(scope, view, WRITE_INLINE_LIMIT)
        upkeep = Upkeep((), state_of(view))
        if asking or upkeep.state.pending:
            upkeep = yield from on_writes(scope, at, view, upkeep.state, task, path, plain)
            carried.announced += upkeep.announced
        state, names = upkeep.state, NOBODY
        if matters(scope, at, state):
            state, names = yield from joined(scope, at, (yield from touched(scope, at, state)))
        state = _answered(state, task, writes)
        rows = _rows(scope, at, encoder, task, path, writes, k, state.tick)
        if encoder.elements:
            state = state.with_extents(encoder.extents)
        fenced = view is not None and view.state.fenced
        guard = guard_for(scope, at, view, state)
        elements = elements_for(scope, view, encoder)
        notes = [*upkeep.notes, *names, *carried.notes]
        stored = yield from scope.core.dialect.put_writes(guard, elements, rows, notes)
        if stored is None:
            return None
        no, fresh = stored
        carried.moved(state_of(view), state)
        settle(at, known, view, guard, no, state, encoder)
        if upkeep.changed:
            yield from index.forget(scope, at.key, upkeep.changed)
        if names and (view is None or fenced):
            yield from confirm(scope, at)
        return fresh

    stored = store(scope, at, known, attempt, lambda view: False, at.checkpoint)
    return (yield from withdrawing(scope, at.key, carried.announced, stored))


def _create(scope: Scope, at: Address, known: Known) -> Op[None]:
    """Make an empty thread; whoever else made it meanwhile did as well."""
    state = yield from touched(scope, at, State())
    guard = guard_for(scope, at, None, state)
    stored = yield from scope.core.dialect.put_writes(guard, Elements(), ())
    if stored is not None:
        settle(at, known, None, guard, stored[0], state, encoder_for(scope, None, 0))


def _answered(state: State, task: bytes, writes: list[tuple[int, str, Any]]) -> State:
    """The state after these writes: answers are numbered, and a task that has one has used it (see `answers`)."""
    if RESUME not in [channel for _, channel, _ in writes]:
        return state
    tick = state.tick + 1
    return replace(state, tick=tick, answered=state.answered if task == answers.NOBODY else tick)


def _storable(channel: str, value: Any) -> Any:
    """A failed node's exception is stored as its repr, as LangGraph's own savers do."""
    return repr(value) if channel == ERROR and isinstance(value, BaseException) else value


def _rows(
    scope: Scope,
    at: Address,
    encoder: Encoder,
    task: bytes,
    path: str,
    writes: list[tuple[int, str, Any]],
    k: int,
    tick: int,
) -> list[WriteRow]:
    groups: dict[int, list[tuple[int, str, Form]]] = {}
    for idx, channel, value in writes:
        write = (idx, channel, encoder.form(channel, _storable(channel, value)))
        if idx < 0:
            groups[idx] = [write]
        else:
            groups.setdefault(k, []).append(write)
    assert at.checkpoint is not None
    rows = []
    version, run = evolution.version_at(scope, at), run_of(at)
    for number, group in groups.items():
        refs = refs_of(form for _, _, form in group)
        body = encode_writes(path, group, tick if number == WRITES_IDX_MAP[RESUME] else 0, version)
        packed = scope.core.codec.pack(body, record=True)
        rows.append(WriteRow(at.ns, at.checkpoint, task, number, run, None, refs, packed))
    return rows
