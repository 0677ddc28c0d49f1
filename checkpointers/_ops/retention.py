"""Keeping histories to a length: what may go, and when it is looked at.

A saver with `retention=` looks at a thread once in a while as it writes (the state counts checkpoints since), and a
sweep looks at every thread. What always stays: see `Retention`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.types import INTERRUPT, TASKS

from stepvault._core.codec import unpack
from stepvault._core.ids import id_key, text_of
from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.record import Record, decode_record
from stepvault._core.rows import CheckpointRow, Removal, Skeleton, ThreadSummary
from stepvault.checkpointers._ops import tagging
from stepvault.checkpointers._ops.context import Scope, thread_of
from stepvault.checkpointers._ops.load import metadata_of
from stepvault.checkpointers._ops.remove import Row, delta_ancestors, shrink, writes_of
from stepvault.checkpointers._ops.weighing import Scales, freed
from stepvault.ttl import Retention, Trimmed

_INTERRUPT = WRITES_IDX_MAP[INTERRUPT]
_MINUTE = 60_000
_START, _BRANCH = "__start__", "branch:to:"
_LATE = 3_600_000  # milliseconds: no checkpoint is stored so long after what was called from it
_SLACK = 4  # look again once a quarter more has come than is kept


def slack(retention: Retention) -> int:
    """How many checkpoints may come before a thread is looked at again."""
    return max(8, (retention.keep_last or 32) // _SLACK)


def may_exceed(row: ThreadSummary, retention: Retention, now: int) -> bool:
    """Whether a thread may hold what its retention does not keep, as far as the overview tells."""
    if row.checkpoints < 2:
        return False
    return (
        (retention.keep_last is not None and row.checkpoints > retention.keep_last)
        or (retention.max_bytes is not None and row.size > retention.max_bytes)
        or (retention.max_age is not None and row.created_at < now - retention.max_age * _MINUTE)
    )


def trim(scope: Scope, key: ThreadKey, retention: Retention, *, dry_run: bool = False) -> Op[Trimmed]:
    """Take out of a thread what its retention does not keep, and say how much that is."""
    found = (yield from thread_of(scope, key)) if retention.keep_tagged else None
    tagged = set((yield from tagging.tagged(scope, found)).values()) if found is not None else set()
    now = yield from scope.core.dialect.now()
    done, looked_at = Trimmed(0, 0), 0

    def choose(thread: Skeleton) -> Removal:
        nonlocal done, looked_at
        looked_at = len(thread.checkpoints)
        removal = too_much(scope, thread, retention, tagged, now)
        done = Trimmed(len(removal.checkpoints), freed(thread, removal))
        return removal

    if dry_run:
        skeleton = yield from scope.core.dialect.skeleton(key)
        if skeleton is not None:
            choose(skeleton)
        return done
    yield from shrink(scope, key, choose, tagged_may_go=not retention.keep_tagged)
    view = scope.core.knowledge.of(key).view
    if view is not None and not done.checkpoints:  # the next write stores it: not worth one of its own
        often = slack(retention)
        view.state = replace(view.state, since_trim=often - max(often, looked_at // _SLACK))
    return done


def too_much(scope: Scope, thread: Skeleton, retention: Retention, tagged: set[Row], now: int) -> Removal:
    """The rows of a thread that its retention does not keep."""
    rows = {(row.ns, row.id): row for row in thread.checkpoints}
    by_namespace: dict[bytes, list[CheckpointRow]] = {}
    for row in sorted(thread.checkpoints, key=lambda row: row.id, reverse=True):
        by_namespace.setdefault(row.ns, []).append(row)
    needed = (tagged | _open_ends(thread)) & rows.keys()
    needed |= {(found[0].ns, found[0].id) for found in by_namespace.values()}
    keep = needed.copy()
    for newest_first in by_namespace.values():
        keep |= {(row.ns, row.id) for row in _recent(newest_first, retention, now)}
    if retention.max_bytes is not None:
        keep = _within(thread, keep, needed, retention.max_bytes)
    for row in [rows[at] for at in keep]:
        keep |= delta_ancestors(scope, rows, row)
    keep -= left_behind(scope, thread, keep, tagged, now)
    gone = rows.keys() - keep
    return Removal(sorted(gone), writes_of(thread, lambda write: (write.ns, write.checkpoint) in gone))


def _recent(newest_first: list[CheckpointRow], retention: Retention, now: int) -> Iterable[CheckpointRow]:
    kept = newest_first if retention.keep_last is None else newest_first[: retention.keep_last]
    if retention.max_age is None:
        return kept
    since = now - int(retention.max_age * _MINUTE)
    return [row for row in kept if (row.created_at or 0) >= since]


def _open_ends(thread: Skeleton) -> set[Row]:
    """Checkpoints that nothing follows and that are not done: a task waits for a human, or is to run.

    What another checkpoint follows is over: its question was answered, or the thread moved on without it.
    """
    parents = {(row.ns, row.parent) for row in thread.checkpoints}
    done = {(write.ns, write.checkpoint, write.task) for write in thread.writes if write.k >= 0}
    ends = {
        (write.ns, write.checkpoint)
        for write in thread.writes
        if write.k == _INTERRUPT and (write.ns, write.checkpoint, write.task) not in done
    }
    for row in thread.checkpoints:
        if not row.ns and (row.ns, row.id) not in parents and _has_next(decode_record(unpack(row.body))):
            ends.add((row.ns, row.id))
    return {at for at in ends if at not in parents}


def _has_next(record: Record) -> bool:
    """Whether a task is to run: LangGraph (1.x) keeps what triggers nodes in these channels until they have run."""
    return any(channel in (_START, TASKS) or channel.startswith(_BRANCH) for channel in record.forms)


def left_behind(scope: Scope, thread: Skeleton, keep: set[Row], tagged: set[Row], now: int) -> set[Row]:
    """Checkpoints of subgraphs whose call is no longer kept; nobody can come back to them.

    Each call of a subgraph has a namespace of its own (`node:task`), below the checkpoint that its metadata names.
    A subgraph with a memory of its own keeps one namespace (`node`), which is a history like the root's.
    """
    rows = {(row.ns, row.id): row for row in thread.checkpoints}
    heads: dict[bytes, bytes] = {}
    for ns, checkpoint in rows:
        heads[ns] = max(checkpoint, heads.get(ns, b""))
    lost: set[Row] = set()
    for at, row in sorted(rows.items(), key=lambda item: item[0][0].count(b"|")):
        above, _, own = row.ns.rpartition(b"|")
        if b":" not in own or at in tagged:
            continue
        parent = _caller(scope, row, above)
        if parent is None:
            continue
        if parent in rows:
            gone = parent not in keep or parent in lost
        else:  # it was taken out before, unless it has not been stored yet
            gone = parent[1] < heads.get(above, b"") and (row.created_at or now) < now - _LATE
        if gone:
            lost.add(at)
    return lost


def _caller(scope: Scope, row: CheckpointRow, above: bytes) -> Row | None:
    """The checkpoint at which a subgraph was called."""
    parents = metadata_of(decode_record(unpack(row.body)), scope.decoder({})).get("parents")
    found = parents.get(text_of(above)) if isinstance(parents, dict) else None
    return (above, id_key("checkpoint_id", found)) if isinstance(found, str) and found else None


def _within(thread: Skeleton, keep: set[Row], needed: set[Row], limit: int) -> set[Row]:
    """Of the rows to keep, the newest that fit, and those that are needed whatever they take."""
    scales, kept = Scales(thread), keep & needed
    left = limit - sum(map(scales.add, kept))
    for row in sorted(keep - needed, key=lambda at: at[1], reverse=True):
        left -= scales.add(row)
        if left < 0:
            break
        kept.add(row)
    return kept
