"""What keeps a database small: expired threads go, histories are kept to their length."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from langchain_core.runnables import RunnableConfig

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.rows import Doc, ThreadRow
from stepvault._core.state import State
from stepvault.checkpointers._dialect import SWEPT
from stepvault.checkpointers._ops import reads, remains, retention
from stepvault.checkpointers._ops.context import Address, Scope
from stepvault.checkpointers._ops.expiry import MINUTE, SPACE, db_now, is_held, watching
from stepvault.checkpointers._ops.inbox import closing, keeping
from stepvault.checkpointers._ops.spaces import drop_docs, space
from stepvault.errors import ConfigurationError
from stepvault.ttl import Retention, SweepReport

logger = logging.getLogger("stepvault")

_PAGE, _FIRST = 100, 25  # threads together
_LONG = 1.0  # seconds
_NOTHING = SweepReport(0, 0, 0, timedelta(0), more=False)


def trimmed(scope: Scope, at: Address, put: Op[RunnableConfig]) -> Op[RunnableConfig]:
    """A put, and once in a while the retention of its thread."""
    config = yield from put
    kept = scope.core.retention
    view = scope.core.knowledge.of(at.key).view
    if kept is not None and view is not None and view.state.since_trim >= retention.slack(kept):
        yield from retention.trim(scope, at.key, kept)
    return config


def sweep(
    scope: Scope, limit: int | None, seconds: float | None, *, all_tenants: bool, dry_run: bool
) -> Op[SweepReport]:
    """Remove expired threads, then shorten the histories of the others, then give the space back.

    Of every tenant, if the view has none of its own; histories only with `all_tenants`, as others may be kept longer.
    """
    core = scope.core
    began = core.monotonic()
    ends = float("inf") if seconds is None else began + seconds
    report, ruled = _NOTHING, (yield from every(scope, all_tenants))
    for one in (yield from swept(scope)):
        left = None if limit is None else limit - report.threads
        report = _sum(report, (yield from _sweep_expired(one, left, ends, dry_run=dry_run)))
        if not dry_run:
            yield from remains.clear(one, (yield from db_now(core)))
            yield from reads.heal(one)
        if report.more:
            break
    if core.retention is not None:
        for one in ruled:
            if not report.more:
                report = yield from _trim_all(one, core.retention, report, ends, dry_run=dry_run)
    if not dry_run and (report.threads or report.trimmed):
        yield from core.dialect.reclaim()
    report = replace(report, took=timedelta(seconds=core.monotonic() - began))
    if not dry_run and (report.threads or report.trimmed or report.more):
        logger.info("Swept: %s", report)
    return report


def _sum(one: SweepReport, other: SweepReport) -> SweepReport:
    counts = (one.threads + other.threads, one.checkpoints + other.checkpoints, one.kept + other.kept)
    return SweepReport(*counts, timedelta(0), other.more)


def swept(scope: Scope) -> Op[list[Scope]]:
    """The tenants in which a sweep of this view may find something, from any of them on: none is always the last."""
    if scope.tenant:
        return [scope]
    found: set[bytes] = {scope.tenant}
    for name in SWEPT:
        found.update((yield from scope.core.dialect.tenants_with(name)))
    at = int.from_bytes(scope.core.random(4), "big") % len(found)
    ordered = sorted(found)
    return [replace(scope, tenant=tenant) for tenant in ordered[at:] + ordered[:at]]


def check_view(scope: Scope, all_tenants: bool) -> None:
    """Refuse a view of one tenant the tenants of others.

    Raises:
        ConfigurationError: The view is of one tenant.
    """
    if all_tenants and scope.tenant:
        raise ConfigurationError("all_tenants=True is for a saver or vault without a tenant; this is a tenant's own.")


def every(scope: Scope, all_tenants: bool) -> Op[list[Scope]]:
    """This view, or a view of each tenant that has threads.

    Raises:
        ConfigurationError: See `check_view`.
    """
    check_view(scope, all_tenants)
    if not all_tenants:
        return [scope]
    tenants = yield from scope.core.dialect.tenants()
    return [replace(scope, tenant=tenant) for tenant in sorted({scope.tenant, *tenants})]


def _trim_all(scope: Scope, kept: Retention, report: SweepReport, ends: float, *, dry_run: bool) -> Op[SweepReport]:
    """Shorten histories; whoever is stopped by the clock has left less to do for the next."""
    now = yield from scope.core.dialect.now()
    checkpoints, freed = report.trimmed, report.freed
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
    sweep = core.random(12)
    lapsed = (yield from _lapsed(scope, ends, dry_run=dry_run)) if core.ttl.pin_interrupted else []
    removed, checkpoints, kept = len(lapsed), sum(lapsed), 0
    after, began, portion, seen = b"", False, _FIRST, set[int]()
    while True:
        now, since = (yield from db_now(core)), core.monotonic()
        docs = yield from core.dialect.docs(space(scope, SPACE), b"", after, portion)
        due = [doc for doc in docs if int.from_bytes(doc.key[:8], "big") <= now]
        left = portion if limit is None else limit - removed
        more = bool(due) and (left <= 0 or core.monotonic() >= ends)
        if not due or more:
            break
        page = yield from _looked_up(scope, due[:left], now)
        if dry_run:  # nothing is dropped, so docs of later pages may lead to the same threads
            page.only_new(seen)
        kept += len(page.living)
        gone = (yield from _counted(scope, page)) if dry_run else (yield from _cleared(scope, page, sweep, now))
        began = began or bool(page.expired)
        removed += len(gone)
        checkpoints += sum(gone)
        after = due[:left][-1].key
        portion = _next_portion(portion, core.monotonic() - since)
    if began and not dry_run:
        yield from remains.done(scope, sweep)
    return SweepReport(removed, checkpoints, kept, timedelta(0), more)


def _lapsed(scope: Scope, ends: float, *, dry_run: bool) -> Op[list[int]]:
    now = yield from db_now(scope.core)
    return (yield from closing.lapse(scope, now, lambda: scope.core.monotonic() < ends, dry_run=dry_run))


def _next_portion(portion: int, took: float) -> int:
    """How many threads to remove together after so many took so long: threads of any size, locks of about a second."""
    return min(_PAGE, 2 * portion) if took < _LONG / 2 else portion if took < _LONG else max(1, portion // 4)


@dataclass(slots=True)
class _Page:
    """Docs that said of threads to look at them now, by how those threads stand."""

    expired: list[tuple[Doc, ThreadKey, ThreadRow]] = field(default_factory=list)
    living: list[tuple[Doc, ThreadKey, int | None]] = field(default_factory=list)  # when to look again, if ever
    missing: list[tuple[Doc, ThreadKey]] = field(default_factory=list)
    spare: list[Doc] = field(default_factory=list)  # of threads that another doc of the page has named

    def only_new(self, seen: set[int]) -> None:
        """Leave out threads that were seen before; note the others."""
        self.expired = [one for one in self.expired if hash(one[1]) not in seen]
        self.living = [one for one in self.living if hash(one[1]) not in seen]
        seen.update(hash(key) for _, key, _ in self.expired)
        seen.update(hash(key) for _, key, _ in self.living)


def _looked_up(scope: Scope, docs: Sequence[Doc], now: int) -> Op[_Page]:
    page, first = _Page(), dict[ThreadKey, Doc]()
    for doc in docs:
        if first.setdefault(ThreadKey(scope.tenant, doc.body), doc) is not doc:
            page.spare.append(doc)
    found = yield from scope.core.dialect.notes_at([(key, b"") for key in first])
    absent = [key for key, (thread, _) in zip(first, found, strict=True) if thread is None]
    left = dict(zip(absent, (yield from scope.core.dialect.remains(absent)), strict=True)) if absent else {}
    for (key, doc), (thread, _) in zip(first.items(), found, strict=True):
        if thread is None:
            if (row := left[key]) is None:
                page.missing.append((doc, key))
            else:  # it went by itself
                page.expired.append((doc, key, row))
            continue
        state = State.unpack(thread.extents)
        pinned = (bool(state.pending) and scope.core.ttl.pin_interrupted) or is_held(state, now)
        if state.expires_at is None:
            page.living.append((doc, key, None))
        elif state.expires_at > now or pinned:
            page.living.append((doc, key, max(state.expires_at, now + MINUTE if pinned else 0)))
        else:
            page.expired.append((doc, key, thread))
    return page


def _counted(scope: Scope, page: _Page) -> Op[list[int]]:
    """How many checkpoints each thread has that would go."""
    counts = []
    for _, key, _ in page.expired:
        skeleton = yield from scope.core.dialect.skeleton(key)
        counts.append(len(skeleton.checkpoints) if skeleton else 0)
    return counts


def _cleared(scope: Scope, page: _Page, sweep: bytes, now: int) -> Op[list[int]]:
    """Remove what has expired; how many checkpoints each had that this sweep removed.

    What led here is dropped last: who is killed before has left it to the next. So is what led to a thread that was
    written or removed at this very moment.
    """
    if page.missing:  # whoever removed them may have been killed before their memory
        yield from reads.forget_all(scope, [(key, ()) for _, key in page.missing])
    again = [watching(scope, key, when) for _, key, when in page.living if when is not None]
    if again:
        yield from scope.core.dialect.write_docs(space(scope, SPACE), again)
    removed: list[int | None] = []
    if page.expired:
        yield from remains.note(scope, sweep, [key for _, key, _ in page.expired], now)
        going = [(key, thread) for _, key, thread in page.expired]
        removed = (yield from keeping.delete_all(scope, going)).checkpoints
    served = [doc.key for doc in page.spare]
    served += [doc.key for doc, _ in page.missing] + [doc.key for doc, _, _ in page.living]
    served += [doc.key for (doc, _, _), count in zip(page.expired, removed, strict=True) if count is not None]
    yield from drop_docs(scope, SPACE, served)
    return [count for count in removed if count is not None]
