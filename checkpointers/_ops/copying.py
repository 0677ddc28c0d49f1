"""Copying a thread under a new id: a new generation with the same rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stepvault._core.ids import new_uid, text_of
from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Atomic, Op
from stepvault._core.rows import Elements, Guard, Note
from stepvault._core.state import State
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.effects import PREFIX as EFFECTS
from stepvault.checkpointers._ops.inbox import index
from stepvault.checkpointers._ops.inbox.upkeep import entries
from stepvault.checkpointers._ops.load import view_of
from stepvault.errors import ConfigurationError, ConflictError


def copy_thread(scope: Scope, source_id: Any, target_id: Any) -> Op[None]:
    """Copy every checkpoint and write of a thread; leases and effects are not copied.

    An unknown source copies nothing, as the conformance suite asks.

    Raises:
        ConfigurationError: Source and target are the same thread.
        ConflictError: The target exists; nothing was copied.
    """
    source, target = scope.key(source_id), scope.key(target_id)
    if source == target:
        raise ConfigurationError(f"copy_thread needs two threads, both are {text_of(source.thread)!r}.")
    copied = yield Atomic(_copy(scope, source, target), "write")
    if copied is False:
        raise ConflictError(
            f"Thread {text_of(target.thread)!r} exists; nothing was copied. Delete it first or choose another id."
        )
    scope.core.knowledge.forget(target)
    if copied:
        yield from _announce(scope, target)


def _announce(scope: Scope, target: ThreadKey) -> Op[None]:
    """Make the questions that wait in the copy findable too."""
    loaded = yield from scope.core.dialect.load(target, b"", b"\x00", None)
    if loaded.thread is not None:
        noted = yield from entries(scope, view_of(loaded.thread))
        waiting = [entry for entry in noted if entry.is_open]
        if waiting:
            yield from index.announce(scope, target, waiting)


def _copy(scope: Scope, source: Any, target: Any) -> Op[bool | None]:
    dialect = scope.core.dialect
    yield from dialect.lock(source)
    skeleton = yield from dialect.skeleton(source)
    if skeleton is None:
        return None
    state = replace(State.unpack(skeleton.thread.extents), lease=None)
    guard = Guard(target, None, new_uid(), scope.core.random(8), state.pack())
    if not (yield from dialect.copy(skeleton.thread, guard)):
        return False
    yield from _leave_out_effects(scope, target, guard)
    return True


def _leave_out_effects(scope: Scope, target: ThreadKey, guard: Guard) -> Op[None]:
    """What was paid in one thread is not paid in its copy."""
    loaded = yield from scope.core.dialect.load(target, b"", b"\x00", None)
    if loaded.thread is None:
        return
    effects = yield from scope.core.dialect.notes(loaded.thread, EFFECTS)
    if effects:
        after = Guard(target, loaded.thread, guard.uid, scope.core.random(8), guard.extents)
        yield from scope.core.dialect.put_writes(after, Elements(), (), [Note(note.key, None) for note in effects])
