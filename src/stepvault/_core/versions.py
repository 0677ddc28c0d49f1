"""Channel versions: deterministic ordered strings; a thread that came with another format keeps it."""

from __future__ import annotations

from typing import Any

_WIDTH = 8


def next_version(current: Any) -> Any:
    """The version after `current`, of the same type and format.

    Integers and floats count up. LangGraph's own string form (`0000.0.random`, 32 digits and a fraction) keeps its
    width, so that an adopted thread stays ordered; ours is eight hexadecimal digits.
    """
    if current is None:
        return f"{1:0{_WIDTH}x}"
    if isinstance(current, (int, float)):
        return current + 1
    head, dot, tail = current.partition(".")
    if dot:
        return f"{int(head) + 1:0{len(head)}d}.{tail}"
    return f"{int(current, 16) + 1:0{max(_WIDTH, len(current))}x}"
