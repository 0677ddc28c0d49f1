"""Leases: one worker at a time, fenced in every write."""

from __future__ import annotations

from dataclasses import replace

from langgraph.checkpoint.serde.types import INTERRUPT

from stepvault._core.ids import id_key
from stepvault._core.plan import Op
from stepvault._core.state import Lease, State
from stepvault.checkpointers._ops import permits
from stepvault.checkpointers._ops.changing import change_state
from stepvault.checkpointers._ops.context import Address, Scope
from stepvault.checkpointers._ops.inbox import pausing
from stepvault.checkpointers._ops.inbox.renaming import present_ids
from stepvault.checkpointers._ops.inbox.upkeep import interrupts_in
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
            raise permits.held_by(scope, at, state.lease)
        return replace(state, lease=Lease(token, owner, now + int(ttl * 1000)))

    yield from change_state(scope, at, take)
    if expect_interrupt is not None and not (yield from _waits(scope, at, expect_interrupt)):
        yield from release(scope, at, token)
        scope.tell("conflict", "head_moved", at.key)
        raise HeadMovedError(f"Interrupt {expect_interrupt!r} does not wait at the head of this thread any more.")


def _waits(scope: Scope, at: Address, interrupt_id: str) -> Op[bool]:
    """Whether an interrupt waits at the head: a question by what is stored with it, a pause by the inbox."""
    interrupt_id = interrupt_id.partition(":")[0]  # as LangGraph names it, also if the inbox of a copy does not
    found = yield from get_tuple(scope, replace(at, checkpoint=None, run=None))
    if found is None:
        return False
    writes = [value for _, channel, value in found.pending_writes or [] if channel == INTERRUPT]
    waiting = {getattr(entry, "id", None) for value in writes for entry in interrupts_in(value)}
    ids = yield from present_ids(scope, at.key)  # the inbox knows it by the id it was asked under
    if ids.get(interrupt_id, interrupt_id) in waiting:
        return True
    return (yield from pausing.waits(scope, at.key, id_key("checkpoint_id", found.checkpoint["id"]), interrupt_id))


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
