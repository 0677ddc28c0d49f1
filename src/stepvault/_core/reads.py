"""Which store items the runs of this process have read and no write of their thread has noted yet."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from stepvault._core.knowledge import ThreadKey

_ITEMS = 1000  # of one thread between two of its writes; whoever reads more has no use for their names
_ALL = 100_000  # of threads that write nothing, as when a graph has another saver


class Read(NamedTuple):
    """An item that a run read.

    Attributes:
        namespace: Its labels.
        key: Its key.
        updated_at: Its version, in microseconds since 1970.
        mortal: Whether it has a time to live.
        checkpoint: The checkpoint the run was at.
    """

    namespace: tuple[str, ...]
    key: str
    updated_at: int
    mortal: bool
    checkpoint: str

    @property
    def name(self) -> tuple[tuple[str, ...], str]:
        """What the item is called."""
        return self.namespace, self.key


class Reads:
    """Reads by thread, until a write of the thread takes them; the least recent threads fall out."""

    def __init__(self) -> None:
        self._reads: OrderedDict[ThreadKey, dict[Read, None]] = OrderedDict()
        self._count = 0
        self._flying: dict[ThreadKey, list[list[Read]]] = {}
        self._lock = threading.Lock()

    def renew(self) -> None:
        """Begin anew in a forked child: a thread that does not exist there may hold the lock."""
        self._lock = threading.Lock()

    def add(self, key: ThreadKey, reads: Iterable[Read]) -> None:
        """Remember reads; one that is there already counts once."""
        with self._lock:
            known = self._reads.setdefault(key, {})
            self._reads.move_to_end(key)
            before = len(known)
            for read in reads:
                if len(known) < _ITEMS:
                    known[read] = None
            self._count += len(known) - before
            while self._count > _ALL:
                self._count -= len(self._reads.popitem(last=False)[1])

    def take(self, key: ThreadKey) -> list[Read]:
        """What was read since the last write; whoever takes it says when it is `noted`, or gives it back with `add`."""
        if key not in self._reads:
            return []
        with self._lock:
            found = self._reads.pop(key, {})
            self._count -= len(found)
            taken = list(found)
            if taken:
                self._flying.setdefault(key, []).append(taken)
            return taken

    def noted(self, key: ThreadKey, taken: list[Read]) -> None:
        """What was taken is stored, or given back."""
        if not taken:
            return
        with self._lock:
            left = [other for other in self._flying.get(key, ()) if other is not taken]
            if left:
                self._flying[key] = left
            else:
                self._flying.pop(key, None)

    def under_way(self, key: ThreadKey) -> list[Read]:
        """What other writes of the thread have taken, and have perhaps not stored yet."""
        with self._lock:
            return [read for taken in self._flying.get(key, ()) for read in taken]
