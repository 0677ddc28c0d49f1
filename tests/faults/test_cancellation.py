"""Async calls that are cancelled, and sync calls in a running loop: nothing hangs, nothing is half done."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import weakref
from typing import Any

import pytest

from stepvault.errors import EventLoopError
from tests.contract.building import config, id_of, put, whole
from tests.contract.matrix import AIO, GIVEN, Database, matrix

ITEMS = ["x" * 700, "y" * 700]


async def slowly_cancelled(coroutine: Any, delay: float) -> bool:
    """Cancel a call after a while; whether it had ended by then."""
    task = asyncio.ensure_future(coroutine)
    await asyncio.sleep(delay)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return False
    return True


@pytest.mark.parametrize("database", matrix(("async", AIO, GIVEN)), indirect=True)
async def test_cancelled_puts_are_stored_whole_or_not_at_all(database: Database) -> None:
    saver = await database.saver()
    lot = random.Random(5)
    at = await put(saver, {"items": ITEMS})
    expected = {id_of(at): ITEMS}
    for number in range(40):
        items = [*ITEMS, f"{number} " * 400]
        stored = config("t", "", f"{number:03}")
        ended = await slowly_cancelled(put(saver, {"items": items}, at=at, id=f"{number:03}"), lot.random() / 200)
        found = await saver.aget_tuple(stored)
        assert found is not None or not ended
        if found:
            expected[f"{number:03}"] = items

    found = {id_of(entry.config): entry.checkpoint["channel_values"]["items"] for entry in await whole(saver)}
    assert found == expected
    other = await database.saver()
    child = await put(other, {"items": [*ITEMS, "after all"]}, at=at)
    assert (await saver.aget_tuple(child)).checkpoint["channel_values"]["items"] == [*ITEMS, "after all"]


@pytest.mark.parametrize("database", matrix(("async", AIO, GIVEN)), indirect=True)
async def test_a_crowd_of_which_half_is_cancelled(database: Database) -> None:
    saver = await database.saver()
    first = await put(saver, {"items": ITEMS})
    lot = random.Random(6)

    async def one(number: int) -> None:
        stored = await put(saver, {"items": [*ITEMS, number]}, at=first, id=f"{number:03}")
        await saver.aput_writes(stored, [("items", [*ITEMS, number])], "task")

    tasks = [asyncio.ensure_future(one(number)) for number in range(60)]
    await asyncio.sleep(0)
    for task in lot.sample(tasks, 30):
        task.cancel()
        await asyncio.sleep(lot.random() / 500)
    ends = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)

    assert all(end is None or isinstance(end, asyncio.CancelledError) for end in ends), ends
    found = {id_of(entry.config): entry for entry in await whole(saver)}
    for number, end in enumerate(ends):
        if end is None:
            entry = found[f"{number:03}"]
            assert entry.checkpoint["channel_values"]["items"] == [*ITEMS, number]
            assert entry.pending_writes == [("task", "items", [*ITEMS, number])]
    await asyncio.wait_for(put(saver, {"items": ITEMS}, at=first), 60)


@pytest.mark.parametrize("database", matrix(("async",)), indirect=True)
async def test_cancelled_while_it_waits_for_another_writer(database: Database) -> None:
    saver = await database.saver()
    first = await put(saver, {"items": ITEMS})
    gate = saver._core.knowledge.of(saver._scope.key("t")).gate
    assert gate.acquire()  # as a writer at work in another thread has it
    waiting = [asyncio.ensure_future(put(saver, {"n": n}, at=first, id=f"{n}")) for n in range(4)]
    await asyncio.sleep(0.05)
    waiting[0].cancel()
    waiting[2].cancel()
    threading.Timer(0.2, gate.release).start()
    ends = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 60)

    assert [type(end) for end in ends[::2]] == [asyncio.CancelledError] * 2
    found = {id_of(entry.config) for entry in await whole(saver)}
    assert {id_of(first), "1", "3"} <= found <= {id_of(first), *"0123"}
    await asyncio.wait_for(put(saver, {"n": 5}, at=first), 60)


@pytest.mark.parametrize("database", matrix(("async",)), indirect=True)
async def test_sync_calls_in_a_running_loop(database: Database) -> None:
    saver = await database.saver()
    first = await put(saver, {"items": ITEMS})
    busy = [asyncio.ensure_future(put(saver, {"n": n}, at=first)) for n in range(10)]
    await asyncio.sleep(0)

    sync = saver.get_tuple(first)
    saver.put_writes(first, [("items", ITEMS)], "task")
    saver.put(first, {**sync.checkpoint, "id": "from the loop"}, {}, sync.checkpoint["channel_versions"])

    await asyncio.wait_for(asyncio.gather(*busy), 60)
    assert len(list(saver.list(config()))) == 12


@pytest.mark.parametrize("database", matrix((AIO,)), indirect=True)
async def test_sync_calls_of_an_async_saver_in_its_own_loop_raise_at_once(database: Database) -> None:
    saver = await database.saver()
    first = await put(saver, {"items": ITEMS})
    made = (await saver.aget_tuple(first)).checkpoint

    for call in (
        lambda: saver.get_tuple(config()),
        lambda: list(saver.list(config())),
        lambda: saver.put(first, {**made, "id": "x"}, {}, {}),
        lambda: saver.put_writes(first, [("a", 1)], "task"),
        lambda: saver.delete_thread("t"),
        lambda: saver.prune(["t"]),
        lambda: saver.copy_thread("t", "copy"),
        lambda: saver.delete_for_runs(["run"]),
        lambda: saver.get_delta_channel_history(config=first, channels=["a"]),
    ):
        with pytest.raises(EventLoopError, match="await"):
            call()
    assert [id_of(entry.config) for entry in await whole(saver)] == [id_of(first)]


@pytest.mark.parametrize("database", matrix((AIO,)), indirect=True)
async def test_sync_calls_of_an_async_saver_from_another_thread(database: Database) -> None:
    saver = await database.saver()
    first = await put(saver, {"items": ITEMS})

    def work() -> Any:
        saver.put_writes(first, [("items", ITEMS)], "task")
        return [list(saver.list(config())), saver.get_tuple(config())]

    (entry,), same = await asyncio.wait_for(asyncio.to_thread(work), 60)
    assert entry == same
    assert entry.pending_writes == [("task", "items", ITEMS)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a loop ends, its connections open
@pytest.mark.parametrize("database", matrix(("sync",)), indirect=True)
async def test_many_threads_and_loops_at_once(database: Database) -> None:
    raw = await database.raw()
    failures: list[BaseException] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def in_a_loop(number: int) -> None:
        loops.append(asyncio.get_running_loop())
        for n in range(5):
            await put(raw, {"items": [*ITEMS, n]}, at=config(f"shared {n % 2}"))
            await raw.aget_tuple(config(f"shared {n % 2}"))

    def in_a_thread(number: int) -> None:
        try:
            if number % 2:
                asyncio.run(in_a_loop(number))
            else:
                for n in range(5):
                    made = {"items": [*ITEMS, n]}
                    asyncio.run(put(database.under_async_names(raw), made, at=config(f"shared {n % 2}")))
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=in_a_thread, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join, 60)

    ended = [weakref.ref(loop) for loop in loops]
    loops.clear()
    await raw.aget_tuple(config())  # the next loop
    gc.collect()
    assert [ref() for ref in ended] == [None] * 4, "a saver keeps no loop alive"
    assert not failures
    assert not any(thread.is_alive() for thread in threads)
    assert len(await whole(database.under_async_names(raw), "shared 0")) == 24
    assert len(await whole(database.under_async_names(raw), "shared 1")) == 16
    await raw.aclose()
