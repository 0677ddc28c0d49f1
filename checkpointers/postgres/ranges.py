"""Page ranges as Postgres has them: `{[0,4),[7,8)}` for what travels between the operations as packed pairs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from stepvault._core.manifest import pack_pages, unpack_pages

_RANGE = re.compile(r"\[(\d+),(\d+)\)")


def to_ranges(packed: bytes | None) -> str | None:
    """The `refs` of a row as a multirange."""
    if packed is None:
        return None
    return _text(unpack_pages(packed))


def from_ranges(text: str | None) -> bytes | None:
    """Undo `to_ranges`."""
    if text is None:
        return None
    return pack_pages([(int(low), int(end) - 1) for low, end in _RANGE.findall(text)])


def ranges_of(pages: Iterable[int]) -> str:
    """A set of pages as a multirange."""
    spans: list[tuple[int, int]] = []
    for page in sorted(pages):
        if spans and page == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], page)
        else:
            spans.append((page, page))
    return _text(spans)


def _text(spans: Iterable[tuple[int, int]]) -> str:
    return "{" + ",".join(f"[{low},{high + 1})" for low, high in spans) + "}"
