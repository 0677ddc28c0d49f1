"""Files that cannot be used: each is a named error that says what to do, and the file stays as it was."""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from stepvault.checkpointers.sqlite import SqliteSaver
from stepvault.errors import (
    MigrationRequiredError,
    PayloadError,
    SchemaError,
    SchemaTooNewError,
    StepvaultError,
    StorageCorruptError,
    StorageError,
    StorageFullError,
    StorageReadOnlyError,
    StorageUnavailableError,
)
from tests.contract.building import config
from tests.faults.worlds import IDS, LONG, begin, everything, put, write

NOISE = [hashlib.shake_256(bytes([n])).hexdigest(20_000) for n in range(9)]  # does not compress


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with something in it, closed."""
    path = tmp_path / "stepvault.db"
    with SqliteSaver(str(path)) as saver:
        begin(saver)
    return path


def test_a_damaged_hint_names_the_checkpoint(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE stepvault_checkpoint SET refs = x'00000000ffffffff' WHERE refs IS NOT NULL")
    with SqliteSaver(str(path)) as saver:
        with pytest.raises(PayloadError, match=r"Thread 't', checkpoint '[^']+': channel .*missing"):
            saver.get_tuple(config())
        assert {problem.kind for problem in saver.verify().problems} == {"unreadable"}


def verbs(saver: SqliteSaver) -> list[Any]:
    """Every way to touch a database."""
    return [
        lambda: saver.get_tuple(config()),
        lambda: list(saver.list(None)),
        lambda: put(saver, 9, LONG),
        lambda: write(saver, 0, "new task", LONG[0]),
        lambda: saver.delete_thread("t"),
        lambda: saver.prune(["t"]),
        lambda: saver.copy_thread("t", "copy"),
        lambda: saver.delete_for_runs(["old"]),
        saver.threads,
        saver.setup,
    ]


def state(path: Path) -> Any:
    with SqliteSaver(str(path)) as saver:
        return everything(saver)


# -- not ours


@pytest.mark.parametrize(
    "content", [b"this is no database\n" * 300, os.urandom(5000), b"SQLite format 3\x00" + b"\xff" * 9000]
)
def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with SqliteSaver(str(path)) as saver:
        for verb in verbs(saver):
            with pytest.raises(StorageCorruptError, match=r"notes\.txt is damaged or not an SQLite database.*backup"):
                verb()
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_a_folder_and_a_path_without_one(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing" / "file.db"):
        with SqliteSaver(str(path)) as saver:
            for verb in verbs(saver):
                with pytest.raises(StorageUnavailableError, match="cannot be opened; check that its folder exists"):
                    verb()
    assert os.listdir(tmp_path) == []


def test_a_database_of_somebody_else_keeps_its_tables(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with closing(sqlite3.connect(path)) as theirs, theirs:
        theirs.execute("CREATE TABLE customer (name TEXT)")
        theirs.execute("INSERT INTO customer VALUES ('Ada')")
    with SqliteSaver(str(path)) as saver:
        begin(saver)
    with closing(sqlite3.connect(path)) as theirs:
        assert theirs.execute("SELECT * FROM customer").fetchall() == [("Ada",)]


# -- newer and older schemas


def test_a_newer_schema_is_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as newer, newer:
        newer.execute("INSERT INTO stepvault_migration VALUES (99, 'later', 'x', 99, 0)")
    before = dump(path)
    with SqliteSaver(str(path)) as saver:
        for verb in verbs(saver):
            with pytest.raises(SchemaTooNewError, match=r"newer Stepvault \(schema 99.*upgrade this process"):
                verb()
    assert dump(path) == before


def test_a_newer_schema_that_older_code_may_use(path: Path) -> None:
    with closing(sqlite3.connect(path)) as newer, newer:
        newer.execute("INSERT INTO stepvault_migration VALUES (99, 'expands', 'x', 1, 0)")
        newer.execute("ALTER TABLE stepvault_thread ADD COLUMN later TEXT")
    with SqliteSaver(str(path)) as saver:
        put(saver, 3, LONG, parent=2)
        assert len(list(saver.list(config()))) == 4


def test_a_migration_of_another_text_is_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("UPDATE stepvault_migration SET checksum = 'another' WHERE number = 1")
    before = dump(path)
    with SqliteSaver(str(path)) as saver:
        for verb in verbs(saver):
            with pytest.raises(SchemaError, match="applied from another text"):
                verb()
    assert dump(path) == before


def test_a_table_that_is_gone(path: Path) -> None:
    with SqliteSaver(str(path)) as saver:
        saver.get_tuple(config())
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("DROP TABLE stepvault_chunk")
        with pytest.raises(MigrationRequiredError, match="lacks tables"):
            put(saver, 3, [*LONG, "new" * 300], parent=2)


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


# -- damage


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A database of many pages, closed, all of it in the main file."""
    path = tmp_path / "large.db"
    with SqliteSaver(str(path), compression=None) as saver:
        begin(saver)
        for number in range(8):
            put(saver, number, NOISE[: number + 1], thread="large", parent=number - 1 if number else None)
        begin_state = everything(saver)
    assert begin_state
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert connection.execute("PRAGMA page_count").fetchone()[0] > 60
    return path


def test_damaged_pages_are_noticed_or_harmless(large: Path) -> None:
    """Every page in turn: a read gives what was stored or a named error, never something else."""
    good, content = state(large), large.read_bytes()
    size = 4096
    noticed = 0
    for page in range(len(content) // size):
        damaged = bytearray(content)
        damaged[page * size + 64 : page * size + 1024] = b"\xa5" * 960
        large.write_bytes(damaged)
        with SqliteSaver(str(large)) as saver:
            for thread, entries in good.items():
                for entry in entries:
                    try:
                        found = saver.get_tuple(entry.config)
                    except (StorageCorruptError, PayloadError, SchemaError):
                        noticed += 1
                    else:
                        assert found is None or found == entry, (page, thread)
        for leftover in large.parent.glob("large.db-*"):
            leftover.unlink()
    assert noticed > 50


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.9])
def test_a_file_that_is_cut_short(large: Path, keep: float) -> None:
    good, content = state(large), large.read_bytes()
    cut = content[: int(len(content) * keep) // 4096 * 4096]
    large.write_bytes(cut)
    raised = 0
    with SqliteSaver(str(large)) as saver:
        for entry in good["large"]:
            try:
                assert saver.get_tuple(entry.config) in (entry, None)
            except (StorageCorruptError, PayloadError):
                raised += 1
        with pytest.raises(StorageCorruptError):
            list(saver.list(None))
    assert raised


@pytest.mark.parametrize("change", ["gone", "swapped", "cut", "empty", "unknown codec"])
def test_damaged_elements_name_the_thread(path: Path, change: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        rows = connection.execute("SELECT rowid, body FROM stepvault_chunk WHERE t = 1 ORDER BY no").fetchall()
        assert rows
        rowid, body = rows[0]
        if change == "gone":
            connection.execute("DELETE FROM stepvault_chunk WHERE rowid = ?", (rowid,))
        else:
            changed = {"swapped": body[:1] + body[1:][::-1], "cut": body[: len(body) // 2], "empty": b""}
            new = changed.get(change, b"\x77" + body[1:])
            connection.execute("UPDATE stepvault_chunk SET body = ? WHERE rowid = ?", (new, rowid))
    with SqliteSaver(str(path)) as saver:
        with pytest.raises(PayloadError, match=r"restore|upgrade") as raised:
            saver.get_tuple(config("t", "", IDS[2]))
        assert "'t'" in str(raised.value) or change in ("cut", "empty", "swapped", "unknown codec")
        assert saver.get_tuple(config("other")) is not None


# -- read only


def test_a_database_that_may_only_be_read(path: Path) -> None:
    good = state(path)
    with SqliteSaver(f"file:{path}?mode=ro") as saver:
        assert everything(saver) == good
        for verb in verbs(saver)[2:8]:
            with pytest.raises(StorageReadOnlyError, match="cannot be written; check the permissions"):
                verb()
        assert everything(saver) == good
    assert state(path) == good


def test_a_new_database_where_nothing_may_be_written(tmp_path: Path) -> None:
    new = SqliteSaver(f"file:{tmp_path / 'new.db'}?mode=ro")
    with new as saver, pytest.raises(StorageUnavailableError, match="cannot be opened"):
        saver.get_tuple(config())
    assert os.listdir(tmp_path) == []


# -- full


def test_a_database_that_is_full(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        saver = SqliteSaver(connection)
        good = everything(saver)
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        for verb in (
            lambda: put(saver, 3, [*LONG, *NOISE], parent=2),
            lambda: write(saver, 2, "new task", NOISE),
            lambda: put(saver, 0, NOISE, thread="new"),
        ):
            with pytest.raises(StorageFullError, match=r"full.*nothing of this write was stored.*Free space"):
                verb()
            assert everything(saver) == good
        connection.execute("PRAGMA max_page_count = 100000")
        put(saver, 3, [*LONG, *NOISE], parent=2)
        assert saver.get_tuple(config("t", "", IDS[3])).checkpoint["channel_values"]["items"] == [*LONG, *NOISE]
    assert len(state(path)["t"]) == 4


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="only root can make a small disk")
def test_a_disk_that_is_full(tmp_path: Path) -> None:
    with small_disk(tmp_path):
        path = tmp_path / "stepvault.db"
        stored: list[int] = []
        with SqliteSaver(str(path)) as saver:
            full: StorageError | None = None
            while full is None:
                try:
                    put(saver, len(stored), NOISE[len(stored) % 9] + str(len(stored)), thread=f"t{len(stored)}")
                    stored.append(len(stored))
                except StorageError as exc:
                    full = exc
            assert isinstance(full, (StorageFullError, StorageUnavailableError))
            assert "stored" in str(full)
            assert stored
            for number in stored:
                found = saver.get_tuple(config(f"t{number}"))
                assert found.checkpoint["channel_values"]["items"] == NOISE[number % 9] + str(number)
        assert [f"t{number}" for number in stored] == list(state(path))


FILLING = """
import resource, sys
from stepvault.checkpointers.sqlite import SqliteSaver
from stepvault.errors import StorageError
from tests.backend.sqlite.test_damage import NOISE
from tests.faults.worlds import put
with SqliteSaver(sys.argv[1]) as saver:
    saver.setup()
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    try:
        for number in range(50):
            put(saver, number, NOISE[number % 9] + str(number), thread=f"t{number}")
            print(number, flush=True)
    except StorageError as exc:
        print(type(exc).__name__, exc)
"""


def test_a_process_that_may_not_write_more(tmp_path: Path) -> None:
    assert resource.RLIM_INFINITY
    path = tmp_path / "stepvault.db"
    child = subprocess.run([sys.executable, "-c", FILLING, path], capture_output=True, text=True, check=True)
    *stored, error = child.stdout.splitlines()

    assert error.startswith(("StorageFullError", "StorageUnavailableError")), child
    assert stored
    assert {f"t{number}" for number in stored} == state(path).keys()


# -- locked


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process is in the middle of a write."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_a_database_locked_by_another_process(path: Path) -> None:
    good = state(path)
    with SqliteSaver(str(path), busy_timeout=0.05) as saver:
        assert everything(saver) == good
        with locked(path):
            for verb in verbs(saver)[2:8]:
                with pytest.raises(StorageUnavailableError, match=r"locked by another process.*busy_timeout"):
                    verb()
            assert everything(saver) == good, "readers do not wait for the writer"
        put(saver, 3, LONG, parent=2)
        assert len(list(saver.list(config()))) == 4


def test_a_database_locked_while_it_is_opened(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = DELETE")
        other.execute("BEGIN EXCLUSIVE")
        with SqliteSaver(str(path), busy_timeout=0.05) as saver:
            with pytest.raises(StorageUnavailableError, match="locked"):
                saver.get_tuple(config())
            other.execute("ROLLBACK")
            put(saver, 3, LONG, parent=2)
            settings = [saver._driver.connection().execute(f"PRAGMA {name}").fetchone()[0] for name in SETTINGS]
            assert settings == ["wal", 1, 1]


SETTINGS = ("journal_mode", "synchronous", "secure_delete")


def test_closed_savers_say_so(path: Path) -> None:
    saver = SqliteSaver(str(path))
    saver.get_tuple(config())
    saver.close()
    saver.close()
    for verb in verbs(saver):
        with pytest.raises(StorageUnavailableError, match="closed"):
            verb()
    connection = sqlite3.connect(path, isolation_level=None)
    given = SqliteSaver(connection)
    given.get_tuple(config())
    connection.close()
    for verb in verbs(given):
        with pytest.raises(StepvaultError, match="closed"):
            verb()
