"""The worker thread of the async SQLite savers."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from stepvault._core.plan import Op
from stepvault._drivers.worker import Worker
from stepvault.errors import StorageUnavailableError


def do(worker: Worker, function: Callable[..., Any], *args: Any) -> Coroutine[Any, Any, Any]:
    """Call a function on the thread."""

    def op() -> Op[Any]:
        return function(*args)
        yield

    return worker.arun(op(), None)  # type: ignore[arg-type]  # it asks the driver nothing


async def test_calls_are_made_in_order_on_one_thread() -> None:
    worker = Worker("test")
    seen: list[tuple[int, int]] = []
    await asyncio.gather(*(do(worker, lambda i: seen.append((i, threading.get_ident())), i) for i in range(100)))
    assert [number for number, _ in seen] == list(range(100))
    assert len({thread for _, thread in seen} | {threading.get_ident()}) == 2
    worker.close()


async def test_an_error_reaches_its_caller_only() -> None:
    worker = Worker("test")

    def fail() -> None:
        raise LookupError("this one")

    failed, done = await asyncio.gather(do(worker, fail), do(worker, str, 1), return_exceptions=True)
    assert isinstance(failed, LookupError)
    assert done == "1"
    worker.close()


async def test_a_cancelled_caller_waits_for_the_end() -> None:
    worker = Worker("test")
    ended = threading.Event()

    def slow() -> None:
        time.sleep(0.1)
        ended.set()

    task = asyncio.create_task(do(worker, slow))
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    worker.close()


def test_several_loops_share_it() -> None:
    worker = Worker("test")
    found: list[int] = []

    def in_a_loop(number: int) -> None:
        async def ask() -> list[int]:
            return await asyncio.gather(*(do(worker, lambda n: n, number) for _ in range(50)))

        found.extend(asyncio.run(ask()))

    threads = [threading.Thread(target=in_a_loop, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(list(range(4)) * 50)
    worker.close()


def test_a_loop_that_closed_before_the_end_is_forgotten() -> None:
    worker = Worker("test")
    started, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        started.set()
        go_on.wait(10)

    loop = asyncio.new_event_loop()
    waiting = loop.create_task(do(worker, slow))
    loop.run_until_complete(asyncio.sleep(0))
    started.wait(10)
    loop.close()
    go_on.set()
    assert asyncio.run(do(worker, str, 2)) == "2"
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]
    worker.close()


def test_the_thread_ends_with_its_worker() -> None:
    worker = Worker("test")
    thread = worker._thread
    gone = weakref.ref(worker)
    del worker
    gc.collect()
    thread.join(10)
    assert gone() is None
    assert not thread.is_alive()


async def test_nobody_waits_for_a_worker_that_was_closed() -> None:
    for _ in range(50):
        worker = Worker("test")
        closing = asyncio.get_running_loop().run_in_executor(None, worker.close)
        asked = [asyncio.create_task(do(worker, str, number)) for number in range(50)]
        found = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 30)
        assert all(answer == str(n) or isinstance(answer, StorageUnavailableError) for n, answer in enumerate(found))
        await closing
        with pytest.raises(StorageUnavailableError, match="closed"):
            await do(worker, str, 1)
