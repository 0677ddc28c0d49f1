"""What an erasure leaves in the files of an SQLite database, and what a restored backup brings back."""

from __future__ import annotations

import base64
import random
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepvault import Vault
from stepvault.errors import MissingDependencyError, SubjectErasedError
from stepvault.receipts import verify_receipts
from tests.contract.building import checkpoint, config


def put(vault: Vault, thread: str, person: str, *values: str, parent: Any = None) -> Any:
    at = parent or config(thread, user_id=person)
    made = checkpoint({"items": list(values)})
    return vault.checkpointer.put(at, made, {"source": "loop", "step": 0, "said": values[0]}, made["channel_versions"])  # type: ignore[arg-type, typeddict-unknown-key]


class Markers:
    """Random text, stored as it is: a scan sees it wherever it stands."""

    def __init__(self) -> None:
        self._dice = random.Random(7)
        self.made: list[bytes] = []

    def __call__(self, size: int = 60) -> str:
        made = base64.b64encode(self._dice.randbytes(size)).decode()
        self.made.append(made[:40].encode())
        return made

    def left_in(self, *files: Path) -> dict[str, int]:
        content = {file.name: file.read_bytes() for file in files if file.exists()}
        return {name: sum(marker in data for marker in self.made) for name, data in content.items()}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


@pytest.fixture
def vault(file: Path) -> Iterator[Vault]:
    options = {"busy_timeout": 0.05, "journal": file.with_suffix(".journal"), "compression": None}
    with Vault.open(f"sqlite:///{file}", **options) as vault:
        vault.setup()
        yield vault


def fill(vault: Vault, markers: Markers) -> None:
    """Threads of two people in turn, small values and large ones, ids and metadata that name them, and memory."""
    for n in range(40):
        at = None
        for _ in range(3):
            at = put(vault, f"t{n} {markers()}", "ann", markers(), markers(15_000), parent=at)
            vault.checkpointer.put_writes(at, [("items", markers(200))], "task")
        put(vault, f"bob {n}", "bob", f"his {n} " * 500)
        vault.store.put(("users", "ann"), markers(30), {"text": markers(300)})
    vault.subjects.link("ann", markers())


def test_nothing_of_a_person_is_left_in_the_files(vault: Vault, file: Path) -> None:
    markers = Markers()
    fill(vault, markers)
    files = [file, Path(f"{file}-wal")]
    before = markers.left_in(*files)
    assert sum(before.values()) > 0.9 * len(markers.made), "the scan sees what is there"
    request = vault.erasure.erase("ann")
    assert {step.name: step.done for step in request.purge} == {
        "sqlite secure_delete": True,
        "sqlite VACUUM": False,  # not asked for
        "sqlite wal_checkpoint(TRUNCATE)": True,
        "backups, snapshots, replicas and free blocks of the disk": False,
    }
    assert set(markers.left_in(*files).values()) == {0}
    assert len(list(vault.checkpointer.list(None))) == 40


def test_a_reader_that_blocks_the_purge_is_named_and_the_purge_done_later(vault: Vault, file: Path) -> None:
    markers = Markers()
    fill(vault, markers)
    reader = sqlite3.connect(file)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM stepvault_thread").fetchone()
    request = vault.erasure.erase("ann")
    assert request.receipt is not None
    assert [step.done for step in request.purge if step.retryable] == [False]
    assert sum(markers.left_in(file, Path(f"{file}-wal")).values()) > 0, "as the receipt says"
    (again,) = vault.erasure.resume()
    assert again.follow_ups == []
    reader.close()
    (again,) = vault.erasure.resume()
    (follow_up,) = again.follow_ups
    assert again.receipt == request.receipt
    assert follow_up["follows"] == request.receipt["receipt"]["receipt"]
    assert [step.done for step in again.purge if step.retryable] == [True]
    assert set(markers.left_in(file, Path(f"{file}-wal")).values()) == {0}
    assert vault.erasure.resume() == []
    receipts = {"first": request.receipt["receipt"], "second": follow_up}
    assert verify_receipts(receipts, vault.erasure.public_key()).complete


def test_a_vacuum_clears_what_others_deleted(file: Path) -> None:
    markers = Markers()
    with Vault.open(f"sqlite:///{file}", compression=None, vacuum=True) as vault:
        vault.setup()
        fill(vault, markers)
        careless = sqlite3.connect(file)
        careless.execute("PRAGMA secure_delete = OFF")
        for table in ("chunk", "checkpoint", "write"):
            careless.execute(f"DELETE FROM stepvault_{table} WHERE t % 2 = 0")
        careless.commit()
        careless.close()
        request = vault.erasure.erase("ann")
        assert {step.name: step.done for step in request.purge}["sqlite VACUUM"]
    assert set(markers.left_in(file, Path(f"{file}-wal")).values()) == {0}


def test_a_restored_backup_brings_nobody_back(vault: Vault, file: Path) -> None:
    for person in ("ann", "anne", "bob"):
        put(vault, f"of {person}", person, f"said by {person}")
        vault.store.put(("users", person), "k", {"of": person})
    backup = file.with_suffix(".backup")
    with sqlite3.connect(file) as source:
        source.execute("VACUUM INTO ?", (str(backup),))
    source.close()
    for person in ("ann", "bob"):
        vault.erasure.erase(person)
    vault.erasure.readmit("bob")
    put(vault, "bob is back", "bob", "hello")
    vault.close()

    for name in (file, Path(f"{file}-wal"), Path(f"{file}-shm")):
        name.unlink(missing_ok=True)
    shutil.copy(backup, file)
    with Vault.open(f"sqlite:///{file}", journal=file.with_suffix(".journal")) as restored:
        assert {thread.thread_id for thread in restored.threads()} == {"of ann", "of anne", "of bob"}
        done = restored.erasure.reconcile()
        assert [request.counts for request in done] == [{"threads": 1, "checkpoints": 1, "items": 1}] * 2
        assert {thread.thread_id for thread in restored.threads()} == {"of anne"}
        assert [item.value for item in restored.store.search(())] == [{"of": "anne"}]
        with pytest.raises(SubjectErasedError):
            put(restored, "new", "ann", "late")
        put(restored, "bob is back", "bob", "he was let in again")
        assert restored.erasure.reconcile() == []
        assert {thread.thread_id for thread in restored.threads()} == {"of anne", "bob is back"}


def test_a_sweep_gives_the_space_back(file: Path) -> None:
    with Vault.open(f"sqlite:///{file}") as vault:
        for n in range(60):
            at = config(f"t{n}", user_id="ann", stepvault_ttl=1e-4)
            made = checkpoint({"a": random.Random(n).randbytes(40_000)})
            vault.checkpointer.put(at, made, {"source": "loop", "step": 0}, made["channel_versions"])
        full = _pages(file)
        while vault.sweep().threads or vault.threads():
            pass
        assert _pages(file) < full / 4


def _pages(file: Path) -> int:
    connection = sqlite3.connect(file)
    count: int = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.close()
    return count


def test_nothing_is_erased_where_no_receipt_can_be_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Vault.open(f"sqlite:///{tmp_path}/a.db") as vault:
        vault.store.put(("ann",), "k", {"likes": "tea"})
        monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
        with pytest.raises(MissingDependencyError, match="crypto"):
            vault.erasure.erase("ann")
        assert vault.store.get(("ann",), "k") is not None
        assert vault.health().erasures == 0
