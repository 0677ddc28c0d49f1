"""Connections that the server ends, servers that end, and servers that freeze: the next call works or says why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from psycopg_pool.base import AttemptWithBackoff

from stepvault.checkpointers.postgres import PostgresSaver
from stepvault.errors import StorageUnavailableError
from tests.backend.postgres.both_ways import WAYS, Caller
from tests.servers import Postgres


@pytest_asyncio.fixture(params=WAYS)
async def caller(request: pytest.FixtureRequest, postgres_server: Postgres, postgres_url: str) -> AsyncIterator[Caller]:
    saver = PostgresSaver.from_conn_string(postgres_url, pool_timeout=20)
    await saver.asetup()
    caller = Caller(saver, request.param)
    yield caller
    postgres_server.heal()
    await caller.close()
    await saver.aclose()


def end_sessions(url: str) -> int:
    """End every other session of the database, as an administrator or a failover does."""
    with psycopg.connect(url, autocommit=True) as connection:
        query = (
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        row = connection.execute(query).fetchone()
        assert row is not None
        return int(row[0])


async def test_ended_sessions_are_replaced_before_anything_is_sent(caller: Caller, postgres_url: str) -> None:
    await asyncio.gather(*(caller.put(i, f"t{i}") for i in range(8)))

    assert end_sessions(postgres_url) > 0

    assert await caller.get("t3") == 3
    end_sessions(postgres_url)
    await caller.put("again")
    assert await caller.get() == "again"


async def test_a_restarted_server_is_found_again(caller: Caller, postgres_server: Postgres) -> None:
    await caller.put(1)
    postgres_server.restart()
    await caller.put(2)
    postgres_server.restart()
    assert await caller.get() == 2


async def test_an_immediate_stop_loses_nothing_acknowledged(caller: Caller, postgres_server: Postgres) -> None:
    for round_ in range(3):
        await caller.put(round_)
        postgres_server.stop_immediately()
        postgres_server.start()
        assert await caller.get() == round_


async def test_a_killed_server_loses_nothing_acknowledged(caller: Caller, postgres_server: Postgres) -> None:
    await caller.put("kept")
    postgres_server.kill()
    postgres_server.start()
    assert await caller.get() == "kept"


async def test_a_server_that_is_down_is_named(caller: Caller, postgres_server: Postgres, postgres_url: str) -> None:
    await caller.put(1)
    postgres_server.stop()
    saver = PostgresSaver.from_conn_string(postgres_url)
    with pytest.raises(StorageUnavailableError, match=r"gives no connection.*refused"):
        await Caller(saver, caller.way).get()
    postgres_server.start()
    assert await Caller(saver, caller.way).get() == 1
    await Caller(saver, caller.way).close()
    await saver.aclose()


async def test_a_server_that_was_away_for_long_is_found_at_once(
    caller: Caller, postgres_server: Postgres, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = PostgresSaver.from_conn_string(postgres_url, pool_timeout=3)
    patient = Caller(saver, caller.way)
    await patient.put("kept")
    # After some minutes this is how long a pool waits between two attempts.
    monkeypatch.setattr(AttemptWithBackoff, "INITIAL_DELAY", 60.0)
    postgres_server.kill()
    with pytest.raises(StorageUnavailableError, match=r"gives no connection.*refused"):
        await patient.get()
    postgres_server.start()
    assert await patient.get() == "kept"
    await patient.close()
    await saver.aclose()


@pytest.mark.parametrize("method", ["get", "put"])
async def test_a_frozen_server_ends_the_wait(
    caller: Caller, postgres_server: Postgres, postgres_url: str, method: str
) -> None:
    await caller.put(1)
    limits: dict[str, Any] = {"statement_timeout": 0.5, "connect_timeout": 2, "pool_timeout": 1}
    saver = PostgresSaver.from_conn_string(postgres_url, **limits)
    patient = Caller(saver, caller.way)
    assert await patient.get() == 1

    postgres_server.pause()
    with pytest.raises(StorageUnavailableError, match="did not answer within statement_timeout"):
        await (patient.get() if method == "get" else patient.put(2))
    with pytest.raises(StorageUnavailableError):
        await patient.get()
    postgres_server.resume()

    await patient.put(3)
    assert await caller.get() == 3
    await patient.close()
    await saver.aclose()


async def test_a_frozen_server_ends_the_wait_on_a_given_pool(postgres_server: Postgres, postgres_url: str) -> None:
    arguments: dict[str, Any] = {"min_size": 1, "max_size": 2, "timeout": 1, "open": False}
    arguments["kwargs"] = {"autocommit": True, "connect_timeout": 2}
    with ConnectionPool(postgres_url, **arguments) as pool:
        pool.open()
        saver = PostgresSaver(pool, statement_timeout=0.5)
        saver.setup()
        postgres_server.pause()
        with pytest.raises(StorageUnavailableError, match="did not answer"):
            await asyncio.to_thread(saver.get_tuple, {"configurable": {"thread_id": "t"}})
        postgres_server.resume()
    async with AsyncConnectionPool(postgres_url, **arguments) as apool:
        saver = PostgresSaver(apool, statement_timeout=0.5)
        await saver.asetup()
        postgres_server.pause()
        with pytest.raises(StorageUnavailableError, match="did not answer"):
            await saver.aget_tuple({"configurable": {"thread_id": "t"}})
        postgres_server.resume()


@pytest.mark.parametrize("way", WAYS)
async def test_a_cancelled_or_interrupted_call_leaves_the_pool_usable(postgres_url: str, way: str) -> None:
    saver = PostgresSaver.from_conn_string(postgres_url, pool_config={"max_size": 1})
    caller = Caller(saver, way)
    await saver.asetup()
    for _ in range(20):
        task = asyncio.create_task(caller.put("x" * 100_000))
        await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.wait([task])
    await caller.put("last")
    assert await caller.get() == "last"
    await caller.close()
    await saver.aclose()


async def test_a_given_connection_that_died_is_named(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        saver = PostgresSaver(connection)
        saver.setup()
        end_sessions(postgres_url)
        with pytest.raises(StorageUnavailableError, match="only its owner can replace it"):
            saver.get_tuple({"configurable": {"thread_id": "t"}})
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as aconnection:
        saver = PostgresSaver(aconnection)
        await saver.asetup()
        end_sessions(postgres_url)
        with pytest.raises(StorageUnavailableError, match="only its owner can replace it"):
            await saver.aget_tuple({"configurable": {"thread_id": "t"}})


@pytest.mark.parametrize("way", WAYS)
async def test_a_session_killed_while_it_writes_is_written_once(postgres_url: str, way: str) -> None:
    saver = PostgresSaver.from_conn_string(postgres_url, pool_config={"max_size": 4})
    await saver.asetup()
    caller = Caller(saver, way)
    stop = asyncio.Event()

    async def killer() -> None:
        while not stop.is_set():
            await asyncio.to_thread(end_sessions, postgres_url)

    killing = asyncio.create_task(killer())
    stored = []
    for number in range(40):
        try:
            await caller.put(number, f"t{number % 4}", id=f"{number:04d}")
        except StorageUnavailableError:
            continue  # refused after repeats: it may be there or not, but nothing else
        stored.append(number)
    stop.set()
    await killing
    for thread in range(4):
        found = [entry async for entry in saver.alist({"configurable": {"thread_id": f"t{thread}"}})]
        numbers = [entry.checkpoint["channel_values"]["value"] for entry in found]
        assert numbers == sorted(set(numbers), reverse=True)
        assert set(numbers) >= {number for number in stored if number % 4 == thread}
    assert stored
    await caller.close()
    await saver.aclose()
