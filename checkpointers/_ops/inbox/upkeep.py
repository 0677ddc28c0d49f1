"""Keeping the notes of interrupts in step with the thread, inside the writes that change it.

The rules are LangGraph's (1.x), seen from a saver; keep them here so that a new release breaks one place:

- An interrupt is a write of a task to `__interrupt__`; subgraphs write it once per level, deepest first: the first is
  where it was asked (its origin), the one in the root namespace makes the thread wait (its anchor).
- A task that writes output, or a newer interrupt, has used the answers to its earlier ones.
- A root checkpoint of source `loop` follows from its parent: what waited there was answered. Any other source means
  that the thread moved on without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME

from stepvault._core.ids import text_of
from stepvault._core.knowledge import View
from stepvault._core.plan import Op
from stepvault._core.rows import Note, ThreadRow
from stepvault._core.state import State
from stepvault.checkpointers._ops.context import Address, Scope
from stepvault.checkpointers._ops.inbox import index
from stepvault.checkpointers._ops.inbox.entries import ORIGIN, PREFIX, Entry, entry_of, note_of

_SPECIAL = frozenset((ERROR, "__error_source_node__", INTERRUPT, RESUME, "__scheduled__"))


class Upkeep(NamedTuple):
    """What a write does to the inbox: notes to store with it, the state it leaves, entries it closes."""

    notes: Sequence[Note]
    state: State
    closed: Sequence[Entry]


def on_writes(
    scope: Scope,
    at: Address,
    view: View | None,
    state: State,
    task: bytes,
    path: str,
    writes: Sequence[tuple[str, Any]],
) -> Op[Upkeep]:
    """The upkeep of a task's writes."""
    asked = [entry for channel, value in writes if channel == INTERRUPT for entry in value if hasattr(entry, "id")]
    if at.ns:
        return Upkeep((yield from _origins(scope, at, view, path, asked)), state, ())
    done = any(channel not in _SPECIAL for channel, _ in writes)
    if not asked and not (state.pending and done):
        return Upkeep((), state, ())
    now = yield from scope.core.dialect.now()
    present = yield from entries(scope, view)
    ids = {interrupt.id for interrupt in asked}
    closed = [e.close("answered", now) for e in present if e.is_open and e.task == task and (done or e.id not in ids)]
    fresh = []
    for interrupt in asked:
        if not any(e.id == interrupt.id and e.is_open for e in present):
            fresh.append((yield from _entry(scope, at, view, task, path, interrupt, now)))
    if fresh:
        yield from index.announce(scope, at.key, fresh)
    return (yield from _upkeep(scope, at, state, fresh, closed))


def on_checkpoint(
    scope: Scope, at: Address, view: View | None, state: State, checkpoint: bytes, source: Any
) -> Op[Upkeep]:
    """The upkeep of a new root checkpoint."""
    if at.ns or not state.pending:
        return Upkeep((), state, ())
    now = yield from scope.core.dialect.now()
    closed = []
    for entry in (yield from entries(scope, view)):
        if entry.is_open and entry.checkpoint != checkpoint:  # an interrupt may precede its checkpoint
            answered = entry.checkpoint == at.checkpoint and source == "loop"
            closed.append(entry.close("answered" if answered else "superseded", now))
    return (yield from _upkeep(scope, at, state, [], closed))


def _upkeep(scope: Scope, at: Address, state: State, fresh: list[Entry], closed: list[Entry]) -> Op[Upkeep]:
    if closed:
        yield from index.append(scope, at.key, [(entry.status, entry.id) for entry in closed])
    notes = [note_of(scope, entry) for entry in (*closed, *fresh)]
    return Upkeep(notes, replace(state, pending=max(0, state.pending + len(fresh) - len(closed))), closed)


def entries(scope: Scope, view: View | None) -> Op[list[Entry]]:
    """The interrupts noted in a thread."""
    if view is None:
        return []
    notes = yield from scope.core.dialect.notes(_row(view), PREFIX)
    return [entry_of(scope, note.body) for note in notes if note.body is not None]


def _row(view: View) -> ThreadRow:
    return ThreadRow(view.no, view.uid, view.rev, b"")


def _origins(scope: Scope, at: Address, view: View | None, path: str, asked: list[Any]) -> Op[list[Note]]:
    """Notes on where interrupts were asked; the deepest namespace writes first and stays."""
    notes = []
    for interrupt in asked:
        key = ORIGIN + interrupt.id.encode()
        if view is None or not (yield from scope.core.dialect.notes(_row(view), key)):
            body = scope.native.dumps([text_of(at.ns), node_of(path)])
            notes.append(Note(key, body))
    return notes


def _entry(scope: Scope, at: Address, view: View | None, task: bytes, path: str, interrupt: Any, now: int) -> Op[Entry]:
    origin = None
    if view is not None:
        found = yield from scope.core.dialect.notes(_row(view), ORIGIN + interrupt.id.encode())
        origin = scope.native.loads(found[0].body) if found and found[0].body else None
    assert at.checkpoint is not None
    ns, node = origin or ("", node_of(path))
    uid = view.uid if view else b""
    minutes = scope.core.interrupt_deadline
    return Entry(
        id=interrupt.id,
        uid=uid,
        ns=ns,
        task=task,
        checkpoint=at.checkpoint,
        node=node,
        path=path,
        value=interrupt.value,
        schema=_schema(getattr(interrupt, "response_schema", None)),
        created=now,
        deadline=now + int(minutes * 60_000) if minutes is not None else None,
    )


def node_of(path: str) -> str | None:
    """The node named in a task path (`~__pregel_pull, ask`); None for a task that was sent."""
    parts = [part.strip(" ~") for part in path.split(",")]
    return next((after for part, after in pairwise(parts) if part == "__pregel_pull"), None)


def place_of_send(path: str) -> int | None:
    """Which of its checkpoint's sends a task is (`~__pregel_push, 0000000001, ...`)."""
    parts = [part.strip(" ~") for part in path.split(",")]
    return int(parts[1]) if len(parts) > 1 and parts[0] == "__pregel_push" and parts[1].isdigit() else None


def _schema(schema: Any) -> Any:
    """A response schema as JSON Schema, which needs no class to be read again."""
    if schema is None or isinstance(schema, dict):
        return schema
    from pydantic import TypeAdapter

    return TypeAdapter(schema).json_schema()
