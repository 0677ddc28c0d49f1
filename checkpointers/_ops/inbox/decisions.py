"""A human's decision: recorded once, kept until a run uses it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from stepvault._core.knowledge import View
from stepvault._core.plan import Op
from stepvault._core.rows import Elements
from stepvault.checkpointers._ops.context import Address, Scope
from stepvault.checkpointers._ops.guarded import encoder_for, guard_for, settle, state_of, store
from stepvault.checkpointers._ops.inbox import index
from stepvault.checkpointers._ops.inbox.entries import Entry, decision_of, interrupt_of, note_of
from stepvault.checkpointers._ops.inbox.queries import Found, by_id, find
from stepvault.checkpointers._ops.inbox.schema import check_answer
from stepvault.errors import AlreadyDecidedError, DeadlinePassedError, InterruptNotFoundError, SupersededError
from stepvault.inbox import Decision, PendingInterrupt


def decide(scope: Scope, public: str, answer: Any, by: str | None, remark: str | None) -> Op[Decision]:
    """Record a decision, committed past a power loss.

    Raises:
        InterruptNotFoundError, AlreadyDecidedError, SupersededError, DeadlinePassedError, AnswerInvalidError: Why not;
            nothing was recorded.
    """
    found = yield from by_id(scope, public)

    def record(entry: Entry, now: int) -> Entry:
        _check_open(entry, now)
        check_answer(entry.schema, answer)
        return replace(entry, status="decided", answer=answer, by=by, remark=remark, decided=now)

    entry = yield from _change(scope, found, record, "decided")
    decision = decision_of(found.key, entry)
    assert decision is not None
    return decision


def amend(scope: Scope, public: str, **fields: Any) -> Op[PendingInterrupt]:
    """Change the deadline, its default or the external reference of an interrupt."""
    found = yield from by_id(scope, public)
    entry = yield from _change(scope, found, lambda entry, now: replace(entry, **fields), None)
    return interrupt_of(found.key, found.thread.uid, entry)


def expire(scope: Scope, public: str) -> Op[PendingInterrupt]:
    """Close an interrupt whose deadline has passed."""
    found = yield from by_id(scope, public)

    def close(entry: Entry, now: int) -> Entry:
        if entry.status != "pending":
            _check_open(entry, now)
        if entry.deadline is None or entry.deadline > now:
            raise DeadlinePassedError(f"The deadline of interrupt {entry.id!r} has not passed.")
        return entry.close("expired", now)

    entry = yield from _change(scope, found, close, "expired")
    yield from index.close(scope, found.key, [entry])
    return interrupt_of(found.key, found.thread.uid, entry)


def _change(scope: Scope, found: Found, change: Callable[[Entry, int], Entry], event: str | None) -> Op[Entry]:
    """Change an entry by compare-and-set on its thread."""
    at = Address(found.key, b"", None, None)
    known = scope.core.knowledge.of(found.key)
    known.view = None

    def attempt(view: View | None) -> Op[Entry | None]:
        now = yield from scope.core.dialect.now()
        fresh = yield from find(scope, found.key, found.entry.id)
        if view is None or fresh is None:
            raise InterruptNotFoundError(f"Interrupt {found.entry.id!r} was deleted with its thread.")
        before = state_of(view)
        entry = change(fresh.entry, now)
        if event:
            yield from index.append(scope, found.key, [(event, entry.id)])
        state = replace(before, pending=before.pending - (fresh.entry.is_open and not entry.is_open))
        guard = replace(guard_for(scope, at, view, state), durable=True)
        stored = yield from scope.core.dialect.put_writes(guard, Elements(), (), [note_of(scope, entry)])
        if stored is None:
            return None
        settle(at, known, view, guard, stored[0], state, encoder_for(scope, view, 0))
        return entry

    return (yield from store(scope, at, attempt, lambda view: False, None, check=False))


def _check_open(entry: Entry, now: int) -> None:
    when = datetime.fromtimestamp((entry.decided or 0) / 1000, timezone.utc)
    if entry.decided is not None:
        raise AlreadyDecidedError(
            f"Interrupt {entry.id!r} was decided by {entry.by or 'somebody'} at {when:%Y-%m-%d %H:%M:%S} UTC; "
            "nothing was changed.",
            by=entry.by,
            at=when,
        )
    if entry.status == "answered":
        raise AlreadyDecidedError(f"Interrupt {entry.id!r} was answered by a run; nothing was changed.")
    if entry.status == "superseded":
        raise SupersededError(f"The thread moved on without an answer to interrupt {entry.id!r}; nothing was changed.")
    if entry.status == "expired" or (entry.deadline is not None and entry.deadline <= now):
        raise DeadlinePassedError(f"The deadline of interrupt {entry.id!r} has passed; nothing was changed.")
