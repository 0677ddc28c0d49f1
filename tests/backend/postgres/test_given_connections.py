"""Connections and pools that a caller opened: any kind, any settings, in or out of a transaction, shared or not."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from stepvault.checkpointers.postgres import PostgresSaver
from stepvault.checkpointers.postgres.aio import AsyncPostgresSaver
from stepvault.errors import ConfigurationError, EventLoopError, MigrationRequiredError, StorageUnavailableError
from tests.backend.postgres.both_ways import Caller
from tests.contract.building import checkpoint, config
from tests.processes import wait_until

SETTINGS: list[dict[str, Any]] = [
    {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row},
    {"autocommit": False, "row_factory": dict_row},
    {"autocommit": True, "prepare_threshold": None, "cursor_factory": psycopg.ClientCursor},
    {"autocommit": True, "cursor_factory": psycopg.RawCursor},
]
ASYNC_CURSORS = {psycopg.ClientCursor: psycopg.AsyncClientCursor, psycopg.RawCursor: psycopg.AsyncRawCursor}


def put(saver: PostgresSaver, value: Any, thread: str = "t") -> None:
    saver.put(config(thread), checkpoint({"value": value}), {"step": 1, "who": "x"}, {"value": "00000001"})


def values(saver: PostgresSaver, thread: str = "t") -> list[Any]:
    return [entry.checkpoint["channel_values"]["value"] for entry in saver.list(config(thread), filter={"who": "x"})]


def for_async(settings: dict[str, Any]) -> dict[str, Any]:
    factory = ASYNC_CURSORS.get(settings.get("cursor_factory"))
    return {**settings, "cursor_factory": factory} if factory else settings


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_connection_with_any_settings(postgres_url: str, settings: dict[str, Any]) -> None:
    with psycopg.connect(postgres_url, **settings) as connection:
        saver = PostgresSaver(connection)
        saver.setup()
        put(saver, 1)
        put(saver, 2)
        assert values(saver) == [2, 1]
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        saver.delete_thread("t")
        assert values(saver) == []
        saver.close()
        assert not connection.closed


@pytest.mark.parametrize("settings", SETTINGS)
async def test_an_async_connection_with_any_settings(postgres_url: str, settings: dict[str, Any]) -> None:
    async with await psycopg.AsyncConnection.connect(postgres_url, **for_async(settings)) as connection:
        saver = AsyncPostgresSaver(connection)
        await saver.setup()
        caller = Caller(saver, "async")
        await asyncio.gather(*(caller.put(i, f"t{i % 5}") for i in range(20)))
        assert await caller.get("t3") == 18
        await saver.adelete_thread("t3")
        assert await caller.get("t3") is None
        await saver.aclose()
        assert not connection.closed


@pytest.mark.parametrize("settings", SETTINGS)
async def test_pools_with_any_settings(postgres_url: str, settings: dict[str, Any]) -> None:
    with ConnectionPool(postgres_url, kwargs=settings, min_size=1, max_size=3, open=True) as pool:
        saver = PostgresSaver(pool)
        saver.setup()
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda number: put(saver, number, f"t{number % 5}"), range(20)))
        assert sorted(values(saver, "t3")) == [3, 8, 13, 18]
        saver.close()
        assert not pool.closed
    apool = AsyncConnectionPool(postgres_url, kwargs=for_async(settings), min_size=1, max_size=3, open=False)
    async with apool:
        caller = Caller(PostgresSaver(apool), "async")
        await asyncio.gather(*(caller.put(100 + i, f"t{i % 5}") for i in range(20)))
        assert await caller.get("t3") >= 100


def test_inside_the_callers_transaction_its_owner_commits(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        saver = PostgresSaver(connection)
        saver.setup()
        put(saver, "before")
        with connection.transaction(force_rollback=True):
            put(saver, "rolled back")
            assert values(saver) == ["rolled back", "before"]
        assert values(saver) == ["before"]
        put(saver, "after")
        with connection.transaction():
            put(saver, "committed")
        assert values(saver) == ["committed", "after", "before"]
    with PostgresSaver.from_conn_string(postgres_url) as other:
        assert values(other) == ["committed", "after", "before"]


def test_an_error_inside_the_callers_transaction_leaves_it_usable(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        saver = PostgresSaver(connection)
        with pytest.raises(MigrationRequiredError, match=r"setup\(\)"):
            saver.get_tuple(config("t"))
        connection.execute("CREATE TABLE theirs (a int)")
        with pytest.raises(MigrationRequiredError, match=r"setup\(\)"):
            saver.get_tuple(config("t"))
        connection.execute("INSERT INTO theirs VALUES (1)")
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT nothing_like_it")
        with pytest.raises(StorageUnavailableError, match="has failed before"):
            saver.get_tuple(config("t"))
        connection.rollback()


async def test_in_the_callers_pipeline(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection, connection.pipeline() as pipe:
        saver = PostgresSaver(connection, pipe)
        saver.setup()
        put(saver, 1)
        with psycopg.connect(postgres_url) as other:
            assert other.execute("SELECT count(*) FROM stepvault_checkpoint").fetchone() == (1,)
        put(saver, 2)
        assert values(saver) == [2, 1]
        saver.prune(["t"])
        assert values(saver) == [2]
    async with (
        await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as aconnection,
        aconnection.pipeline() as apipe,
    ):
        caller = Caller(AsyncPostgresSaver(aconnection, apipe), "async")
        await caller.put(3)
        assert await caller.get() == 3
        await caller.saver.adelete_thread("t")
        assert await caller.get() is None
    with pytest.raises(ConfigurationError, match="pipeline"):
        PostgresSaver(postgres_url, pipe)


async def test_the_half_that_cannot_be_served_says_what_to_pass(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection, ConnectionPool(postgres_url, open=False) as pool:
        for given, wanted in ((connection, "AsyncConnection"), (pool, "AsyncConnectionPool")):
            with pytest.raises(ConfigurationError, match=f"with an {wanted}, or pass a URL"):
                await PostgresSaver(given).aget_tuple(config("t"))
    apool = AsyncConnectionPool(postgres_url, open=False)
    with pytest.raises(ConfigurationError, match="with a ConnectionPool, or pass a URL"):
        PostgresSaver(apool).get_tuple(config("t"))
    with pytest.raises(StorageUnavailableError, match="not open"):
        await PostgresSaver(apool).aget_tuple(config("t"))
    with pytest.raises(ConfigurationError, match="not dict"):
        PostgresSaver({})  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="no Postgres URL"):
        PostgresSaver("mysql://localhost")
    with pytest.raises(ConfigurationError, match="statement_timeout"):
        PostgresSaver(postgres_url, statement_timeout=0)
    with pytest.raises(ConfigurationError, match="pool_config has no 'size'"):
        PostgresSaver(postgres_url, pool_config={"size": 3})


def test_many_threads_share_one_connection(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        first, second = PostgresSaver(connection), PostgresSaver(connection)
        first.setup()
        with ThreadPoolExecutor(16) as threads:
            list(threads.map(lambda number: put((first, second)[number % 2], number, f"t{number % 7}"), range(70)))
            list(threads.map(first.delete_thread, ["t0", "t1"]))
        assert len(first.threads()) == 5
        assert all(len(values(second, f"t{number}")) == 10 for number in range(2, 7))


async def test_a_locked_thread_holds_up_no_other(postgres_url: str) -> None:
    saver = PostgresSaver.from_conn_string(postgres_url, pool_config={"max_size": 3})
    await saver.asetup()
    caller = Caller(saver, "async")
    await caller.put(0, "locked")
    async with await psycopg.AsyncConnection.connect(postgres_url) as holder:
        await holder.execute("SELECT 1 FROM stepvault_thread FOR UPDATE")
        waiting = asyncio.create_task(caller.put(1, "locked"))
        await asyncio.gather(*(caller.put(i, f"t{i}") for i in range(64)))
        assert not waiting.done()
        await holder.commit()
    await waiting
    assert await caller.get("locked") == 1
    await saver.aclose()


async def test_the_async_saver_bridges_from_other_threads_and_refuses_its_own(postgres_url: str) -> None:
    async with AsyncConnectionPool(postgres_url, min_size=1, open=False, kwargs={"autocommit": True}) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        await asyncio.to_thread(put, saver, 1)
        assert await asyncio.to_thread(values, saver) == [1]
        with pytest.raises(EventLoopError):
            saver.get_tuple(config("t"))
        with pytest.raises(EventLoopError):
            list(saver.list(config("t")))


def test_loop_after_loop(postgres_url: str) -> None:
    saver = PostgresSaver.from_conn_string(postgres_url)
    saver.setup()
    caller = Caller(saver, "async")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(4):
            asyncio.run(caller.put(number))
            assert asyncio.run(caller.get()) == number
    wait_until(lambda: sessions(postgres_url) <= 4, "sessions are left")
    asyncio.run(saver.aclose())


def test_loops_that_end_while_their_pool_opens(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Python < 3.12 may swallow the cancellation of a pool's own tasks, and `asyncio.run` then waits for them."""
    caplog.set_level("ERROR", "psycopg.pool")  # a kept warning would keep the connection it tells of
    PostgresSaver.from_conn_string(postgres_url, automatic_setup=True).close()
    for number in range(100):
        saver = PostgresSaver.from_conn_string(postgres_url, automatic_setup=True)

        async def short(saver: PostgresSaver = saver, seconds: float = number % 5 / 1000) -> None:
            await saver.aget_tuple(config("t"))
            await asyncio.sleep(seconds)

        running = threading.Thread(target=asyncio.run, args=(short(),), daemon=True)
        running.start()
        running.join(60)
        assert not running.is_alive()
        saver.close()

    def left() -> int:
        gc.collect()  # psycopg leaves the connection of a cancelled attempt to the collector
        return sessions(postgres_url)

    wait_until(lambda: left() == 0, "sessions are left")


def sessions(url: str) -> int:
    with psycopg.connect(url) as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        row = connection.execute(query).fetchone()
        assert row is not None
        return int(row[0])


def test_loops_in_threads_at_once(postgres_url: str) -> None:
    saver = PostgresSaver.from_conn_string(postgres_url, pool_config={"max_size": 2})
    saver.setup()

    async def work(number: int) -> Any:
        caller = Caller(saver, "async")
        await asyncio.gather(*(caller.put(number, f"t{number}-{i}") for i in range(5)))
        return await caller.get(f"t{number}-3")

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda number: asyncio.run(work(number)), range(4))) == [0, 1, 2, 3]
    put(saver, "sync too")
    saver.close()
    wait_until(lambda: sessions(postgres_url) == 0, "sessions are left")
    with pytest.raises(StorageUnavailableError, match="closed"):
        saver.get_tuple(config("t"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_after_a_fork(postgres_url: str) -> None:
    saver = PostgresSaver.from_conn_string(postgres_url)
    saver.setup()
    put(saver, "parent")
    pid = os.fork()
    if pid == 0:
        try:
            put(saver, "child")
            asyncio.run(Caller(saver, "async").put("child's loop", metadata={"who": "x"}))
            os._exit(0)
        except BaseException as exc:
            os.write(2, repr(exc).encode())
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    put(saver, "parent again")
    assert set(values(saver)) == {"parent", "child", "child's loop", "parent again"}
    saver.close()


def test_closing_ends_every_session(postgres_url: str) -> None:
    before = threading.active_count()
    for _ in range(3):
        with PostgresSaver.from_conn_string(postgres_url, automatic_setup=True) as saver:
            put(saver, 1)
    wait_until(lambda: sessions(postgres_url) == 0, "sessions are left")
    assert threading.active_count() <= before + 1  # the watch over waits
