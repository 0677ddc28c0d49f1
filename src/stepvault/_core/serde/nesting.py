"""Looks at msgpack containers before they are decoded: how deep they nest, whether their headers lie."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import ormsgpack

_FEW_LARGE: Final = 16


def _unpackb(data: bytes, *, ext_hook: Callable[[int, bytes], Any], option: int) -> Any:
    # Before 1.13.1, ormsgpack makes room for as many items as a header claims; four bytes could end the process.
    large = data.count(b"\xdd") + data.count(b"\xdf")
    if large or data.count(b"\xdc") + data.count(b"\xde") > _FEW_LARGE:
        _check_sizes(data)
    return ormsgpack.unpackb(data, ext_hook=ext_hook, option=option)


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:3]))


makes_room_for_claims: Final = _version(ormsgpack.__version__) < (1, 13, 1)
unpackb: Final[Callable[..., Any]] = _unpackb if makes_room_for_claims else ormsgpack.unpackb


def _check_sizes(data: bytes) -> None:
    """Raise if a container claims more items than there are bytes left."""
    position = 0
    while position < len(data):
        size, skipped = _head(data[position], data, position + 1)
        position += 1 + skipped
        if size > len(data) - position:
            raise ValueError("unexpected end of file")


def depth_of(data: bytes) -> int:
    """Return how many arrays and maps stand inside one another; extensions are not looked into."""
    position, deepest = 0, 0
    open_sizes = [1]
    while open_sizes and position < len(data):
        open_sizes[-1] -= 1
        size, skipped = _head(data[position], data, position + 1)
        position += 1 + skipped
        if size:
            open_sizes.append(size)
            deepest = max(deepest, len(open_sizes) - 1)
        while open_sizes and not open_sizes[-1]:
            open_sizes.pop()
    return deepest


def _head(head: int, data: bytes, at: int) -> tuple[int, int]:
    """Return the items inside, and the bytes to skip, of the msgpack value with this first byte."""
    if head < 0x80 or head >= 0xE0 or head in (0xC0, 0xC1, 0xC2, 0xC3):
        return 0, 0
    if head < 0x90:
        return 2 * (head & 0x0F), 0
    if head < 0xA0:
        return head & 0x0F, 0
    if head < 0xC0:
        return 0, head & 0x1F
    if head in _SIZED:
        width, extra = _SIZED[head]
        return 0, width + extra + int.from_bytes(data[at : at + width], "big")
    if head in _COUNTED:
        width, factor = _COUNTED[head]
        return factor * int.from_bytes(data[at : at + width], "big"), width
    return 0, _FIXED[head]


# fmt: off
_SIZED: Final = {
    0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1),
    0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0),
}
_COUNTED: Final = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
_FIXED: Final = {
    0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
    0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}
# fmt: on
