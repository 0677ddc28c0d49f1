"""A journal of erasures after a power loss, and after somebody's edit."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepvault.checkpointers._journal import Journal
from stepvault.errors import ErasureError

LINE = {"token": "00ff" * 8, "tenant": ""}


@pytest.mark.parametrize("size", [1, 10, 25])
def test_a_line_that_breaks_off_is_passed_over_and_the_next_is_whole(tmp_path: Path, size: int) -> None:
    file = tmp_path / "journal"
    journal = Journal(file)
    lines = [{**LINE, "number": number} for number in range(3)]
    for line in lines[:2]:
        journal.append(line)
    file.write_bytes(file.read_bytes() + b'{"tenant": "", "number": 7}'[:size])
    assert list(journal.lines()) == lines[:2]
    journal.append(lines[2])
    assert list(journal.lines()) == lines


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    journal = Journal(file)
    for number in range(2):
        journal.append({**LINE, "number": number})
    file.write_bytes(file.read_bytes().replace(b'"number": 0', b'"number" 0'))
    with pytest.raises(ErasureError, match="Line 1 of the journal"):
        list(journal.lines())
    assert not list(Journal(tmp_path / "none").lines())


@pytest.mark.parametrize(
    "line",
    [
        b"[1]",
        b"null",
        b"{}",
        b'{"token": "zz", "tenant": ""}',
        b'{"token": "00", "tenant": ""}',
        b'\xff\xfe{"token": ""',
    ],
)
def test_a_line_that_is_no_tombstone_is_named(line: bytes, tmp_path: Path) -> None:
    file = tmp_path / "journal"
    file.write_bytes(line + b"\n")
    with pytest.raises(ErasureError, match="Line 1 of the journal"):
        list(Journal(file).lines())


def test_nuls_of_a_line_that_was_never_written_are_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    journal = Journal(file)
    journal.append(LINE)
    file.write_bytes(file.read_bytes() + bytes(100))
    journal.append(LINE)
    assert list(journal.lines()) == [LINE, LINE]


def test_a_journal_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ErasureError, match="cannot be written"):
        Journal(tmp_path / "none" / "journal").append(LINE)
