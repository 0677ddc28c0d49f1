"""Sweeps that are killed, that meet each other, and that meet those who write: whole threads, each once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import pytest

from stepvault.checkpointers._ops import expiry
from stepvault.checkpointers._ops.spaces import space
from tests.contract.matrix import Database, RedisClusterDatabase, matrix
from tests.faults.sweeping import MARKER

SETTINGS = [param for param in matrix(("sync",)) if param.values[0][0] is not RedisClusterDatabase]
everywhere = pytest.mark.parametrize("database", SETTINGS, indirect=True)


def told(database: Database, what: str) -> list[Any]:
    options = json.dumps(database.options)
    words = [sys.executable, "-m", "tests.faults.sweeping", database.module, database.saver_class, database.url]
    done = subprocess.run([*words, options, what], check=True, stdout=subprocess.PIPE, text=True, timeout=300)
    return [json.loads(line) for line in done.stdout.splitlines()]


def left(saver: Any, name: str) -> int:
    op = saver._scope.core.dialect.docs(space(saver._scope, name), b"", b"", 100)
    return len(saver._run(op))


@everywhere
async def test_a_sweep_that_is_killed_is_taken_up_by_the_next(database: Database) -> None:
    raw = await database.raw()
    killed = [(tenant, status) for tenant, status in told(database, "kill") if status]
    assert len(killed) >= 20
    for tenant, _ in killed:
        saver = raw.for_tenant(tenant)
        while (report := saver.sweep()).threads or report.kept:
            pass
        assert [thread.thread_id for thread in saver.threads()] == ["lives"], tenant
        assert left(saver, expiry.SPACE) == 0, tenant
    assert MARKER.encode() not in database.content()


@everywhere
async def test_many_sweep_at_once_and_each_thread_goes_once(database: Database) -> None:
    raw = await database.raw()
    (removed,) = told(database, "many")
    assert sum(removed) == 40
    saver = raw.for_tenant("many")
    assert [thread.thread_id for thread in saver.threads()] == ["lives"]
    saver.sweep()
    assert left(saver, expiry.SPACE) == 0


@everywhere
async def test_whoever_meets_a_sweep_finds_whole_threads_or_none(database: Database) -> None:
    raw = await database.raw()
    (met,) = told(database, "race")
    assert met["stored"] > 100
    saver = raw.for_tenant("race")
    while left(saver, expiry.SPACE):
        saver.sweep()
        time.sleep(0.02)
    assert list(saver.threads()) == []
    assert list(saver.list(None)) == []
