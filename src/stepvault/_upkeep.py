"""A vault's sizes, its health, and copying it whole to an empty database."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from stepvault._core.ids import check_text, text_of
from stepvault._core.plan import Batch, Op, Stmt
from stepvault._drivers.sqlite import path_of
from stepvault._moving import bring
from stepvault.checkpointers._ops import measuring, people, refreshing, sweeping
from stepvault.checkpointers._ops.subjects import TOMBSTONES
from stepvault.copying import copy_all
from stepvault.errors import ConfigurationError, StepvaultError, SubjectErasedError
from stepvault.overview import BackupReport, Health, Stats, StatsBy
from stepvault.stores._erased import forget_orphans
from stepvault.stores._ops import remove
from stepvault.stores._ops.context import Scope
from stepvault.ttl import SweepReport

if TYPE_CHECKING:
    from stepvault.checkpointers._shells import ExpiringSaver
    from stepvault.vault import Vault

_NEARLY_FULL = 16 << 20
_SQLITE = "sqlite:///"
_PAGE = 200


class Upkeep:
    """What looks after a vault."""

    _checkpointer: ExpiringSaver
    store: Any

    def stats(self, by: StatsBy = "tenant") -> list[Stats]:
        """How many threads, checkpoints and bytes each tenant, person, thread or status has, the largest first.

        Looks through all threads. A view of one tenant sees its own; the vault itself sees every tenant's sum, and
        the people, threads and statuses of the tenant `""`.
        """
        return self._checkpointer._run(measuring.stats(self._checkpointer._scope, by))

    async def astats(self, by: StatsBy = "tenant") -> list[Stats]:
        """Async version of `stats`."""
        return await self._checkpointer._arun(measuring.stats(self._checkpointer._scope, by))

    def health(self) -> Health:
        """Whether the database answers, and what waits. Raises nothing if it does not, or refuses."""
        try:
            found = self._checkpointer._run(measuring.health(self._checkpointer._scope, free_disk(self._checkpointer)))
        except StepvaultError as exc:
            return Health(False, type(exc).__name__, str(exc), free_disk=free_disk(self._checkpointer))
        return _and_file(found, self._checkpointer)

    async def ahealth(self) -> Health:
        """Async version of `health`."""
        try:
            found = await self._checkpointer._arun(
                measuring.health(self._checkpointer._scope, free_disk(self._checkpointer))
            )
        except StepvaultError as exc:
            return Health(False, type(exc).__name__, str(exc), free_disk=free_disk(self._checkpointer))
        return _and_file(found, self._checkpointer)

    def sweep(
        self,
        *,
        limit: int | None = None,
        seconds: float | None = None,
        all_tenants: bool = False,
        dry_run: bool = False,
    ) -> SweepReport:
        """Remove expired threads and items, shorten histories, and say what was done; see `sweep` of the checkpointer.

        Items are counted in a dry run too; `limit` and `seconds` are for threads.
        """
        saver = self._checkpointer
        saver._limits(limit, seconds)
        sweeping.check_view(saver._scope, all_tenants)  # before items go
        tenants = [scope.tenant for scope in saver._run(sweeping.swept(saver._scope))]
        items = self.store._run(_sweep_items(self.store._scope, tenants, dry_run=dry_run))
        if items and not dry_run:
            saver._scope.tell("swept", numbers={"items": items})
        done = saver.sweep(limit=limit, seconds=seconds, all_tenants=all_tenants, dry_run=dry_run)
        return replace(done, items=items)

    async def asweep(
        self,
        *,
        limit: int | None = None,
        seconds: float | None = None,
        all_tenants: bool = False,
        dry_run: bool = False,
    ) -> SweepReport:
        """Async version of `sweep`."""
        saver = self._checkpointer
        saver._limits(limit, seconds)
        sweeping.check_view(saver._scope, all_tenants)
        tenants = [scope.tenant for scope in await saver._arun(sweeping.swept(saver._scope))]
        items = await self.store._arun(_sweep_items(self.store._scope, tenants, dry_run=dry_run))
        if items and not dry_run:
            saver._scope.tell("swept", numbers={"items": items})
        done = await saver.asweep(limit=limit, seconds=seconds, all_tenants=all_tenants, dry_run=dry_run)
        return replace(done, items=items)

    def backup(self, url: str) -> BackupReport:
        """Copy this vault to an empty database; see docs/backups.md.

        From SQLite to SQLite the file is copied whole while others write: tombstones, receipts, the keys in it.
        Anything else is copied thread by thread and item by item, under the same keyring.

        Raises:
            ConfigurationError: There is something at the target.
        """
        return _backup(cast(Any, self), url)

    async def abackup(self, url: str) -> BackupReport:
        """Async version of `backup`, in a thread of its own."""
        return await asyncio.to_thread(_backup, cast(Any, self), url)


def _sweep_items(scope: Scope, tenants: Sequence[bytes], *, dry_run: bool) -> Op[int]:
    """Remove expired items of every tenant, and what threads of these tenants have left behind."""
    if dry_run:
        return (yield from remove.overdue(scope))
    items = yield from remove.sweep(scope)
    for tenant in tenants:
        yield from forget_orphans(replace(scope, tenant=tenant))
    return items


def file_of(saver: Any) -> Path | None:
    """The file a saver keeps its data in, if it is one."""
    path = getattr(saver._driver, "path", None)
    return Path(path) if path and path != ":memory:" and not path.startswith("file:") else None


def free_disk(saver: Any) -> int | None:
    """Free bytes where the file of a saver lies."""
    file = file_of(saver)
    return shutil.disk_usage(file.absolute().parent).free if file is not None and file.parent.exists() else None


def _and_file(found: Health, saver: Any) -> Health:
    """What is wrong with a file, beside what its database says."""
    file = file_of(saver)
    if file is None or not file.exists():
        return found
    troubles = list(found.warnings)
    if not os.access(file, os.W_OK) or not os.access(file.absolute().parent, os.W_OK):
        troubles.append(f"{file} or its folder cannot be written by this user.")
    if found.free_disk is not None and found.free_disk < _NEARLY_FULL:
        troubles.append(f"The disk of {file} is nearly full: writes, sweeps and deletions need some of it.")
    return replace(found, warnings=tuple(troubles))


def _backup(vault: Vault, url: str) -> BackupReport:
    from stepvault.vault import Vault

    check_text("url", url)
    saver = vault.checkpointer
    if saver._scope.tenant:
        raise ConfigurationError("backup() copies a whole database; call it on the vault, not on a tenant's view.")
    if file_of(saver) is not None and url.startswith(_SQLITE):
        return _copy_file(saver, Path(path_of(url)))
    with Vault.open(url, keyring=saver._core.keyring, unknown_types="raw") as target:
        target.setup()
        if len(target.threads(limit=1)) or target.store.list_namespaces(limit=1):
            raise ConfigurationError("There is something in the database to back up to; give an empty one.")
        dialect = saver._core.dialect
        tenants = saver._run(dialect.tenants()) + saver._run(dialect.tenants_with(TOMBSTONES.encode()))
        names = {text_of(tenant) for tenant in tenants} | {""}
        threads = items = 0
        for name in sorted(names):
            source, into = (vault.for_tenant(name), target.for_tenant(name)) if name else (vault, target)
            found = copy_over(source, into)
            threads, items = threads + found[0], items + found[1]
        return BackupReport("copied", threads, items)


def copy_over(source: Vault, target: Vault) -> tuple[int, int]:
    """Copy threads, with people and times, and items of one tenant's view to another; how many of each there were."""
    bring(source, target)
    threads = copy_all(source.checkpointer, target.checkpointer)
    _settle(source, target)
    return threads, copy_all(source.store, target.store)


def _settle(source: Vault, target: Vault) -> None:
    """Say of copied threads whose they are, and how long they live."""
    origin, saver, cursor = source.checkpointer, target.checkpointer, None
    while True:
        page = source.threads(limit=_PAGE, cursor=cursor)
        for info in page.threads:
            if info.subjects:
                try:
                    saver._run(people.attribute(saver._scope, saver._scope.key(info.thread_id), info.subjects))
                except SubjectErasedError:  # at this very moment
                    saver.delete_thread(info.thread_id)
                    raise
            lived = origin._run(refreshing.standing(origin._scope, origin._scope.key(info.thread_id)))
            if lived is not None and lived.ttl is not None:
                saver._run(refreshing.inherit(saver._scope, saver._scope.key(info.thread_id), lived))
        if (cursor := page.cursor) is None:
            return


def _copy_file(saver: Any, target: Path) -> BackupReport:
    if target.exists():
        raise ConfigurationError(f"{target} exists; give a backup a file of its own.")
    if not target.absolute().parent.is_dir():
        raise ConfigurationError(f"{target} cannot be made: its folder does not exist.")

    def copy() -> Op[None]:
        yield Batch([Stmt("VACUUM INTO ?", (str(target),))], outside=True)

    saver._run(copy())
    found = saver._run(measuring.stats(saver._scope, "tenant"))
    return BackupReport("file", sum(one.threads for one in found))
