"""Whether two stores look at one database: what one leaves behind, the other finds. URLs have too many spellings."""

from __future__ import annotations

from typing import Any

from stepvault._core.plan import Op
from stepvault.stores._dialect import NOBODY, Dialect, NewItem, Work

_SPACE = b"vault\0"


def leave(dialect: Any, trace: bytes) -> Op[None]:
    """Leave a trace."""
    item = NewItem(_SPACE, trace, None, None, None, None, None, "", (), b"")
    yield from _inner(dialect).work(NOBODY, Work(puts=[item]))


def is_there(dialect: Any, trace: bytes) -> Op[bool]:
    """Whether it is found here."""
    (row,) = (yield from _inner(dialect).work(NOBODY, Work(gets=[(_SPACE, trace)]))).gets
    return row is not None


def remove(dialect: Any, trace: bytes) -> Op[None]:
    """Take it away."""
    yield from _inner(dialect).work(NOBODY, Work(deletes=[(_SPACE, trace)]))


def _inner(dialect: Any) -> Dialect:
    return getattr(dialect, "inner", dialect)  # type: ignore[no-any-return]  # a trace is nothing to seal
