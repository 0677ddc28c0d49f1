"""`saver.lease()`: the context manager around a run, with its heartbeat."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from contextlib import suppress
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any

from langchain_core.runnables import RunnableConfig

from stepvault._core.ids import check_text
from stepvault._core.numbers import check_seconds
from stepvault._core.plan import Op
from stepvault.checkpointers._ops import leasing, permits
from stepvault.checkpointers._ops.context import LEASE_TOKEN, Address
from stepvault.checkpointers._pauses import pause_handlers
from stepvault.errors import StorageError

if TYPE_CHECKING:
    from stepvault.checkpointers._saver import BaseSaver


current_lease: ContextVar[bytes] = ContextVar("stepvault_lease", default=b"")  # LangGraph carries it into its threads


class ThreadLease:
    """One worker's right to write a thread, renewed while it is held.

    `with` and `async with` yield the config to run with. Every write of that config carries the lease's token: once
    the lease is lost (the worker slept past its time and another took over), they raise FencedError.
    """

    def __init__(self, saver: BaseSaver, thread_id: str, ttl: float, expect_interrupt: str | None) -> None:
        check_seconds("ttl", ttl, above=True)
        if expect_interrupt is not None:
            check_text("expect_interrupt", expect_interrupt)
        self._saver = saver
        self._ttl = ttl
        self._expect = expect_interrupt
        self._token = os.urandom(16).hex()
        self._at = Address(saver._scope.key(thread_id), b"", None, None, self._token.encode())
        self.config: RunnableConfig = {"configurable": {"thread_id": str(thread_id), LEASE_TOKEN: self._token}}
        if heard := pause_handlers(saver):
            self.config["callbacks"] = heard
        self._stop = threading.Event()
        self._beat: threading.Thread | asyncio.Task[None] | None = None
        self._before: Token[bytes] | None = None

    def _acquire(self) -> Op[None]:
        owner = f"{socket.gethostname()}:{os.getpid()}"
        return leasing.acquire(self._saver._scope, self._at, self._token.encode(), owner, self._ttl, self._expect)

    def _renew(self) -> Op[bool]:
        return leasing.renew(self._saver._scope, self._at, self._token.encode(), self._ttl)

    def _lost(self) -> None:
        permits.lose(self._saver._scope, self._token.encode())

    def _leave(self) -> None:
        if self._before is not None:
            with suppress(ValueError):  # left in another context than entered: there is nothing to put back
                current_lease.reset(self._before)

    def _release(self) -> Op[None]:
        return leasing.release(self._saver._scope, self._at, self._token.encode())

    # -- sync

    def __enter__(self) -> RunnableConfig:
        self._saver._run(self._acquire())
        self._before = current_lease.set(self._token.encode())
        self._beat = threading.Thread(target=self._renew_until_stopped, name="stepvault-lease", daemon=True)
        self._beat.start()
        return self.config

    def _renew_until_stopped(self) -> None:
        while not self._stop.wait(self._ttl / 3):
            try:
                if not self._saver._run(self._renew()):
                    return self._lost()
            except StorageError:
                continue  # the next beat may get through; if none does, the lease runs out and writes are fenced

    def __exit__(self, *exc_info: object) -> None:
        self._leave()
        self._stop.set()
        assert isinstance(self._beat, threading.Thread)
        self._beat.join()
        self._saver._run(self._release())

    # -- async

    async def __aenter__(self) -> RunnableConfig:
        await self._saver._arun(self._acquire())
        self._before = current_lease.set(self._token.encode())
        self._beat = asyncio.get_running_loop().create_task(self._arenew())
        return self.config

    async def _arenew(self) -> None:
        while True:
            await asyncio.sleep(self._ttl / 3)
            try:
                if not await self._saver._arun(self._renew()):
                    return self._lost()
            except StorageError:
                continue

    async def __aexit__(self, *exc_info: Any) -> None:
        self._leave()
        assert isinstance(self._beat, asyncio.Task)
        self._beat.cancel()
        await asyncio.wait([self._beat])
        await self._saver._arun(self._release())
