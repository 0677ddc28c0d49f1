"""What this process knows to be stored of each thread: a bounded cache that decides nothing.

A view is valid for exactly one revision of one thread generation. Every write compares that revision under the
thread's row lock, so a stale view (another writer, a prune, a failover, a restore) costs a reload, never data.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stepvault._core.manifest import first_of, page_of
from stepvault._core.plan import Gate
from stepvault._core.record import Record
from stepvault._core.state import State
from stepvault._core.values import digest

_RECORDS = 8  # checkpoints per thread whose forms are kept for reuse
_PER_ELEMENT = 160  # Python's price for a fingerprint and two numbers
_PER_THREAD = 2048
_THREADS = 4096
_TRIM_EVERY = 16


class ThreadKey(NamedTuple):
    """A thread as rows know it."""

    tenant: bytes
    thread: bytes


@dataclass(slots=True)
class View:
    """Elements and records of one thread at one revision."""

    no: Any
    uid: bytes
    rev: bytes
    state: State
    known: dict[bytes, int] = field(default_factory=dict)
    elements: dict[int, bytes] = field(default_factory=dict)
    records: OrderedDict[tuple[bytes, bytes], Record] = field(default_factory=OrderedDict)
    pages: set[int] = field(default_factory=set)  # pages whose every element is in `elements`
    size: int = _PER_THREAD
    holder: bytes = b""  # of a write under way: whose hold of the thread it goes on under

    @property
    def generation(self) -> bytes:
        """What a run must have loaded to go on writing."""
        return self.state.generation(self.uid)

    def remember(self, elements: Mapping[int, bytes], seed: int) -> None:
        """Note elements that are stored under this revision."""
        for number, element in elements.items():
            if number not in self.elements:
                self.elements[number] = element
                self.known[digest(element, seed)] = number
                self.size += len(element) + _PER_ELEMENT

    def add(self, new: Mapping[bytes, int], elements: Iterable[tuple[int, bytes]]) -> None:
        """Note elements that this process has just stored."""
        self.known.update(new)
        for number, element in elements:
            self.elements[number] = element
            self.size += len(element) + _PER_ELEMENT
            page = page_of(number)
            if number == first_of(page):
                self.pages.add(page)

    def keep(self, ns: bytes, checkpoint: bytes, record: Record) -> None:
        """Note the forms of a checkpoint, for children that leave channels unchanged."""
        self.records[(ns, checkpoint)] = record
        self.records.move_to_end((ns, checkpoint))
        while len(self.records) > _RECORDS:
            self.records.popitem(last=False)


@dataclass(slots=True)
class Known:
    """The view of one thread, if any, and the gate that lets its writers in one by one."""

    gate: Gate
    view: View | None = None
    busy: int = 0


class Knowledge:
    """Views of many threads, least recently used out first, bounded in bytes."""

    def __init__(self, new_gate: Callable[[], Gate], limit: int) -> None:
        self.seed = secrets.randbits(63)
        self._new_gate = new_gate
        self._limit = limit
        self._known: OrderedDict[ThreadKey, Known] = OrderedDict()
        self._lock = threading.Lock()
        self._calls = 0

    def of(self, key: ThreadKey) -> Known:
        """The entry of a thread, made if there is none."""
        with self._lock:
            known = self._known.get(key)
            if known is None:
                known = self._known[key] = Known(self._new_gate())
            else:
                self._known.move_to_end(key)
            self._calls += 1
            if self._calls >= _TRIM_EVERY + len(self._known) // 4:
                self._calls = 0
                self._trim()
            return known

    def forget(self, key: ThreadKey) -> None:
        """Drop what is known of a thread."""
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                known.view = None

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            for known in self._known.values():
                known.view = None

    def renew(self) -> None:
        """Begin anew in a forked child: gates and locks may be held by threads that do not exist there."""
        self._known, self._lock = OrderedDict(), threading.Lock()

    def _trim(self) -> None:
        """Drop what was used longest ago until the rest is within the limit; writers at work keep theirs."""
        size = sum(known.view.size for known in self._known.values() if known.view)
        for key, known in list(self._known.items())[:-1]:
            if size <= self._limit and len(self._known) <= _THREADS:
                break
            if not known.busy:
                size -= known.view.size if known.view else 0
                del self._known[key]
        last = next(reversed(self._known.values()))
        if size > self._limit and not last.busy:
            last.view = None
