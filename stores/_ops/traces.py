"""Whether two stores look at one database: what one leaves behind, the other finds. URLs have too many spellings."""

from __future__ import annotations

from typing import Any, TypeVar

from stepvault._core.plan import Op
from stepvault.errors import MigrationRequiredError
from stepvault.stores._dialect import NOBODY, Dialect, NewItem, Work
from stepvault.stores._ops.context import Core

T = TypeVar("T")
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


def adopted(core: Core, op: Op[T]) -> Op[T]:
    """The operation, if what `adopt_from=` names was taken over.

    Raises:
        MigrationRequiredError: It was not.
    """
    trace = core.wired.unadopted
    if trace is not None and not (yield from is_there(core.dialect, trace)):
        raise MigrationRequiredError(
            "What adopt_from= names was not taken over yet: call vault.setup() once, or await vault.asetup()."
        )
    core.wired.unadopted = None
    return (yield from op)


def _inner(dialect: Any) -> Dialect:
    return getattr(dialect, "inner", dialect)  # type: ignore[no-any-return]  # a trace is nothing to seal
