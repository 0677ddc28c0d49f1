"""What runs have read and no write has noted: bounded, given back, and seen while it is being stored."""

from __future__ import annotations

import pytest

from stepvault._core import reads
from stepvault._core.knowledge import ThreadKey
from stepvault._core.reads import Read, Reads

KEY, OTHER = ThreadKey(b"", b"t"), ThreadKey(b"", b"u")


def read(number: int) -> Read:
    return Read(("a",), f"k{number}", number, True, "c")


def test_each_version_counts_once_and_is_taken_once() -> None:
    known = Reads()
    known.add(KEY, [read(1), read(2)])
    known.add(KEY, [read(2)])
    known.add(OTHER, [read(3)])
    taken = known.take(KEY)
    assert taken == [read(1), read(2)]
    assert known.take(KEY) == []
    assert known.under_way(KEY) == taken
    known.add(KEY, taken)
    known.noted(KEY, taken)
    assert known.under_way(KEY) == []
    assert known.take(KEY) == taken
    assert known.take(OTHER) == [read(3)]


def test_two_writes_under_way() -> None:
    known = Reads()
    known.add(KEY, [read(1)])
    first = known.take(KEY)
    known.add(KEY, [read(2)])
    second = known.take(KEY)
    assert known.under_way(KEY) == [read(1), read(2)]
    known.noted(KEY, first)
    assert known.under_way(KEY) == second


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "_ITEMS", 3)
    monkeypatch.setattr(reads, "_ALL", 5)
    known = Reads()
    known.add(KEY, map(read, range(10)))
    known.add(OTHER, map(read, range(10)))
    assert known.take(KEY) == []
    assert len(known.take(OTHER)) == 3
