"""Pauses: runs that `interrupt_before` or `interrupt_after` stopped, so that somebody looks before they go on.

Such a stop stores nothing, so a saver alone cannot tell it from a run that is at work, or was killed. LangGraph tells
it to callback handlers (`_pauses.py`), after everything of the run is stored: then a pause is recorded, an entry of the
inbox with the nodes that are next and no question. A run that loads the thread goes on from it: from then on it waits
for nobody, though no checkpoint tells so yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stepvault._core.codec import unpack
from stepvault._core.knowledge import ThreadKey, View
from stepvault._core.plan import Op
from stepvault._core.record import decode_writes
from stepvault._core.rows import Elements
from stepvault._core.state import State
from stepvault._core.waiting import next_nodes
from stepvault.checkpointers._ops.context import Address, Scope
from stepvault.checkpointers._ops.expiry import db_now
from stepvault.checkpointers._ops.guarded import encoder_for, guard_for, settle, state_of, store
from stepvault.checkpointers._ops.inbox import index
from stepvault.checkpointers._ops.inbox.entries import Entry, entry_of, note_keys, notes_of
from stepvault.checkpointers._ops.inbox.upkeep import deadline_of, node_of, place_of_send, row_of, waiting
from stepvault.checkpointers._ops.load import get_tuple
from stepvault.checkpointers._ops.subjects import of_thread

_GO_ON = {"const": True}  # the one answer to a pause


def record(scope: Scope, key: ThreadKey, checkpoint: bytes) -> Op[bool]:
    """Record that a run paused at the head of a thread; nothing if it has moved on, asks something or is finished."""
    at = Address(key, b"", checkpoint, None)
    nodes = yield from _next(scope, at)
    name = f"pause-{scope.core.random(16).hex()}"

    def attempt(view: View | None) -> Op[bool | None]:
        if view is None or view.state.head != checkpoint:
            return False
        present = yield from waiting(scope, view)
        passed = [entry for entry in present if entry.taken is not None]
        if len(passed) < len(present):
            return False  # a question waits, or this pause is recorded
        now = yield from db_now(scope.core)
        subjects = yield from of_thread(scope, row_of(view))
        fresh = _entry(scope, name, at, view, nodes, now, subjects)
        told: list[tuple[str | None, Entry]] = [("answered", entry.close("answered", now)) for entry in passed]
        entries = yield from index.announce(scope, key, view.uid, view.rev, [*told, ("created", fresh)])
        state = replace(view.state, pending=view.state.pending + 1 - len(passed), paused=True)
        if not (yield from _store(scope, at, view, state, entries)):
            return None
        yield from index.forget(scope, key, list(zip(passed, entries, strict=False)))
        return True

    if not nodes:
        return False
    return (
        yield from store(scope, at, scope.core.knowledge.of(at.key), attempt, lambda view: False, None, check=False)
    )


def take(scope: Scope, at: Address, checkpoint: bytes) -> Op[None]:
    """A run loaded this checkpoint: if a pause waits there, the run goes on from it."""

    def attempt(view: View | None) -> Op[bool | None]:
        if view is None:
            return False
        here = [entry for entry in (yield from waiting(scope, view)) if entry.checkpoint == checkpoint]
        mine = [entry for entry in here if entry.nodes is not None and entry.taken is None]
        if not mine:
            return False
        now = yield from db_now(scope.core)
        state = state_of(view)
        return (yield from _store(scope, at, view, state, [replace(entry, taken=now) for entry in mine])) or None

    yield from store(scope, at, scope.core.knowledge.of(at.key), attempt, lambda view: False, None, check=False)


def waits(scope: Scope, key: ThreadKey, checkpoint: bytes, name: str) -> Op[bool]:
    """Whether this pause waits at a checkpoint."""
    ((_, body),) = yield from scope.core.dialect.notes_at([(key, note_keys(name)[0])])
    return body is not None and entry_of(scope, body).checkpoint == checkpoint


def _store(scope: Scope, at: Address, view: View, state: State, entries: Sequence[Entry]) -> Op[bool]:
    guard = guard_for(scope, at, view, state)
    stored = yield from scope.core.dialect.put_writes(guard, Elements(), (), notes_of(scope, entries))
    if stored is None:
        return False
    settle(at, scope.core.knowledge.of(at.key), view, guard, stored[0], state, encoder_for(scope, view, 0))
    return True


def _next(scope: Scope, at: Address) -> Op[tuple[str | None, ...]]:
    """The nodes that are next at a checkpoint."""
    found = yield from get_tuple(scope, at)
    if found is None or at.checkpoint is None:
        return ()
    loaded = yield from scope.core.dialect.load(at.key, at.ns, at.checkpoint, None)
    paths = [decode_writes(unpack(row.body)).path for row in loaded.writes if row.k >= 0]
    sent, pulled = map(place_of_send, paths), map(node_of, paths)
    return next_nodes(found.checkpoint, {what for what in (*sent, *pulled) if what is not None})


def _entry(
    scope: Scope,
    name: str,
    at: Address,
    view: View,
    nodes: tuple[str | None, ...],
    now: int,
    subjects: tuple[str, ...],
) -> Entry:
    assert at.checkpoint is not None
    return Entry(
        id=name,
        uid=view.uid,
        ns="",
        task=b"",
        checkpoint=at.checkpoint,
        node=nodes[0],
        path="",
        value=scope.native.dumps(None),
        schema=scope.native.dumps(_GO_ON),
        created=now,
        deadline=deadline_of(scope, now),
        subjects=subjects,
        nodes=nodes,
    )
