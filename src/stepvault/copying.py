"""Copying threads and store items between any two savers or stores, official ones included, in both directions.

What to ask of whom is written once, as generators; sync and async differ only in how they ask.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.store.base import BaseStore

from stepvault._core.plan import Op
from stepvault.checkpointers._ops import traces as saver_traces
from stepvault.checkpointers._saver import BaseSaver
from stepvault.errors import ConfigurationError
from stepvault.stores._ops import traces as store_traces
from stepvault.stores._store import StoreShell
from stepvault.types import TypedSerializer

_PAGE = 500

Copied = BaseCheckpointSaver[Any] | BaseStore
Place = tuple[str, str]  # checkpoint id, namespace


@dataclass(frozen=True, slots=True)
class _Ask:
    """A call of one of the two; its async twin has the name with an `a` before it."""

    whom: Any
    method: str
    args: tuple[Any, ...]
    named: dict[str, Any] = field(default_factory=dict)
    keep: Callable[[Any], Any] | None = None  # what to keep of each thing that an iterator brings


@dataclass(frozen=True, slots=True)
class _Do:
    """An operation of one of the two, which is ours."""

    whom: Any
    op: Op[Any]


_Asking = Generator[_Ask | _Do, Any, int]


def copy_all(source: Copied, target: Copied, *, progress: Callable[[int], None] = lambda _: None) -> int:
    """Copy every thread of a saver to another saver, or every item of a store to another store.

    Checkpoint and interrupt ids are kept, so an interrupted thread resumes in its copy. One checkpoint at a time is
    held in memory. Copying again is harmless: what has gone on in the copy stays.

    Args:
        source: Where from; nothing is changed there.
        target: Where to, of the same kind.
        progress: Called with the number of threads or items copied so far.

    Returns:
        How many threads or items were copied.

    Raises:
        ConfigurationError: The two are not of one kind, or one and the same.
    """
    asking = _copying(source, target, progress)
    answer: Any = None
    while True:
        try:
            ask = asking.send(answer)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        if isinstance(ask, _Do):
            answer = ask.whom._run(ask.op)
            continue
        answer = getattr(ask.whom, ask.method)(*ask.args, **ask.named)
        if ask.keep is not None:
            answer = [ask.keep(each) for each in answer]


async def acopy_all(source: Copied, target: Copied, *, progress: Callable[[int], None] = lambda _: None) -> int:
    """Async version of `copy_all`."""
    asking = _copying(source, target, progress)
    answer: Any = None
    while True:
        try:
            ask = asking.send(answer)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        if isinstance(ask, _Do):
            answer = await ask.whom._arun(ask.op)
            continue
        answer = getattr(ask.whom, f"a{ask.method}")(*ask.args, **ask.named)
        answer = [ask.keep(each) async for each in answer] if ask.keep is not None else await answer


def _copying(source: Copied, target: Copied, progress: Callable[[int], None]) -> _Asking:
    savers = isinstance(source, BaseCheckpointSaver) and isinstance(target, BaseCheckpointSaver)
    if not savers and not (isinstance(source, BaseStore) and isinstance(target, BaseStore)):
        raise ConfigurationError("Both must be savers, or both stores.")
    one = source is target
    if isinstance(source, BaseSaver) and isinstance(target, BaseSaver):
        one = one or (yield from _is_one(source, target, saver_traces))
    if isinstance(source, StoreShell) and isinstance(target, StoreShell):
        one = one or (yield from _is_one(source, target, store_traces))
    if one:
        raise ConfigurationError("Source and target are one database; nothing was copied.")
    copy: Any = _threads if savers else _items
    return (yield from copy(source, target, progress))  # type: ignore[no-any-return]


def _is_one(source: Any, target: Any, traces: Any) -> Generator[_Do, Any, bool]:
    """Whether two views look at the same data of the same tenant."""
    if source.tenant != target.tenant:
        return False
    here, there, trace = source._scope.core.dialect, target._scope.core.dialect, os.urandom(16)
    yield _Do(target, traces.leave(there, trace))
    found = yield _Do(source, traces.is_there(here, trace))
    yield _Do(target, traces.remove(there, trace))
    return bool(found)


def _threads(
    source: BaseCheckpointSaver[Any], target: BaseCheckpointSaver[Any], progress: Callable[[int], None]
) -> _Asking:
    source = _as_stored(source, target)
    threads: dict[str, list[Place]] = {}
    for thread_id, place in (yield _Ask(source, "list", (None,), keep=_place)):
        threads.setdefault(thread_id, []).append(place)
    for count, (thread_id, places) in enumerate(threads.items(), 1):
        for checkpoint_id, ns in sorted(places):  # the oldest first
            at = {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}
            for entry in (yield from _read(source, {"configurable": at})):
                yield from _checkpoint(entry, target)
        progress(count)
    return len(threads)


def _as_stored(source: BaseCheckpointSaver[Any], target: BaseCheckpointSaver[Any]) -> BaseCheckpointSaver[Any]:
    """The source, read so that objects are moved as they are stored.

    LangGraph's serializer makes a plain dict of an object whose class it cannot import or must not load.
    """
    serde = source.serde
    cipher = serde if isinstance(serde, EncryptedSerializer) else None
    inner: Any = serde.serde if isinstance(serde, EncryptedSerializer) else serde
    pickles = getattr(inner, "pickle_fallback", False)
    if isinstance(source, BaseSaver) or type(inner) is not JsonPlusSerializer or pickles:
        return source
    if not isinstance(target.serde, TypedSerializer):
        return source
    reader = copy.copy(source)
    reader.serde = target.serde.for_copies(cipher)
    return reader


def _read(source: BaseCheckpointSaver[Any], at: Any) -> Generator[_Ask, Any, list[CheckpointTuple]]:
    """One checkpoint, unless it was removed since."""
    if isinstance(source, BaseSaver):  # for which `get_tuple` is activity, and would move the deadline of the thread
        found: list[CheckpointTuple] = yield _Ask(source, "list", (at,), {"limit": 1}, keep=lambda entry: entry)
        return found
    entry = yield _Ask(source, "get_tuple", (at,))
    return [] if entry is None else [entry]


def _place(entry: CheckpointTuple) -> tuple[str, Place]:
    named = entry.config.get("configurable") or {}
    return str(named["thread_id"]), (entry.checkpoint["id"], named.get("checkpoint_ns", ""))


def _checkpoint(entry: CheckpointTuple, target: BaseCheckpointSaver[Any]) -> Generator[_Ask, Any, None]:
    named = entry.config.get("configurable") or {}
    parent = (entry.parent_config or {}).get("configurable", {}).get("checkpoint_id")
    base = {"thread_id": named["thread_id"], "checkpoint_ns": named.get("checkpoint_ns", "")}
    under: dict[str, Any] = {"configurable": {**base, **({"checkpoint_id": parent} if parent else {})}}
    stored = yield _Ask(target, "put", (under, entry.checkpoint, entry.metadata, entry.checkpoint["channel_versions"]))
    tasks: dict[str, list[tuple[str, Any]]] = {}
    for task, channel, value in entry.pending_writes or ():
        tasks.setdefault(task, []).append((channel, value))
    for task, writes in tasks.items():
        yield _Ask(target, "put_writes", (stored, writes, task))


def _items(source: BaseStore, target: BaseStore, progress: Callable[[int], None]) -> _Asking:
    copied = offset = 0
    while True:
        page = yield _Ask(source, "list_namespaces", (), {"limit": _PAGE, "offset": offset})
        for namespace in page:
            copied += yield from _namespace(source, target, tuple(namespace))
            progress(copied)
        offset += len(page)
        if len(page) < _PAGE:
            return copied


def _namespace(source: BaseStore, target: BaseStore, namespace: tuple[str, ...]) -> _Asking:
    copied = offset = 0
    while True:
        page = yield _Ask(source, "search", (namespace,), {"limit": _PAGE, "offset": offset})
        for item in page:
            if tuple(item.namespace) == namespace:
                yield _Ask(target, "put", (item.namespace, item.key, item.value))
                copied += 1
        offset += len(page)
        if len(page) < _PAGE:
            return copied
