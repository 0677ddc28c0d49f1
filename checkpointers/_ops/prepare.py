"""What comes before any operation: tables, where the backend makes them on first use, and the right to use them."""

from __future__ import annotations

from typing import TypeVar

from stepvault._core.plan import Op
from stepvault.checkpointers._ops import admission
from stepvault.checkpointers._ops.context import Core

T = TypeVar("T")


def prepared(core: Core, op: Op[T]) -> Op[T]:
    """The operation, after what has to come before it."""
    return _after_check(core, op) if admission.is_due(core) else op


def setup(core: Core) -> Op[None]:
    """Create or migrate the tables; idempotent."""
    yield from core.dialect.setup()
    if core.keys is not None and core.keys.elsewhere is not None:
        yield from core.keys.at(core.keys.store.setup())
    core.tables.ready = True
    yield from admission.check(core)


def _after_check(core: Core, op: Op[T]) -> Op[T]:
    if core.dialect.automatic_setup and not core.tables.ready:
        yield from setup(core)
    else:
        yield from admission.check(core)
    return (yield from op)
