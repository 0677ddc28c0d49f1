"""Leases: one worker at a time, fenced in every write."""

from __future__ import annotations

from dataclasses import replace

from langgraph.checkpoint.serde.types import INTERRUPT

from stepvault._core.plan import Op
from stepvault._core.state import Lease, State
from stepvault.checkpointers._ops import permits
from stepvault.checkpointers._ops.changing import change_state
from stepvault.checkpointers._ops.context import Address, Scope
from stepvault.checkpointers._ops.inbox.renaming import present_ids
from stepvault.checkpointers._ops.load import get_tuple
from stepvault.errors import HeadMovedError


def acquire(scope: Scope, at: Address, token: bytes, owner: str, ttl: float, expect_interrupt: str | None) -> Op[None]:
    """Take the lease of a thread for `ttl` seconds; a thread that does not exist yet is made.

    Raises:
        LeaseHeldError: Another worker holds it.
        HeadMovedError: `expect_interrupt` does not wait at the head any more.
    """

    def take(state: State) -> Op[State]:
        now = yield from scope.core.dialect.now()
        if state.lease is not None and state.lease.until > now and state.lease.token != token:
            raise permits.held_by(at, state.lease)
        return replace(state, lease=Lease(token, owner, now + int(ttl * 1000)))

    yield from change_state(scope, at, take)
    if expect_interrupt is not None:
        found = yield from get_tuple(scope, replace(at, checkpoint=None, run=None))
        writes = (found.pending_writes if found else None) or []
        waiting = {
            getattr(entry, "id", None) for _, channel, value in writes if channel == INTERRUPT for entry in value
        }
        ids = yield from present_ids(scope, at.key)  # the inbox knows it by the id it was asked under
        if ids.get(expect_interrupt, expect_interrupt) not in waiting:
            yield from release(scope, at, token)
            raise HeadMovedError(f"Interrupt {expect_interrupt!r} does not wait at the head of this thread any more.")


def renew(scope: Scope, at: Address, token: bytes, ttl: float) -> Op[bool]:
    """Prolong a lease; False if it was lost."""
    kept = True

    def prolong(state: State) -> Op[State]:
        nonlocal kept
        now = yield from scope.core.dialect.now()
        kept = state.lease is not None and state.lease.token == token
        if not kept or state.lease is None:
            return state
        return replace(state, lease=Lease(token, state.lease.owner, now + int(ttl * 1000)))

    yield from change_state(scope, at, prolong)
    return kept


def release(scope: Scope, at: Address, token: bytes) -> Op[None]:
    """Give a lease back; nothing happens if it was lost."""

    def clear(state: State) -> Op[State]:
        return replace(state, lease=None) if state.lease is not None and state.lease.token == token else state
        yield

    yield from change_state(scope, at, clear)
