"""An end to waiting for a server that does not answer.

A frozen server keeps its connections open and its kernel acknowledges what is sent, so neither keepalives nor
`statement_timeout` help. Past the deadline the connection's socket is shut down on this side: whoever waits for it, a
thread or a task, wakes up with a connection error. That works on any connection, also one that was given.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
import threading
import time
from typing import Protocol

from psycopg import Error

from stepvault.errors import StorageUnavailableError


class Wire(Protocol):
    """What the watch needs of a connection."""

    @property
    def closed(self) -> bool: ...
    def fileno(self) -> int: ...


class _Wait:
    """One wait on one connection."""

    __slots__ = ("_seconds", "_wire", "expired")

    def __init__(self, wire: Wire, seconds: float) -> None:
        self._wire = wire
        self._seconds = seconds
        self.expired = False

    def expire(self) -> None:
        self.expired = True
        _hang_up(self._wire)

    def _say_why(self, exc: BaseException | None) -> None:
        if self.expired and isinstance(exc, Error):
            raise StorageUnavailableError(
                f"Postgres did not answer within statement_timeout ({self._seconds:g} s); it may still do what was "
                "asked. Repeating is safe."
            ) from exc


class _ThreadWait(_Wait):
    __slots__ = ("deadline",)

    def __enter__(self) -> None:
        self.deadline = time.monotonic() + self._seconds
        _watchman.add(self)

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        _watchman.remove(self)
        self._say_why(exc)


class _TaskWait(_Wait):
    __slots__ = ("_timer",)

    def __enter__(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self.expire)

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        self._timer.cancel()
        self._say_why(exc)


class _Watchman:
    """The thread that ends waits of threads, one per process, started by the first wait."""

    def __init__(self) -> None:
        self._waits: set[_ThreadWait] = set()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._next = math.inf
        self._pid = 0

    def add(self, wait: _ThreadWait) -> None:
        with self._lock:
            if self._pid != os.getpid():  # first use, here or after a fork
                self._pid = os.getpid()
                self._waits.clear()
                self._next, self._wake = math.inf, threading.Event()
                threading.Thread(target=self._run, name="stepvault-postgres-watch", daemon=True).start()
            self._waits.add(wait)
            if wait.deadline < self._next:
                self._next = wait.deadline
                self._wake.set()

    def remove(self, wait: _ThreadWait) -> None:
        with self._lock:  # never while it is being hung up: the connection may serve another caller next
            self._waits.discard(wait)

    def _run(self) -> None:
        while True:
            seconds = self._next - time.monotonic()
            self._wake.wait(None if seconds == math.inf else max(0, seconds))
            self._wake.clear()
            with self._lock:
                now = time.monotonic()
                for wait in [wait for wait in self._waits if wait.deadline <= now]:
                    self._waits.discard(wait)
                    wait.expire()
                self._next = min((wait.deadline for wait in self._waits), default=math.inf)


_watchman = _Watchman()


class Watch:
    """Ends waits after `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def over(self, wire: Wire) -> _ThreadWait:
        """Watch a thread that waits for this connection."""
        return _ThreadWait(wire, self._seconds)

    def over_task(self, wire: Wire) -> _TaskWait:
        """Watch a task that waits for this connection."""
        return _TaskWait(wire, self._seconds)


def _hang_up(wire: Wire) -> None:
    """Shut the socket down without closing it: its owner still holds the descriptor."""
    try:
        if not wire.closed:
            with socket.fromfd(wire.fileno(), socket.AF_INET, socket.SOCK_STREAM) as double:
                double.shutdown(socket.SHUT_RDWR)
    except (OSError, Error):
        pass  # it is gone already
