"""Many callers at once: threads, tasks, event loops, cancelled ones."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langgraph.store.base import PutOp

from tests.contract.stores.embedding import DIMS, embed

NS = ("shared",)


async def test_tasks_at_once(store: Any) -> None:
    async def work(number: int) -> None:
        for step in range(5):
            await store.aput((*NS, str(number % 4)), f"k{number}", {"n": number, "step": step})
            found = await store.aget((*NS, str(number % 4)), f"k{number}")
            assert found.value == {"n": number, "step": step}

    await asyncio.gather(*(work(number) for number in range(20)))
    items = await store.asearch(NS, limit=100)
    assert {item.value["n"]: item.value["step"] for item in items} == dict.fromkeys(range(20), 4)


async def test_writers_of_the_same_keys(store: Any) -> None:
    """Batches over the same keys in opposite orders: none fails, and each key ends as one of them left it."""
    keys = [f"k{number}" for number in range(10)]

    async def work(number: int) -> None:
        order = keys if number % 2 else keys[::-1]
        await store.abatch([PutOp(NS, key, {"by": number}) for key in order])

    await asyncio.gather(*(work(number) for number in range(12)))
    found = {item.key: item.value["by"] for item in await store.asearch(NS, limit=100)}
    assert found.keys() == set(keys)
    assert len(set(found.values())) == 1


async def test_a_cancelled_call_harms_no_other(stores: Any) -> None:
    store = stores.raw()
    await stores.named(store).asetup()
    await store.aput(NS, "k", {"v": 0})
    for number in range(30):
        calls = [asyncio.create_task(store.aput(NS, f"k{number}", {"v": other})) for other in range(4)]
        calls += [asyncio.create_task(store.aget(NS, "k")) for _ in range(4)]
        await asyncio.sleep(0.0005 * (number % 5))
        for call in calls[::2]:
            call.cancel()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert all(not isinstance(result, Exception) for result in results)
    assert (await store.aget(NS, "k")).value == {"v": 0}
    await store.aput(NS, "after", {"v": 1})
    assert len(await store.asearch(NS, limit=100)) >= 2


async def test_several_event_loops_and_threads_at_once(stores: Any) -> None:
    store = stores.raw(index={"dims": DIMS, "embed": embed, "fields": ["text"]})
    await stores.named(store).asetup()

    def loop_of_its_own(number: int) -> None:
        async def work() -> None:
            for step in range(5):
                await store.aput(NS, f"loop{number}-{step}", {"text": f"c{number} i{step}"})
                assert await store.asearch(NS, query=f"c{number} i{step}", limit=1)

        asyncio.run(work())

    def thread(number: int) -> None:
        for step in range(5):
            store.put(NS, f"thread{number}-{step}", {"text": f"c{number} i{step}"})
            assert store.search(NS, query=f"c{number} i{step}", limit=1)

    with ThreadPoolExecutor(6) as pool:
        jobs = [pool.submit(loop_of_its_own if number % 2 else thread, number) for number in range(6)]
        while not all(job.done() for job in jobs):
            await store.aget(NS, "loop1-0")
            await asyncio.sleep(0.01)
        for job in jobs:
            job.result()
    assert len(await store.asearch(NS, limit=100)) == 30
    forget_ended_loops()


def forget_ended_loops() -> None:
    """Connections of a loop that ended before its store was closed go with the loop, not without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


async def test_closing_leaves_nothing_behind(stores: Any) -> None:
    forget_ended_loops()  # of other tests
    before = set(threading.enumerate())
    store = stores.raw(ttl={"default_ttl": 1})
    await stores.named(store).asetup()
    await store.aput(NS, "k", {"v": 1})
    store.put(NS, "l", {"v": 1})
    store.start_ttl_sweeper()
    await store.aclose()
    await store.aclose()
    store.close()
    store.stop_ttl_sweeper()
    assert len(asyncio.all_tasks()) == 1
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert {name for name in left if "sweeper" in name or "sqlite" in name} == set()
    del store
    gc.collect()


async def test_a_slow_embedder_does_not_stop_the_loop(stores: Any) -> None:
    started, go_on = threading.Event(), threading.Event()

    def slow(texts: Any) -> Any:
        started.set()
        assert go_on.wait(60)
        return embed(texts)

    store = stores.raw(index={"dims": DIMS, "embed": slow, "fields": ["text"]})
    await stores.named(store).asetup()
    put = asyncio.create_task(store.aput(NS, "slow", {"text": "c1 i1"}))
    while not started.is_set():
        await asyncio.sleep(0.01)
    await store.aput(NS, "quick", {"n": 1})  # while the embedder is at work: it holds no transaction and no loop
    assert (await store.aget(NS, "quick")).value == {"n": 1}
    assert await store.aget(NS, "slow") is None
    go_on.set()
    await put
    assert await store.aget(NS, "slow") is not None


@pytest.mark.parametrize("closing", ["with", "async with"])
async def test_with_and_async_with(stores: Any, closing: str) -> None:
    if closing == "with":
        with stores.raw() as store:
            await stores.named(store).asetup()
            store.put(NS, "k", {"v": 1})
    else:
        async with stores.raw() as store:
            await stores.named(store).asetup()
            await store.aput(NS, "k", {"v": 1})
    again = await stores.open()
    assert (await again.aget(NS, "k")).value == {"v": 1}
