"""An erasure that is killed at any point, among other workers and late writers, comes to its end: once, and for all."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from stepvault.checkpointers._erasure import Erasure
from stepvault.checkpointers._ops.erasing import requests
from stepvault.checkpointers._ops.spaces import space
from stepvault.checkpointers._ops.subjects import SUBJECTS, token
from stepvault.receipts import verify_receipts
from tests.contract.matrix import Database, RedisClusterDatabase, matrix
from tests.faults.erasing import MARKER

SETTINGS = [param for param in matrix(("sync",)) if param.values[0][0] is not RedisClusterDatabase]
SOAK = pytest.param(8, marks=[pytest.mark.soak, pytest.mark.timeout(3000)])


@pytest.mark.parametrize("database", SETTINGS, indirect=True)
@pytest.mark.parametrize("rounds", [pytest.param(1, marks=pytest.mark.timeout(600)), SOAK])
async def test_an_erasure_that_is_killed_ends_once(database: Database, rounds: int) -> None:
    raw = await database.raw()
    killed = 0
    for tenant, dead in [found for seed in range(rounds) for found in erased(database, seed)]:
        killed += dead
        check(raw.for_tenant(tenant), tenant)
    assert killed >= (200 if rounds > 1 else 20)
    assert MARKER.encode() not in database.content()


def erased(database: Database, seed: int) -> list[tuple[str, int]]:
    options = json.dumps(database.options)
    words = [sys.executable, "-m", "tests.faults.erasing", database.module, database.saver_class, database.url]
    done = subprocess.run([*words, options, str(seed)], check=True, stdout=subprocess.PIPE, text=True, timeout=600)
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def check(saver: Any, tenant: str) -> None:
    """Nothing of the person is left, the others have what they had, and each request has one receipt."""
    erasure = Erasure(saver)
    assert erasure.plan("ann").threads == [], tenant
    assert {thread.thread_id: thread.subjects for thread in saver.threads()} == {"both": ("bob",), "bob": ("bob",)}
    assert "'ann'" not in repr(saver.get_tuple({"configurable": {"thread_id": "both"}})), tenant
    run, scope = saver._run, saver._scope
    assert run(scope.core.dialect.docs(space(scope, SUBJECTS), token(scope, "ann"), b"", 10)) == [], tenant
    assert run(requests.unfinished(scope)) == [], tenant
    done = run(requests.finished(scope))
    assert len(done) >= 1
    assert all(request.subjects == [] for request in done)
    receipts = {request.id: (request.receipt or {})["receipt"] for request in done}
    report = verify_receipts(receipts, [key.public_key for key in erasure.signing_keys()])
    assert report.complete, (tenant, report)
    assert list(report.last.values()) == [len(done)] == [report.genuine], "exactly one receipt each"
