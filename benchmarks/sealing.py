"""What sealing costs: chats sealed and not, beside LangGraph's encryption; envelopes, tokens, keys, rewrapping.

    python -m benchmarks.sealing [--quick]

Contenders take turns, and each number is the median of the best of each round. On a noisy machine trust the ratios.
"""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.sqlite import SqliteSaver as OfficialSaver
from rich.console import Console
from rich.table import Table

from stepvault._core import identity
from stepvault._core.codec import Codec, unpack
from stepvault._core.crypto import Secret
from stepvault._core.key_cache import KeyCache
from stepvault._core.keys import Draft
from stepvault._core.metadata import token
from stepvault._core.plan import Op
from stepvault._core.sealing import Sealer
from stepvault._drivers.sqlite import SqliteDriver
from stepvault._keystore.keys import Keys
from stepvault._keystore.rotation import rotate
from stepvault._keystore.store import KeyStore
from stepvault.checkpointers.sqlite import SqliteSaver
from stepvault.checkpointers.sqlite.dialect import SqliteDialect
from stepvault.encryption import Keyring

SIZES = (200, 1_000, 20_000)
CHATS = (20, 150)  # turns
OWNERS = 10_000
TENANT, OWNER = b"", bytes(range(16))
KEYRING = Keyring({"bench": bytes(range(32))})
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
    yield "key of a new thread", lambda: driver.run(keys.create(TENANT, os.urandom(16)))


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
    driver, store, old = (
        SqliteDriver(str(folder / "rewrap.db")),
        KeyStore(SqliteDialect(), os.urandom),
        Keyring.generate(),
    )
    driver.run(store.setup())
    driver.run(_fill(store, old, count))
    start = time.perf_counter()
    moved = driver.run(rotate(store, old.rotated().wrapper())).rewrapped
    took = time.perf_counter() - start
    assert moved == count
    driver.close()
    return took


def _fill(store: KeyStore, keyring: Keyring, count: int) -> Op[None]:
    drafts = [Draft(os.urandom(16), 1, Secret(os.urandom(32))) for _ in range(count)]
    rows = yield from keyring.wrapper().wrap(drafts)
    yield from store.insert_all(rows)


# -- chats


class Gcm:
    """A cipher for LangGraph's `EncryptedSerializer`: AES-256-GCM too, which is faster than its own AES-EAX."""

    def __init__(self) -> None:
        self._aead = AESGCM(bytes(range(32)))

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        nonce = os.urandom(12)
        return "gcm", nonce + self._aead.encrypt(nonce, plaintext, None)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return self._aead.decrypt(ciphertext[:12], ciphertext[12:], None)


def contenders() -> dict[str, Callable[[Path], Any]]:
    """Savers on a file."""

    def official(path: Path, serde: Any = None) -> Any:
        return OfficialSaver(sqlite3.connect(path, check_same_thread=False), serde=serde)

    return {
        "unsealed": lambda path: SqliteSaver.from_conn_string(str(path)),
        "sealed": lambda path: SqliteSaver.from_conn_string(str(path), keyring=KEYRING),
        "official": official,
        "official, EncryptedSerializer": lambda path: official(path, EncryptedSerializer(Gcm())),
    }


def chat(open_saver: Callable[[Path], Any], path: Path, turns: int) -> dict[str, float]:
    """Milliseconds of a turn and of a first read, and bytes per chat of a file of some chats."""
    saver = open_saver(path)
    if hasattr(saver, "setup"):
        saver.setup()
    chats = max(2, 240 // turns)
    taken = [one_chat(saver, str(number), turns) for number in range(chats)]
    close(saver)
    reads = []
    for _ in range(5):
        reader = open_saver(path)
        reader.get_tuple({"configurable": {"thread_id": "none", "checkpoint_ns": ""}})  # connections and keys
        start = time.perf_counter()
        reader.get_tuple({"configurable": {"thread_id": "0", "checkpoint_ns": ""}})
        reads.append(time.perf_counter() - start)
        close(reader)
    wall, cpu = map(min, zip(*taken, strict=True))
    return {
        "turn ms": wall * 1e3,
        "turn CPU ms": cpu * 1e3,
        "first get ms": min(reads) * 1e3,
        "KB": path.stat().st_size / 1024 / chats,
    }


def one_chat(saver: Any, thread: str, turns: int) -> tuple[float, float]:
    """Seconds of a turn (three puts, three put_writes, one get), by the clock and of the processor."""
    at: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    messages: list[Any] = []
    start, used = time.perf_counter(), time.process_time()
    for turn in range(turns):
        saver.get_tuple({"configurable": {"thread_id": thread, "checkpoint_ns": ""}})
        for step in range(3):
            messages = [*messages, HumanMessage(f"{turn}.{step} " + os.urandom(150).hex(), id=str(uuid.uuid4()))]
            version = f"{3 * turn + step + 1:08}"
            made: Any = {
                "v": 4, "id": str(uuid6(clock_seq=step)), "ts": "2026-01-01T00:00:00+00:00",
                "channel_values": {"messages": messages, "topic": "x" * 40},
                "channel_versions": {"messages": version, "topic": "00000001"},
                "versions_seen": {}, "updated_channels": ["messages"],
            }  # fmt: skip
            at = saver.put(at, made, {"source": "loop", "step": 3 * turn + step}, {"messages": version})
            saver.put_writes(at, [("messages", messages[-1:])], str(uuid.uuid4()))
    return (time.perf_counter() - start) / turns, (time.process_time() - used) / turns


def close(saver: Any) -> None:
    """Close a saver of ours or theirs, and empty its write-ahead log."""
    if hasattr(saver, "conn"):
        saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        saver.conn.close()
    else:
        saver.close()


def chats(console: Console, folder: Path, turns: int, rounds: int) -> None:
    """The table of chats."""
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in contenders()}
    for number in range(rounds):
        for name, open_saver in contenders().items():
            taken[name].append(chat(open_saver, folder / f"{name} {turns} {number}.db", turns))
    measures = list(taken["sealed"][0])
    table = Table("", *measures, title=f"A chat of {turns} turns on SQLite", title_justify="left")
    best = {name: {m: min(one[m] for one in found) for m in measures} for name, found in taken.items()}
    for name, found in best.items():
        ratios = [f"{found[m]:,.2f} ({found[m] / best['unsealed'][m]:.2f} x)" for m in measures]
        table.add_row(name, *ratios)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round")
    quick = parser.parse_args().quick
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        for turns in CHATS:
            chats(console, Path(folder), turns, 1 if quick else 5)
        driver = SqliteDriver(str(Path(folder) / "keys.db"))
        store = KeyStore(SqliteDialect(), os.urandom)
        driver.run(store.setup())
        keys = Keys(store, Keyring.generate().wrapper(), KeyCache(time.monotonic), os.urandom)
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
