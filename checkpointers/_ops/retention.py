"""Keeping histories to a length: what may go, and when it is looked at.

A saver with `retention=` looks at a thread once in a while as it writes (the state counts checkpoints since), and a
sweep looks at every thread. What always stays: see `Retention`.
"""

from __future__ import annotations

from collections.abc import Iterable

from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.types import INTERRUPT

from stepvault._core.ids import id_of, text_key, text_of
from stepvault._core.knowledge import ThreadKey, View
from stepvault._core.plan import Op
from stepvault._core.rows import CheckpointRow, Elements, Note, Removal, Skeleton
from stepvault.checkpointers._ops.context import Address, Scope
from stepvault.checkpointers._ops.guarded import encoder_for, guard_for, settle, state_of, store
from stepvault.checkpointers._ops.remove import Row, delta_ancestors, shrink, writes_of
from stepvault.errors import ConfigurationError
from stepvault.ttl import Retention, Trimmed

TAG = b"t"
_INTERRUPT = WRITES_IDX_MAP[INTERRUPT]
_MINUTE = 60_000
_SLACK = 4  # look again once a quarter more has come than is kept


def slack(retention: Retention) -> int:
    """How many checkpoints may come before a thread is looked at again."""
    return max(8, (retention.keep_last or 32) // _SLACK)


def trim(scope: Scope, key: ThreadKey, retention: Retention) -> Op[Trimmed]:
    """Take out of a thread what its retention does not keep."""
    loaded = yield from scope.core.dialect.load(key, b"", b"\x00", None)
    tagged: set[Row] = set()
    if loaded.thread is not None and retention.keep_tagged:
        for note in (yield from scope.core.dialect.notes(loaded.thread, TAG)):
            ns, checkpoint = scope.native.loads(note.body or b"")
            tagged.add((ns, checkpoint))
    now = yield from scope.core.dialect.now()
    done = Trimmed(0, 0)

    def choose(thread: Skeleton) -> Removal:
        nonlocal done
        removal = too_much(scope, thread, retention, tagged, now)
        done = _measured(thread, removal)
        return removal

    yield from shrink(scope, key, choose)
    return done


def too_much(scope: Scope, thread: Skeleton, retention: Retention, tagged: set[Row], now: int) -> Removal:
    """The rows of a thread that its retention does not keep."""
    rows = {(row.ns, row.id): row for row in thread.checkpoints}
    keep = tagged & rows.keys() | _waiting(thread) & rows.keys()
    by_namespace: dict[bytes, list[CheckpointRow]] = {}
    for row in sorted(thread.checkpoints, key=lambda row: row.id, reverse=True):
        by_namespace.setdefault(row.ns, []).append(row)
    for newest_first in by_namespace.values():
        keep |= {(row.ns, row.id) for row in _recent(newest_first, retention, now)}
        keep.add((newest_first[0].ns, newest_first[0].id))
    if retention.max_bytes is not None:
        heads = {(found[0].ns, found[0].id) for found in by_namespace.values()}
        keep = _within(thread, keep, tagged | _waiting(thread) | heads, retention.max_bytes)
    for row in [rows[at] for at in keep]:
        keep |= delta_ancestors(scope, rows, row)
    gone = rows.keys() - keep
    return Removal(sorted(gone), writes_of(thread, lambda write: (write.ns, write.checkpoint) in gone))


def _recent(newest_first: list[CheckpointRow], retention: Retention, now: int) -> Iterable[CheckpointRow]:
    kept = newest_first if retention.keep_last is None else newest_first[: retention.keep_last]
    if retention.max_age is None:
        return kept
    since = now - int(retention.max_age * _MINUTE)
    return [row for row in kept if (row.created_at or 0) >= since]


def _waiting(thread: Skeleton) -> set[Row]:
    """Checkpoints at which a task waits for a human."""
    done = {(write.ns, write.checkpoint, write.task) for write in thread.writes if write.k >= 0}
    return {
        (write.ns, write.checkpoint)
        for write in thread.writes
        if write.k == _INTERRUPT and (write.ns, write.checkpoint, write.task) not in done
    }


def _within(thread: Skeleton, keep: set[Row], needed: set[Row], limit: int) -> set[Row]:
    """Of the rows to keep, the newest that fit, and those that are needed whatever they take."""
    sizes = _sizes(thread)
    left = limit - sum(sizes.get(row, 0) for row in keep & needed)
    kept = keep & needed
    for row in sorted(keep - needed, key=lambda at: at[1], reverse=True):
        left -= sizes.get(row, 0)
        if left < 0:
            break
        kept.add(row)
    return kept


def _sizes(thread: Skeleton) -> dict[Row, int]:
    sizes = {(row.ns, row.id): len(row.body) for row in thread.checkpoints}
    for write in thread.writes:
        at = (write.ns, write.checkpoint)
        sizes[at] = sizes.get(at, 0) + len(write.body)
    return sizes


def _measured(thread: Skeleton, removal: Removal) -> Trimmed:
    sizes = _sizes(thread)
    return Trimmed(len(removal.checkpoints), sum(sizes.get(row, 0) for row in removal.checkpoints))


def tag(scope: Scope, at: Address, name: str, *, remove: bool = False) -> Op[None]:
    """Give a checkpoint a name, or take the name back. A name stands for one checkpoint of its thread.

    Raises:
        ConfigurationError: The config names no checkpoint, or one that is not stored.
    """
    known = scope.core.knowledge.of(at.key)
    checkpoint = at.checkpoint
    if checkpoint is None and not remove:
        raise ConfigurationError("tag() needs the checkpoint_id to name in its config.")
    if checkpoint is not None and not remove:
        loaded = yield from scope.core.dialect.load(at.key, at.ns, checkpoint, None)
        if not loaded.checkpoints:
            raise ConfigurationError("tag() names a checkpoint that is not stored.")

    def attempt(view: View | None) -> Op[bool | None]:
        if view is None:
            raise ConfigurationError("tag() names a thread that is not stored.")
        state = state_of(view)
        guard = guard_for(scope, at, view, state)
        body = None if remove else scope.native.dumps([at.ns, checkpoint])
        note = Note(TAG + text_key("checkpoint_id", name), body)
        stored = yield from scope.core.dialect.put_writes(guard, Elements(), (), [note])
        if stored is None:
            return None
        settle(at, known, view, guard, stored[0], state, encoder_for(scope, view, 0))
        return True

    yield from store(scope, at, attempt, lambda view: False, None)


def tags(scope: Scope, key: ThreadKey) -> Op[dict[str, str]]:
    """The names of a thread's checkpoints."""
    loaded = yield from scope.core.dialect.load(key, b"", b"\x00", None)
    if loaded.thread is None:
        return {}
    notes = yield from scope.core.dialect.notes(loaded.thread, TAG)
    return {text_of(note.key[1:]): id_of(scope.native.loads(note.body or b"")[1]) for note in notes}
