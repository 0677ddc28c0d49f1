"""Keys, sealers and key stores for the tests: everything but the database is given, so runs repeat exactly."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepvault._core.crypto import Secret
from stepvault._core.identity import scope
from stepvault._core.key_cache import KeyCache
from stepvault._core.keys import DataKey, Draft, SealingKey, chain, id_of
from stepvault._core.plan import Op
from stepvault._core.sealing import Sealer
from stepvault._drivers.sqlite import SqliteDriver
from stepvault._keystore.keys import Keys
from stepvault._keystore.store import KeyStore
from stepvault.checkpointers.sqlite.dialect import SqliteDialect
from stepvault.encryption import Keyring

OWNER = b"owner-of-16-byte"
TENANT = b"tenant"
DEPLOYMENT = b"deployment-of-16"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def counting() -> Callable[[int], bytes]:
    """Bytes that differ each time and are the same in each run."""
    numbers = itertools.count(1)
    return lambda size: next(numbers).to_bytes(size, "big")


def sealer_of(secret: bytes = bytes(32), owner: bytes = OWNER, tenant: bytes = TENANT) -> Sealer:
    """A sealer without a key store."""
    key = Secret(secret)
    row = DataKey(owner, 1, id_of(key), "kek", b"wrapped")
    return Sealer(chain(owner, [row], {row.id: key}), scope(DEPLOYMENT, tenant, owner), os.urandom)


def sealing_key(secret: bytes = bytes(32)) -> SealingKey:
    return SealingKey(Secret(secret))


class Store:
    """A key store in a file, with its driver."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.driver = SqliteDriver(str(path))
        self.dialect = KeyStore(SqliteDialect(), os.urandom)
        self.run(self.dialect.setup())

    def run(self, op: Op[Any]) -> Any:
        return self.driver.run(op)

    def keys(self, keyring: Keyring, **options: Any) -> Keys:
        cache = KeyCache(options.pop("clock", Clock()), ttl=options.pop("ttl", 60))
        return Keys(self.dialect, keyring.wrapper(), cache, options.pop("random", os.urandom), **options)

    def fill(self, keyring: Keyring, count: int, first: int = 1) -> list[Draft]:
        """Store so many data keys."""
        numbers = range(first, first + count)
        drafts = [Draft(number.to_bytes(16, "big"), 1, Secret(os.urandom(32))) for number in numbers]
        self.run(_store(self.dialect, keyring, drafts))
        return drafts

    def rows(self) -> list[DataKey]:
        """Every live key."""
        return list(self.run(self.dialect.page("", b"", 1_000_000)).rows)

    def close(self) -> None:
        self.driver.close()


def _store(store: KeyStore, keyring: Keyring, drafts: list[Draft]) -> Op[None]:
    rows = yield from keyring.wrapper().wrap(drafts)
    for start in range(0, len(rows), 1000):
        yield from store.insert_all(rows[start : start + 1000])


def drain(op: Op[Any]) -> Any:
    """The result of an operation that asks for nothing."""
    try:
        request = next(op)
    except StopIteration as stop:
        return stop.value
    raise AssertionError(f"asked for {request}")
