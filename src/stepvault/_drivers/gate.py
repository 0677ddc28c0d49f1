"""A lock that threads and tasks of any loop may wait for alike, first come first served; and locks across forks."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Protocol


class HybridGate:
    """Lets the writers of one thread in one by one.

    It saves work, it decides nothing: a sync caller inside a running loop must not wait for a task of that loop,
    so it gets in at once (`acquire` returns False) and the database's own check decides.
    """

    __slots__ = ("_held", "_mutex", "_waiting")

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held = False
        self._waiting: deque[Callable[[], bool]] = deque()

    @property
    def busy(self) -> bool:
        """Whether a writer is inside."""
        return self._held

    def try_acquire(self) -> bool:
        """Take the gate if it is free."""
        with self._mutex:
            if self._held:
                return False
            self._held = True
            return True

    def acquire(self) -> bool:
        """Wait for the gate; False if it was passed without it."""
        with self._mutex:
            if not self._held:
                self._held = True
                return True
            if _in_loop():
                return False
            event = threading.Event()

            def hand_over() -> bool:
                event.set()
                return True

            self._waiting.append(hand_over)
        event.wait()
        return True

    async def aacquire(self) -> bool:
        """Async version of `acquire`; always waits."""
        with self._mutex:
            if not self._held:
                self._held = True
                return True
            turn = _Turn(asyncio.get_running_loop())
            self._waiting.append(turn.hand_over)
        try:
            await turn.future
        except BaseException:
            with self._mutex:
                turn.gone = True
            if turn.handed:
                self.release()
            raise
        return True

    def release(self) -> None:
        """Let the next one in."""
        with self._mutex:
            while self._waiting:
                if self._waiting.popleft()():
                    return
            self._held = False


class _Turn:
    """One task's place in the queue."""

    __slots__ = ("future", "gone", "handed", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.future: asyncio.Future[None] = loop.create_future()
        self.gone = self.handed = False

    def hand_over(self) -> bool:
        """Give the gate to this task, under the gate's mutex; False if it or its loop is gone."""
        if self.gone:
            return False
        try:
            self.loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            return False
        self.handed = True
        return True

    def _wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Renewable(Protocol):
    """Something with a lock."""

    def renew(self) -> None:
        """Begin anew in a forked child, where no other thread lives to release what it held."""
        ...


_renewable: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_after_fork(*things: Renewable) -> None:
    """Renew these in every child that is forked from here on."""
    _renewable.update(things)


def _renew() -> None:
    for thing in list(_renewable):
        thing.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
