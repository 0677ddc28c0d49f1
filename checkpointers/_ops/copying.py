"""Copying a thread under a new id: a new generation with the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from stepvault._core.ids import new_uid, text_of
from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Atomic, Op
from stepvault._core.rows import Guard, Skeleton
from stepvault._core.state import State
from stepvault.checkpointers._ops import reads, subjects, transfer
from stepvault.checkpointers._ops.context import Address, Scope
from stepvault.checkpointers._ops.expiry import MINUTE, db_now, is_over, watch
from stepvault.checkpointers._ops.holding import turn
from stepvault.checkpointers._ops.inbox import decisions, keeping
from stepvault.checkpointers._ops.transfer import Whole
from stepvault.errors import ConfigurationError, ConflictError, StepvaultError


def copy_thread(scope: Scope, source_id: Any, target_id: Any) -> Op[None]:
    """Copy every checkpoint and write of a thread; leases and effects are not copied.

    An unknown source copies nothing, as the conformance suite asks.

    Its people are announced before the transaction, as nobody would see their hints in it, and looked up within.

    Raises:
        ConfigurationError: Source and target are the same thread.
        ConflictError: The target exists; nothing was copied.
        SubjectErasedError: Somebody whose thread it is was erased; nothing was copied.
    """
    source, target = scope.key(source_id), scope.key(target_id)
    if source == target:
        raise ConfigurationError(f"copy_thread needs two threads, both are {text_of(source.thread)!r}.")
    yield from keeping.clear(scope, [target])
    at = Address(target, b"", None, None, subjects=(yield from _people(scope, source)))
    yield from subjects.announce(scope, at)
    try:
        copied = yield Atomic(_copy(scope, source, at), "write")
    except StepvaultError:
        yield from _withdraw(scope, at)
        raise
    if not isinstance(copied, list):
        yield from _withdraw(scope, at)
    if copied is False:
        yield from subjects.check_named(scope, at)  # whoever erases them has closed the target
        raise ConflictError(
            f"Thread {text_of(target.thread)!r} exists; nothing was copied. Delete it first or choose another id."
        )
    scope.core.knowledge.forget(target)
    if copied is not None:
        yield from _settle_deciders(scope, copied)
        yield from reads.pin_copy(scope, target)


def _settle_deciders(scope: Scope, deciders: Sequence[str]) -> Op[None]:
    """Take those out of a copy who were erased while it was made: nobody saw the hints that lead to it."""
    for mark in (yield from subjects.erased(scope, [subjects.token(scope, by) for by in deciders])):
        yield from decisions.rename_deciders(scope, mark)


def _people(scope: Scope, source: ThreadKey) -> Op[tuple[str, ...]]:
    ((thread, _),) = yield from scope.core.dialect.notes_at([(source, b"")])
    return () if thread is None else (yield from subjects.of_thread(scope, thread))


def _withdraw(scope: Scope, at: Address) -> Op[None]:
    marks = [subjects.token(scope, name) for name in at.subjects]
    yield from subjects.forget(scope, [subjects.Left(at.key, marks, ())])


def _copy(scope: Scope, source: ThreadKey, at: Address) -> Op[list[str] | Literal[False] | None]:
    """Who decided in the copy; False if the target exists, None if the source does not."""
    target = at.key
    found = yield from _found(scope, source)
    if found is None or (yield from is_over(scope.core, found.thread)):
        return None
    state = replace(State.unpack(found.thread.extents), lease=None)
    if state.subjects and not set((yield from subjects.of_thread(scope, found.thread))) <= set(at.subjects):
        raise ConflictError(f"Thread {text_of(source.thread)!r} was just given to somebody else; copy it again.")
    yield from subjects.check_named(scope, at)
    if state.expires_at is not None:
        soon = (yield from db_now(scope.core)) + MINUTE  # not before the copy is whole
        yield from watch(scope, target, max(state.expires_at, soon))
    guard = Guard(target, None, new_uid(), scope.core.random(8), state.pack())
    if not (yield from _copy_rows(scope, found, guard)):
        return False
    return (yield from keeping.settle_copy(scope, target))


def _found(scope: Scope, source: ThreadKey) -> Op[Skeleton | Whole | None]:
    """What is copied: sealed rows are bound to their thread, so those of a copy are sealed anew."""
    dialect = scope.core.dialect
    if scope.core.keys is not None:
        return (yield from transfer.read_still(scope, dialect, source))
    yield from dialect.lock(source)
    holding = yield from turn(scope, source)
    if holding is None:
        return (yield from dialect.skeleton(source))
    found = yield from holding.during(dialect.skeleton(source))
    yield from holding.end()
    return found


def _copy_rows(scope: Scope, found: Skeleton | Whole, guard: Guard) -> Op[bool]:
    if isinstance(found, Whole):
        return (yield from transfer.give(scope, scope.core.dialect, guard, found))
    return (yield from scope.core.dialect.copy(found.thread, guard))
