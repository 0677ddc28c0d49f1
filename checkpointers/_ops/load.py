"""Reading checkpoints: one, and what the reader learns from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from langgraph.checkpoint.base import (
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    PendingWrite,
)

from stepvault._core.chunks import unpack_row
from stepvault._core.codec import unpack
from stepvault._core.ids import id_of, text_of
from stepvault._core.knowledge import Known, ThreadKey, View
from stepvault._core.manifest import unpack_pages
from stepvault._core.plan import Op
from stepvault._core.record import Record, TaskWrites, decode_record, decode_writes
from stepvault._core.rows import CheckpointRow, Held, Loaded, ThreadRow, WriteRow
from stepvault._core.state import State
from stepvault._core.values import Decoder
from stepvault.checkpointers._ops import answers, evolution, permits
from stepvault.checkpointers._ops.context import Address, Scope, config_of
from stepvault.checkpointers._ops.evolution import Renames
from stepvault.checkpointers._ops.expiry import is_expired
from stepvault.errors import PayloadError, TruncatedError


def get_tuple(scope: Scope, at: Address, known: Known | None = None) -> Op[CheckpointTuple | None]:
    """One checkpoint with its pending writes; None if there is none."""
    known = known or scope.core.knowledge.of(at.key)
    space = (yield from evolution.stored_space(scope, at)) if scope.core.evolution else None
    if space is not None:
        at = evolution.stored_at(at, space)
    checkpoint = at.checkpoint
    if checkpoint is None and at.run is not None:
        checkpoint = yield from answers.begins_again(scope, at)
    loaded, elements, view = yield from read(scope, known, at.key, at.ns, checkpoint)
    state = _state_of(loaded.thread, view) if loaded.thread else State()
    if state.expires_at is not None and loaded.thread and (yield from is_over_for(scope, at, loaded.thread, state)):
        loaded, state = Loaded(), State()
    if at.run is not None:
        yield from permits.may_load(scope, at, state)
        at.run.note(at.key, state.generation(loaded.thread.uid) if loaded.thread else None)
        if not at.ns:
            at.run.heads.setdefault(at.key, state.run_head)  # what it loads later may be older than what it has put
    if not loaded.checkpoints:
        return None
    row = loaded.checkpoints[0]
    if at.run is not None and not at.ns:
        at.run.stands[at.key] = row.id
    writes = answers.unused(at, row, loaded.writes, state)
    decoder = scope.decoder(elements)
    size = view.size if view is not None else sum(map(len, elements.values()))
    renames = None
    if space is not None:
        renames = yield from evolution.renames_of(scope, at.key, row, loaded.writes, decoder, space)
        evolution.note(at, renames)
    runs = at.run is not None
    return (
        yield from scope.core.compute(
            lambda: tuple_of(scope, at.key, row, writes, decoder, renames=renames, runs=runs), size
        )
    )


def _state_of(thread: ThreadRow, view: View | None) -> State:
    """The state in a thread row; a view at its revision has it unpacked."""
    if view is not None:
        state = view.state  # before the revision, which a writer that moves the view on changes first
        if view.rev == thread.rev:
            return state
    return State.unpack(thread.extents)


def is_over_for(scope: Scope, at: Address, thread: ThreadRow, state: State | None = None) -> Op[bool]:
    """Whether the thread has expired for this reader; the run that loaded it before may still finish."""
    state = state or State.unpack(thread.extents)
    mine = at.run is not None and at.run.loaded.get(at.key) == state.generation(thread.uid)
    return not mine and (yield from is_expired(scope.core, state))


class Reading(NamedTuple):
    """What a read returned, every element it needs, and the view it leaves (None: there is no thread)."""

    loaded: Loaded
    elements: Mapping[int, bytes]
    view: View | None


def read(
    scope: Scope, known: Known, key: ThreadKey, ns: bytes, checkpoint: bytes | None, *, writer: bool = False
) -> Op[Reading]:
    """Read a checkpoint and take in what the answer teaches.

    While a writer is at work its view stays: it knows better, or will be told so by the database.
    """
    view = known.view
    held = Held(view.rev, view.pages) if view else None
    loaded = yield from scope.core.dialect.load(key, ns, checkpoint, held)
    fresh: dict[int, bytes] = {}
    for chunk in loaded.chunks:
        unpack_row(chunk, fresh)
    thread, replace = loaded.thread, writer or not known.busy
    if thread is None:
        if replace:
            known.view = None
        return Reading(loaded, fresh, None)
    left_out = view.elements if view and held and held.rev == thread.rev else {}
    if view is None or view.rev != thread.rev:
        view = view_of(thread)
        if left_out:  # a writer moved the view on while we read what it was
            return Reading(loaded, {**left_out, **fresh}, view)
    view.remember(fresh, scope.core.knowledge.seed)
    if loaded.chunks:  # else every page of these rows is at hand already
        for refs in loaded.refs():
            for low, high in unpack_pages(refs):
                view.pages.update(range(low, high + 1))
    if replace:
        known.view = view
    return Reading(loaded, view.elements, view)


def view_of(thread: ThreadRow) -> View:
    """An empty view of a thread at its present revision."""
    return View(thread.no, thread.uid, thread.rev, State.unpack(thread.extents))


def tuple_of(
    scope: Scope,
    key: ThreadKey,
    row: CheckpointRow,
    writes: list[WriteRow],
    decoder: Decoder,
    *,
    renames: Renames | None = None,
    runs: bool = False,
) -> CheckpointTuple:
    """Decode a checkpoint and its writes, and bring them up to date.

    Args:
        scope: The saver's view.
        key: The thread.
        row: The checkpoint.
        writes: Its writes.
        decoder: With every element they need.
        renames: What its tasks are called now, if that may have changed.
        runs: Whether a run goes on from it.

    Raises:
        PayloadError: Names the thread and checkpoint that cannot be read.
    """
    checkpoint_id = id_of(row.id)
    try:
        record = decode_record(unpack(row.body))
        if runs and not row.ns:
            scope.core.evolution.check_writable(record.state_version)
        bodies = [(row, decode_writes(unpack(row.body))) for row in writes]
        written_forms = [write.form for _, body in bodies for write in body.writes]
        decoder.look_ahead([*record.forms.values(), record.rest, record.metadata, *written_forms])
        pending, written = _pending(bodies, decoder)
        found = CheckpointTuple(
            config=config_of(key, row.ns, checkpoint_id),
            checkpoint=checkpoint_of(checkpoint_id, record, decoder),
            metadata=metadata_of(record, decoder),
            parent_config=config_of(key, row.ns, id_of(row.parent)) if row.parent else None,
            pending_writes=pending,
        )
        if not scope.core.evolution:
            return found
        known = renames or Renames.none(text_of(row.ns))
        return evolution.evolved(scope.core.evolution, record, found, written, known)
    except (PayloadError, UnicodeDecodeError) as exc:
        named = (
            exc if isinstance(exc, PayloadError) else TruncatedError("An id is damaged; restore the row from a backup.")
        )
        named.args = (f"Thread {text_of(key.thread)!r}, checkpoint {checkpoint_id!r}: {named}",)
        raise named from exc.__cause__


def checkpoint_of(checkpoint_id: str, record: Record, decoder: Decoder) -> Checkpoint:
    """A checkpoint as LangGraph knows it."""
    checkpoint: dict[str, Any] = {
        "v": record.v,
        "ts": record.ts,
        "id": checkpoint_id,
        "channel_values": values_of(record, decoder),
        "channel_versions": record.versions,
        "versions_seen": record.seen,
        **(decoder.value(record.rest) or {}),
        "updated_channels": record.updated,
    }
    return cast(Checkpoint, checkpoint)


def values_of(record: Record, decoder: Decoder) -> dict[str, Any]:
    """Channel values; a failure names its channel."""
    values: dict[str, Any] = {}
    for channel, form in record.forms.items():
        try:
            values[channel] = decoder.value(form)
        except PayloadError as exc:
            exc.args = (f"channel {channel!r}: {exc}",)
            raise
    return values


def metadata_of(record: Record, decoder: Decoder) -> CheckpointMetadata:
    """The metadata of a checkpoint."""
    return cast(CheckpointMetadata, decoder.value(record.metadata) or {})


def pending_writes(rows: list[WriteRow], decoder: Decoder) -> tuple[list[PendingWrite], list[int | None]]:
    """Writes of one checkpoint in the order in which LangGraph applies them, and the state version of each."""
    return _pending([(row, decode_writes(unpack(row.body))) for row in rows], decoder)


def _pending(
    bodies: list[tuple[WriteRow, TaskWrites]], decoder: Decoder
) -> tuple[list[PendingWrite], list[int | None]]:
    decoded = []
    for row, (path, writes, _, version) in bodies:
        task = id_of(row.task)
        # As LangGraph's `writes_sort_key` has it, which is not in 4.0.
        decoded += [((path, task, write.idx), task, write, version) for write in writes]
    decoded.sort(key=lambda entry: entry[0])
    pending = [(task, write.channel, decoder.value(write.form)) for _, task, write, _ in decoded]
    return pending, [version for *_, version in decoded]
