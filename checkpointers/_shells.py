"""Savers as the backends make them: expiry and sweepers, and `setup` in the two manners of the official packages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from langchain_core.runnables import RunnableConfig

from stepvault._core.numbers import check_count, check_minutes, check_seconds
from stepvault._drivers.sweeper import TaskSweeper, ThreadSweeper
from stepvault.checkpointers._compaction import CompactingSaver
from stepvault.checkpointers._ops import refreshing, sweeping, tagging
from stepvault.checkpointers._ops.context import address_of
from stepvault.errors import ConfigurationError
from stepvault.ttl import SweepReport, check_limits


class ExpiringSaver(CompactingSaver):
    """A saver whose threads may expire."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sweeper, self._task_sweeper = ThreadSweeper(), TaskSweeper()

    def close(self) -> None:
        """Close what this saver opened; connections and pools it was given stay open. Idempotent."""
        self._sweeper.stop()
        super().close()

    async def aclose(self) -> None:
        """Async version of `close`."""
        await self._task_sweeper.stop()
        self._sweeper.stop(0)
        await super().aclose()

    def sweep(
        self,
        *,
        limit: int | None = None,
        seconds: float | None = None,
        all_tenants: bool = False,
        dry_run: bool = False,
    ) -> SweepReport:
        """Remove expired threads, oldest deadline first, shorten histories, and say what was done.

        A saver without a tenant removes the expired threads of every tenant; a view of one tenant, its own. Any number
        of processes may sweep at once; a killed sweep is taken up by the next.

        Args:
            limit: Remove at most this many threads; None: as the `ttl=` option says.
            seconds: Stop after so long; None: as the `ttl=` option says.
            all_tenants: Shorten the histories of every tenant, too, as this saver's `retention=` says.
            dry_run: Only count.

        Raises:
            ConfigurationError: `all_tenants` on a view of one tenant, or a limit that is none.
        """
        limits = self._limits(limit, seconds)
        done = self._run(sweeping.sweep(self._scope, *limits, all_tenants=all_tenants, dry_run=dry_run))
        return self._swept(done, dry_run=dry_run)

    async def asweep(
        self,
        *,
        limit: int | None = None,
        seconds: float | None = None,
        all_tenants: bool = False,
        dry_run: bool = False,
    ) -> SweepReport:
        """Async version of `sweep`."""
        limits = self._limits(limit, seconds)
        done = await self._arun(sweeping.sweep(self._scope, *limits, all_tenants=all_tenants, dry_run=dry_run))
        return self._swept(done, dry_run=dry_run)

    def _swept(self, done: SweepReport, *, dry_run: bool) -> SweepReport:
        if not dry_run:
            names = ("threads", "checkpoints", "kept", "trimmed", "freed")
            self._scope.tell("swept", numbers={name: getattr(done, name) for name in names})
        return done

    def _limits(self, limit: int | None, seconds: float | None) -> tuple[int | None, float | None]:
        check_limits(limit, seconds)
        ttl = self._core.ttl
        return (limit if limit is not None else ttl.sweep_limit, seconds if seconds is not None else ttl.sweep_seconds)

    def apply_ttl(
        self, *, limit: int | None = None, all_tenants: bool = False, progress: Callable[[int], None] | None = None
    ) -> int:
        """Give every thread that has no deadline the default one, counted from its last write; return how many.

        For a database that was filled before `ttl=` was set: threads that have been idle for longer expire at once.
        Idempotent, and may be killed and repeated.

        Args:
            limit: At most this many threads.
            all_tenants: The threads of every tenant, not only of this saver's.
            progress: Called now and then with how many there are so far.

        Raises:
            ConfigurationError: `all_tenants` on a view of one tenant, a limit that is none, or a saver without a
                default to give.
        """
        self._check_applied(limit)
        done = 0
        for scope in self._run(sweeping.every(self._scope, all_tenants)):
            after: Any = None
            while True:
                left = None if limit is None else limit - done
                count, after = self._run(refreshing.apply_default(scope, after, left))
                done += count
                if progress is not None:
                    progress(done)
                if after is None:
                    break
        return done

    async def aapply_ttl(
        self, *, limit: int | None = None, all_tenants: bool = False, progress: Callable[[int], None] | None = None
    ) -> int:
        """Async version of `apply_ttl`."""
        self._check_applied(limit)
        done = 0
        for scope in await self._arun(sweeping.every(self._scope, all_tenants)):
            after: Any = None
            while True:
                left = None if limit is None else limit - done
                count, after = await self._arun(refreshing.apply_default(scope, after, left))
                done += count
                if progress is not None:
                    progress(done)
                if after is None:
                    break
        return done

    def _check_applied(self, limit: int | None) -> None:
        check_count("limit", limit, optional=True)
        if self._core.ttl.default_ttl is None:
            raise ConfigurationError("apply_ttl() gives the default: open the saver with ttl={'default_ttl': minutes}.")

    def rebuild_deadlines(self) -> int:
        """Have sweeps look at every thread that has a deadline; how many there are.

        For a database that has lost that they should, in a failover or a restore. Idempotent.
        """
        done, after = 0, None
        while True:
            count, after = self._run(refreshing.rewatch(self._scope, after))
            done += count
            if after is None:
                return done

    async def arebuild_deadlines(self) -> int:
        """Async version of `rebuild_deadlines`."""
        done, after = 0, None
        while True:
            count, after = await self._arun(refreshing.rewatch(self._scope, after))
            done += count
            if after is None:
                return done

    def tag(self, config: RunnableConfig, name: str) -> None:
        """Name the checkpoint of a config, so that retention keeps it. The name moves if it stood for another."""
        self._run(tagging.tag(self._scope, address_of(self._scope, config), name))

    async def atag(self, config: RunnableConfig, name: str) -> None:
        """Async version of `tag`."""
        await self._arun(tagging.tag(self._scope, address_of(self._scope, config), name))

    def untag(self, thread_id: str, name: str) -> None:
        """Take a name back. Idempotent."""
        config = {"configurable": {"thread_id": thread_id}}
        self._run(tagging.tag(self._scope, address_of(self._scope, config), name, remove=True))

    async def auntag(self, thread_id: str, name: str) -> None:
        """Async version of `untag`."""
        config = {"configurable": {"thread_id": thread_id}}
        await self._arun(tagging.tag(self._scope, address_of(self._scope, config), name, remove=True))

    def tags(self, thread_id: str) -> dict[str, str]:
        """The names of a thread's checkpoints, each with its checkpoint id."""
        return self._run(tagging.tags(self._scope, self._scope.key(thread_id)))

    async def atags(self, thread_id: str) -> dict[str, str]:
        """Async version of `tags`."""
        return await self._arun(tagging.tags(self._scope, self._scope.key(thread_id)))

    def _interval(self, minutes: float | None) -> float:
        given = check_minutes("sweep_interval_minutes", minutes)
        return given or self._core.ttl.sweep_interval_minutes or 5


class SyncSetup(ExpiringSaver):
    """`setup` and the sweeper as the sync official savers and stores have them."""

    def setup(self) -> None:
        """Create or migrate the tables. Idempotent; any number of processes may call it at once."""
        self.prepare()

    async def asetup(self) -> None:
        """Async version of `setup`."""
        await self.aprepare()

    def sweep_ttl(self) -> int:
        """Remove expired threads, and return how many. Any number of processes may sweep at once."""
        return self.sweep().threads

    async def asweep_ttl(self) -> int:
        """Async version of `sweep_ttl`."""
        return (await self.asweep()).threads

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> Future[None]:
        """Sweep now and then, in a thread.

        Returns:
            A future that ends with the sweeper; cancelling it ends the sweeper.
        """
        return self._sweeper.start(self.sweep_ttl, self._interval(sweep_interval_minutes))

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """End the sweeper; whether it has ended within `timeout` seconds."""
        check_seconds("timeout", timeout, optional=True)
        return self._sweeper.stop(timeout)


class AsyncSetup(ExpiringSaver):
    """`setup` and the sweeper as the async official savers and stores have them: coroutines."""

    async def setup(self) -> None:
        """Create or migrate the tables. Idempotent; any number of processes may call it at once."""
        await self.aprepare()

    async def asetup(self) -> None:
        """Another name for `setup`."""
        await self.aprepare()

    async def sweep_ttl(self) -> int:
        """Remove expired threads, and return how many. Any number of processes may sweep at once."""
        return (await self.asweep()).threads

    async def asweep_ttl(self) -> int:
        """Another name for `sweep_ttl`."""
        return await self.sweep_ttl()

    async def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> asyncio.Task[None]:
        """Sweep now and then, in a task of this loop; cancelling the task ends it."""
        return self._task_sweeper.start(self.sweep_ttl, self._interval(sweep_interval_minutes))

    async def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """End the sweeper; whether it has ended within `timeout` seconds."""
        check_seconds("timeout", timeout, optional=True)
        return await self._task_sweeper.stop(timeout)
