"""Rows of elements: consecutive numbers of one page, lengths first, compressed together."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from stepvault._core.codec import Codec, unpack
from stepvault._core.manifest import PAGE, page_of
from stepvault.errors import TruncatedError

ROW_BYTES = 8192  # a row takes new elements up to this size; larger elements stand alone
PACK_BYTES = 262_144  # a closed page is packed into one row up to this size


class ChunkRow(NamedTuple):
    """Elements `no .. no + n - 1` of a thread."""

    no: int
    n: int
    body: bytes


def pack_rows(elements: Iterable[tuple[int, bytes]], codec: Codec, limit: int = ROW_BYTES) -> list[ChunkRow]:
    """Group consecutive elements into rows; a row never crosses a page."""
    rows: list[ChunkRow] = []
    first, size = 0, 0
    parts: list[bytes] = []
    for number, element in sorted(elements):
        full = parts and (number != first + len(parts) or size + len(element) > limit)
        if full or (parts and page_of(number) != page_of(first)):
            rows.append(_row(first, parts, codec))
            parts = []
        if not parts:
            first, size = number, 0
        parts.append(element)
        size += len(element)
    if parts:
        rows.append(_row(first, parts, codec))
    return rows


def _row(first: int, parts: list[bytes], codec: Codec) -> ChunkRow:
    lengths = struct.pack(f">{len(parts)}I", *map(len, parts))
    return ChunkRow(first, len(parts), codec.pack(lengths + b"".join(parts)))


def unpack_row(row: ChunkRow, into: dict[int, bytes]) -> None:
    """Add the elements of a row to `into` by number."""
    body = unpack(row.body)
    count = row.n
    try:
        lengths = struct.unpack_from(f">{count}I", body)
    except struct.error as exc:
        raise TruncatedError from exc
    at = 4 * count
    for number, length in enumerate(lengths, row.no):
        into[number] = body[at : at + length]
        at += length
    if at != len(body):
        raise TruncatedError


def closed_pages(rows: Iterable[ChunkRow]) -> list[int]:
    """Pages whose last number is among these rows: they take no more elements and can be packed."""
    return sorted({page_of(row.no) for row in rows if (row.no + row.n - 1) % PAGE == 0})
