"""One thread that drives operations for the tasks of any event loop, those together that came together.

It costs a third of a hop through an executor: no lock per call, and one wake-up of a loop for all that is done.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

from stepvault._core.plan import Op
from stepvault._drivers.together import JoiningDriver, Running, run_together
from stepvault.errors import StorageUnavailableError

T = TypeVar("T")

CLOSED = "This saver or store is closed; open a new one."

_MOST = 64  # operations at once: the last commit of the first waits for the others


class Worker:
    """The thread. It ends with `close`, or when nobody holds the worker any more."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._boxes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Mailbox] = weakref.WeakKeyDictionary()
        self._thread = threading.Thread(target=_work, args=(self._calls,), name=name, daemon=True)
        self._thread.start()
        self._end = weakref.finalize(self, self._calls.put, None)
        self._order = threading.Lock()  # nothing is asked for after the end

    async def arun(self, op: Op[T], driver: JoiningDriver) -> T:
        """Drive an operation on the thread.

        A cancelled caller still waits for the end: the thread cannot be stopped, and half-known is worse than late.

        Raises:
            StorageUnavailableError: It was closed meanwhile.
        """
        loop = asyncio.get_running_loop()
        box = self._boxes.get(loop)
        if box is None:
            box = self._boxes[loop] = _Mailbox(loop)
        call = _Call(op, driver, box, loop.create_future())
        with self._order:
            if not self._end.alive:
                raise StorageUnavailableError(CLOSED)
            self._calls.put(call)
        cancelled = None
        while not call.delivered:
            try:
                await call.turn
            except asyncio.CancelledError as exc:
                cancelled = exc
                call.turn = loop.create_future()
        if cancelled is not None:
            raise cancelled
        return call.outcome()  # type: ignore[no-any-return]

    def close(self) -> None:
        """Do what was asked for, then end."""
        with self._order:
            self._end()
        self._thread.join()


class _Call(Running):
    """One operation, and what became of it."""

    __slots__ = ("box", "delivered", "failure", "result", "turn")

    def __init__(self, op: Op[Any], driver: JoiningDriver, box: _Mailbox, turn: asyncio.Future[None]) -> None:
        super().__init__(op, driver)
        self.box = box
        self.turn = turn
        self.delivered = False
        self.result: Any = None
        self.failure: BaseException | None = None

    def end(self, result: Any, failure: BaseException | None) -> None:
        self.result, self.failure = result, failure

    def tell(self) -> None:
        self.box.put(self)

    def outcome(self) -> Any:
        if self.failure is None:
            return self.result
        try:
            raise self.failure
        finally:
            self.failure = None  # its traceback holds this frame


class _Mailbox:
    """Calls that are done, on their way to one loop."""

    __slots__ = ("_done", "_loop", "_told")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._done: deque[_Call] = deque()
        self._told = False

    def put(self, call: _Call) -> None:
        """On the thread: hand a call over; a loop that was told and has not come yet finds this one too."""
        self._done.append(call)
        loop = self._loop()
        if self._told or loop is None:
            return
        self._told = True
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        """On the loop."""
        self._told = False
        while self._done:
            call = self._done.popleft()
            call.delivered = True
            if not call.turn.done():
                call.turn.set_result(None)


def _work(calls: SimpleQueue[_Call | None]) -> None:
    while _work_once(calls):
        pass  # and holds nothing of what it has done while it waits for more


def _work_once(calls: SimpleQueue[_Call | None]) -> bool:
    """Drive what was asked for meanwhile; False at the end."""
    asked: list[_Call] = []
    call = calls.get()
    while call is not None:
        asked.append(call)
        if len(asked) == _MOST or calls.empty():  # nobody else takes from it
            break
        call = calls.get()
    run_together(asked)
    return call is not None
