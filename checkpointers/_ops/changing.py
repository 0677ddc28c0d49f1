"""Changing nothing of a thread but its state: leases, deadlines."""

from __future__ import annotations

from collections.abc import Callable

from stepvault._core.knowledge import View
from stepvault._core.plan import Op
from stepvault._core.rows import Elements
from stepvault._core.state import State
from stepvault.checkpointers._ops.context import Address, Scope
from stepvault.checkpointers._ops.guarded import encoder_for, guard_for, settle, state_of, store


def change_state(scope: Scope, at: Address, change: Callable[[State], Op[State]], *, create: bool = True) -> Op[bool]:
    """Compare-and-set the state of a thread; a `change` that returns its argument writes nothing.

    Returns whether something was written. Without `create` a thread that is not there stays so.
    """
    known = scope.core.knowledge.of(at.key)

    def attempt(view: View | None) -> Op[bool | None]:
        before = state_of(view)
        after = before if view is None and not create else (yield from change(before))
        if after is before:
            return False
        guard = guard_for(scope, at, view, after)
        stored = yield from scope.core.dialect.put_writes(guard, Elements(), ())
        if stored is None:
            return None
        settle(at, known, view, guard, stored[0], after, encoder_for(scope, view, 0))
        return True

    return (yield from store(scope, at, known, attempt, lambda view: False, None, check=False))
