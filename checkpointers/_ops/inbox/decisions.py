"""A human's decision: recorded once, kept until a run uses it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import ormsgpack

from stepvault._core.knowledge import ThreadKey, View
from stepvault._core.plan import Op
from stepvault._core.rows import Doc, Elements
from stepvault._core.serde.scrubbing import ERASED
from stepvault.checkpointers._ops.context import Address, Scope, thread_of
from stepvault.checkpointers._ops.expiry import touched
from stepvault.checkpointers._ops.guarded import encoder_for, guard_for, settle, state_of, store
from stepvault.checkpointers._ops.inbox import index, keeping
from stepvault.checkpointers._ops.inbox.entries import (
    CLOSED,
    WAITING,
    Entry,
    decision_of,
    entry_of,
    interrupt_of,
    moment,
    notes_of,
)
from stepvault.checkpointers._ops.inbox.index import Place
from stepvault.checkpointers._ops.inbox.queries import Found, by_id, look_up, withdrawing
from stepvault.checkpointers._ops.inbox.schema import check_answer
from stepvault.checkpointers._ops.spaces import drop_docs, space
from stepvault.checkpointers._ops.subjects import DECIDERS, decider_hint, note_decider, pseudonym, token
from stepvault.errors import AlreadyDecidedError, DeadlinePassedError, InterruptNotFoundError, SupersededError
from stepvault.inbox import Decision, PendingInterrupt

DECISIONS = 100  # of a page


def decide(scope: Scope, public: str, answer: Any, by: str | None, remark: str | None) -> Op[Decision]:
    """Record a decision, committed past a power loss.

    Raises:
        InterruptNotFoundError, AlreadyDecidedError, SupersededError, DeadlinePassedError, AnswerInvalidError: Why not;
            nothing was recorded.
    """
    found = yield from by_id(scope, public)
    packed = scope.native.dumps(answer)

    def record(entry: Entry, now: int) -> Entry:
        _check_open(entry, now)
        check_answer(scope.native.loads(entry.schema), answer)
        return replace(entry, status="decided", answer=packed, by=by, remark=remark, decided=now)

    if by is not None:
        yield from note_decider(scope, found.key, found.entry.id, by)
    try:
        entry = yield from _change(scope, found, record, lambda entry: entry.status, active=True)
    except AlreadyDecidedError as exc:
        if by is not None and exc.by != by:
            yield from drop_docs(scope, DECIDERS, [decider_hint(scope, found.key, found.entry.id, by).key])
        raise
    decision = decision_of(scope, found.key, entry)
    assert decision is not None
    return decision


def amend(scope: Scope, public: str, **fields: Any) -> Op[PendingInterrupt]:
    """Change the deadline, its default or the external reference of an interrupt."""
    found = yield from by_id(scope, public)
    if "default" in fields:
        check_answer(scope.native.loads(found.entry.schema), fields["default"])
        fields["default"] = scope.native.dumps(fields["default"])
    entry = yield from _change(
        scope, found, lambda entry, now: replace(entry, **fields), lambda entry: None, active=True
    )
    return interrupt_of(scope, found.key, found.thread.uid, entry)


def expire(scope: Scope, public: str) -> Op[PendingInterrupt]:
    """Settle an interrupt whose deadline has passed: with its default answer, if it has one."""
    found = yield from by_id(scope, public)

    def close(entry: Entry, now: int) -> Entry:
        if entry.status != "pending":
            _check_open(entry, now)
        if entry.deadline is None or entry.deadline > now:
            raise DeadlinePassedError(f"The deadline of interrupt {entry.id!r} has not passed.")
        if entry.default is not None:
            return replace(entry, status="decided", answer=entry.default, remark="deadline passed", decided=now)
        return entry.close("expired", now)

    entry = yield from _change(scope, found, close, lambda entry: entry.status, active=True)
    return interrupt_of(scope, found.key, found.thread.uid, entry)


def decided_by(scope: Scope, mark: bytes, after: bytes) -> Op[tuple[list[Doc], list[Found]]]:
    """Some of the hints that lead from a person to decisions, and what of it is theirs.

    A hint is written before its decision: somebody else may have been faster.
    """
    docs = yield from scope.core.dialect.docs(space(scope, DECIDERS), mark, after, DECISIONS)
    led = [ormsgpack.unpackb(doc.body) for doc in docs]
    places = [Place(b"", b"", thread, interrupt_id, b"", b"", "") for thread, interrupt_id in led]
    found = [one for _, one in (yield from look_up(scope, places)) if one is not None]
    return docs, [one for one in found if one.entry.by is not None and token(scope, one.entry.by) == mark]


def rename_deciders(scope: Scope, mark: bytes) -> Op[int]:
    """Take a person out of the decisions they made, which stay: their name, and what they remarked in their own words.

    Returns:
        How many decisions this has changed.
    """
    count = 0
    while True:
        docs, found = yield from decided_by(scope, mark, b"")
        for one in found:
            with suppress(InterruptNotFoundError):  # another worker was faster
                yield from _change(scope, one, partial(_without, scope, mark), lambda entry: None)
                count += 1
        threads = dict.fromkeys(ormsgpack.unpackb(doc.body)[0] for doc in docs)
        yield from keeping.clear(scope, [ThreadKey(scope.tenant, thread) for thread in threads])
        yield from drop_docs(scope, DECIDERS, [doc.key for doc in docs])
        if len(docs) < DECISIONS:
            return count


def _without(scope: Scope, mark: bytes, entry: Entry, now: int) -> Entry:
    if entry.by is None or token(scope, entry.by) != mark:
        raise InterruptNotFoundError
    return replace(entry, by=pseudonym(mark), remark=entry.remark and ERASED)


def drop_subjects(scope: Scope, key: ThreadKey, marks: Collection[bytes]) -> Op[None]:
    """Take people out of the interrupts of a thread that they leave."""
    for prefix in (WAITING, CLOSED):
        thread = yield from thread_of(scope, key)
        notes = (yield from scope.core.dialect.notes(thread, prefix)) if thread is not None else []
        for note in notes:
            entry = entry_of(scope, note.body) if note.body else None
            if thread is None or entry is None:
                continue
            left = tuple(subject for subject in entry.subjects if token(scope, subject) not in marks)
            if left != entry.subjects:
                found = Found(key, thread, entry, entry)
                yield from _change(scope, found, partial(_with_subjects, left), lambda entry: None)


def _with_subjects(subjects: tuple[str, ...], entry: Entry, now: int) -> Entry:
    return replace(entry, subjects=subjects)


def _change(
    scope: Scope,
    found: Found,
    change: Callable[[Entry, int], Entry],
    event: Callable[[Entry], str | None],
    *,
    active: bool = False,
) -> Op[Entry]:
    """Change an entry by compare-and-set on its thread; if somebody was `active`, that moves the thread's deadline."""
    at = Address(found.key, b"", None, None)
    known = scope.core.knowledge.of(found.key)
    place = Place(b"", b"", found.key.thread, found.entry.id, b"", b"", "")
    announced: list[Entry] = []

    def attempt(view: View | None) -> Op[Entry | None]:
        now = yield from scope.core.dialect.now()
        ((thread, fresh),) = yield from look_up(scope, [place])
        if thread is None or fresh is None or view is None or thread.uid != found.thread.uid:
            raise InterruptNotFoundError(f"Interrupt {found.entry.id!r} was deleted with its thread.")
        if (view.uid, view.rev) != (thread.uid, thread.rev):
            return None
        after = change(fresh.entry, now)
        (entry,) = yield from index.announce(scope, found.key, view.uid, view.rev, [(event(after), after)])
        announced.append(entry)
        before = state_of(view)
        state = replace(before, pending=before.pending - (fresh.stored.is_open and not entry.is_open))
        if active:
            state = yield from touched(scope, at, state)
        guard = replace(guard_for(scope, at, view, state), durable=True)
        stored = yield from scope.core.dialect.put_writes(guard, Elements(), (), notes_of(scope, [entry]))
        if stored is None:
            return None
        settle(at, known, view, guard, stored[0], state, encoder_for(scope, view, 0))
        yield from index.forget(scope, found.key, [(fresh.stored, entry)])
        return entry

    stored = store(scope, at, known, attempt, lambda view: False, None, check=False)
    return (yield from withdrawing(scope, found.key, announced, stored))


def _check_open(entry: Entry, now: int) -> None:
    if entry.decided is not None:
        when = moment(entry.decided)
        raise AlreadyDecidedError(
            f"Interrupt {entry.id!r} was decided by {entry.by or 'somebody'} at {when:%Y-%m-%d %H:%M:%S} UTC; "
            "nothing was changed.",
            by=entry.by,
            at=when,
        )
    if entry.status == "answered":
        raise AlreadyDecidedError(
            f"Interrupt {entry.id!r} was answered by a run; nothing was changed.",
            at=moment(entry.closed) if entry.closed else None,
        )
    if entry.status == "superseded":
        raise SupersededError(f"The thread moved on without an answer to interrupt {entry.id!r}; nothing was changed.")
    if entry.status == "expired" or (entry.deadline is not None and entry.deadline <= now):
        raise DeadlinePassedError(f"The deadline of interrupt {entry.id!r} has passed; nothing was changed.")
