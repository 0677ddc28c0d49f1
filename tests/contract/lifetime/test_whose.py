"""Who sweeps whose threads: no process of an app with a thousand tenants knows them all."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stepvault import Vault
from stepvault._upkeep import copy_over
from stepvault.checkpointers._ops import expiry
from stepvault.checkpointers._ops.spaces import drop_docs
from stepvault.errors import ConfigurationError
from tests.contract.building import checkpoint, config, put
from tests.contract.lifetime.building import docs_left, later
from tests.contract.matrix import Database

TENANTS = ("", "one", "two\0", "späce")


def of(saver: Any, tenant: str) -> Any:
    return saver.for_tenant(tenant) if tenant else saver


async def checkpoints(saver: Any) -> list[int]:
    return [thread.checkpoints for tenant in TENANTS for thread in (await of(saver, tenant).athreads()).threads]


async def test_a_saver_without_a_tenant_sweeps_those_of_every_tenant(database: Database) -> None:
    saver, sweeper = await database.saver(ttl={"default_ttl": 30}), await database.saver()
    for tenant in TENANTS:
        for name in ("t", "u"):
            await put(of(saver, tenant), {"a": 1}, at=config(name))
    await put(of(saver, "one"), {"a": 1}, at=config("lives", stepvault_ttl=60))
    later(sweeper, 31)
    assert (await of(sweeper, "one").asweep()).threads == 2
    assert (await sweeper.asweep(dry_run=True)).threads == 6
    report = await sweeper.asweep(limit=3)
    assert (report.threads, report.more) == (3, True)
    assert (await sweeper.asweep()).threads == 3
    left = {tenant: await docs_left(of(sweeper, tenant)) for tenant in TENANTS}
    assert {tenant for tenant, docs in left.items() if docs} == {"one"}
    later(sweeper, 30)
    assert (await sweeper.asweep()).threads == 1
    assert await checkpoints(sweeper) == []


async def test_rules_are_for_one_tenant_unless_told_otherwise(database: Database) -> None:
    before = await database.saver()
    for tenant in TENANTS:
        at = config()
        for step in range(3):
            at = await put(of(before, tenant), {"a": step}, at=at)
    saver = await database.saver(ttl={"default_ttl": 30}, retention={"keep_last": 1})
    await saver.asweep()
    assert sorted(await checkpoints(saver)) == [1, 3, 3, 3]
    await saver.asweep(all_tenants=True)
    assert await checkpoints(saver) == [1, 1, 1, 1]
    assert await saver.aapply_ttl() == 1
    assert await saver.aapply_ttl(all_tenants=True, limit=2) == 2
    assert await saver.aapply_ttl(all_tenants=True) == 1
    later(saver, 31)
    assert (await saver.asweep()).threads == 4


async def test_one_tenant_has_no_say_over_others(database: Database) -> None:
    saver = (await database.saver(ttl={"default_ttl": 30})).for_tenant("one")
    for refused in (saver.asweep, saver.aapply_ttl):
        with pytest.raises(ConfigurationError, match="all_tenants"):
            await refused(all_tenants=True)


async def test_deadlines_that_the_database_lost_are_put_back(database: Database) -> None:
    saver = await database.saver(ttl={"default_ttl": 30})
    await put(saver, {"a": 1})
    await put(saver, {"a": 1}, at=config("lasts", stepvault_ttl=None))
    raw = getattr(saver, "saver", saver)
    lost = drop_docs(raw._scope, expiry.SPACE, [key for _, key in await docs_left(saver)])
    await (asyncio.to_thread(raw._run, lost) if raw is not saver else saver._arun(lost))
    later(saver, 31)
    assert (await saver.asweep()).threads == 0
    assert await saver.arebuild_deadlines() == 1
    assert (await saver.asweep()).threads == 1


async def test_a_thread_that_several_deadlines_name_is_counted_once(database: Database) -> None:
    saver = await database.saver(ttl={"default_ttl": 30})
    at = await put(saver, {"a": 1})
    later(saver, 10)
    await put(saver, {"a": 2}, at=at)
    await saver.arebuild_deadlines()  # beside what the first put said
    later(saver, 31)
    for dry_run in (True, False):
        report = await saver.asweep(dry_run=dry_run)
        assert (report.threads, report.checkpoints, report.more) == (1, 2, False)
    assert await docs_left(saver) == []


async def test_a_tenants_vault_removes_nothing_when_it_is_refused_the_others(tmp_path: Path) -> None:
    async with Vault.open(f"sqlite:///{tmp_path}/a.db") as vault:
        vault.store.put(("a",), "k", {"n": 1}, ttl=0.001)
        while not vault.sweep(dry_run=True).items:
            await asyncio.sleep(0.01)
        view = vault.for_tenant("one")
        with pytest.raises(ConfigurationError, match="all_tenants"):
            view.sweep(all_tenants=True)
        with pytest.raises(ConfigurationError, match="all_tenants"):
            await view.asweep(all_tenants=True)
        assert vault.sweep().items == 1


def test_copies_keep_their_time(tmp_path: Path) -> None:
    """A backup is no place to live for ever; its tables are made by a saver that knows of no time."""
    with (
        Vault.open(f"sqlite:///{tmp_path}/a.db", ttl={"default_ttl": 30}) as source,
        Vault.open(f"sqlite:///{tmp_path}/b.db") as copy,
        Vault.open(f"sqlite:///{tmp_path}/c.db", ttl={"default_ttl": 5}) as other,
    ):
        for name, more in (("by default", {}), ("told", {"stepvault_ttl": 10}), ("lasts", {"stepvault_ttl": None})):
            made = checkpoint({"a": 1})
            source.checkpointer.put(config(name, **more), made, {"step": 0}, made["channel_versions"])
        at = {thread.thread_id: thread.expires_at for thread in source.threads()}
        for target in (copy, other):
            copy_over(source, target)
        assert {thread.thread_id: thread.expires_at for thread in copy.threads()} == at
        there = {thread.thread_id: thread.expires_at for thread in other.threads()}
        assert there.pop("by default") != at.pop("by default")
        assert there == at
        later(copy.checkpointer, 31)
        assert copy.sweep().threads == 2
