"""Who may read and write: leases, and the head that a run started from.

The writer's state is compared by its revision in every write, so what is checked here holds at the commit.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from stepvault._core.ids import text_of
from stepvault._core.knowledge import View
from stepvault._core.plan import Op
from stepvault._core.state import Lease, State
from stepvault.checkpointers._ops.context import Address, Scope
from stepvault.errors import FencedError, HeadMovedError, LeaseHeldError

logger = logging.getLogger("stepvault")

_LOST = 1024


def may_write(scope: Scope, at: Address, view: View | None) -> Op[None]:
    """Let a write through, or say why not.

    Raises:
        FencedError: This worker's lease is not the thread's lease any more.
        LeaseHeldError: Another worker holds the lease.
        HeadMovedError: Another run moved the head since this run loaded it, and conflicts raise.
    """
    state = view.state if view else State()
    if at.lease is not None or state.lease is not None:
        yield from _check_lease(scope, at, view, state)
    if at.run is not None and not at.ns and at.run.was_overtaken(at.key, state.run_head):
        _head_moved(scope, at, state)


def is_restricted(at: Address, view: View | None) -> bool:
    """Whether `may_write` has something to look at."""
    return at.run is not None or at.lease is not None or (view is not None and view.state.lease is not None)


def is_doubtful(at: Address, view: View) -> bool:
    """Whether a view speaks against a write: it may be older than what this process has stored, so read it again."""
    lease = view.state.lease
    if (at.lease or lease) and (lease is None or lease.token != at.lease):
        return True
    return at.run is not None and not at.ns and at.run.was_overtaken(at.key, view.state.run_head)


def _check_lease(scope: Scope, at: Address, view: View | None, state: State) -> Op[None]:
    lease = state.lease
    if at.lease is not None:
        if lease is None or lease.token != at.lease:
            lose(scope, at.lease)
            scope.tell("conflict", "fenced", at.key)
            raise FencedError(
                f"This worker's lease of thread {text_of(at.key.thread)!r} was lost; nothing was stored. Stop the run."
            )
        return
    assert lease is not None
    assert view is not None
    if (yield from scope.core.dialect.now()) < lease.until:
        raise held_by(scope, at, lease)
    view.state = replace(state, lease=None)  # run out: the write that comes now clears it


def lose(scope: Scope, token: bytes) -> None:
    """Note a lost lease, so that its run stops at its next step (`get_next_version`)."""
    scope.core.lost[token] = None
    while len(scope.core.lost) > _LOST:
        scope.core.lost.popitem(last=False)


def held_by(scope: Scope, at: Address, lease: Lease) -> LeaseHeldError:
    """The error of a caller without the lease."""
    scope.tell("conflict", "lease_held", at.key)
    return LeaseHeldError(
        f"Thread {text_of(at.key.thread)!r} is leased by {lease.owner}; nothing was stored. Wait for it, or take the "
        "lease with saver.lease() once it has run out."
    )


def _head_moved(scope: Scope, at: Address, state: State) -> None:
    assert at.run is not None
    thread = text_of(at.key.thread)
    scope.tell("conflict", "fork" if scope.core.on_conflict == "fork" else "head_moved", at.key)
    if scope.core.on_conflict == "raise":
        raise HeadMovedError(
            f"Another run stored a checkpoint in thread {thread!r} since this run loaded it; nothing was stored. "
            "Load the thread again and repeat, or hold saver.lease() around runs."
        )
    logger.warning("Two runs write thread %r at once; the one that started earlier becomes a fork.", thread)
    at.run.heads[at.key] = state.run_head


def may_load(scope: Scope, at: Address, state: State) -> Op[None]:
    """Stop a run before its first node if the thread is leased to another; reading by anyone else is free.

    Raises:
        FencedError, LeaseHeldError: As for writes.
    """
    if at.run is None or (state.lease is None and at.lease is None):
        return
    yield from _check_lease(scope, at, View(None, b"", b"", state), state)
