"""Calling code of a class on stored values, which it need not understand and must not change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

# What code says that was given data it does not expect. Anything else (no network, no memory) is no matter of data.
NOT_ITS_DATA: Final = (TypeError, ValueError, LookupError, AttributeError, AssertionError)


def constructed(cls: Any, arguments: dict[str, Any], *, generated: bool = False) -> Any:
    """Return `cls(**arguments)`, or a bare object where the class refuses what it once made.

    A constructor may turn a str into a date, and fail when it is given the date. The caller sets the stored fields.
    A generated one runs no code that changes its arguments in place.
    """
    try:
        if generated:
            return cls(**arguments)
        return undisturbed(lambda: cls(**arguments), arguments.values())
    except NOT_ITS_DATA:
        return cls.__new__(cls)


def undisturbed(call: Callable[[], Any], values: Iterable[Any]) -> Any:
    """Call, and undo what it did to these values in place: a `__post_init__` may append to its own list."""
    kept = _copies(values)
    try:
        return call()
    finally:
        for value, was in kept:
            value.clear()
            (value.extend if type(value) is list else value.update)(was)


def _copies(values: Iterable[Any]) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    for value in values:
        cls = type(value)
        if cls is list or cls is dict or cls is set:
            found.append((value, value.copy()))
        if cls is list or cls is tuple:
            found += _copies(value)
        elif cls is dict:
            found += _copies(value.values())
    return found
