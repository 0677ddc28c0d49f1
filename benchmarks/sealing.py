"""What sealing costs: envelopes, tokens, cold keys, and rewrapping ten thousand of them.

    python -m benchmarks.sealing [--quick]

Contenders take turns, and each number is the median of the best of each round. On a noisy machine trust the ratios.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from rich.console import Console
from rich.table import Table

from stepvault._core import identity
from stepvault._core.codec import Codec, unpack
from stepvault._core.crypto import Secret
from stepvault._core.key_cache import KeyCache
from stepvault._core.keys import Draft
from stepvault._core.metadata import token
from stepvault._core.plan import Batch, Op
from stepvault._core.sealing import Sealer
from stepvault._drivers.sqlite import SqliteDriver
from stepvault._keystore.keys import Keys
from stepvault._keystore.rotation import rotate
from stepvault._keystore.sqlite import SqliteKeyStore
from stepvault.encryption import Keyring

SIZES = (200, 1_000, 20_000)
OWNERS = 10_000
TENANT, OWNER = b"", bytes(range(16))
Work = Callable[[], object]


def envelopes(sealer: Sealer) -> Iterator[tuple[str, Work]]:
    """Ours, the bare primitive and Fernet, on payloads that do not compress."""
    raw, fernet = AESGCM(os.urandom(32)), Fernet(Fernet.generate_key())
    row = identity.checkpoint_body(b"", bytes(17))
    for size in SIZES:
        payload = os.urandom(size)
        stored, bare, token_ = sealer.seal(row, payload), raw.encrypt(bytes(12), payload, b""), fernet.encrypt(payload)
        yield f"seal {size:,} B", lambda payload=payload: sealer.seal(row, payload)  # type: ignore[misc]
        yield f"open {size:,} B", lambda stored=stored: sealer.open(row, stored)  # type: ignore[misc]
        yield (
            f"AES-GCM seal {size:,} B",
            lambda payload=payload: raw.encrypt(os.urandom(12), payload, b""),  # type: ignore[misc]
        )
        yield f"AES-GCM open {size:,} B", lambda bare=bare: raw.decrypt(bytes(12), bare, b"")  # type: ignore[misc]
        yield f"Fernet seal {size:,} B", lambda payload=payload: fernet.encrypt(payload)  # type: ignore[misc]
        yield f"Fernet open {size:,} B", lambda token_=token_: fernet.decrypt(token_)  # type: ignore[misc]


def around(keys: Keys, driver: SqliteDriver) -> Iterator[tuple[str, Work]]:
    """What stands beside sealing in a write or a read."""
    codec, text = Codec(), b"".join(b"%d bottles of beer on the wall, " % number for number in range(40))
    packed = codec.pack(text)
    index = driver.run(keys.index())
    yield f"zstd pack {len(text):,} B", lambda: codec.pack(text)
    yield f"zstd unpack {len(text):,} B", lambda: unpack(packed)
    yield "thread token", lambda: index.thread(TENANT, b"thread-1234")
    yield "metadata token", lambda: index.metadata(TENANT, token("user_id", "u-1234"))
    yield "sealer, cached key", lambda: driver.run(keys.sealer(TENANT, OWNER))

    def cold() -> None:
        keys.cache.clear()
        driver.run(keys.sealer(TENANT, OWNER))

    yield "sealer, key from SQLite", cold
    yield "key of a new thread", lambda: driver.run(keys.fresh(TENANT, os.urandom(16)))


def microseconds(work: Work, seconds: float) -> float:
    """The best of a few runs, each long enough to time."""
    count, took = 1, 0.0
    while took < seconds / 5:
        count *= 2
        took = _timed(work, count)
    return min(took, *(_timed(work, count) for _ in range(4))) / count * 1e6


def _timed(work: Work, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        work()
    return time.perf_counter() - start


def rewrap(folder: Path, count: int) -> float:
    """Seconds to rewrap so many data keys, each page durable as SQLite's default says."""
    driver, store, old = SqliteDriver(str(folder / "rewrap.db")), SqliteKeyStore(), Keyring.generate()
    driver.run(store.setup())
    driver.run(_fill(store, old, count))
    start = time.perf_counter()
    moved = driver.run(rotate(store, old.rotated().wrapper())).rewrapped
    took = time.perf_counter() - start
    assert moved == count
    driver.close()
    return took


def _fill(store: SqliteKeyStore, keyring: Keyring, count: int) -> Op[None]:
    drafts = [Draft(os.urandom(16), 1, Secret(os.urandom(32))) for _ in range(count)]
    rows = yield from keyring.wrapper().wrap(drafts)
    yield Batch([statement for row in rows for statement in store.insertion(row)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round")
    quick = parser.parse_args().quick
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        driver = SqliteDriver(str(Path(folder) / "keys.db"))
        driver.run(SqliteKeyStore().setup())
        keys = Keys(SqliteKeyStore(), Keyring.generate().wrapper(), KeyCache(time.monotonic), os.urandom)
        sealer = driver.run(keys.ensure(TENANT, OWNER))
        works = dict([*envelopes(sealer), *around(keys, driver)])
        rounds: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(1 if quick else 5):
            for name, work in works.items():
                rounds[name].append(microseconds(work, 0.01 if quick else 0.1))
        table = Table("", "us", title=f"Sealing on Python {platform.python_version()}", title_justify="left")
        for name, taken in rounds.items():
            table.add_row(name, f"{statistics.median(taken):.2f}")
        console.print(table)
        count = OWNERS // 10 if quick else OWNERS
        console.print(f"rewrap {count:,} data keys: {rewrap(Path(folder), count):.2f} s")
        driver.close()


if __name__ == "__main__":
    main()
