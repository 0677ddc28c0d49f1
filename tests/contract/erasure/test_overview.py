"""Sizes, health and backups of a vault, over each backend."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from stepvault import Vault
from stepvault._core.plan import Op
from stepvault.checkpointers._ops import expiry, sweeping
from stepvault.checkpointers._ops.erasing import requests, steps
from stepvault.erasure import PurgeStep
from stepvault.errors import ConfigurationError
from tests.contract.building import config, put
from tests.contract.erasure.test_vault import SETTINGS
from tests.contract.lifetime.building import later
from tests.contract.matrix import Database, SqliteDatabase


def opened(database: Database, **options: Any) -> Vault:
    prefix = "sqlite:///" if isinstance(database, SqliteDatabase) else ""
    return Vault.open(f"{prefix}{database.url}", **database.options, **options)


@pytest.mark.parametrize("database", SETTINGS, indirect=True)
async def test_sizes_health_and_backups(database: Database, tmp_path: Path) -> None:
    async with opened(database) as vault:
        for thread, who in (("a", ["ann"]), ("b", ["ann", "bob"]), ("c", [])):
            await put(vault.checkpointer, {"a": thread}, at=config(thread, user_id=who))
        vault.store.put(("users", "ann"), "k", {"likes": "tea"})
        assert {one.name: one.threads for one in vault.stats("subject")} == {"ann": 2, "bob": 1, None: 1}
        assert [(one.name, one.threads, one.checkpoints) for one in await vault.astats()] == [("", 3, 3)]
        with pytest.raises(ConfigurationError):
            vault.stats("colour")  # type: ignore[arg-type]
        health = await vault.ahealth()
        assert (health.reachable, health.erasures, health.overdue) == (True, 0, 0)
        assert health.sealed == bool(database.options.get("keyring"))
        target = f"sqlite:///{tmp_path}/backup.db"
        with pytest.raises(ConfigurationError, match="tenant"):
            vault.for_tenant("acme").backup(target)
        report = vault.backup(target)
        assert report.threads == 3
        with Vault.open(target, **{k: v for k, v in database.options.items() if k == "keyring"}) as copy:
            assert {t.thread_id: set(t.subjects) for t in copy.threads()} == {
                "a": {"ann"}, "b": {"ann", "bob"}, "c": set(),
            }  # fmt: skip
            assert [item.value for item in copy.store.search(())] == [{"likes": "tea"}]
        with pytest.raises(ConfigurationError):
            vault.backup(target)


@pytest.mark.parametrize("database", SETTINGS, indirect=True)
async def test_what_is_overdue_is_counted_once_and_of_every_tenant(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "_FIRST", 1)
    monkeypatch.setattr(sweeping, "_PAGE", 1)
    async with opened(database, ttl={"default_ttl": 5}) as vault:
        for tenant in ("", "acme", "other"):
            saver = vault.for_tenant(tenant).checkpointer
            await put(saver, {"a": 1}, at=config("a"))
            key = saver._scope.key("a")
            for minutes in (2, 4, 6):  # a deadline that was moved leaves what led to the ones before
                saver._run(expiry.watch(saver._scope, key, int(time.time() * 1000) + minutes * 60_000))
        later(vault.checkpointer, 4.5)
        assert (await vault.asweep(dry_run=True)).kept == 3  # not overdue yet, though twice to be looked at
        later(vault.checkpointer, 5)
        assert vault.for_tenant("acme").health().overdue >= 1
        assert vault.health().overdue == 3 * vault.for_tenant("acme").health().overdue
        assert (await vault.asweep(dry_run=True)).threads == 3
        assert (await vault.asweep()).threads == 3
        assert (await vault.ahealth()).overdue == 0


@pytest.mark.parametrize("database", SETTINGS, indirect=True)
async def test_an_erasure_leads_to_its_tenant_where_no_thread_does(database: Database) -> None:
    async with opened(database) as vault:
        acme = vault.for_tenant("acme")
        await put(acme.checkpointer, {"a": 1}, at=config("a", user_id="ann"))
        await acme.erasure.aerase("ann")
        saver, tenant = vault.checkpointer, acme.checkpointer._scope.tenant
        assert saver._run(saver._core.dialect.tenants()) == []
        assert saver._run(saver._core.dialect.tenants_with(requests.SPACE.encode())) == [tenant]


@pytest.mark.parametrize("database", SETTINGS, indirect=True)
async def test_health_counts_the_erasures_of_every_tenant(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(_: Any) -> None:
        raise KeyboardInterrupt

    def purge(*_: Any) -> Op[list[PurgeStep]]:
        return [PurgeStep("a step", False, "busy", retryable=True)]
        yield

    monkeypatch.setattr(steps.Eraser, "purge", purge)
    async with opened(database) as vault:
        for tenant in ("", "acme", "other"):
            with pytest.raises(KeyboardInterrupt):
                vault.for_tenant(tenant).erasure.erase("ann", progress=stop)
        assert (await vault.ahealth()).erasures == 3
        for tenant in ("", "acme"):
            vault.for_tenant(tenant).erasure.resume()
        assert [(one.erasures, one.unpurged) for one in (vault.health(), vault.for_tenant("acme").health())] == [
            (1, 2), (0, 1),
        ]  # fmt: skip


def test_a_database_that_is_down_is_told_not_raised() -> None:
    with Vault.open("sqlite:////nowhere/at/all.db") as vault:
        health = vault.health()
    assert not health.reachable
    assert health.error is not None
