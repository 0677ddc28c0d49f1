"""Keeping the notes of interrupts in step with the thread, inside the writes that change it.

The rules are LangGraph's (1.x), seen from a saver; keep them here so that a new release breaks one place:

- An interrupt is a write of a task to `__interrupt__`; subgraphs write it once per level, deepest first: the first is
  where it was asked (its origin), the one in the root namespace makes the thread wait (its anchor).
- A task that a task called (`@task`) writes its interrupt too; the thread waits for what its caller passes on.
- A task that writes output, or a newer interrupt, has used the answers to its earlier ones.
- A root checkpoint of source `loop` follows from its parent: what waited there was answered. Any other source means
  that the thread moved on without it. The writes of a checkpoint may come before the checkpoint itself.
- What is asked below the head (a replay of an old checkpoint) waits for nobody: `get_state` does not show it either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, TASKS

from stepvault._core.ids import text_of
from stepvault._core.knowledge import View
from stepvault._core.plan import Op
from stepvault._core.record import Record
from stepvault._core.rows import Note, ThreadRow
from stepvault._core.state import State
from stepvault.checkpointers._ops.context import Address, Scope
from stepvault.checkpointers._ops.expiry import db_now
from stepvault.checkpointers._ops.inbox import index
from stepvault.checkpointers._ops.inbox.entries import ORIGIN, WAITING, Entry, entry_of, note_keys, notes_of
from stepvault.checkpointers._ops.subjects import of_thread

_SPECIAL = frozenset((ERROR, "__error_source_node__", INTERRUPT, RESUME, "__scheduled__"))

_PUSH, _PULL = "__pregel_push", "__pregel_pull"


class Upkeep(NamedTuple):
    """What a write does to the inbox: notes to store with it, the state it leaves, entries changed and announced."""

    notes: Sequence[Note]
    state: State
    changed: Sequence[tuple[Entry, Entry]] = ()
    announced: Sequence[Entry] = ()


def asks(writes: Sequence[tuple[str, Any]]) -> bool:
    """Whether these writes ask a human."""
    return any(channel == INTERRUPT and value for channel, value in writes)


def interrupts_in(value: Any) -> list[Any]:
    """The interrupts among what was written to `__interrupt__`; a direct call may write anything there."""
    entries = value if isinstance(value, (list, tuple)) else ()
    return [entry for entry in entries if hasattr(entry, "id") and hasattr(entry, "value")]


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
    asked = [entry for channel, value in writes if channel == INTERRUPT for entry in interrupts_in(value)]
    if view is None:
        assert not asked, "a thread is made before its first interrupt"
        return Upkeep((), state)
    if at.ns:
        return Upkeep((yield from _origins(scope, at, view, path, asked)), state)
    assert at.checkpoint is not None
    if _is_called(path):
        return Upkeep((), state)
    if state.head is not None and at.checkpoint < state.head:
        asked = []
    done = any(channel not in _SPECIAL for channel, _ in writes)
    if not asked and not (state.pending and done):
        return Upkeep((), state)
    now = yield from db_now(scope.core)
    present = yield from waiting(scope, view)
    ids = {interrupt.id for interrupt in asked}
    passed = [e for e in present if e.nodes is not None and e.checkpoint == at.checkpoint and at.run is not None]
    used = [e for e in present if e.task == task and e.nodes is None and (done or e.id not in ids)]
    closed = [(e, e.close("answered", now)) for e in [*used, *passed]]
    new = [interrupt for interrupt in asked if not any(e.id == interrupt.id for e in present)]
    fresh = yield from _fresh(scope, at, view, task, path, new, now)
    return (yield from _upkeep(scope, at, view, state, fresh, closed))


def on_checkpoint(
    scope: Scope, at: Address, view: View | None, state: State, checkpoint: bytes, source: Any
) -> Op[Upkeep]:
    """The upkeep of a new root checkpoint."""
    if at.ns or not state.pending or view is None:
        return Upkeep((), state)
    now = yield from db_now(scope.core)
    closed = []
    for entry in (yield from waiting(scope, view)):
        if entry.checkpoint < checkpoint:
            answered = entry.checkpoint == at.checkpoint and source == "loop"
            closed.append((entry, entry.close("answered" if answered else "superseded", now)))
    return (yield from _upkeep(scope, at, view, state, [], closed))


def _upkeep(
    scope: Scope, at: Address, view: View, state: State, fresh: list[Entry], closed: list[tuple[Entry, Entry]]
) -> Op[Upkeep]:
    if not fresh and not closed:
        return Upkeep((), state)
    told: list[tuple[str | None, Entry]] = [(after.status, after) for _, after in closed]
    told += [("created", entry) for entry in fresh]
    entries = yield from index.announce(scope, at.key, view.uid, view.rev, told)
    changed = [(before, after) for (before, _), after in zip(closed, entries, strict=False)]
    pending = max(0, state.pending + len(fresh) - len(closed))
    paused = state.paused and pending > 0 and not any(before.nodes is not None for before, _ in closed)
    state = replace(state, pending=pending, paused=paused)
    return Upkeep(notes_of(scope, entries), state, changed, entries)


def deadline_of(scope: Scope, now: int) -> int | None:
    """When what is asked now stops waiting, if it does."""
    minutes = scope.core.interrupt_deadline
    return now + int(minutes * 60_000) if minutes is not None else None


def waiting(scope: Scope, view: View) -> Op[list[Entry]]:
    """The open interrupts of a thread."""
    notes = yield from scope.core.dialect.notes(row_of(view), WAITING)
    return [entry_of(scope, note.body) for note in notes if note.body is not None]


def row_of(view: View) -> ThreadRow:
    """The thread of a view, to read its notes."""
    return ThreadRow(view.no, view.uid, view.rev, b"")


def _origins(scope: Scope, at: Address, view: View, path: str, asked: list[Any]) -> Op[list[Note]]:
    """Notes on where interrupts were asked: the deepest namespace counts, whichever writes first."""
    if not asked:
        return []
    keys = [ORIGIN + interrupt.id.encode("utf-8", "surrogatepass") for interrupt in asked]
    present = yield from scope.core.dialect.notes_at([(at.key, key) for key in keys])
    ns, notes = text_of(at.ns), []
    for key, (_, body) in zip(keys, present, strict=True):
        if body is None or len(scope.native.loads(body)[0]) < len(ns):
            notes.append(Note(key, scope.native.dumps([ns, _node(scope, at, view, path)])))
    return notes


def _fresh(
    scope: Scope, at: Address, view: View, task: bytes, path: str, asked: list[Any], now: int
) -> Op[list[Entry]]:
    """Entries of new interrupts; one that was asked before keeps what the feed told of it."""
    if not asked:
        return []
    keys = [(note_keys(i.id)[1], ORIGIN + i.id.encode("utf-8", "surrogatepass")) for i in asked]
    found = yield from scope.core.dialect.notes_at([(at.key, key) for pair in keys for key in pair])
    subjects = at.subjects or (yield from of_thread(scope, row_of(view)))
    entries = []
    for interrupt, (_, earlier), (_, origin) in zip(asked, found[::2], found[1::2], strict=True):
        ns, node = scope.native.loads(origin) if origin else ("", _node(scope, at, view, path))
        assert at.checkpoint is not None
        entry = Entry(
            id=interrupt.id,
            uid=view.uid,
            ns=ns,
            task=task,
            checkpoint=at.checkpoint,
            node=node,
            path=path,
            value=scope.native.dumps(interrupt.value),
            schema=scope.native.dumps(_schema(getattr(interrupt, "response_schema", None))),
            created=now,
            deadline=deadline_of(scope, now),
            subjects=subjects,
            events=entry_of(scope, earlier).events if earlier else (),
        )
        entries.append(entry)
    return entries


def _node(scope: Scope, at: Address, view: View, path: str) -> str | None:
    """The node of a task; that of a Send stands in its checkpoint, if this process has seen it."""
    place, node = place_of_send(path), node_of(path)
    if place is None or at.checkpoint is None:
        return node
    record = view.records.get((at.ns, at.checkpoint))
    return sent_to(scope, record, view.elements, place) if record else None


def sent_to(scope: Scope, record: Record, elements: Mapping[int, bytes], place: int) -> str | None:
    """The node of a Send of a checkpoint."""
    sends = scope.decoder(elements).value(record.forms.get(TASKS)) or []
    return getattr(sends[place], "node", None) if place < len(sends) else None


def node_of(path: str) -> str | None:
    """The node named in a task path (`~__pregel_pull, ask`); None for a task that was sent."""
    parts = _parts(path)
    return next((after for part, after in pairwise(parts) if part == _PULL), None)


def place_of_send(path: str) -> int | None:
    """Which of its checkpoint's sends a task is (`~__pregel_push, 0000000001, ...`)."""
    parts = _parts(path)
    return int(parts[1]) if len(parts) > 1 and parts[0] == _PUSH and parts[1].isdigit() else None


def _is_called(path: str) -> bool:
    """Whether a task was called by another (`~__pregel_push, ~__pregel_pull, flow, 0000000000, ...`)."""
    parts = _parts(path)
    return len(parts) > 1 and parts[0] == _PUSH and not parts[1].isdigit()


def _parts(path: str) -> list[str]:
    return [part.strip(" ~") for part in path.split(",")]


def _schema(schema: Any) -> Any:
    """A response schema as JSON Schema, which needs no class to be read again."""
    if schema is None or isinstance(schema, dict):
        return schema
    from pydantic import TypeAdapter

    return TypeAdapter(schema).json_schema()
