"""When a thread expires, and what that means for who reads and writes.

The deadline stands in the thread's state, so each write moves it under the thread's revision. A doc per thread in the
space `expiry`, ordered by time, says when to look at it; it is written once, and moved only by the sweep that finds
the thread active.
"""

from __future__ import annotations

import hashlib

from stepvault._core.knowledge import ThreadKey
from stepvault._core.numbers import check_minutes
from stepvault._core.plan import Op
from stepvault._core.rows import DocChange, ThreadRow
from stepvault._core.state import FOREVER, State
from stepvault.checkpointers._ops.context import TTL_KEY, Address, Core, Scope
from stepvault.checkpointers._ops.spaces import space

SPACE = "expiry"
_RESYNC = 60.0
MINUTE = 60_000


def db_now(core: Core) -> Op[int]:
    """Milliseconds since 1970 by the database's clock."""
    clock, now = core.clock, core.monotonic()
    if now - clock.at > _RESYNC:
        clock.base = yield from core.dialect.now()
        clock.at = now = core.monotonic()
    return clock.base + int((now - clock.at) * 1000)


def is_expired(core: Core, state: State) -> Op[bool]:
    """Whether a thread's time is over; one that waits for a human is not, unless told otherwise."""
    if state.expires_at is None or (state.pending and core.ttl.pin_interrupted):
        return False
    now = yield from db_now(core)
    return now >= state.expires_at and not is_held(state, now)


def is_held(state: State, now: int) -> bool:
    """Whether a worker holds the thread's lease: it is at work, even if it has not written for a thread's lifetime."""
    return state.lease is not None and now < state.lease.until


def is_over(core: Core, thread: ThreadRow) -> Op[bool]:
    """Whether a thread as it was read has expired: to its users it is not there, whenever the next sweep is."""
    return (yield from is_expired(core, State.unpack(thread.extents)))


def touched(scope: Scope, at: Address, state: State) -> Op[State]:
    """The state with the deadline that activity now gives it; makes sure that a sweep looks at the thread."""
    ttl, by_default = _ttl_of(scope, at, state)
    if ttl is None or ttl == FOREVER:
        if (state.ttl, state.expires_at, state.ttl_by_default) == (ttl, None, False):
            return state
        return state.living(ttl, None, False)
    now = yield from db_now(scope.core)
    if state.expires_at is None:
        yield from watch(scope, at.key, now + ttl)
    return state.living(ttl, now + ttl, by_default)


def _ttl_of(scope: Scope, at: Address, state: State) -> tuple[int | None, bool]:
    """Milliseconds, and whether they are a default.

    What the config says, else what the thread was told before, else the default of this saver, else the one that the
    thread has of another: a saver without `ttl` is no reason to keep personal data for ever.
    """
    if at.ttl is not None:
        minutes = check_minutes(TTL_KEY, at.ttl.minutes)
        return (FOREVER if minutes is None else int(minutes * MINUTE)), False
    if state.ttl is not None and not state.ttl_by_default:
        return state.ttl, False
    default = scope.core.ttl.default_ttl
    return (state.ttl if default is None else int(default * MINUTE)), True


def watch(scope: Scope, key: ThreadKey, when: int) -> Op[None]:
    """Have a sweep look at a thread at a time."""
    yield from scope.core.dialect.write_docs(space(scope, SPACE), [watching(scope, key, when)])


def watching(scope: Scope, key: ThreadKey, when: int) -> DocChange:
    """What has a sweep look at a thread at a time."""
    mark = scope.mark(hashlib.blake2b(key.thread, digest_size=8).digest())[:8]
    return DocChange(when.to_bytes(8, "big") + mark, key.thread, scope.core.random(8))
