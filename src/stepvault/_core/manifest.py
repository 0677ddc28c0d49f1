"""Element numbers: extents they are taken from, runs that name them, pages they lie in.

Each thread numbers its stored elements 1, 2, 3, ... A channel value is a manifest: a run-length list of numbers.
Numbers are taken from page-aligned extents, one per group of channels, so that a list that grows stays one run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

import xxhash

from stepvault.errors import TruncatedError

PAGE = 64
_FIRST_EXTENT = 64
_LAST_EXTENT = 4096
_SLOTS = 16
_SHORT = 24  # bytes
_MOST_PAGES = 1 << 18  # of one record; 16 million elements

Runs: TypeAlias = list[tuple[int, int]]  # (first number, count)


@dataclass(slots=True)
class Extents:
    """Where the next numbers of each slot come from; a copy is changed per write, kept only if it commits."""

    next_no: int = 1
    slots: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # slot -> next, end, size

    def copy(self) -> Extents:
        return Extents(self.next_no, dict(self.slots))

    def take(self, channel: str) -> int:
        """The next number for an element of `channel`."""
        slot = _slot_of(channel)
        number, end, size = self.slots.get(slot, (0, 0, 0))
        if number >= end:
            size = min(_LAST_EXTENT, max(_FIRST_EXTENT, 2 * size))
            number = self.next_no  # page-aligned: every extent is a whole number of pages
            end = self.next_no = number + size
        self.slots[slot] = (number + 1, end, size)
        return number

    def parts(self) -> list[Any]:
        """A form that msgpack takes."""
        return [self.next_no, *[(slot, *place) for slot, place in self.slots.items()]]

    @classmethod
    def of(cls, parts: list[Any]) -> Extents:
        """Read `parts`."""
        next_no, *slots = parts
        return cls(next_no, {slot: (number, end, size) for slot, number, end, size in slots})


@lru_cache(4096)
def _slot_of(channel: str) -> int:
    return xxhash.xxh32_intdigest(channel.encode("utf-8", "surrogatepass")) % _SLOTS


def page_of(number: int) -> int:
    return (number - 1) // PAGE


def first_of(page: int) -> int:
    return page * PAGE + 1


def runs_of(numbers: Sequence[int]) -> Runs:
    """Run-length encode numbers; order and repeats are kept."""
    runs: Runs = []
    first, count = 0, 0
    for number in numbers:
        if count and number == first + count:
            count += 1
        else:
            if count:
                runs.append((first, count))
            first, count = number, 1
    if count:
        runs.append((first, count))
    return runs


def pack_runs(runs: Runs) -> bytes:
    """Varint pairs: zigzag gap to the end of the run before, run length."""
    out = bytearray()
    at = 0
    for first, count in runs:
        gap = first - at
        for value in (gap << 1 if gap >= 0 else (-gap << 1) - 1, count):
            while value > 127:
                out.append(value & 127 | 128)
                value >>= 7
            out.append(value)
        at = first + count
    return bytes(out)


def unpack_runs(packed: bytes) -> Runs:
    """Read `pack_runs`. Short ones, which most are, come from a cache: the result is not to be changed."""
    return _unpack_short(packed) if len(packed) <= _SHORT else _unpack_runs(packed)


def _unpack_runs(packed: bytes) -> Runs:
    values: list[int] = []
    value = shift = 0
    for byte in packed:
        value |= (byte & 127) << shift
        if byte & 128:
            shift += 7
        else:
            values.append(value)
            value = shift = 0
    if shift or len(values) % 2:
        raise TruncatedError
    runs: Runs = []
    at = 0
    for gap, count in zip(values[::2], values[1::2], strict=True):
        first = at + (-((gap + 1) >> 1) if gap & 1 else gap >> 1)
        runs.append((first, count))
        at = first + count
    return runs


_unpack_short = lru_cache(8192)(_unpack_runs)


def pages_of(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merged inclusive page ranges that hold the runs."""
    return merged_pages({((first - 1) // PAGE, (first + count - 2) // PAGE) for first, count in runs})


def pages_in(packed: bytes) -> Sequence[tuple[int, int]]:
    """The page ranges of packed runs, not merged; not to be changed, as those of `unpack_runs`."""
    return _pages_in_short(packed) if len(packed) <= _SHORT else _pages_in(packed)


def _pages_in(packed: bytes) -> Sequence[tuple[int, int]]:
    return [((first - 1) // PAGE, (first + count - 2) // PAGE) for first, count in unpack_runs(packed)]


_pages_in_short = lru_cache(8192)(_pages_in)


def merged_pages(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge page ranges."""
    spans = sorted(spans)
    if len(spans) < 2:
        return spans
    merged: list[tuple[int, int]] = []
    for low, high in spans:
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return merged


def pack_pages(pages: list[tuple[int, int]]) -> bytes | None:
    """The `refs` column: page ranges as pairs of 32-bit numbers; None when a record has no elements."""
    if not pages:
        return None
    return b"".join(low.to_bytes(4, "big") + high.to_bytes(4, "big") for low, high in pages)


@lru_cache(1024)
def packed_pages(spans: frozenset[tuple[int, int]]) -> bytes | None:
    """The `refs` column of page ranges that may overlap; a thread's next rows have the same ones."""
    return pack_pages(merged_pages(spans))


@lru_cache(1024)
def unpack_pages(packed: bytes | None) -> Sequence[tuple[int, int]]:
    """Read `pack_pages`; nothing where so many pages are named that the hint is damaged: nobody lists them."""
    if not packed:
        return ()
    spans = [
        (int.from_bytes(packed[i : i + 4], "big"), int.from_bytes(packed[i + 4 : i + 8], "big"))
        for i in range(0, len(packed), 8)
    ]
    return spans if sum(high - low for low, high in spans) <= _MOST_PAGES else ()
