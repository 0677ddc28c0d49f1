"""What keeps a database small: expired threads go, histories are kept to their length."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta

from langchain_core.runnables import RunnableConfig

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.rows import DocChange, ThreadRow
from stepvault._core.state import State
from stepvault.checkpointers._ops import reads, retention
from stepvault.checkpointers._ops.context import Address, Scope
from stepvault.checkpointers._ops.expiry import MINUTE, SPACE, watch
from stepvault.checkpointers._ops.inbox import keeping
from stepvault.checkpointers._ops.spaces import space
from stepvault.ttl import Retention, SweepReport

logger = logging.getLogger("stepvault")

_PAGE = 100


def trimmed(scope: Scope, at: Address, put: Op[RunnableConfig]) -> Op[RunnableConfig]:
    """A put, and once in a while the retention of its thread."""
    config = yield from put
    kept = scope.core.retention
    view = scope.core.knowledge.of(at.key).view
    if kept is not None and view is not None and view.state.since_trim >= retention.slack(kept):
        yield from retention.trim(scope, at.key, kept)
    return config


def sweep(scope: Scope, limit: int | None, seconds: float | None, *, dry_run: bool) -> Op[SweepReport]:
    """Remove expired threads, then shorten the histories of the others, then give the space back."""
    core = scope.core
    began = core.monotonic()
    ends = float("inf") if seconds is None else began + seconds
    report = yield from _sweep_expired(scope, limit, ends, dry_run=dry_run)
    if not dry_run:
        yield from reads.heal(scope)
    if core.retention is not None and not report.more:
        report = yield from _trim_all(scope, core.retention, report, ends, dry_run=dry_run)
    if not dry_run and (report.threads or report.trimmed):
        yield from core.dialect.reclaim()
    report = replace(report, took=timedelta(seconds=core.monotonic() - began))
    if not dry_run and (report.threads or report.trimmed or report.more):
        logger.info("Swept: %s", report)
    return report


def _trim_all(scope: Scope, kept: Retention, report: SweepReport, ends: float, *, dry_run: bool) -> Op[SweepReport]:
    """Shorten histories; whoever is stopped by the clock has left less to do for the next."""
    now = yield from scope.core.dialect.now()
    checkpoints = freed = 0
    after = None
    while True:
        rows = yield from scope.core.dialect.threads(scope.tenant, _PAGE, after)
        for row in rows:
            if scope.core.monotonic() >= ends:
                return replace(report, trimmed=checkpoints, freed=freed, more=True)
            if retention.may_exceed(row, kept, now):
                key = ThreadKey(scope.tenant, row.thread)
                done = yield from retention.trim(scope, key, kept, dry_run=dry_run)
                checkpoints += done.checkpoints
                freed += done.bytes
        if len(rows) < _PAGE:
            return replace(report, trimmed=checkpoints, freed=freed)
        after = rows[-1].no


def _sweep_expired(scope: Scope, limit: int | None, ends: float, *, dry_run: bool) -> Op[SweepReport]:
    """Remove expired threads, oldest deadline first. Any number of sweeps may run at once: each thread goes once."""
    core = scope.core
    removed = checkpoints = kept = 0
    after, more = b"", False
    while not more:
        now = yield from core.dialect.now()
        docs = yield from core.dialect.docs(space(scope, SPACE), b"", after, _PAGE)
        due = [doc for doc in docs if int.from_bytes(doc.key[:8], "big") <= now]
        keys = [ThreadKey(scope.tenant, doc.body) for doc in due]
        found = yield from core.dialect.notes_at([(key, b"") for key in keys])
        seen: list[bytes] = []
        for doc, key, (thread, _) in zip(due, keys, found, strict=True):
            more = core.monotonic() >= ends or (limit is not None and removed >= limit)
            if more:
                break
            after = doc.key
            looked, gone = yield from _sweep_one(scope, key, thread, now, dry_run)
            if looked:
                seen.append(doc.key)
            if gone is None:
                kept += 1
            else:
                removed += 1
                checkpoints += gone
        if seen:
            yield from core.dialect.write_docs(space(scope, SPACE), [DocChange(doc, None, b"") for doc in seen])
        if len(due) < _PAGE:
            break
    return SweepReport(removed, checkpoints, kept, timedelta(0), more)


def _sweep_one(
    scope: Scope, key: ThreadKey, thread: ThreadRow | None, now: int, dry_run: bool
) -> Op[tuple[bool, int | None]]:
    """Remove a thread if its time is over.

    Returns whether what led here has served, and how many checkpoints went (None: the thread stays).
    """
    core = scope.core
    if thread is None:
        if not dry_run:  # whoever removed it may have been killed before its memory
            yield from reads.forget(scope, key)
        return not dry_run, None
    state = State.unpack(thread.extents)
    pinned = state.pending and core.ttl.pin_interrupted
    if state.expires_at is None or state.expires_at > now or pinned:
        if not dry_run and state.expires_at is not None:
            yield from watch(scope, key, max(state.expires_at, now + MINUTE if pinned else 0))
        return not dry_run, None
    if dry_run:
        skeleton = yield from core.dialect.skeleton(key)
        return False, len(skeleton.checkpoints) if skeleton else 0
    removed = yield from keeping.delete(scope, key, thread.rev)
    return removed is not None, removed  # active at this very moment: the next sweep looks again
