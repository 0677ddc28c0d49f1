"""`Memories`: long-term memory of an app over a store, as what is remembered and not as keys and values."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from langgraph.store.base import NOT_PROVIDED, NotProvided

from stepvault._core import plan
from stepvault.errors import ConfigurationError
from stepvault.stores._ops import remembering
from stepvault.stores._ops.memory import (
    Memory,
    RetrievalReport,
    Retrieved,
    Upserted,
    checked_tags,
    filter_for,
    namespace_of,
)
from stepvault.stores._ops.remembering import Asked, Policy
from stepvault.stores._ops.searching import SearchMode
from stepvault.stores._reindexing import NOWHERE
from stepvault.stores._store import StoreShell

__all__ = ["Memories", "Memory", "Policy", "RetrievalReport", "Retrieved", "Upserted"]


class Memories:
    """Memories in scopes, of one person or shared, over one of our stores; every method has an `a` twin.

    A memory of a person lies in a namespace of theirs, so that `vault.erasure` finds it. A search sees one person's
    memories, or the shared ones, never both.

    Args:
        store: `SqliteStore`, `PostgresStore` or `RedisStore`, of either manner; `vault.store`. With `index=`, memories
            are found by meaning too.
        contradictions: What happens when a memory is stored and others of its scope are about the same thing and say
            something else: `"latest"` removes them, `"keep_both"` keeps them, a function is given them and the new
            one and returns those that stand (an `async def` serves the async methods only).
        stale_after: The age from which a memory counts as stale in reports.
    """

    def __init__(
        self,
        store: StoreShell,
        *,
        contradictions: Policy = "latest",
        stale_after: timedelta | None = timedelta(days=90),
    ) -> None:
        if not isinstance(store, StoreShell):
            raise ConfigurationError(f"Memories needs a store of Stepvault, not {type(store).__name__}.")
        self._store = store
        self._contradictions: Policy = contradictions
        self._stale_after = stale_after

    # -- storing

    def upsert(
        self,
        text: str,
        *,
        id: str | None = None,
        about: str | None = None,
        data: Mapping[str, Any] | None = None,
        tags: Sequence[str] = (),
        scope: Sequence[str] = (),
        user: str | None = None,
        ttl: float | NotProvided | None = NOT_PROVIDED,
        contradictions: Policy | None = None,
    ) -> Upserted:
        """Remember something, or remember it anew.

        Args:
            text: What, in words.
            id: Its name within the scope; a fresh one if None. An id that is there is replaced.
            about: What it is about, if later memories may contradict it.
            data: What, for programs: anything a store can hold.
            tags: Labels to find it by.
            scope: Where it belongs: labels, from the widest to the narrowest.
            user: Whose it is; None: shared.
            ttl: Minutes it lives; as the store's `ttl=` says if not given.
            contradictions: Another policy than this object's.

        Raises:
            ConfigurationError: A text, tags or policy of a wrong kind.
            EmbeddingError: The embedder failed; nothing was stored.
        """
        return plan.run(self._upsert(text, id, about, data, tags, scope, user, ttl, contradictions), NOWHERE)

    async def aupsert(
        self,
        text: str,
        *,
        id: str | None = None,
        about: str | None = None,
        data: Mapping[str, Any] | None = None,
        tags: Sequence[str] = (),
        scope: Sequence[str] = (),
        user: str | None = None,
        ttl: float | NotProvided | None = NOT_PROVIDED,
        contradictions: Policy | None = None,
    ) -> Upserted:
        """Async version of `upsert`."""
        return await plan.arun(self._upsert(text, id, about, data, tags, scope, user, ttl, contradictions), NOWHERE)

    def _upsert(
        self, text: str, id_: str | None, about: Any, data: Any, tags: Any, scope: Any, user: Any, ttl: Any, policy: Any
    ) -> plan.Op[Upserted]:
        memory = Memory(
            id_ or uuid.uuid4().hex, text, data or {}, about, checked_tags(tags), tuple(scope), user
        )  # fmt: skip
        chosen: Policy = policy if policy is not None else self._contradictions
        return remembering.upsert(self._store, memory, id_ is not None, chosen, self._minutes(ttl))

    def put_summary(
        self,
        text: str,
        *,
        thread_id: str,
        checkpoint_ids: Sequence[str],
        id: str | None = None,
        data: Mapping[str, Any] | None = None,
        tags: Sequence[str] = (),
        scope: Sequence[str] = (),
        user: str | None = None,
        ttl: float | NotProvided | None = NOT_PROVIDED,
    ) -> str:
        """Remember a summary of old turns with the checkpoints it was made from; returns its id.

        Args:
            text: The summary.
            thread_id: The thread it is of.
            checkpoint_ids: The checkpoints that hold what it sums up.
            id: As in `upsert`.
            data: As in `upsert`.
            tags: As in `upsert`.
            scope: As in `upsert`.
            user: As in `upsert`.
            ttl: As in `upsert`.
        """
        return plan.run(
            self._put_summary(text, thread_id, checkpoint_ids, id, data, tags, scope, user, ttl), NOWHERE
        )  # fmt: skip

    async def aput_summary(
        self,
        text: str,
        *,
        thread_id: str,
        checkpoint_ids: Sequence[str],
        id: str | None = None,
        data: Mapping[str, Any] | None = None,
        tags: Sequence[str] = (),
        scope: Sequence[str] = (),
        user: str | None = None,
        ttl: float | NotProvided | None = NOT_PROVIDED,
    ) -> str:
        """Async version of `put_summary`."""
        return await plan.arun(
            self._put_summary(text, thread_id, checkpoint_ids, id, data, tags, scope, user, ttl), NOWHERE
        )

    def _put_summary(
        self,
        text: str,
        thread_id: str,
        ids: Sequence[str],
        id_: Any,
        data: Any,
        tags: Any,
        scope: Any,
        user: Any,
        ttl: Any,
    ) -> plan.Op[str]:
        if isinstance(ids, str) or not ids or not all(isinstance(checkpoint, str) for checkpoint in ids):
            raise ConfigurationError("checkpoint_ids are the ids of the checkpoints that were summed up; at least one.")
        memory = Memory(
            id_ or uuid.uuid4().hex, text, data or {}, None, checked_tags(tags), tuple(scope), user, "summary",
            str(thread_id), tuple(ids),
        )  # fmt: skip
        yield from remembering.upsert(self._store, memory, True, "keep_both", self._minutes(ttl))
        return memory.id

    def _minutes(self, ttl: Any) -> float | None:
        if isinstance(ttl, NotProvided):
            return (self._store.ttl_config or {}).get("default_ttl")
        return ttl  # type: ignore[no-any-return]

    # -- finding

    def search(
        self,
        query: str | None = None,
        *,
        scope: Sequence[str] = (),
        user: str | None = None,
        tags: Sequence[str] = (),
        filter: Mapping[str, Any] | None = None,
        mode: SearchMode | None = None,
        limit: int = 10,
        min_score: float | None = None,
        max_age: timedelta | None = None,
    ) -> Retrieved:
        """The memories of a scope and of those below it that fit a query best; without one, the newest.

        Args:
            query: What to look for.
            scope: Where.
            user: Whose; None: the shared ones.
            tags: All of which a memory must have.
            filter: What its data has to hold, see docs/stores.md.
            mode: `"vector"`, `"text"` or `"hybrid"`, see docs/search.md.
            limit: At most this many.
            min_score: Leave out what scores less.
            max_age: Leave out what was last stored longer ago.
        """
        return plan.run(
            self._search(query, scope, user, tags, filter, mode, limit, min_score, max_age), NOWHERE
        )  # fmt: skip

    async def asearch(
        self,
        query: str | None = None,
        *,
        scope: Sequence[str] = (),
        user: str | None = None,
        tags: Sequence[str] = (),
        filter: Mapping[str, Any] | None = None,
        mode: SearchMode | None = None,
        limit: int = 10,
        min_score: float | None = None,
        max_age: timedelta | None = None,
    ) -> Retrieved:
        """Async version of `search`."""
        return await plan.arun(
            self._search(query, scope, user, tags, filter, mode, limit, min_score, max_age), NOWHERE
        )  # fmt: skip

    def _search(
        self, query: Any, scope: Any, user: Any, tags: Any, data: Any, mode: Any, limit: int, floor: Any, max_age: Any
    ) -> plan.Op[Retrieved]:
        extras = {"mode": mode, "min_score": floor, "max_age": max_age}
        wanted = filter_for(tags=tags, data=data)
        asked = Asked(namespace_of(user, scope), user, query, wanted, limit, 0, extras)
        return remembering.search(self._store, asked, _now, self._stale_after)

    def list(
        self,
        *,
        scope: Sequence[str] = (),
        user: str | None = None,
        tags: Sequence[str] = (),
        about: str | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> Retrieved:
        """The memories of a scope and of those below it, newest first; `about` narrows to one thing."""
        return plan.run(self._list(scope, user, tags, about, None, limit, offset), NOWHERE)

    async def alist(
        self,
        *,
        scope: Sequence[str] = (),
        user: str | None = None,
        tags: Sequence[str] = (),
        about: str | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> Retrieved:
        """Async version of `list`."""
        return await plan.arun(self._list(scope, user, tags, about, None, limit, offset), NOWHERE)

    def summaries(
        self, thread_id: str, *, scope: Sequence[str] = (), user: str | None = None, limit: int = 50, offset: int = 0
    ) -> Retrieved:
        """The summaries of a thread, newest first, each with its `checkpoint_ids`."""
        return plan.run(self._list(scope, user, (), None, str(thread_id), limit, offset), NOWHERE)

    async def asummaries(
        self, thread_id: str, *, scope: Sequence[str] = (), user: str | None = None, limit: int = 50, offset: int = 0
    ) -> Retrieved:
        """Async version of `summaries`."""
        return await plan.arun(self._list(scope, user, (), None, str(thread_id), limit, offset), NOWHERE)

    def _list(
        self, scope: Any, user: Any, tags: Any, about: Any, thread_id: str | None, limit: int, offset: int
    ) -> plan.Op[Retrieved]:
        wanted = filter_for(tags=tags, about=about, thread_id=thread_id, kind="summary" if thread_id else None)
        asked = Asked(namespace_of(user, scope), user, None, wanted, limit, offset)
        return remembering.search(self._store, asked, _now, self._stale_after)

    def get(self, id: str, *, scope: Sequence[str] = (), user: str | None = None) -> Memory | None:
        """One memory of exactly this scope; None if it is not there."""
        return plan.run(remembering.get(self._store, namespace_of(user, scope), user, id), NOWHERE)

    async def aget(self, id: str, *, scope: Sequence[str] = (), user: str | None = None) -> Memory | None:
        """Async version of `get`."""
        return await plan.arun(remembering.get(self._store, namespace_of(user, scope), user, id), NOWHERE)

    # -- forgetting

    def delete(self, id: str, *, scope: Sequence[str] = (), user: str | None = None) -> None:
        """Forget one memory of exactly this scope. Idempotent."""
        plan.run(remembering.delete(self._store, namespace_of(user, scope), id), NOWHERE)

    async def adelete(self, id: str, *, scope: Sequence[str] = (), user: str | None = None) -> None:
        """Async version of `delete`."""
        await plan.arun(remembering.delete(self._store, namespace_of(user, scope), id), NOWHERE)

    def clear(self, *, scope: Sequence[str] = (), user: str | None = None) -> int:
        """Forget every memory of a scope and of those below it; how many there were.

        That is tidying. To forget a person with proof, use `vault.erasure`.
        """
        return plan.run(remembering.clear(self._store, namespace_of(user, scope)), NOWHERE)

    async def aclear(self, *, scope: Sequence[str] = (), user: str | None = None) -> int:
        """Async version of `clear`."""
        return await plan.arun(remembering.clear(self._store, namespace_of(user, scope)), NOWHERE)


def _now() -> datetime:
    return datetime.now(timezone.utc)
