"""Closing a thread against writers that passed the look at a tombstone before it was there, and have not stored yet."""

from __future__ import annotations

from stepvault._core.ids import new_uid
from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.rows import Elements, Guard, ThreadRow
from stepvault._core.state import State
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.expiry import watch

_FENCE = 24 * 3_600_000  # milliseconds for which a thread that was about to be made for an erased person stays closed


def shut(scope: Scope, key: ThreadKey, thread: ThreadRow | None) -> Op[bool]:
    """Have every write that was computed from this thread, or from its absence, refused; False if it changed.

    Such a writer looks again, and finds the tombstone. Where there is no thread, an empty one takes the place; it
    expires like any other.
    """
    if thread is None:
        from stepvault.checkpointers._ops.inbox import keeping  # which needs this module

        yield from keeping.clear(scope, [key])
        until = (yield from scope.core.dialect.now()) + _FENCE
        yield from watch(scope, key, until)
        state = State(expires_at=until, fenced=True)
        guard = Guard(key, None, new_uid(), scope.core.random(8), state.pack())
    else:
        guard = Guard(key, thread, thread.uid, scope.core.random(8), thread.extents)
    done = yield from scope.core.dialect.put_writes(guard, Elements(), ())
    scope.core.knowledge.forget(key)
    return done is not None
