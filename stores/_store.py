"""The `BaseStore` shell, sync and async over the same operations."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Coroutine, Iterable, Mapping
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.store.base import BaseStore, Op, Result, SearchOp
from typing_extensions import Self

from stepvault._core import plan
from stepvault._core.ids import text_key
from stepvault._core.numbers import check_seconds, minutes_of
from stepvault._drivers.sweeper import TaskSweeper, ThreadSweeper
from stepvault.stores._admission import admitted, is_due
from stepvault.stores._dialect import Dialect, Removed
from stepvault.stores._erased import Door, forget_threads
from stepvault.stores._ops import batch, indexing, namespaces, remove, threads, traces
from stepvault.stores._ops.batch import Plan as Prepared
from stepvault.stores._ops.context import Scope
from stepvault.stores._ops.searching import ExtendedSearch, SearchExtras, SearchMode
from stepvault.stores._ops.threads import Caller
from stepvault.stores._ops.values import FoundItem
from stepvault.stores._options import StoreOptions, build_core, index_settings, ttl_settings
from stepvault.stores._provenance import current_caller
from stepvault.stores._reindexing import NOWHERE, Reindexing, Report

T = TypeVar("T")


class StoreDriver(Protocol):
    """What a store needs of its driver: both ways to drive an operation, and an end."""

    def run(self, op: plan.Op[T]) -> T: ...
    async def arun(self, op: plan.Op[T]) -> T: ...
    def close(self) -> None: ...
    async def aclose(self) -> None: ...


class StoreShell(Door, Reindexing, BaseStore):
    """Items in namespaces, found by key, filter, text or meaning; every method has an `a` twin.

    Usable with `with`, `async with`, or without and `close()`; from several threads and event loops at once.
    """

    supports_ttl = True

    def __init__(
        self,
        driver: StoreDriver,
        dialect: Dialect,
        *,
        index: Mapping[str, Any] | None,
        ttl: Mapping[str, Any] | None,
        serde: SerializerProtocol | None,
        tenant: str,
        options: StoreOptions,
    ) -> None:
        super().__init__()
        settings = index_settings(index)
        self._driver = driver
        self._scope = Scope(
            build_core(dialect, options, settings),
            text_key("tenant", tenant),
            serde or options.serializer(),
        )
        self._tenant = tenant
        self.ttl_config = ttl_settings(ttl)
        self.index_config = dict(index) if index else None
        self.embeddings = settings.embeddings if settings else None
        self._sweeper = ThreadSweeper()
        self._task_sweeper = TaskSweeper()

    # -- views

    def for_tenant(self, tenant: str) -> Self:
        """A view of one tenant's items over the same connections; it sees and touches no other tenant's."""
        clone = copy.copy(self)
        clone._tenant = tenant
        clone._scope = Scope(self._scope.core, text_key("tenant", tenant), self._scope.serde)
        return clone

    @property
    def tenant(self) -> str:
        """The tenant of this view; `""` unless one was named."""
        return self._tenant

    def thread_scope(self, thread_id: Any) -> tuple[str, ...]:
        """The namespace of a thread's own memory, which goes with the thread. Add labels to it as you like."""
        return namespaces.thread_scope(thread_id)

    # -- lifetime

    def close(self) -> None:
        """Close what this store opened; connections and pools it was given stay open. Idempotent."""
        self._sweeper.stop()
        self._driver.close()
        if self._scope.core.keys is not None:
            self._scope.core.keys.close()

    async def aclose(self) -> None:
        """Async version of `close`."""
        await self._task_sweeper.stop()
        self._sweeper.stop(0)
        await self._driver.aclose()
        if self._scope.core.keys is not None:
            await self._scope.core.keys.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    def _run(self, op: plan.Op[T]) -> T:
        return self._driver.run(self._admitted(op))

    async def _arun(self, op: plan.Op[T]) -> T:
        return await self._driver.arun(self._admitted(op))

    def _admitted(self, op: plan.Op[T]) -> plan.Op[T]:
        """The operation, after what has to come before it."""
        core = self._scope.core
        if core.wired.unadopted is not None:
            op = traces.adopted(core, op)
        return indexing.prepared(core, admitted(core, op) if is_due(core) else op)

    # -- items

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations in one round trip; reads see the state before the batch's puts.

        Of several puts of one key the last one wins. Either all puts are stored or none.

        Raises:
            ConfigurationError, InvalidNamespaceError: An operation cannot be done; none was.
            EmbeddingError: The embedder failed; nothing was stored.
            SubjectErasedError: A put is for a person who was erased; nothing was stored.
            StorageUnavailableError: The database did not answer.
        """
        caller = current_caller()
        prepared = batch.prepare(self._scope, ops, caller and caller.source)
        made = plan.run(batch.vectors(self._scope, prepared), NOWHERE)
        return self._run(self._told(caller, prepared, batch.execute(self._scope, prepared, made)))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Async version of `batch`."""
        caller = current_caller()
        prepared = batch.prepare(self._scope, ops, caller and caller.source)
        made = await plan.arun(batch.vectors(self._scope, prepared), NOWHERE)
        return await self._arun(self._told(caller, prepared, batch.execute(self._scope, prepared, made)))

    def _told(self, caller: Caller | None, prepared: Prepared, op: plan.Op[list[Result]]) -> plan.Op[list[Result]]:
        """The operation, told to the vault's threads; without a vault, the operation."""
        return op if self._scope.core.wired.threads is None else threads.witnessed(self._scope, caller, prepared, op)

    def search(  # type: ignore[override]
        self,
        namespace_prefix: tuple[str, ...],
        /,
        *,
        query: str | None = None,
        filter: dict[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: bool | None = None,
        mode: SearchMode | None = None,
        min_score: float | None = None,
        max_age: timedelta | None = None,
    ) -> list[FoundItem]:
        """Items below a namespace prefix: newest write first, or best match first if there is a query.

        Args:
            namespace_prefix: Whole labels; `()` is every namespace.
            query: What to look for.
            filter: What an item has to hold, see docs/stores.md.
            limit: At most this many.
            offset: Skip this many.
            refresh_ttl: Whether finding an item moves its deadline; as the store's `ttl=` says if None.
            mode: `"vector"` (the default of a store with an index), `"text"` (the default of others) or `"hybrid"`.
            min_score: Leave out what scores less. Scores of different modes cannot be compared.
            max_age: Leave out what was last written longer ago.

        Raises:
            ConfigurationError: An unknown operator, or a mode this store has no index for.
            EmbeddingError: The embedder failed.
        """
        op = self._search(namespace_prefix, filter, limit, offset, query, refresh_ttl, mode, min_score, max_age)
        return self.batch([op])[0]  # type: ignore[return-value]

    async def asearch(  # type: ignore[override]
        self,
        namespace_prefix: tuple[str, ...],
        /,
        *,
        query: str | None = None,
        filter: dict[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: bool | None = None,
        mode: SearchMode | None = None,
        min_score: float | None = None,
        max_age: timedelta | None = None,
    ) -> list[FoundItem]:
        """Async version of `search`."""
        op = self._search(namespace_prefix, filter, limit, offset, query, refresh_ttl, mode, min_score, max_age)
        return (await self.abatch([op]))[0]  # type: ignore[return-value]

    def _search(
        self, prefix: tuple[str, ...], filter: Any, limit: int, offset: int, query: Any, refresh: Any, *extras: Any
    ) -> Any:
        if refresh is None:
            refresh = (self.ttl_config or {}).get("refresh_on_read", True)
        return ExtendedSearch(SearchOp(prefix, filter, limit, offset, query, refresh), SearchExtras(*extras))

    # -- removing

    def delete_namespace(self, prefix: tuple[str, ...]) -> Removed:
        """Remove every item whose namespace begins with these labels, with its vectors and words.

        Returns:
            How many items, and how many of them had vectors.
        """
        return self._run(remove.delete_namespace(self._scope, prefix))

    async def adelete_namespace(self, prefix: tuple[str, ...]) -> Removed:
        """Async version of `delete_namespace`."""
        return await self._arun(remove.delete_namespace(self._scope, prefix))

    def delete_thread_scope(self, *thread_ids: Any) -> Removed:
        """Remove the memory in `thread_scope` of threads, together; to be called when they are deleted."""
        return self._run(forget_threads(self._scope, thread_ids))

    async def adelete_thread_scope(self, *thread_ids: Any) -> Removed:
        """Async version of `delete_thread_scope`."""
        return await self._arun(forget_threads(self._scope, thread_ids))

    # -- time to live

    def _interval(self, minutes: float | None) -> float:
        given = minutes_of("sweep_interval_minutes", minutes)
        return given or minutes_of("sweep_interval_minutes", (self.ttl_config or {}).get("sweep_interval_minutes")) or 5


class SyncManners(StoreShell):
    """`setup` and the sweeper as the sync official stores have them."""

    def setup(self) -> None:
        """Create or migrate the tables. Idempotent; any number of processes may call it at once."""
        self._driver.run(indexing.setup(self._scope.core))

    async def asetup(self) -> None:
        """Async version of `setup`."""
        await self._driver.arun(indexing.setup(self._scope.core))

    def sweep_ttl(self) -> int:
        """Remove expired items of every tenant; how many. They are invisible before that already."""
        return self._run(remove.sweep(self._scope))

    async def asweep_ttl(self) -> int:
        """Async version of `sweep_ttl`."""
        return await self._arun(remove.sweep(self._scope))

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> Future[None]:
        """Remove expired items now and then, in a thread, if this store has a `ttl=`.

        Returns:
            A future that ends with the sweeper; cancelling it ends the sweeper.
        """
        if self.ttl_config is None:
            future: Future[None] = Future()
            future.set_result(None)
            return future
        return self._sweeper.start(self.sweep_ttl, self._interval(sweep_interval_minutes))

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """End the sweeper; whether it has ended within `timeout` seconds."""
        check_seconds("timeout", timeout, optional=True)
        return self._sweeper.stop(timeout)


class AsyncManners(StoreShell):
    """The same as the async official stores have them: coroutines. Sync calls go to the loop."""

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """`abatch` for other threads than the loop's own.

        Raises:
            EventLoopError: From the loop's own thread.
        """
        return self._bridge(self.abatch(ops))

    def reindex(self, *, report: Report | None = None) -> int:
        """`areindex` for other threads than the loop's own."""
        return self._bridge(self.areindex(report=report))

    def _bridge(self, work: Coroutine[Any, Any, T]) -> T:
        return self._driver.result(work)  # type: ignore[attr-defined,no-any-return]

    async def setup(self) -> None:
        """Create or migrate the tables. Idempotent; any number of processes may call it at once."""
        await self._driver.arun(indexing.setup(self._scope.core))

    asetup = setup

    async def sweep_ttl(self) -> int:
        """Remove expired items of every tenant; how many. They are invisible before that already."""
        return await self._arun(remove.sweep(self._scope))

    asweep_ttl = sweep_ttl

    async def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> Any:
        """Remove expired items now and then, in a task, if this store has a `ttl=`.

        Returns:
            The task; cancelling it ends the sweeper.
        """
        if self.ttl_config is None:
            return asyncio.create_task(_nothing())
        return self._task_sweeper.start(self.sweep_ttl, self._interval(sweep_interval_minutes))

    async def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """End the sweeper; whether it has ended within `timeout` seconds."""
        check_seconds("timeout", timeout, optional=True)
        return await self._task_sweeper.stop(timeout)


async def _nothing() -> None:
    """What starting a sweeper gives where there is nothing to sweep."""
