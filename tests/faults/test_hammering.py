"""Several processes at work on the same threads at the same time: everything stays whole and readable."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.contract.building import config
from tests.contract.matrix import Database, SqliteDatabase, everywhere
from tests.faults.worlds import dangling, everything


@pytest.mark.parametrize("database", everywhere(cluster=[pytest.mark.soak]), indirect=True)
@pytest.mark.parametrize("rounds", [60, pytest.param(3000, marks=[pytest.mark.soak, pytest.mark.timeout(3000)])])
async def test_two_processes_put_prune_delete_and_copy(database: Database, rounds: int) -> None:
    raw = await database.raw()
    children = [start(database, number, rounds) for number in range(2)]
    while any(child.poll() is None for child in children):
        for thread, entries in everything_now(raw).items():
            assert all(whole(entry) for entry in entries), thread
    told = [json.loads(child.communicate()[0]) for child in children]
    assert [child.returncode for child in children] == [0, 0]

    found = everything(raw)
    for number, facts in enumerate(told):
        mine = {entry.checkpoint["id"]: entry for entry in found[f"mine {number}"]}
        assert set(facts["mine"]) <= mine.keys(), "nobody deletes from this thread"
        both = {entry.checkpoint["id"] for entry in found["both"]}
        assert set(facts["both"]) <= both, "both write to this thread, nobody deletes from it"
        assert facts["done"]["put"] > rounds / 10
    assert max(told[0]["pruned"] + told[1]["pruned"]) == max(entry.checkpoint["id"] for entry in found["pruned"])
    assert all(whole(entry) for entries in found.values() for entry in entries)
    raw.prune(list(found))
    raw.prune(list(found), strategy="delete")
    assert everything(raw) == {}
    if isinstance(database, SqliteDatabase):
        connection = raw._driver.connection()
        assert not dangling(connection)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT count(*) FROM stepvault_chunk").fetchone() == (0,)


def everything_now(saver: Any) -> dict[str, list[Any]]:
    """A look while others write: threads come and go."""
    threads = [thread.thread_id for thread in saver.threads(limit=1000)]
    return {thread: list(saver.list(config(thread), limit=20)) for thread in threads}


def whole(entry: Any) -> bool:
    """Whether a checkpoint holds exactly what its writer put there: each value says what it belongs to."""
    values = entry.checkpoint["channel_values"]
    writes = [value for _, _, value in entry.pending_writes]
    good = values["check"] == sum(map(len, values["items"])) and all(item[-1] == item[0] for item in values["items"])
    return good and all(value[0] == value[-1] for value in writes)


def start(database: Database, number: int, rounds: int) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.faults.hammer", database.name, database.url, str(number), str(rounds)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
