"""A journal of erasures after a power loss, and after somebody's edit."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepvault.checkpointers._journal import Journal
from stepvault.errors import ErasureError


@pytest.mark.parametrize("size", [1, 10, 25])
def test_a_line_that_breaks_off_is_passed_over_and_the_next_is_whole(tmp_path: Path, size: int) -> None:
    file = tmp_path / "journal"
    journal = Journal(file)
    lines = [{"tenant": "", "number": number} for number in range(3)]
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
        journal.append({"tenant": "", "number": number})
    file.write_bytes(file.read_bytes().replace(b'"number": 0', b'"number" 0'))
    with pytest.raises(ErasureError, match="Line 1 of the journal"):
        list(journal.lines())
    assert not list(Journal(tmp_path / "none").lines())
