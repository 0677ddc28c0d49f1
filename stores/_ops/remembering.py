"""Operations on memories, over the public verbs of any store of ours."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from langgraph.store.base import BaseStore, PutOp

from stepvault._core.plan import Call, Op
from stepvault.errors import ConfigurationError
from stepvault.stores._ops.memory import (
    Memory,
    Retrieved,
    Upserted,
    checked_tags,
    filter_for,
    memory_of,
    namespace_of,
    report_of,
    value_of_memory,
)

Decide: TypeAlias = "Callable[[tuple[Memory, ...], Memory], Iterable[Memory] | Awaitable[Iterable[Memory]]]"
Policy: TypeAlias = "Literal['latest', 'keep_both'] | Decide"

_PAGE = 200


@dataclass(frozen=True, slots=True)
class Asked:
    """What a search looks for.

    Attributes:
        namespace: Below which.
        user: Whose memories lie there.
        query: What they should be like; None: newest first.
        filter: What they must hold.
        limit: At most this many.
        offset: Skip this many.
        extras: What our stores take beyond LangGraph's.
    """

    namespace: tuple[str, ...]
    user: str | None
    query: str | None = None
    filter: Mapping[str, Any] | None = None
    limit: int = 10
    offset: int = 0
    extras: Mapping[str, Any] | None = None


def upsert(store: BaseStore, memory: Memory, named: bool, policy: Policy, ttl: float | None) -> Op[Upserted]:
    """Store a memory; what it contradicts goes, stays, or is decided on.

    Args:
        store: Where memories lie.
        memory: What to store.
        named: Whether the caller chose its id.
        policy: What becomes of memories about the same thing that say something else.
        ttl: Minutes it lives.

    Raises:
        ConfigurationError: An unknown policy, a text or tags of a wrong kind, or a policy that returns no memories.
    """
    _check(memory, policy)
    namespace = namespace_of(memory.user, memory.scope)
    if memory.about is None:
        yield from _write(store, namespace, [memory], (), ttl)
        return Upserted((memory.id,), ())
    others = [other for other in (yield from _about(store, namespace, memory)) if other.id != memory.id]
    same = [other for other in others if other.says_what(memory)]
    if policy == "latest":
        if not named:  # one id for each thing: of two writers at once, the last one stands alone
            memory = replace(memory, id=_id_of(memory.about))
        stored, gone = [memory], [other.id for other in others if other.id != memory.id]
    elif policy == "keep_both":
        if same and not named:
            memory = replace(memory, id=same[0].id)
        stored, gone = [memory], []
    elif len(same) == len(others):
        if same and not named:
            memory = replace(memory, id=same[0].id)
        stored, gone = [memory], [other.id for other in same if other.id != memory.id]
    else:
        assert callable(policy)
        stored, gone = yield from _decided(policy, tuple(others), memory)
    yield from _write(store, namespace, stored, gone, ttl)
    return Upserted(tuple(entry.id for entry in stored), tuple(gone))


def _check(memory: Memory, policy: Policy) -> None:
    if not isinstance(memory.text, str) or not memory.text:
        raise ConfigurationError("The text of a memory is a str that is not empty; put numbers and the like into data.")
    if not isinstance(memory.data, Mapping):
        raise ConfigurationError(f"The data of a memory is a mapping, not {type(memory.data).__name__}.")
    if memory.about is not None and (not isinstance(memory.about, str) or not memory.about):
        raise ConfigurationError("about is a str that is not empty, or None.")
    checked_tags(memory.tags)
    if policy not in ("latest", "keep_both") and not callable(policy):
        raise ConfigurationError(f'contradictions is "latest", "keep_both" or a function, not {policy!r}.')


def _id_of(about: str) -> str:
    return hashlib.blake2b(about.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _about(store: BaseStore, namespace: tuple[str, ...], memory: Memory) -> Op[list[Memory]]:
    """Memories of exactly this scope about the same thing, oldest write first."""
    wanted = filter_for(about=memory.about, scope=memory.scope, kind=memory.kind)
    found: list[Memory] = []
    while True:
        page = yield from _search(store, Asked(namespace, memory.user, None, wanted, _PAGE, len(found)), refresh=False)
        found += page
        if len(page) < _PAGE:
            return found[::-1]


def _decided(policy: Decide, others: tuple[Memory, ...], memory: Memory) -> Op[tuple[list[Memory], list[str]]]:
    """What a policy wants stored, and what removed."""

    def decide() -> Any:
        kept = policy(others, memory)
        if inspect.isawaitable(kept):
            if inspect.iscoroutine(kept):
                kept.close()
            raise ConfigurationError("An async policy for contradictions serves the async methods only.")
        return kept

    async def adecide() -> Any:
        kept = policy(others, memory)
        return await kept if inspect.isawaitable(kept) else kept

    kept = yield Call(decide, adecide)
    if isinstance(kept, Memory) or not isinstance(kept, Iterable):
        raise ConfigurationError("A policy for contradictions returns the memories that stand, as a list.")
    standing = {}
    for entry in kept:
        if not isinstance(entry, Memory):
            raise ConfigurationError(f"A policy for contradictions returned a {type(entry).__name__}, no Memory.")
        standing[entry.id] = entry
    before = {other.id: other for other in others}
    stored = [entry for id_, entry in standing.items() if before.get(id_) != entry]
    return stored, [id_ for id_ in before if id_ not in standing]


def _write(
    store: BaseStore, namespace: tuple[str, ...], stored: Sequence[Memory], gone: Iterable[str], ttl: float | None
) -> Op[None]:
    """Store and remove memories of one scope, in one batch."""
    ops = [PutOp(namespace, entry.id, value_of_memory(entry), index=["text"], ttl=ttl) for entry in stored]
    ops += [PutOp(namespace, id_, None) for id_ in gone]
    if ops:
        yield from _call(store, "batch", ops)


def search(store: BaseStore, asked: Asked, now: Callable[[], datetime], stale_after: timedelta | None) -> Op[Retrieved]:
    """The memories that fit, and a report."""
    found = yield from _search(store, asked)
    return Retrieved(tuple(found), report_of(found, now(), stale_after))


def _search(store: BaseStore, asked: Asked, *, refresh: bool | None = None) -> Op[list[Memory]]:
    items = yield from _call(
        store, "search", asked.namespace, query=asked.query, filter=asked.filter, limit=asked.limit,
        offset=asked.offset, refresh_ttl=refresh, **(asked.extras or {}),
    )  # fmt: skip
    return [memory_of(item, asked.user) for item in items]


def get(store: BaseStore, namespace: tuple[str, ...], user: str | None, id_: str) -> Op[Memory | None]:
    """One memory."""
    item = yield from _call(store, "get", namespace, id_)
    return memory_of(item, user) if item is not None else None


def delete(store: BaseStore, namespace: tuple[str, ...], id_: str) -> Op[None]:
    """Remove one memory. Idempotent."""
    yield from _call(store, "batch", [PutOp(namespace, id_, None)])


def clear(store: BaseStore, namespace: tuple[str, ...]) -> Op[int]:
    """Remove every memory below a scope; how many."""
    removed = yield from _call(store, "delete_namespace", namespace)
    return int(removed.items)


def _call(store: Any, name: str, *args: Any, **kwargs: Any) -> Op[Any]:
    return (yield Call(
        lambda: getattr(store, name)(*args, **kwargs), lambda: getattr(store, f"a{name}")(*args, **kwargs)
    ))  # fmt: skip
