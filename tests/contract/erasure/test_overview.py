"""Sizes, health and backups of a vault, over each backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepvault import Vault
from stepvault.errors import ConfigurationError
from tests.contract.building import config, put
from tests.contract.erasure.test_vault import SETTINGS
from tests.contract.matrix import Database, SqliteDatabase


def opened(database: Database) -> Vault:
    prefix = "sqlite:///" if isinstance(database, SqliteDatabase) else ""
    return Vault.open(f"{prefix}{database.url}", **database.options)


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


def test_a_database_that_is_down_is_told_not_raised() -> None:
    with Vault.open("sqlite:////nowhere/at/all.db") as vault:
        health = vault.health()
    assert not health.reachable
    assert health.error is not None
