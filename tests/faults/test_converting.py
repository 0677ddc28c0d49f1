"""Sealing, rotation and unsealing that are killed at any point, beside others and live writers: nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.contract.matrix import (
    Database,
    RedisClusterDatabase,
    SealedSqliteDatabase,
    SqliteDatabase,
    matrix,
)

LEFT_OUT = (RedisClusterDatabase, SealedSqliteDatabase)
SETTINGS = [param for param in matrix(("sync",)) if param.values[0][0] not in LEFT_OUT]
SERVERS = [param for param in SETTINGS if param.values[0][0] is not SqliteDatabase]  # see `sealed.killing` for it


def killed(database: Database, kills: int) -> dict[str, int]:
    words = [sys.executable, "-m", "tests.faults.converting", database.name, database.url, "1"]
    words += [str(kills), str(min(kills, 12))]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, timeout=7000)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_nothing_is_lost_and_nothing_stays_readable(database: Database) -> None:
    assert sum(killed(database, 1).values()) >= 1


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("database", SETTINGS, indirect=True)
def test_two_hundred_kills_and_live_writers(database: Database) -> None:
    kills = killed(database, 200)
    assert sum(kills.values()) >= 200
    assert min(kills[change] for change in ("seal", "rotate", "unseal")) >= 20
