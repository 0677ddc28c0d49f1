"""The writer's state of a thread."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from stepvault._core.manifest import Extents
from stepvault._core.state import Lease, State

FULL: dict[str, Any] = {
    "extents": Extents(65, {3: (2, 65, 64)}),
    "head": b"1",
    "pending": 2,
    "lease": Lease(b"token", "ann", 5),
    "subjects": (b"a", b"b"),
    "run_head": b"0",
    "tick": 3,
    "answered": 2,
    "ttl": 60,
    "expires_at": 70,
    "since_trim": 4,
    "fenced": True,
    "compacted": True,
    "paused": True,
    "scrubbed": 6,
    "ttl_by_default": True,
}


def test_every_field_is_packed() -> None:
    state = State(**FULL)
    assert {field.name for field in fields(State) if field.init} == FULL.keys()
    assert State.unpack(state.pack()) == state
    assert State.unpack(State().pack()) == State()


def test_what_is_not_named_stays_when_it_moves() -> None:
    state = State(**FULL)
    state.pack()
    moved = state.moved(Extents(129), b"7", b"8", 9, False)
    changed = {"extents": Extents(129), "head": b"7", "run_head": b"8", "since_trim": 9, "compacted": False}
    assert moved == State(**{**FULL, **changed})
    assert State.unpack(moved.pack()) == moved
    assert state.with_extents(Extents(129)) == State(**{**FULL, "extents": Extents(129)})
