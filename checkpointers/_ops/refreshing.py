"""Moving deadlines without a write of the graph: reads that count as activity, and a default given afterwards."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from stepvault._core.ids import id_key
from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.state import State
from stepvault.checkpointers._ops import load, verifying
from stepvault.checkpointers._ops.changing import change_state
from stepvault.checkpointers._ops.context import Address, Scope, thread_of
from stepvault.checkpointers._ops.expiry import SPACE, db_now, touched, watch, watching
from stepvault.checkpointers._ops.inbox import pausing
from stepvault.checkpointers._ops.listing import Listing
from stepvault.checkpointers._ops.listing import page as pages
from stepvault.checkpointers._ops.spaces import space

_PAGE = 100
# Of its time: a deadline is moved once a tenth of it has passed, not at every read. A run will most likely write soon;
# one that has less than half left is given more, as its first node may take long.
_WORTH, _WORTH_IN_RUNS = 0.9, 0.5


def get_tuple(scope: Scope, at: Address) -> Op[CheckpointTuple | None]:
    """One checkpoint; reading it moves the deadline of its thread, if it has one and reads count."""
    known = scope.core.knowledge.of(at.key)
    found = yield from verifying.explained(scope, at, load.get_tuple(scope, at, known))
    view = known.view
    if found is not None and at.run is not None and not at.ns and view is not None and view.state.paused:
        yield from pausing.take(scope, at, id_key("checkpoint_id", found.checkpoint["id"]))
    if found is not None and view is not None:
        yield from _refresh(scope, at, view.state)
    return found


def page(scope: Scope, listing: Listing) -> Op[tuple[list[CheckpointTuple], Listing]]:
    """A page of a list; looking through the history of a thread counts as reading it."""
    query = listing.query
    found, rest = yield from pages(scope, listing)
    if found and rest.read is not None and query is not None and query.thread is not None and query.checkpoint is None:
        yield from _refresh(scope, Address(ThreadKey(scope.tenant, query.thread), b"", None, None), rest.read)
    return found, rest


def _refresh(scope: Scope, at: Address, state: State) -> Op[None]:
    """Move the deadline of a thread that was read, if that is worth a write."""
    if state.expires_at is None or not scope.core.ttl.refresh_on_read:
        return
    left, lifetime = state.expires_at - (yield from db_now(scope.core)), _lifetime(scope, state)
    if lifetime and left < (_WORTH if at.run is None else _WORTH_IN_RUNS) * lifetime:
        yield from change_state(scope, at, lambda state: touched(scope, at, state), create=False)


def _lifetime(scope: Scope, state: State) -> float | None:
    """How long it lives; None if a reader does not count: a support tool without `ttl` that looks at it."""
    if state.ttl is not None and not state.ttl_by_default:
        return state.ttl
    return None if scope.core.ttl.default_ttl is None else scope.core.ttl.default_ttl * 60_000


def apply_default(scope: Scope, after: Any, limit: int | None) -> Op[tuple[int, Any]]:
    """Give a page of threads the default deadline, if they have none, counted from when they were last written.

    Returns how many got one, and where the next page starts (None: there is none).
    """
    done = 0
    rows = yield from scope.core.dialect.threads(scope.tenant, _PAGE, after)
    for row in rows:
        if limit is not None and done >= limit:
            return done, None
        at = Address(ThreadKey(scope.tenant, row.thread), b"", None, None)
        done += yield from change_state(scope, at, partial(_given, scope, at, row.updated_at), create=False)
    return done, rows[-1].no if len(rows) == _PAGE else None


def standing(scope: Scope, key: ThreadKey) -> Op[State | None]:
    """The state of a thread."""
    thread = yield from thread_of(scope, key)
    return None if thread is None else State.unpack(thread.extents)


def inherit(scope: Scope, key: ThreadKey, of: State) -> Op[None]:
    """Give a copy the time that its original has, unless it has one of its own by now."""

    def change(state: State) -> Op[State]:
        if state.ttl is not None and (of.ttl_by_default or not state.ttl_by_default):
            return state
        if of.expires_at is not None:
            yield from watch(scope, key, of.expires_at)
        return replace(state, ttl=of.ttl, expires_at=of.expires_at, ttl_by_default=of.ttl_by_default)

    yield from change_state(scope, Address(key, b"", None, None), change, create=False)


def rewatch(scope: Scope, after: Any) -> Op[tuple[int, Any]]:
    """Have sweeps look at a page of threads that have a deadline, in case the database has lost that they should.

    Returns how many there are, and where the next page starts (None: there is none).
    """
    rows = yield from scope.core.dialect.threads(scope.tenant, _PAGE, after)
    states = [(ThreadKey(scope.tenant, row.thread), State.unpack(row.extents)) for row in rows if row.extents]
    changes = [watching(scope, key, state.expires_at) for key, state in states if state.expires_at is not None]
    if changes:
        yield from scope.core.dialect.write_docs(space(scope, SPACE), changes)
    return len(changes), rows[-1].no if len(rows) == _PAGE else None


def _given(scope: Scope, at: Address, written: int, state: State) -> Op[State]:
    if state.expires_at is not None or state.fenced:
        return state
    after = yield from touched(scope, at, replace(state, expires_at=0))
    if after.expires_at is None:
        return state
    idle = max(0, (yield from db_now(scope.core)) - written)
    yield from watch(scope, at.key, after.expires_at - idle)
    return replace(after, expires_at=after.expires_at - idle)
