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
from collections.abc import Iterator
from contextlib import contextmanager
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

    __slots__ = ("deadline", "expired", "wire")

    def __init__(self, wire: Wire, deadline: float) -> None:
        self.wire = wire
        self.deadline = deadline
        self.expired = False

    def expire(self) -> None:
        self.expired = True
        _hang_up(self.wire)


class _Watchman:
    """The thread that ends waits of threads, one per process, started by the first wait."""

    def __init__(self) -> None:
        self._waits: set[_Wait] = set()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._next = math.inf
        self._pid = 0

    def add(self, wait: _Wait) -> None:
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

    def remove(self, wait: _Wait) -> None:
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

    @contextmanager
    def over(self, wire: Wire) -> Iterator[None]:
        """Watch a thread that waits for this connection."""
        wait = _Wait(wire, time.monotonic() + self._seconds)
        _watchman.add(wait)
        try:
            yield
        except Error as exc:
            self._raise_if_expired(wait, exc)
            raise
        finally:
            _watchman.remove(wait)

    @contextmanager
    def over_task(self, wire: Wire) -> Iterator[None]:
        """Watch a task that waits for this connection."""
        wait = _Wait(wire, 0)
        timer = asyncio.get_running_loop().call_later(self._seconds, wait.expire)
        try:
            yield
        except Error as exc:
            self._raise_if_expired(wait, exc)
            raise
        finally:
            timer.cancel()

    def _raise_if_expired(self, wait: _Wait, exc: Error) -> None:
        if wait.expired:
            raise StorageUnavailableError(
                f"Postgres did not answer within statement_timeout ({self._seconds:g} s); it may still do what was "
                "asked. Repeating is safe."
            ) from exc


def _hang_up(wire: Wire) -> None:
    """Shut the socket down without closing it: its owner still holds the descriptor."""
    try:
        if not wire.closed:
            with socket.fromfd(wire.fileno(), socket.AF_INET, socket.SOCK_STREAM) as double:
                double.shutdown(socket.SHUT_RDWR)
    except (OSError, Error):
        pass  # it is gone already
