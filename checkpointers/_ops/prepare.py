"""Tables before anything else, where the backend makes them on first use."""

from __future__ import annotations

from typing import TypeVar

from stepvault._core.plan import Op
from stepvault.checkpointers._ops.context import Core

T = TypeVar("T")


def prepared(core: Core, op: Op[T]) -> Op[T]:
    """The operation, after `setup` if this saver has not seen the tables yet."""
    return op if core.tables.ready or not core.dialect.automatic_setup else _after_setup(core, op)


def setup(core: Core) -> Op[None]:
    """Create or migrate the tables; idempotent."""
    yield from core.dialect.setup()
    core.tables.ready = True


def _after_setup(core: Core, op: Op[T]) -> Op[T]:
    yield from setup(core)
    return (yield from op)
