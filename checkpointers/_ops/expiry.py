"""When a thread expires, what that means for who reads and writes, and the sweep that removes it.

The deadline stands in the thread's state, so each write moves it under the thread's revision. A doc per thread in the
space `expiry`, ordered by time, says when to look at it; it is written once, and moved only by the sweep that finds
the thread active.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import timedelta
from typing import Any

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.rows import DocChange
from stepvault._core.state import State
from stepvault.checkpointers._ops.context import TTL_KEY, Address, Core, Scope
from stepvault.checkpointers._ops.inbox.index import space
from stepvault.ttl import SweepReport, check_minutes

_SPACE = "expiry"
_RESYNC = 60.0
_BATCH = 100
_MINUTE = 60_000


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
    return (yield from db_now(core)) >= state.expires_at


def touched(scope: Scope, at: Address, state: State) -> Op[State]:
    """The state with the deadline that activity now gives it; makes sure that a sweep looks at the thread."""
    ttl = _ttl_of(scope, at, state)
    if ttl is None:
        return state if state.expires_at is None else replace(state, ttl=None, expires_at=None)
    now = yield from db_now(scope.core)
    if state.expires_at is None:
        yield from _watch(scope, at.key, now + ttl)
    return replace(state, ttl=ttl if at.ttl is not None else state.ttl, expires_at=now + ttl)


def _ttl_of(scope: Scope, at: Address, state: State) -> int | None:
    """Milliseconds: what the config says, else what the thread was told before, else the default."""
    if at.ttl is not None:
        minutes = check_minutes(TTL_KEY, at.ttl.minutes)
        return None if minutes is None else int(minutes * _MINUTE)
    if state.ttl is not None:
        return state.ttl
    return None if scope.core.ttl.default_ttl is None else int(scope.core.ttl.default_ttl * _MINUTE)


def _watch(scope: Scope, key: ThreadKey, when: int) -> Op[None]:
    change = DocChange(_doc_key(key, when), key.thread, scope.core.random(8))
    yield from scope.core.dialect.write_docs(space(scope, _SPACE), [change])


def _doc_key(key: ThreadKey, when: int) -> bytes:
    return when.to_bytes(8, "big") + hashlib.blake2b(key.thread, digest_size=8).digest()


def sweep(scope: Scope, limit: int | None, *, dry_run: bool) -> Op[SweepReport]:
    """Remove expired threads, oldest deadline first. Any number of sweeps may run at once: each thread goes once."""
    core = scope.core
    began = core.monotonic()
    removed = checkpoints = kept = 0
    after = b""
    while True:
        now = yield from core.dialect.now()
        docs = yield from core.dialect.docs(space(scope, _SPACE), b"", after, _BATCH)
        due = [doc for doc in docs if int.from_bytes(doc.key[:8], "big") <= now]
        for doc in due:
            after = doc.key
            gone = yield from _sweep_one(scope, ThreadKey(scope.tenant, doc.body), doc.key, now, dry_run)
            if gone is None:
                kept += 1
                continue
            removed += 1
            checkpoints += gone
            if limit is not None and removed >= limit:
                return SweepReport(removed, checkpoints, kept, _took(core, began), True)
        if len(due) < _BATCH:
            return SweepReport(removed, checkpoints, kept, _took(core, began), False)


def _took(core: Core, began: float) -> timedelta:
    return timedelta(seconds=core.monotonic() - began)


def _sweep_one(scope: Scope, key: ThreadKey, doc: bytes, now: int, dry_run: bool) -> Op[int | None]:
    """Remove a thread if its time is over: its checkpoints, or None if it stays."""
    core = scope.core
    loaded = yield from core.dialect.load(key, b"", b"\x00", None)
    if loaded.thread is None:
        if not dry_run:
            yield from _unwatch(scope, doc)
        return None
    state = State.unpack(loaded.thread.extents)
    pinned = state.pending and core.ttl.pin_interrupted
    if state.expires_at is None or state.expires_at > now or pinned:
        if not dry_run:
            if state.expires_at is not None:
                yield from _watch(scope, key, max(state.expires_at, now + _MINUTE if pinned else 0))
            yield from _unwatch(scope, doc)
        return None
    if dry_run:
        return 0
    removed = yield from core.dialect.delete(key, loaded.thread.rev)
    if removed is None:
        return None  # active at this very moment: the next sweep looks again
    core.knowledge.forget(key)
    yield from _unwatch(scope, doc)
    return removed


def _unwatch(scope: Scope, doc: bytes) -> Op[Any]:
    return (yield from scope.core.dialect.write_docs(space(scope, _SPACE), [DocChange(doc, None, b"")]))
