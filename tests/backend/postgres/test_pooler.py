"""Behind PgBouncer in transaction mode: every statement may meet another session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from stepvault.checkpointers.postgres import PostgresSaver
from tests.backend.postgres.both_ways import WAYS, Caller
from tests.contract.building import config
from tests.servers import PgBouncer


@pytest.fixture
def pooled_url(pgbouncer: PgBouncer, postgres_url: str) -> Iterator[str]:
    return pgbouncer.url_of(urlsplit(postgres_url).path.strip("/"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("threshold", [None, 0], ids=["default", "prepared"])
async def test_everything_works(pooled_url: str, way: str, threshold: int | None) -> None:
    options: dict[str, Any] = {"schema": "behind", "prepare_threshold": threshold, "pool_config": {"max_size": 20}}
    saver = PostgresSaver.from_conn_string(pooled_url, **options)
    await saver.asetup()
    caller = Caller(saver, way)
    for round_ in range(4):
        await asyncio.gather(*(caller.put(round_, f"t{i}", metadata={"round": round_}) for i in range(20)))
        assert await asyncio.gather(*(caller.get(f"t{i}") for i in range(20))) == [round_] * 20
    found = [entry async for entry in saver.alist(None, filter={"round": 2})]
    assert len(found) == 20
    await asyncio.gather(*(caller.call("prune", [f"t{i}"]) for i in range(10)))
    await asyncio.gather(*(caller.call("copy_thread", f"t{i}", f"copy{i}") for i in range(5)))
    await asyncio.gather(*(caller.call("delete_thread", f"t{i}") for i in range(5)))
    assert len([entry async for entry in saver.alist(config("t7"))]) == 1
    assert await caller.get("copy3") == 3
    assert await caller.get("t3") is None
    await caller.close()
    await saver.aclose()


@pytest.mark.parametrize("way", WAYS)
async def test_statements_are_prepared_on_a_direct_connection_alone(
    pooled_url: str, postgres_url: str, way: str
) -> None:
    for url, prepared in ((postgres_url, True), (pooled_url, False)):
        saver = PostgresSaver.from_conn_string(url, pool_config={"max_size": 1})
        await saver.asetup()
        caller = Caller(saver, way)
        await caller.put(1)
        await caller.put(2)
        counts = []
        if way == "sync":
            with saver._driver._sync.connection() as connection:  # type: ignore[attr-defined]
                counts = connection.execute("SELECT name FROM pg_prepared_statements").fetchall()
        else:
            async with saver._driver._async.connection() as connection:  # type: ignore[attr-defined]
                counts = await (await connection.execute("SELECT name FROM pg_prepared_statements")).fetchall()
        assert bool(counts) == prepared
        await caller.close()
        await saver.aclose()


async def test_a_prepared_statement_that_is_gone_is_sent_again(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True, prepare_threshold=0) as connection:
        saver = PostgresSaver(connection)
        saver.setup()
        caller = Caller(saver, "sync")
        for number in range(3):
            await caller.put(number)
            assert await caller.get() == number
            connection.execute("DEALLOCATE ALL", prepare=False)  # as when a pooler changes the session
