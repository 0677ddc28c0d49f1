"""Everything of one person, in clear, as plain lines: page by page, so that memory stays flat."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.store.base import Item

from stepvault._core.ids import id_of, text_of
from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.state import State
from stepvault.checkpointers._ops import effect_hints, effects, listing, load, people
from stepvault.checkpointers._ops.context import Address, Scope, thread_of
from stepvault.checkpointers._ops.erasing.items import Items
from stepvault.checkpointers._ops.expiry import is_over
from stepvault.checkpointers._ops.inbox import decisions
from stepvault.checkpointers._ops.inbox.entries import (
    CLOSED,
    WAITING,
    Entry,
    entry_of,
    interrupt_of,
    moment,
    public_id,
    shown,
)
from stepvault.checkpointers._ops.listing import Listing
from stepvault.checkpointers._ops.subjects import token
from stepvault.effects import EffectRecord
from stepvault.errors import ConfigurationError, PayloadError

Line = dict[str, Any]
Row = tuple[bytes, bytes]  # checkpoint id, namespace
_PAGE, _SINGLY = 200, 8  # threads, and checkpoints that are read one by one, together


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an export is: what is left of each part, the one at work first."""

    marks: frozenset[bytes]
    after: int | None = None  # of the tenant's threads; the person's own are told by the threads themselves
    ended: bool = False  # there are no more
    threads: tuple[tuple[ThreadKey, bool], ...] = ()  # of a page, theirs; whether each is also others'
    thread: ThreadKey | None = None
    shared: bool = False
    listing: Listing | None = None  # of that thread
    singly: tuple[Row, ...] = ()  # its checkpoints that are read one by one, as something in it cannot be read
    deciders: tuple[bytes, ...] = ()  # ids whose decisions are still to come, the one at work first
    decided: bytes = b""  # of the hints of the first
    namespaces: tuple[tuple[str, ...], ...] | None = None  # None: not looked for yet
    offset: int = 0  # in the first of these, or in the thread's own memory


def begin(scope: Scope, subject: str) -> Op[tuple[Progress, list[str]]]:
    """The start of an export, and the ids it is about."""
    ids = yield from people.ids_of(scope, subject)
    marks = tuple(token(scope, name) for name in ids)
    return Progress(frozenset(marks), deciders=marks), ids


def page(scope: Scope, at: Progress, items: Items, ids: Collection[str]) -> Op[tuple[list[Line], Progress | None]]:
    """Some lines, and where to go on."""
    if at.thread is not None:
        return (yield from _thread(scope, at, at.thread, items))
    if at.threads:
        return [], _opened(scope, at)
    if not at.ended:
        return [], (yield from _more_threads(scope, at))
    if at.deciders:
        return (yield from _decisions(scope, at))
    if at.namespaces is None:
        found = yield from items.namespaces(lambda name: name in ids)
        return [], replace(at, namespaces=tuple(found))
    if not at.namespaces:
        return [], None
    page, following = yield from items.page(at.namespaces[0], at.offset)
    lines = [_item(item) for item in page]
    if following is not None:
        return lines, replace(at, offset=following)
    return lines, replace(at, namespaces=at.namespaces[1:], offset=0)


def _more_threads(scope: Scope, at: Progress) -> Op[Progress]:
    rows = yield from scope.core.dialect.threads(scope.tenant, _PAGE, at.after)
    owners = [(row, set(State.unpack(row.extents).subjects)) for row in rows if row.extents]
    theirs = tuple(
        (ThreadKey(scope.tenant, row.thread), not subjects <= at.marks)
        for row, subjects in owners if not subjects.isdisjoint(at.marks)
    )  # fmt: skip
    return replace(at, threads=theirs, ended=len(rows) < _PAGE, after=rows[-1].no if rows else None)


def _opened(scope: Scope, at: Progress) -> Progress:
    (key, shared), *others = at.threads
    begun = listing.start(scope, {"configurable": {"thread_id": text_of(key.thread)}}, None, None, None)
    return replace(at, threads=tuple(others), thread=key, shared=shared, listing=begun)


def _decisions(scope: Scope, at: Progress) -> Op[tuple[list[Line], Progress]]:
    docs, found = yield from decisions.decided_by(scope, at.deciders[0], at.decided)
    if not docs:
        return [], replace(at, deciders=at.deciders[1:], decided=b"")
    present = []
    for one in found:
        if not (yield from is_over(scope.core, one.thread)):
            present.append(one)
    lines = [
        {"kind": "decision", "thread_id": text_of(one.key.thread), "interrupt_id": public_id(one.entry, one.thread.uid),
         "node": one.entry.node, **_answer(scope, one.entry)} for one in present
    ]  # fmt: skip
    return lines, replace(at, decided=docs[-1].key)


def _records(scope: Scope, key: ThreadKey) -> Op[list[Line]]:
    """The questions of a thread, and the effects that were recorded in it."""
    thread = yield from thread_of(scope, key)
    if thread is None or (yield from is_over(scope.core, thread)):
        return []
    lines: list[Line] = []
    for prefix in (WAITING, CLOSED):
        for note in (yield from scope.core.dialect.notes(thread, prefix)):
            lines += [_question(scope, key, thread.uid, entry_of(scope, note.body))] if note.body else []
    for note in (yield from scope.core.dialect.notes(thread, effect_hints.PREFIX)):
        if note.body:
            lines.append(_effect(effects.read(scope, key, thread.uid, note)))
    return lines


def _question(scope: Scope, key: ThreadKey, uid: bytes, entry: Entry) -> Line:
    """A question as the inbox shows it; who answered, with what, is in it."""
    asked = interrupt_of(scope, key, uid, entry)
    return {
        "kind": "question", "thread_id": asked.thread_id, "interrupt_id": asked.id, "ns": asked.checkpoint_ns,
        "checkpoint_id": asked.checkpoint_id, "node": asked.node, "status": asked.status, "value": plain(asked.value),
        "created_at": asked.created_at.isoformat(), "deadline": asked.deadline and asked.deadline.isoformat(),
        "default": plain(asked.default), "external_ref": asked.external_ref,
        "decision": _answer(scope, entry) if entry.decided is not None else None,
    }  # fmt: skip


def _answer(scope: Scope, entry: Entry) -> Line:
    at = None if entry.decided is None else moment(entry.decided).isoformat()
    return {"answer": plain(shown(scope, entry.answer)), "by": entry.by, "note": entry.remark, "at": at}


def _effect(record: EffectRecord) -> Line:
    return {
        "kind": "effect", "thread_id": record.thread_id, "name": record.name, "task_id": record.task_id,
        "state": record.state, "started_at": record.started_at.isoformat(), "args": plain(record.args),
        "kwargs": plain(record.kwargs), "result": plain(record.result),
    }  # fmt: skip


def _thread(scope: Scope, at: Progress, key: ThreadKey, items: Items) -> Op[tuple[list[Line], Progress]]:
    assert at.listing is not None
    if at.singly:
        lines = yield from _one_by_one(scope, at, key)
        return lines, replace(at, singly=at.singly[_SINGLY:])
    if at.listing.query is None:
        return (yield from _memory(scope, at, key, items))
    try:
        found, rest = yield from listing.page(scope, at.listing)
    except PayloadError:
        left = yield from _left(scope, at.listing, key)
        return [], replace(at, singly=left, listing=replace(at.listing, query=None))
    return [_checkpoint(key, entry, at.shared) for entry in found], replace(at, listing=rest)


def _memory(scope: Scope, at: Progress, key: ThreadKey, items: Items) -> Op[tuple[list[Line], Progress]]:
    """Some of a thread's own memory; after the last of it, what else is recorded, and the thread is done."""
    namespace, lines = items.scope_of(text_of(key.thread)), list[Line]()
    following: int | None = None
    if namespace is not None:
        page, following = yield from items.page(namespace, at.offset, below=True)
        lines = [_item(item) for item in page]
    if following is None:
        lines += yield from _records(scope, key)
        return lines, replace(at, thread=None, listing=None, offset=0)
    return lines, replace(at, offset=following)


def _item(item: Item) -> Line:
    return {
        "kind": "item", "namespace": list(item.namespace), "key": item.key, "value": plain(item.value),
        "created_at": item.created_at.isoformat(), "updated_at": item.updated_at.isoformat(),
    }  # fmt: skip


def _left(scope: Scope, listed: Listing, key: ThreadKey) -> Op[tuple[Row, ...]]:
    """The checkpoints of a thread that a list of it has not given, newest first."""
    skeleton = yield from scope.core.dialect.skeleton(key)
    after = listed.query.after if listed.query else None
    rows = sorted(((row.id, row.ns) for row in (skeleton.checkpoints if skeleton else ())), reverse=True)
    return tuple(row for row in rows if after is None or row < after[:2])


def _one_by_one(scope: Scope, at: Progress, key: ThreadKey) -> Op[list[Line]]:
    """Some checkpoints of a thread: those that cannot be read are named, the others are given."""
    lines: list[Line] = []
    for id_, ns in at.singly[:_SINGLY]:
        try:
            found = yield from load.get_tuple(scope, Address(key, ns, id_, None))
        except PayloadError as exc:
            lines.append(
                {"kind": "incomplete", "thread_id": text_of(key.thread), "ns": text_of(ns),
                 "checkpoint_id": id_of(id_), "error": type(exc).__name__}
            )  # fmt: skip
        else:
            lines += [_checkpoint(key, found, at.shared)] if found else []
    return lines


def _checkpoint(key: ThreadKey, entry: CheckpointTuple, shared: bool) -> Line:
    named = entry.config.get("configurable") or {}
    return {
        "kind": "checkpoint", "thread_id": text_of(key.thread), "shared": shared, "ns": named["checkpoint_ns"],
        "checkpoint_id": named["checkpoint_id"], "ts": entry.checkpoint["ts"], "metadata": plain(entry.metadata),
        "values": plain(entry.checkpoint["channel_values"]), "writes": plain(entry.pending_writes),
    }  # fmt: skip


def steps_of(saver: Any, thread_id: str) -> Iterator[Line]:
    """What was said and done in a thread, one step at a time."""
    from stepvault.steps import iter_steps  # what reads messages is loaded only by who asks for it

    try:
        for step in iter_steps(saver, thread_id):
            yield _step(thread_id, step)
    except PayloadError as exc:
        yield _unread(thread_id, exc)
    except ConfigurationError:
        return  # it has no checkpoint in the root namespace


async def asteps_of(saver: Any, thread_id: str) -> AsyncIterator[Line]:
    """Async version of `steps_of`."""
    from stepvault.steps import aiter_steps

    try:
        async for step in aiter_steps(saver, thread_id):
            yield _step(thread_id, step)
    except PayloadError as exc:
        yield _unread(thread_id, exc)
    except ConfigurationError:
        return


def _step(thread_id: str, step: Any) -> Line:
    return {"kind": "step", "thread_id": thread_id, "step": plain(step.model_dump(mode="json"))}


def _unread(thread_id: str, exc: Exception) -> Line:
    return {"kind": "incomplete", "thread_id": thread_id, "part": "steps", "error": type(exc).__name__}


def plain(value: Any) -> Any:
    """A value as JSON knows it."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)  # JSON has no such numbers
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        named = {str(key): plain(item) for key, item in value.items()}
        return named if len(named) == len(value) else repr(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    dump = getattr(value, "model_dump", None)
    return plain(dump(mode="json")) if dump else repr(value)


def written(line: Line) -> str:
    """A line as it stands in a file."""
    text = json.dumps(line, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can escape
        text = json.dumps(line)
    return text + "\n"
