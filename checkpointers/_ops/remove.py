"""Taking things out of threads: prune, deletion by run, and the garbage collection that goes with both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from stepvault._core.chunks import pack_rows, unpack_row
from stepvault._core.codec import unpack
from stepvault._core.ids import check_list, id_of, text_of
from stepvault._core.knowledge import ThreadKey
from stepvault._core.numbers import check_count
from stepvault._core.plan import Atomic, Op
from stepvault._core.record import Record, decode_record, decode_writes
from stepvault._core.rows import CheckpointRow, Guard, Removal, Skeleton, WriteRow
from stepvault._core.state import State
from stepvault._core.values import runs_in
from stepvault.checkpointers._ops import reads, tagging
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.holding import turn
from stepvault.checkpointers._ops.inbox import keeping
from stepvault.checkpointers._ops.inbox.undoing import undo
from stepvault.checkpointers._ops.load import metadata_of
from stepvault.checkpointers._ops.put import run_key
from stepvault.errors import ConfigurationError, ConflictError

_ATTEMPTS = 64
_LOCK_AFTER = 2

Row = tuple[bytes, bytes]  # ns, checkpoint id


def delete_thread(scope: Scope, thread_id: Any) -> Op[int]:
    """Remove a thread whole. Idempotent; returns how many checkpoints it had."""
    key = scope.key(thread_id)
    return (yield from keeping.delete(scope, key)) or 0


def prune(scope: Scope, thread_ids: Sequence[Any], strategy: str, keep_last: int | None = None) -> Op[None]:
    """Shorten threads.

    `keep_latest` leaves the newest checkpoint of each namespace (or the newest `keep_last`) and the ancestors that its
    DeltaChannels are rebuilt from; `delete`, and a `keep_last` of 0, remove the threads.

    Raises:
        ConfigurationError: An unknown strategy, or a number that is none.
    """
    if strategy not in ("keep_latest", "delete"):
        raise ConfigurationError(f'strategy must be "keep_latest" or "delete", not {strategy!r}.')
    if keep_last is None:
        keep_last = 0 if strategy == "delete" else 1
    check_count("keep_last", keep_last, least=0)
    check_list("thread_ids", thread_ids)
    for thread_id in thread_ids:
        if keep_last == 0:
            yield from delete_thread(scope, thread_id)
        else:
            yield from shrink(scope, scope.key(thread_id), lambda thread: _older(scope, thread, keep_last))


def delete_for_runs(scope: Scope, run_ids: Sequence[Any]) -> Op[None]:
    """Remove the checkpoints and writes of runs, and what they asked, in every thread; a thread left empty goes too."""
    check_list("run_ids", run_ids)
    runs = {run_key(run_id) for run_id in run_ids}
    if not runs:
        return
    done: set[ThreadKey] = set()
    while keys := [key for key in (yield from _threads_of(scope, runs)) if key not in done]:
        for key in keys:  # meanwhile one of them may have been copied: look again
            yield from shrink(scope, key, lambda thread: _of_runs(thread, runs), undoing=True)
            done.add(key)


def _threads_of(scope: Scope, runs: set[bytes]) -> Op[list[ThreadKey]]:
    return (yield from scope.core.dialect.threads_of_runs(scope.tenant, sorted(runs)))


def shrink(
    scope: Scope,
    key: ThreadKey,
    choose: Callable[[Skeleton], Removal],
    *,
    tagged_may_go: bool = True,
    undoing: bool = False,
) -> Op[None]:
    """Remove the chosen rows of a thread and every element that nothing needs any more; see `undo` for `undoing`."""
    dialect = scope.core.dialect
    for attempt in range(_ATTEMPTS):
        holding = (yield from turn(scope, key)) if attempt >= _LOCK_AFTER else None
        once = _shrink_once(scope, key, choose, holding.hold.holder if holding else b"", tagged_may_go, undoing)
        if attempt >= _LOCK_AFTER and dialect.locks:
            done = yield Atomic(_locked(scope, key, once), "write")
        elif holding is not None:
            done = yield from holding.during(once)
            yield from holding.end()
        else:
            done = yield from _unless_busy(once)
        if done is None:
            return
        if isinstance(done, bytes):  # nothing would stay: the thread goes, if it still is at this revision
            done = (yield from keeping.delete(scope, key, done)) is not None
        if done:
            scope.core.knowledge.forget(key)
            return
    raise ConflictError(f"Thread {text_of(key.thread)!r} is written by others without pause; repeat later.")


def _unless_busy(once: Op[bool | bytes | None]) -> Op[bool | bytes | None]:
    try:
        return (yield from once)
    except ConflictError:  # it did not hold still for a moment
        return False


def _locked(scope: Scope, key: ThreadKey, once: Op[bool | bytes | None]) -> Op[bool | bytes | None]:
    yield from scope.core.dialect.lock(key)
    return (yield from once)


def _shrink_once(
    scope: Scope,
    key: ThreadKey,
    choose: Callable[[Skeleton], Removal],
    holder: bytes,
    tagged_may_go: bool,
    undoing: bool,
) -> Op[bool | bytes | None]:
    """Whether it is done; None: there was nothing to do; the thread's revision if everything goes."""
    dialect = scope.core.dialect
    skeleton = yield from dialect.skeleton(key)
    if skeleton is None:
        return True
    chosen = choose(skeleton)
    if len(chosen.checkpoints) == len(skeleton.checkpoints) and len(chosen.writes) == len(skeleton.writes):
        return skeleton.thread.rev
    alive = live(skeleton, chosen)
    dead, mixed = _sort_chunks(skeleton, alive)
    if not (chosen.checkpoints or chosen.writes or dead or mixed):
        return None
    elements: dict[int, bytes] = {}
    if mixed:
        for chunk in (yield from dialect.chunks(skeleton.thread, mixed)).chunks:
            unpack_row(chunk, elements)
    kept = pack_rows(((no, element) for no, element in elements.items() if no in alive), scope.core.codec)
    removal = Removal(chosen.checkpoints, chosen.writes, sorted((*dead, *mixed)), kept)
    thread, head = skeleton.thread, _head(skeleton, chosen)
    if undoing:
        undone = yield from undo(scope, key, skeleton, chosen, head, holder)
        if undone is None:
            return False
        thread = undone
    before = State.unpack(thread.extents)
    state = replace(before, head=head, since_trim=0, compacted=before.compacted and head == before.head)
    guard = Guard(key, thread, thread.uid, scope.core.random(8), state.pack(), holder=holder)
    if not (yield from dialect.remove(guard, removal)):
        return False
    if tagged_may_go and chosen.checkpoints:
        yield from tagging.trim(scope, guard, set(chosen.checkpoints))
    yield from reads.trim(scope, key, [id_of(checkpoint) for ns, checkpoint in chosen.checkpoints if not ns])
    return True


def _head(skeleton: Skeleton, chosen: Removal) -> bytes | None:
    """The newest checkpoint of the root namespace that stays."""
    gone = set(chosen.checkpoints)
    return max((row.id for row in skeleton.checkpoints if not row.ns and (row.ns, row.id) not in gone), default=None)


def live(skeleton: Skeleton, chosen: Removal) -> set[int]:
    """Numbers of the elements that the remaining rows need."""
    gone = {*chosen.checkpoints, *chosen.writes}
    ends: dict[int, int] = {}  # of runs, by where they begin: those of a list that grows begin alike
    for row, runs in needs(skeleton).items():
        for first, count in runs if row not in gone else ():
            ends[first] = max(first + count, ends.get(first, 0))
    return {number for first, end in ends.items() for number in range(first, end)}


def needs(skeleton: Skeleton) -> dict[tuple[Any, ...], list[tuple[int, int]]]:
    """The elements that each checkpoint and each write needs, as runs of numbers; read once."""
    if skeleton.needs is None:
        found: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
        for row in skeleton.checkpoints:
            found[row.ns, row.id] = list(decode_record(unpack(row.body)).runs())
        for write in skeleton.writes:
            parts = decode_writes(unpack(write.body)).writes
            found[write.ns, write.checkpoint, write.task, write.k] = [run for one in parts for run in runs_in(one.form)]
        skeleton.needs = found
    return skeleton.needs


def _sort_chunks(skeleton: Skeleton, alive: set[int]) -> tuple[list[int], list[int]]:
    """Rows without a live element, and rows with live and dead ones."""
    dead, mixed = [], []
    for first, count, _ in skeleton.chunks:
        needed = sum(number in alive for number in range(first, first + count))
        if not needed:
            dead.append(first)
        elif needed < count:
            mixed.append(first)
    return dead, mixed


def _of_runs(thread: Skeleton, runs: set[bytes]) -> Removal:
    checkpoints = {(row.ns, row.id) for row in thread.checkpoints if row.run in runs}
    return Removal(
        sorted(checkpoints),
        writes_of(thread, lambda w: w.run in runs or (w.ns, w.checkpoint) in checkpoints),
    )


def _older(scope: Scope, thread: Skeleton, keep_last: int) -> Removal:
    rows = {(row.ns, row.id): row for row in thread.checkpoints}
    seen: Counter[bytes] = Counter()
    keep: set[Row] = set()
    for row in sorted(thread.checkpoints, key=lambda row: row.id, reverse=True):
        seen[row.ns] += 1
        if seen[row.ns] <= keep_last:
            keep.add((row.ns, row.id))
            keep |= delta_ancestors(scope, rows, row)
    gone = sorted(rows.keys() - keep)
    lost = set(gone)
    return Removal(gone, writes_of(thread, lambda write: (write.ns, write.checkpoint) in lost))


def delta_ancestors(scope: Scope, rows: dict[Row, CheckpointRow], row: CheckpointRow) -> set[Row]:
    """The ancestors without which a DeltaChannel of this checkpoint would silently be rebuilt as empty.

    Such channels are named by `counters_since_delta_snapshot`; each needs its ancestors back to a stored value.
    """
    record = decode_record(unpack(row.body))
    open_channels = {name for name in _delta_channels(scope, record) if name not in record.forms}
    kept: set[Row] = set()
    while open_channels and row.parent is not None and (row.ns, row.parent) in rows:
        row = rows[(row.ns, row.parent)]
        kept.add((row.ns, row.id))
        open_channels -= decode_record(unpack(row.body)).forms.keys()
    return kept


def _delta_channels(scope: Scope, record: Record) -> set[str]:
    counters = metadata_of(record, scope.decoder({})).get("counters_since_delta_snapshot")
    return set(counters) if isinstance(counters, dict) else set()


def writes_of(thread: Skeleton, chosen: Callable[[WriteRow], bool]) -> list[tuple[bytes, bytes, bytes, int]]:
    """The places of some of a thread's writes."""
    return [(write.ns, write.checkpoint, write.task, write.k) for write in thread.writes if chosen(write)]
