"""Removing what has expired now and then, from a thread or a task."""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

logger = logging.getLogger("stepvault")


class ThreadSweeper:
    """A daemon thread that ends with its saver or store."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._ended: Future[None] = Future()

    def start(self, sweep: Callable[[], int], minutes: float) -> Future[None]:
        """Sweep at this interval; the future ends with the sweeper, and cancelling it ends the sweeper."""
        if self._thread is None or not self._thread.is_alive():
            self._stop = stop = threading.Event()
            self._ended = Future()
            self._ended.add_done_callback(lambda future: stop.set())
            args = (weakref.WeakMethod(sweep), stop, self._ended, minutes * 60)
            self._thread = threading.Thread(target=_sweep_loop, args=args, daemon=True, name="stepvault-sweeper")
            self._thread.start()
        return self._ended

    def stop(self, timeout: float | None = None) -> bool:
        """End it; whether it has ended within `timeout` seconds."""
        self._stop.set()
        if self._thread is None or self._thread is threading.current_thread():
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()


def _sweep_loop(sweep: weakref.WeakMethod[Any], stop: threading.Event, ended: Future[None], seconds: float) -> None:
    while not stop.wait(seconds):
        method = sweep()
        if method is None:
            break
        try:
            _report(method())
        except Exception:
            logger.exception("A sweep failed; the next one follows.")
        del method
    if not ended.done():
        ended.set_result(None)


class TaskSweeper:
    """The same as a task of one event loop."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def start(self, sweep: Callable[[], Awaitable[int]], minutes: float) -> asyncio.Task[None]:
        """Sweep at this interval; cancelling the task ends it."""
        if self._task is None or self._task.done():
            loop = _asweep_loop(weakref.WeakMethod(sweep), minutes * 60)
            self._task = asyncio.get_running_loop().create_task(loop, name="stepvault-sweeper")
        return self._task

    async def stop(self, timeout: float | None = None) -> bool:
        """End it; whether it has ended within `timeout` seconds."""
        task, self._task = self._task, None
        if task is None or task.done():
            return True
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=timeout)
        return bool(done)


async def _asweep_loop(sweep: weakref.WeakMethod[Any], seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        method = sweep()
        if method is None:
            return
        try:
            _report(await method())
        except Exception:
            logger.exception("A sweep failed; the next one follows.")
        del method


def _report(count: int) -> None:
    if count:
        logger.info("Swept %d expired threads or items.", count)
