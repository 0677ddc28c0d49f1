"""What tasks want to write at the same time is committed together, and each of them as if it were alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from stepvault._core.plan import Acquire, Batch, Op, Stmt
from stepvault._drivers.gate import HybridGate
from stepvault._drivers.sqlite import SqliteDriver
from stepvault.checkpointers.sqlite import SqliteSaver
from stepvault.errors import StorageError, StorageFullError


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[SqliteDriver]:
    driver = SqliteDriver(str(tmp_path / "app.db"))
    driver.execute(Batch([Stmt("CREATE TABLE t (k INTEGER PRIMARY KEY, v BLOB NOT NULL)")]))
    yield driver
    driver.close()


def commits(driver: SqliteDriver) -> list[str]:
    """Every commit from here on."""
    seen: list[str] = []
    driver.connection().set_trace_callback(lambda sql: seen.append(sql) if sql.startswith("COMMIT") else None)
    return seen


def add(*keys: int, value: Any = b"") -> Op[list[Any]]:
    return (yield Batch([Stmt("INSERT INTO t VALUES (?, ?)", (key, value)) for key in keys]))  # type: ignore[no-any-return]


def change(before: int, after: int) -> Op[bool]:
    """Add a row, then move another one, if it is there: else neither."""
    added = Stmt("INSERT INTO t VALUES (?, x'')", (after + 100,))
    moved = Stmt("UPDATE t SET k = ? WHERE k = ?", (after, before), guard=True)
    return bool((yield Batch([added, moved]))[-1])


def keys(driver: SqliteDriver) -> list[int]:
    (rows,) = driver.execute(Batch([Stmt("SELECT k FROM t ORDER BY k")]))
    return [key for (key,) in rows]


async def together(driver: SqliteDriver, *ops: Op[Any]) -> list[Any]:
    """Ask for all while the thread is at work, so that it finds them waiting."""
    go_on = threading.Event()

    def busy() -> Op[None]:
        go_on.wait(10)
        return
        yield

    work = [asyncio.ensure_future(driver.arun(op)) for op in (busy(), *ops)]
    await asyncio.sleep(0)
    go_on.set()
    return (await asyncio.gather(*work, return_exceptions=True))[1:]


async def test_one_commit_for_all(driver: SqliteDriver) -> None:
    seen = commits(driver)
    await together(driver, *(add(key) for key in range(20)))
    assert len(seen) == 1
    assert keys(driver) == list(range(20))


async def test_what_is_refused_takes_back_itself_alone(driver: SqliteDriver) -> None:
    driver.run(add(1))
    assert await together(driver, change(1, 2), change(7, 3), change(2, 4)) == [True, False, True]
    assert keys(driver) == [4, 102, 104]


async def test_what_fails_fails_alone(driver: SqliteDriver) -> None:
    driver.run(add(1))
    found = await together(driver, add(2), add(3, 1), add(4))
    assert [type(one) for one in found] == [list, StorageError, list]
    assert keys(driver) == [1, 2, 4]


async def test_a_full_disk_stops_only_what_does_not_fit(driver: SqliteDriver) -> None:
    (count,) = driver.connection().execute("PRAGMA page_count").fetchone()
    driver.connection().execute(f"PRAGMA max_page_count = {count + 4}")
    found = await together(driver, add(1), add(2, value=bytes(100_000)), add(3))
    assert [type(one) for one in found] == [list, StorageFullError, list]
    assert keys(driver) == [1, 3]


async def test_a_gate_that_another_thread_holds_does_not_stop_the_others(driver: SqliteDriver) -> None:
    gate = HybridGate()
    gate.acquire()

    def behind(key: int) -> Op[None]:
        yield Acquire(gate)
        try:
            yield from add(key)
        finally:
            gate.release()

    def holder() -> None:
        driver.run(add(3))
        gate.release()

    thread = threading.Thread(target=holder)
    work = asyncio.ensure_future(together(driver, behind(1), add(2), behind(4)))
    await asyncio.sleep(0)
    thread.start()
    await work
    thread.join()
    assert keys(driver) == [1, 2, 3, 4]


async def test_many_runs_of_one_thread_and_of_others(tmp_path: Path) -> None:
    async with SqliteSaver.from_conn_string(str(tmp_path / "app.db")) as saver:
        await saver.asetup()

        async def step(thread: int, number: int) -> None:
            checkpoint = empty_checkpoint()
            checkpoint["channel_values"] = {"x": [str(number)] * 10}
            checkpoint["channel_versions"] = {"x": saver.get_next_version(None, None)}
            config: Any = {"configurable": {"thread_id": str(thread), "checkpoint_ns": ""}}
            stored = await saver.aput(config, checkpoint, {"step": number}, checkpoint["channel_versions"])
            await saver.aput_writes(stored, [("x", number)], f"task {number}")

        await asyncio.gather(*(step(number % 3, number) for number in range(60)))
        for thread in range(3):
            found = [one async for one in saver.alist({"configurable": {"thread_id": str(thread)}})]
            assert {one.metadata["step"] for one in found} == set(range(thread, 60, 3))
            for one in found:
                assert one.checkpoint["channel_values"]["x"] == [str(one.metadata["step"])] * 10
                assert one.pending_writes == [(f"task {one.metadata['step']}", "x", one.metadata["step"])]
