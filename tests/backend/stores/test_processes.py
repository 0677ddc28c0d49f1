"""Several processes on one database, and processes killed in the middle of a batch."""

from __future__ import annotations

from typing import Any

import pytest

from stepvault.stores.postgres import PostgresStore
from stepvault.stores.redis import RedisStore
from stepvault.stores.sqlite import SqliteStore
from tests.backend.stores import workers

KILLS = 3


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.xdist_group("postgres")),
        pytest.param("redis", marks=pytest.mark.xdist_group("redis")),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Any) -> tuple[Any, str]:
    """A store class, and the url of an empty database."""
    if request.param == "sqlite":
        return SqliteStore, str(tmp_path / "memory.db")
    if request.param == "postgres":
        return PostgresStore, request.getfixturevalue("postgres_url")
    return RedisStore, request.getfixturevalue("redis_url")


def test_two_processes_write_and_nothing_acknowledged_is_lost(place: tuple[Any, str]) -> None:
    cls, url = place
    with cls.from_conn_string(url) as store:
        store.setup()
        processes = [workers.start(cls, url, "count", who) for who in ("a", "b")]
        said = [workers.killed_after(process, 30) for process in processes]
        for who, lines in zip(("a", "b"), said, strict=True):
            found = {item.value["n"] for item in store.search(("count", who), limit=10**6)}
            assert {int(line) for line in lines} <= found
            assert found == set(range(len(found)))


def test_a_batch_is_stored_whole_or_not_at_all(place: tuple[Any, str]) -> None:
    cls, url = place
    with cls.from_conn_string(url) as store:
        store.setup()
        for kill in range(KILLS):
            process = workers.start(cls, url, "batches", f"w{kill}")
            said = workers.killed_after(process, 1 + 3 * kill)
            items = store.search(("batches", f"w{kill}"), limit=1000)
            numbers = {item.value["n"] for item in items}
            assert len(items) == workers.BATCH
            assert len(numbers) == 1
            assert numbers.pop() >= int(said[-1])
            found = store.search(("batches", f"w{kill}"), query="word", limit=1000)
            assert len(found) == workers.BATCH
