"""Sweeps that are killed, that meet each other, and that meet those who write: whole threads, each once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import pytest

from stepvault.checkpointers._ops import expiry, remains
from stepvault.checkpointers._ops.doc_marks import SPACES
from stepvault.checkpointers._ops.inbox import index
from stepvault.checkpointers._ops.spaces import space
from tests.contract.matrix import Database, RedisClusterDatabase, matrix
from tests.faults.sweeping import MARKER

SETTINGS = [param for param in matrix(("sync",)) if param.values[0][0] is not RedisClusterDatabase]
everywhere = pytest.mark.parametrize("database", SETTINGS, indirect=True)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other sweep is at work any more."""
    monkeypatch.setattr(remains, "GRACE", 0)


def told(database: Database, what: str, **ttl: Any) -> list[Any]:
    options = json.dumps({**database.options, "ttl": ttl})
    words = [sys.executable, "-m", "tests.faults.sweeping", database.module, database.saver_class, database.url]
    done = subprocess.run([*words, options, what], check=True, stdout=subprocess.PIPE, text=True, timeout=300)
    return [json.loads(line) for line in done.stdout.splitlines()]


def left(saver: Any, name: str = expiry.SPACE) -> int:
    docs = saver._run(saver._scope.core.dialect.docs(space(saver._scope, name), b"", b"", 100))
    return len([doc for doc in docs if doc.key != index.COUNTER])


@everywhere
async def test_a_sweep_that_is_killed_is_taken_up_by_the_next(database: Database, alone: None) -> None:
    raw = await database.raw(ttl={"pin_interrupted": False})
    killed = [(tenant, status) for tenant, status in told(database, "kill", pin_interrupted=False) if status]
    assert len(killed) >= 12
    for tenant, _ in killed:
        saver = raw.for_tenant(tenant)
        saver.sweep()
        assert [thread.thread_id for thread in saver.threads()] == ["lives"], tenant
        saver.delete_thread("lives")
        assert {name: left(saver, name) for name in SPACES if left(saver, name)} == {}, tenant
    assert MARKER.encode() not in database.content()


@everywhere
async def test_many_sweep_at_once_and_each_thread_goes_once(database: Database) -> None:
    raw = await database.raw(ttl={"pin_interrupted": False})
    (removed,) = told(database, "many", pin_interrupted=False)
    assert sum(removed) == 40
    saver = raw.for_tenant("many")
    assert [thread.thread_id for thread in saver.threads()] == ["lives"]
    saver.sweep()
    assert left(saver) == 0


@everywhere
async def test_whoever_meets_a_sweep_finds_whole_threads_or_none(database: Database, alone: None) -> None:
    raw = await database.raw()
    (met,) = told(database, "race")
    assert met["stored"] > 100
    assert met["resumed"] == 2
    saver = raw.for_tenant("race")
    while left(saver):
        saver.sweep()
        time.sleep(0.02)
    assert list(saver.threads()) == []
    assert list(saver.list(None)) == []
