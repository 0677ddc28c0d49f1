"""Sweeps that are killed, that meet each other, and that meet those who write: whole threads, each once."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from stepvault import Vault
from stepvault.checkpointers._ops import expiry, remains
from stepvault.checkpointers._ops.doc_marks import SPACES
from stepvault.checkpointers._ops.inbox import index
from stepvault.checkpointers._ops.spaces import space
from tests.contract.matrix import Database, RedisClusterDatabase, RedisDatabase, SqliteDatabase, matrix
from tests.faults.sweeping import MARKER

SOON = 0.05 / 60  # minutes after its deadline at which a thread goes by itself: before the first sweep comes

SETTINGS = [param for param in matrix(("sync",)) if param.values[0][0] is not RedisClusterDatabase]
REDIS = [param for param in SETTINGS if issubclass(param.values[0][0], RedisDatabase)]
redis = pytest.mark.parametrize("database", REDIS, indirect=True)
everywhere = pytest.mark.parametrize("database", SETTINGS, indirect=True)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other sweep is at work any more."""
    monkeypatch.setattr(remains, "GRACE", 0)


def url_of(database: Database) -> str:
    return f"sqlite:///{database.url}" if isinstance(database, SqliteDatabase) else database.url


def told(database: Database, what: str, part: int = 1, **ttl: Any) -> list[Any]:
    options = json.dumps({**database.options, "ttl": ttl})
    words = [sys.executable, "-m", "tests.faults.sweeping", url_of(database), options, what, str(part)]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, timeout=300)
    return [json.loads(line) for line in done.stdout.splitlines()]


@contextlib.contextmanager
def opened(database: Database, tenant: str, **ttl: Any) -> Iterator[Vault]:
    """What the processes worked on."""
    with Vault.open(url_of(database), ttl=ttl, **database.options) as vault:
        yield vault.for_tenant(tenant) if tenant else vault


def left(vault: Vault, name: str = expiry.SPACE) -> int:
    saver = vault.checkpointer
    docs = saver._run(saver._scope.core.dialect.docs(space(saver._scope, name), b"", b"", 100))
    return len([doc for doc in docs if doc.key != index.COUNTER])


@everywhere
async def test_a_sweep_that_is_killed_is_taken_up_by_the_next(database: Database, alone: None) -> None:
    _kill(database, pin_interrupted=False)


@redis
@pytest.mark.parametrize("part", [8, pytest.param(1, marks=pytest.mark.soak)])
async def test_a_sweep_that_is_killed_among_threads_that_went_by_themselves(
    part: int, database: Database, alone: None
) -> None:
    _kill(database, part, pin_interrupted=False, native_grace_minutes=SOON)
    assert b"stepvault:led:" not in database.content()


def _kill(database: Database, part: int = 1, **ttl: Any) -> None:
    killed = [tenant for tenant, status in told(database, "kill", part, **ttl) if status]
    assert len(killed) >= 12 // part
    with opened(database, "", **ttl) as whole:
        whole.sweep()
        for tenant in killed:
            vault = whole.for_tenant(tenant)
            assert [thread.thread_id for thread in vault.threads()] == ["lives"], tenant
            vault.checkpointer.delete_thread("lives")
            assert {name: left(vault, name) for name in SPACES if left(vault, name)} == {}, tenant
            assert vault.store.search(("thread_scope",)) == [], tenant
    assert MARKER.encode() not in database.content()


@everywhere
async def test_many_sweep_at_once_and_each_thread_goes_once(database: Database) -> None:
    (removed,) = told(database, "many", pin_interrupted=False)
    assert sum(removed) == 40
    with opened(database, "many", pin_interrupted=False) as vault:
        assert [thread.thread_id for thread in vault.threads()] == ["lives"]
        vault.sweep()
        assert left(vault) == 0


@everywhere
async def test_whoever_meets_a_sweep_finds_whole_threads_or_none(database: Database, alone: None) -> None:
    _race(database)


@redis
@pytest.mark.parametrize("part", [5, pytest.param(1, marks=pytest.mark.soak)])
async def test_whoever_meets_threads_that_go_by_themselves_finds_whole_ones(
    part: int, database: Database, alone: None
) -> None:
    _race(database, part, native_grace_minutes=1e-6)
    assert b"stepvault:led:" not in database.content()


def _race(database: Database, part: int = 1, **ttl: Any) -> None:
    (met,) = told(database, "race", part, **ttl)
    assert met["stored"] > 100 // part
    assert met["resumed"] == max(1, 2 // part)
    with opened(database, "race", **ttl) as vault:
        while left(vault):
            vault.sweep()
            time.sleep(0.02)
        assert list(vault.threads()) == []
        assert list(vault.checkpointer.list(None)) == []
