"""The feed of changes: numbered events, verified against the notes they tell of."""

from __future__ import annotations

from dataclasses import replace

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.rows import ThreadRow
from stepvault.checkpointers._ops.changing import change_state
from stepvault.checkpointers._ops.context import Address, Scope
from stepvault.checkpointers._ops.expiry import db_now, is_over
from stepvault.checkpointers._ops.inbox import index
from stepvault.checkpointers._ops.inbox.entries import interrupt_of
from stepvault.checkpointers._ops.inbox.index import Place
from stepvault.checkpointers._ops.inbox.queries import Found, look_up
from stepvault.errors import ConfigurationError
from stepvault.inbox import Change, ChangePage

_PAGE = 100
_PATIENCE = 2000  # milliseconds that an announced write is waited for before it is settled


def changes(scope: Scope, cursor: str | None) -> Op[ChangePage]:
    """Events after a cursor, in order, none left out.

    A page ends before an event whose write may still be under way. If that write takes long (its process was killed,
    most likely), its thread moves on to a new revision, which decides it: a living writer announces itself anew.
    """
    try:
        after = bytes.fromhex(cursor or "")
    except (ValueError, TypeError) as exc:
        raise ConfigurationError(f"cursor {cursor!r} is not one that changes() returned.") from exc
    told: list[Change] = []
    while True:
        places = yield from index.places(scope, index.EVENTS, after, _PAGE)
        unsettled: Place | None = None
        for place, (thread, hit) in zip(places, (yield from look_up(scope, places)), strict=True):
            if _happened(place, thread, hit):
                assert hit is not None
                if not (yield from is_over(scope.core, hit.thread)):
                    interrupt = interrupt_of(scope, hit.key, hit.thread.uid, hit.entry)
                    told.append(Change(place.kind, interrupt))  # type: ignore[arg-type]
            elif _may_happen(place, thread):
                unsettled = place
                break
            after = place.key
        if unsettled is None or not (yield from _settle(scope, unsettled)):
            return ChangePage(told, after.hex())


def _happened(place: Place, thread: ThreadRow | None, hit: Found | None) -> bool:
    """Whether the write of an event was stored: then its entry names the event."""
    if thread is None or hit is None or thread.uid != place.uid:
        return False
    return (int.from_bytes(place.key[1:], "big"), place.kind) in hit.stored.events


def _may_happen(place: Place, thread: ThreadRow | None) -> bool:
    return thread is not None and (thread.uid, thread.rev) == (place.uid, place.rev)


def _settle(scope: Scope, place: Place) -> Op[bool]:
    """Decide a write that has been under way for long; whether that was done."""
    announced = int.from_bytes(place.key[1:], "big") // 1000
    if (yield from db_now(scope.core)) - announced < _PATIENCE:
        return False
    at = Address(ThreadKey(scope.tenant, place.thread), b"", None, None)

    def move_on(state):  # type: ignore[no-untyped-def]
        return replace(state)
        yield

    yield from change_state(scope, at, move_on, create=False)
    return True
