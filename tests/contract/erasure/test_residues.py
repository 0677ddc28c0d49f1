"""What an erasure leaves in the files of servers: exactly what its receipt says that it did not do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from stepvault import Vault
from tests.backend.sqlite.test_erasing import Markers, fill
from tests.contract.matrix import Database, PostgresDatabase, RedisDatabase, matrix
from tests.processes import wait_until

SERVERS = [param for param in matrix(("sync",)) if param.values[0][0] in (PostgresDatabase, RedisDatabase)]


def folders(database: Database) -> dict[str, Path]:
    """Where a server keeps what: tables and log, or its one folder."""
    if isinstance(database, PostgresDatabase):
        with psycopg.connect(database.url, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
            query = "SELECT current_setting('data_directory'), oid FROM pg_database WHERE datname = current_database()"
            folder, oid = connection.execute(query).fetchall()[0]
        return {"tables": Path(folder, "base", str(oid)), "log": Path(folder, "pg_wal")}
    with redis.Redis.from_url(database.url) as client:
        wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"], 30)
        wait_until(lambda: not client.info("persistence")["rdb_bgsave_in_progress"], 30)
        return {"log": Path(client.config_get("dir")["dir"])}


def left(database: Database, markers: Markers) -> dict[str, int]:
    found = folders(database)
    assert all(folder.exists() for folder in found.values()), "the run starts its servers on this machine"
    files = {name: [path for path in folder.rglob("*") if path.is_file()] for name, folder in found.items()}
    contents = {name: b"\0".join(path.read_bytes() for path in paths if path.exists()) for name, paths in files.items()}
    return {name: sum(marker in content for marker in markers.made) for name, content in contents.items()}


@pytest.mark.parametrize("database", SERVERS, indirect=True)
@pytest.mark.parametrize("vacuum", [False, True])
async def test_files_hold_what_the_receipt_says(database: Database, vacuum: bool) -> None:
    markers = Markers()
    with Vault.open(database.url, compression=None, vacuum=vacuum) as vault:
        vault.setup()
        fill(vault, markers)
        before = left(database, markers)
        assert max(before.values()) > 0.9 * len(markers.made), "the scan sees what is there"
        request = vault.erasure.erase("ann")
        assert all(marker not in database.content() for marker in markers.made)
        assert vault.erasure.plan("ann").threads == []
    assert request.receipt is not None
    said: dict[str, Any] = {step["step"]: step["done"] for step in request.receipt["receipt"]["purge"]}
    after = left(database, markers)
    if isinstance(database, PostgresDatabase):
        assert said["postgres VACUUM FULL"] is vacuum
        assert (after["tables"] == 0) is vacuum
        assert said["postgres pg_wal, pg_statistic, server logs, replicas and backups"] is False
        assert after["log"] > 0
    else:
        assert said["redis BGREWRITEAOF"] is said["redis BGSAVE"] is vacuum
        assert (after["log"] == 0) is vacuum
