"""Sealing, rotation and unsealing that are killed at any point, beside others and live writers: nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.contract.matrix import Database, RedisClusterDatabase, SealedSqliteDatabase, matrix

LEFT_OUT = (RedisClusterDatabase, SealedSqliteDatabase)
SETTINGS = [param for param in matrix(("sync",)) if param.values[0][0] not in LEFT_OUT]
SOAK = pytest.param(200, marks=[pytest.mark.soak, pytest.mark.timeout(7200)])


@pytest.mark.parametrize("database", SETTINGS, indirect=True)
@pytest.mark.parametrize("kills", [pytest.param(1, marks=pytest.mark.timeout(300)), SOAK])
def test_nothing_is_lost_and_nothing_stays_readable(database: Database, kills: int) -> None:
    words = [
        sys.executable,
        "-m",
        "tests.faults.converting",
        database.name,
        database.url,
        "1",
        str(kills),
        str(min(kills, 12)),
    ]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, timeout=7000)
    killed = json.loads(done.stdout)
    assert min(killed[change] for change in ("seal", "rotate", "unseal")) >= kills
