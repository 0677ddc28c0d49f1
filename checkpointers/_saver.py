"""The `BaseCheckpointSaver` shell, sync and async over the same operations."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import Self

from stepvault._core.ids import text_key
from stepvault._core.plan import Op
from stepvault._core.ports import port_for
from stepvault._core.versions import next_version
from stepvault.checkpointers._dialect import Dialect
from stepvault.checkpointers._lease import ThreadLease, current_lease
from stepvault.checkpointers._ops import (
    copying,
    history,
    lineage,
    listing,
    overview,
    prepare,
    put,
    put_writes,
    refreshing,
    remove,
    sweeping,
)
from stepvault.checkpointers._ops.context import Core, Scope, address_of
from stepvault.checkpointers._options import StorageOptions, build_core
from stepvault.errors import FencedError
from stepvault.lineage import Lineage

if TYPE_CHECKING:
    from langgraph.checkpoint.base import DeltaChannelHistory  # not in 4.0

T = TypeVar("T")


class SaverDriver(Protocol):
    """What a saver needs of its driver: both ways to drive an operation, and an end."""

    def run(self, op: Op[T]) -> T: ...
    async def arun(self, op: Op[T]) -> T: ...
    def close(self) -> None: ...
    async def aclose(self) -> None: ...


class BaseSaver(BaseCheckpointSaver[str]):
    """Checkpoints, writes and their removal; every method has an `a` twin over the same operation.

    Usable with `with`, `async with`, or without and `close()`.
    """

    def __init__(
        self,
        driver: SaverDriver,
        dialect: Dialect,
        *,
        serde: SerializerProtocol | None = None,
        tenant: str = "",
        options: StorageOptions,
    ) -> None:
        super().__init__(serde=serde or options.serializer())
        self._driver = driver
        self._core: Core = build_core(dialect, options, self.serde)
        self._tenant = tenant
        self._scope = Scope(self._core, text_key("tenant", tenant), port_for(self.serde))

    # -- views

    def for_tenant(self, tenant: str) -> Self:
        """A view of one tenant's threads over the same connections; it sees and touches no other tenant's."""
        clone = copy.copy(self)
        clone._tenant = tenant
        clone._scope = Scope(self._core, text_key("tenant", tenant), self._scope.port)
        return clone

    @property
    def tenant(self) -> str:
        """The tenant of this view; `""` unless one was named."""
        return self._tenant

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Self:
        """A clone whose serializer may also revive these types, as LangGraph asks at compile time."""
        extend = getattr(self.serde, "with_msgpack_allowlist", None)
        serde = extend(extra_allowlist) if extend else self.serde
        if serde is self.serde:
            return self
        clone = copy.copy(self)
        clone.serde = serde
        clone._scope = Scope(self._core, self._scope.tenant, port_for(serde))
        return clone

    # -- lifetime

    def prepare(self) -> None:
        """Create or migrate the tables: `setup` under a name that is the same on every class."""
        self._driver.run(prepare.setup(self._core))

    async def aprepare(self) -> None:
        """Async version of `prepare`."""
        await self._driver.arun(prepare.setup(self._core))

    def close(self) -> None:
        """Close what this saver opened; connections and pools it was given stay open. Idempotent."""
        self._driver.close()
        if self._core.keys is not None:
            self._core.keys.close()

    async def aclose(self) -> None:
        """Async version of `close`."""
        await self._driver.aclose()
        if self._core.keys is not None:
            await self._core.keys.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    def _run(self, op: Op[T]) -> T:
        return self._driver.run(prepare.prepared(self._core, op))

    async def _arun(self, op: Op[T]) -> T:
        return await self._driver.arun(prepare.prepared(self._core, op))

    # -- reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint a config names, else the newest of its namespace, with its pending writes.

        Raises:
            PayloadError: It is stored but cannot be read; the message names it.
            StorageUnavailableError: The database did not answer.
        """
        return self._run(refreshing.get_tuple(self._scope, address_of(self._scope, config)))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Async version of `get_tuple`."""
        return await self._arun(refreshing.get_tuple(self._scope, address_of(self._scope, config)))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, newest first, read in pages as they are consumed.

        Args:
            config: Thread, and namespace or checkpoint if named; None lists every thread of this tenant.
            filter: Top-level metadata values to equal. An unknown key matches nothing.
            before: Only checkpoints with a smaller id than this config's.
            limit: At most this many.

        Raises:
            ConfigurationError: A negative limit, or a filter key that is never stored.
        """
        return self._pages(listing.start(self._scope, config, filter, before, limit))

    def _pages(self, state: listing.Listing) -> Iterator[CheckpointTuple]:
        while state.query is not None:
            found, state = self._run(refreshing.page(self._scope, state))
            yield from found

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Async version of `list`."""
        state = listing.start(self._scope, config, filter, before, limit)
        while state.query is not None:
            found, state = await self._arun(refreshing.page(self._scope, state))
            for entry in found:
                yield entry

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """The writes that DeltaChannels are rebuilt from, oldest first, and the value they start from."""
        at = address_of(self._scope, config)
        return self._run(history.delta_history(self._scope, at, channels)) if channels else {}

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Async version of `get_delta_channel_history`."""
        at = address_of(self._scope, config)
        return await self._arun(history.delta_history(self._scope, at, channels)) if channels else {}

    # -- writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint; the config's checkpoint is its parent. Storing an id again replaces it.

        Raises:
            ThreadGoneError: The run loaded a generation of this thread that was deleted, erased or expired.
            ValueNotSerializableError: Names channel, path and type; nothing was stored.
            StorageFullError, StorageUnavailableError: Nothing of it was stored.
        """
        return self._run(self._put(config, checkpoint, metadata, new_versions))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Async version of `put`."""
        return await self._arun(self._put(config, checkpoint, metadata, new_versions))

    def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Op[RunnableConfig]:
        at = address_of(self._scope, config)
        op = put.put(self._scope, at, config, checkpoint, metadata, new_versions)
        return op if self._core.retention is None else sweeping.trimmed(self._scope, at, op)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store the writes of a task at the config's checkpoint, which need not be stored yet.

        Idempotent: the first ordinary write of an index stays, the last special one (error, interrupt, resume) wins.

        Raises:
            As `put`.
        """
        at = address_of(self._scope, config)
        self._run(put_writes.put_writes(self._scope, at, writes, task_id, task_path))

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Async version of `put_writes`."""
        at = address_of(self._scope, config)
        await self._arun(put_writes.put_writes(self._scope, at, writes, task_id, task_path))

    def get_next_version(self, current: Any, channel: None = None) -> Any:
        """The channel version after `current`; a thread keeps the format it came with."""
        lease = current_lease.get()
        if lease in self._core.lost:
            raise FencedError("This worker's lease was lost; the run stops here and nothing of it is stored.")
        return next_version(current)

    def lease(self, thread_id: str, *, ttl: float = 60, expect_interrupt: str | None = None) -> ThreadLease:
        """The right to write a thread, for one worker: a context manager (`with`, `async with`) yielding a config.

        Run the graph with that config. Another worker's run is stopped before its first node, and a worker that
        lost its lease can store nothing more. The lease is renewed while it is held and given back at the end; a
        crashed holder's runs out after `ttl`.

        Args:
            thread_id: The thread.
            ttl: Seconds until the lease of a silent holder may be taken over.
            expect_interrupt: Id of an interrupt that must still wait at the head.

        Raises:
            LeaseHeldError: Another worker holds it.
            HeadMovedError: The expected interrupt does not wait any more.
        """
        return ThreadLease(self, thread_id, ttl, expect_interrupt)

    # -- removing and copying

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread whole. Idempotent; a run that had loaded it can store nothing more in it."""
        self._run(remove.delete_thread(self._scope, thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """Async version of `delete_thread`."""
        await self._arun(remove.delete_thread(self._scope, thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints and writes of runs in every thread. Idempotent.

        A DeltaChannel whose history ran through a removed run loses that part of it.
        """
        self._run(remove.delete_for_runs(self._scope, run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Async version of `delete_for_runs`."""
        await self._arun(remove.delete_for_runs(self._scope, run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread under a new id.

        Raises:
            ConflictError: The target exists; nothing was copied.
        """
        self._run(copying.copy_thread(self._scope, source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Async version of `copy_thread`."""
        await self._arun(copying.copy_thread(self._scope, source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest", keep_last: int | None = None) -> None:
        """Shorten threads and free what only the removed checkpoints needed. Idempotent.

        Args:
            thread_ids: Threads to prune; unknown ones are passed over.
            strategy: `keep_latest` leaves the newest checkpoint of each namespace and the ancestors its
                DeltaChannels are rebuilt from; `delete` removes the threads.
            keep_last: In place of a strategy, how many checkpoints of each namespace stay; 0 removes the threads.
        """
        self._run(remove.prune(self._scope, thread_ids, strategy, keep_last))

    async def aprune(
        self, thread_ids: Sequence[str], *, strategy: str = "keep_latest", keep_last: int | None = None
    ) -> None:
        """Async version of `prune`."""
        await self._arun(remove.prune(self._scope, thread_ids, strategy, keep_last))

    # -- overview

    def lineage(self, thread_id: str) -> Lineage:
        """The runs of a thread: where each began, forks and duplicates, who decided. `print` it for a tree."""
        return self._run(lineage.lineage(self._scope, thread_id))

    async def alineage(self, thread_id: str) -> Lineage:
        """Async version of `lineage`."""
        return await self._arun(lineage.lineage(self._scope, thread_id))

    def threads(self, *, subject: str | None = None, limit: int = 50, cursor: str | None = None) -> overview.ThreadPage:
        """One page of this tenant's threads, newest first. Pass the page's `cursor` for the next.

        Args:
            subject: Only threads of this person; looks through all threads.
            limit: At most this many.
            cursor: Where the page before ended.
        """
        return self._run(overview.threads(self._scope, subject, limit, cursor))

    async def athreads(
        self, *, subject: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> overview.ThreadPage:
        """Async version of `threads`."""
        return await self._arun(overview.threads(self._scope, subject, limit, cursor))
