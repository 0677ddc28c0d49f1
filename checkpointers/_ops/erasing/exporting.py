"""Everything of one person, in clear, as plain lines: page by page, so that memory stays flat."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import ormsgpack
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.store.base import Item

from stepvault._core.ids import id_of, text_of
from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.rows import Doc
from stepvault._core.state import State
from stepvault.checkpointers._ops import listing, load, people
from stepvault.checkpointers._ops.context import Address, Scope, thread_of
from stepvault.checkpointers._ops.erasing.items import Items
from stepvault.checkpointers._ops.listing import Listing
from stepvault.checkpointers._ops.spaces import space
from stepvault.checkpointers._ops.subjects import DECIDERS, SUBJECTS, token
from stepvault.errors import ConfigurationError, PayloadError

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an export is: what is left of each part, the one at work first."""

    marks: tuple[bytes, ...]  # ids whose threads and decisions are still to come, the one at work first
    all_marks: frozenset[bytes]
    after: bytes = b""  # of the hints of the first id
    thread: ThreadKey | None = None
    shared: bool = False
    listing: Listing | None = None  # of that thread
    decisions: bool = False  # its threads are done, its decisions are at work
    namespaces: tuple[tuple[str, ...], ...] | None = None  # None: not looked for yet
    offset: int = 0  # in the first of these, or in the thread's own memory


def begin(scope: Scope, subject: str) -> Op[tuple[Progress, list[str]]]:
    """The start of an export, and the ids it is about."""
    ids = yield from people.ids_of(scope, subject)
    marks = tuple(token(scope, name) for name in ids)
    return Progress(marks, frozenset(marks)), ids


def page(scope: Scope, at: Progress, items: Items, ids: Collection[str]) -> Op[tuple[list[Line], Progress | None]]:
    """Some lines, and where to go on."""
    if at.thread is not None:
        return (yield from _thread(scope, at, at.thread, items))
    if at.marks:
        return (yield from (_decisions if at.decisions else _next_thread)(scope, at))
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


def _next_thread(scope: Scope, at: Progress) -> Op[tuple[list[Line], Progress]]:
    docs = yield from scope.core.dialect.docs(space(scope, SUBJECTS), at.marks[0], at.after, 1)
    if not docs:
        return [], replace(at, decisions=True, after=b"")
    key, after = ThreadKey(scope.tenant, ormsgpack.unpackb(docs[0].body)[1]), docs[0].key
    thread = yield from thread_of(scope, key)
    state = State.unpack(thread.extents) if thread else State()
    if at.marks[0] not in state.subjects:
        return [], replace(at, after=after)
    shared = not set(state.subjects) <= at.all_marks
    begun = listing.start(scope, {"configurable": {"thread_id": text_of(key.thread)}}, None, None, None)
    return [], replace(at, after=after, thread=key, shared=shared, listing=begun)


def _decisions(scope: Scope, at: Progress) -> Op[tuple[list[Line], Progress]]:
    docs = yield from scope.core.dialect.docs(space(scope, DECIDERS), at.marks[0], at.after, 100)
    if not docs:
        return [], replace(at, marks=at.marks[1:], decisions=False, after=b"")
    return [_decision(doc) for doc in docs], replace(at, after=docs[-1].key)


def _decision(doc: Doc) -> Line:
    thread, interrupt_id = ormsgpack.unpackb(doc.body)
    return {"kind": "decision", "thread_id": text_of(thread), "interrupt_id": interrupt_id}


def _thread(scope: Scope, at: Progress, key: ThreadKey, items: Items) -> Op[tuple[list[Line], Progress]]:
    assert at.listing is not None
    if at.listing.query is None:
        return (yield from _memory(at, key, items))
    try:
        found, rest = yield from listing.page(scope, at.listing)
    except PayloadError:
        lines = yield from _one_by_one(scope, at, key)
        return lines, replace(at, listing=replace(at.listing, query=None))
    return [_checkpoint(key, entry, at.shared) for entry in found], replace(at, listing=rest)


def _memory(at: Progress, key: ThreadKey, items: Items) -> Op[tuple[list[Line], Progress]]:
    """Some of a thread's own memory; after the last of it the thread is done."""
    namespace, lines = items.scope_of(text_of(key.thread)), list[Line]()
    following: int | None = None
    if namespace is not None:
        page, following = yield from items.page(namespace, at.offset, below=True)
        lines = [_item(item) for item in page]
    if following is None:
        return lines, replace(at, thread=None, listing=None, offset=0)
    return lines, replace(at, offset=following)


def _item(item: Item) -> Line:
    return {
        "kind": "item", "namespace": list(item.namespace), "key": item.key, "value": plain(item.value),
        "created_at": item.created_at.isoformat(), "updated_at": item.updated_at.isoformat(),
    }  # fmt: skip


def _one_by_one(scope: Scope, at: Progress, key: ThreadKey) -> Op[list[Line]]:
    """The rest of a thread some of whose checkpoints cannot be read: these are named, the others are given."""
    skeleton = yield from scope.core.dialect.skeleton(key)
    after = at.listing.query.after if at.listing and at.listing.query else None
    lines: list[Line] = []
    for row in sorted(skeleton.checkpoints if skeleton else (), key=lambda row: (row.id, row.ns), reverse=True):
        if after is not None and (row.id, row.ns) >= after[:2]:
            continue
        try:
            found = yield from load.get_tuple(scope, Address(key, row.ns, row.id, None))
        except PayloadError as exc:
            lines.append(
                {"kind": "incomplete", "thread_id": text_of(key.thread), "ns": text_of(row.ns),
                 "checkpoint_id": id_of(row.id), "error": type(exc).__name__}
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
    return {"kind": "step", "thread_id": thread_id, "step": step.model_dump(mode="json")}


def _unread(thread_id: str, exc: Exception) -> Line:
    return {"kind": "incomplete", "thread_id": thread_id, "part": "steps", "error": type(exc).__name__}


def plain(value: Any) -> Any:
    """A value as JSON knows it."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    dump = getattr(value, "model_dump", None)
    return plain(dump(mode="json")) if dump else repr(value)
