"""The sync half of an async driver: calls from other threads go to its loop, calls from the loop itself are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from stepvault._core.plan import Op
from stepvault.errors import EventLoopError

T = TypeVar("T")


class AsyncHalf(Protocol):
    """A driver that can drive operations in a loop."""

    async def arun(self, op: Op[T]) -> T: ...
    async def aclose(self) -> None: ...


class LoopDriver:
    """Binds an async driver to the loop it is used from.

    As in the official async savers: blocking the loop on its own work would never end, so that raises at once.
    """

    def __init__(self, inner: AsyncHalf) -> None:
        self.inner = inner
        self._loop: asyncio.AbstractEventLoop | None = _running()

    async def arun(self, op: Op[T]) -> T:
        """Drive an operation."""
        self._loop = asyncio.get_running_loop()
        return await self.inner.arun(op)

    def run(self, op: Op[T]) -> T:
        """Drive an operation in the loop, from another thread.

        Raises:
            EventLoopError: From the loop's own thread, or before the loop is known.
        """
        return self.result(self.arun(op))

    def result(self, work: Coroutine[Any, Any, T]) -> T:
        """What a coroutine returns when it has run in the loop; for calls from another thread.

        Raises:
            EventLoopError: From the loop's own thread, or before the loop is known.
        """
        loop = self._loop
        if loop is None or loop.is_closed():
            work.close()
            raise EventLoopError("The event loop of this async saver or store is not running; use its sync class.")
        if _running() is loop:
            work.close()
            raise EventLoopError
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    def close(self) -> None:
        """Close from another thread."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        if _running() is loop:
            raise EventLoopError("close() would block its own event loop; use `async with` or await aclose().")
        asyncio.run_coroutine_threadsafe(self.inner.aclose(), loop).result()

    async def aclose(self) -> None:
        """Close from the loop."""
        await self.inner.aclose()


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
