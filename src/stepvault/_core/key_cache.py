"""Unwrapped keys of recently used owners: bounded, short-lived, purged when an owner is shredded."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TypeAlias

from stepvault._core.keys import KeyChain
from stepvault.errors import ConfigurationError

Ticket: TypeAlias = tuple[float, int]  # until when it is fresh, and the purges so far

LIMIT = 1024
MAX_TTL = 60.0
SURE = 1.0  # seconds for which what was written need not be looked after


class KeyCache:
    """Least recently used out first; absent keys are not remembered.

    Args:
        clock: Seconds that only grow.
        ttl: How long a key is used without asking the key store again; at most 60 seconds.
        limit: How many owners.
    """

    def __init__(self, clock: Callable[[], float], ttl: float = MAX_TTL, limit: int = LIMIT) -> None:
        if not 0 <= ttl <= MAX_TTL:
            raise ConfigurationError(f"Keys may be cached for 0 to {MAX_TTL:.0f} seconds, not {ttl!r}.")
        self._clock = clock
        self._ttl = ttl
        self._limit = limit
        self._chains: OrderedDict[bytes, tuple[float, KeyChain]] = OrderedDict()
        self._lock = threading.Lock()
        self._purges = 0

    def get(self, owner: bytes) -> KeyChain | None:
        """The keys of an owner, if they are fresh enough."""
        with self._lock:
            found = self._chains.get(owner)
            if found is None:
                return None
            if self._clock() >= found[0]:
                del self._chains[owner]
                return None
            self._chains.move_to_end(owner)
            return found[1]

    def is_sure(self, owner: bytes) -> bool:
        """Whether the keys of an owner stood as they are known a moment ago."""
        with self._lock:
            found = self._chains.get(owner)
            return found is not None and self._clock() < found[0] - self._ttl + SURE

    def renew(self, owner: bytes, ticket: Ticket) -> None:
        """Note that the keys of an owner stood as they are known when the ticket was taken."""
        expires, purges = ticket
        with self._lock:
            if owner in self._chains and purges == self._purges:
                self._chains[owner] = (expires, self._chains[owner][1])

    def ticket(self) -> Ticket:
        """Take one before loading keys: `put` tells by it what is too old."""
        with self._lock:
            return self._clock() + self._ttl, self._purges

    def put(self, chain: KeyChain, ticket: Ticket) -> None:
        """Note loaded keys, unless something was purged since they were asked for."""
        expires, purges = ticket
        with self._lock:
            if chain.newest is None or purges != self._purges:
                return
            self._chains[chain.owner] = (expires, chain)
            self._chains.move_to_end(chain.owner)
            while len(self._chains) > self._limit:
                self._chains.popitem(last=False)

    def purge(self, owners: Iterable[bytes]) -> None:
        """Forget owners."""
        with self._lock:
            self._purges += 1
            for owner in owners:
                self._chains.pop(owner, None)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._purges += 1
            self._chains.clear()

    def __len__(self) -> int:
        return len(self._chains)
