"""How a statement names the people it looks up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_FEW = 10


def one_of(marks: Sequence[bytes], args: dict[str, Any]) -> str:
    """A condition; few are plain parameters: with an array, Postgres would plan each statement anew."""
    if len(marks) > _FEW:
        args["people"] = list(marks)
        return "= ANY (%(people)s::bytea[])"
    args |= {f"mark{number}": mark for number, mark in enumerate(marks)}
    return f"IN ({', '.join(f'%(mark{number})s::bytea' for number in range(len(marks)))})"
