"""The writer's state of a thread: one small blob in the thread row, replaced by every write.

Every write compares the revision it was read at, so whatever stands here (where numbers come from, which checkpoint
is the head, who holds the lease) holds at the moment of the commit, on every backend.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import ormsgpack

from stepvault._core.manifest import Extents
from stepvault.errors import TruncatedError

FOREVER = -1
_DAMAGED = "The state of a thread row is damaged; restore the row from a backup."
_EXPIRES_AT = 9  # its place in a packed state


class Lease(NamedTuple):
    """Who may write: one worker, until a time of the database's clock (milliseconds since 1970)."""

    token: bytes
    owner: str
    until: int


@dataclass(slots=True)
class State:
    """What a writer must know of a thread. Nothing changes one; see `plan` for why it is not frozen.

    Attributes:
        extents: Where the next element numbers come from.
        head: The newest checkpoint of the root namespace.
        pending: How many interrupts wait for an answer.
        lease: Who may write, if somebody asked for that.
        run_head: The newest root checkpoint that a run stored (not the state API).
        tick: Counts the writes that matter to the order of answers.
        answered: The tick at which a task last used an answer.
        ttl: Milliseconds this thread lives without activity; `FOREVER` if it was told that it has no end.
        expires_at: When it expires, in milliseconds since 1970 by the database's clock.
        since_trim: Checkpoints stored since its retention was last looked at.
        compacted: Its head was made by `compact_thread`.
        fenced: It holds nothing: it stands in the place of a thread that an erased person may not make.
        paused: An open pause is among what waits.
        scrubbed: How often a person was taken out of it; each time is a new generation for the runs at work.
        ttl_by_default: Its ttl is a saver's default, so the next saver with another one replaces it.
        subjects: Keys of the data subjects this thread belongs to.
    """

    extents: Extents = field(default_factory=Extents)
    head: bytes | None = None
    pending: int = 0
    lease: Lease | None = None
    subjects: tuple[bytes, ...] = ()
    run_head: bytes | None = None
    tick: int = 0
    answered: int = 0
    ttl: int | None = None
    expires_at: int | None = None
    since_trim: int = 0
    fenced: bool = False
    compacted: bool = False
    paused: bool = False
    scrubbed: int = 0
    ttl_by_default: bool = False
    packed: bytes | None = field(default=None, init=False, repr=False, compare=False)

    def pack(self) -> bytes:
        if self.packed is not None:
            return self.packed
        parts: list[Any] = [
            self.extents.parts(),
            self.head,
            self.pending,
            self.lease and list(self.lease),
            self.subjects,
            self.run_head if self.run_head != self.head else True,
        ]
        rare = (
            self.tick, self.answered, self.ttl, self.expires_at, self.since_trim,
            self.fenced, self.compacted, self.paused, self.scrubbed, self.ttl_by_default,
        )  # fmt: skip
        if any(rare):
            parts += rare
        while len(parts) > 1 and not parts[-1]:
            parts.pop()
        self.packed = ormsgpack.packb(parts)
        return self.packed

    @classmethod
    def unpack(cls, packed: bytes) -> State:
        try:
            parts: list[Any] = ormsgpack.unpackb(bytes(packed))
            parts += [None] * (16 - len(parts))
            extents, head, pending, lease, subjects, run_head, *rare = parts[:16]
            tick, answered, ttl, expires_at, since, fenced, compacted, paused, scrubbed, by_default = rare
            return cls(
                Extents.of(extents),
                head,
                pending or 0,
                Lease(*lease) if lease else None,
                tuple(subjects or ()),
                head if run_head is True else run_head,
                tick or 0,
                answered or 0,
                ttl,
                expires_at,
                since or 0,
                bool(fenced),
                bool(compacted),
                bool(paused),
                scrubbed or 0,
                bool(by_default),
            )
        except (ValueError, TypeError) as exc:
            raise TruncatedError(_DAMAGED) from exc

    def generation(self, uid: bytes) -> bytes:
        """What a run must have loaded to go on writing."""
        return uid + self.scrubbed.to_bytes(4, "big") if self.scrubbed else uid

    @staticmethod
    def head_of(packed: bytes) -> bytes | None:
        """The head alone, for who looks at many threads."""
        parts = _parts(packed)
        return parts[1] if len(parts) > 1 else None

    @staticmethod
    def subjects_of(packed: bytes) -> tuple[bytes, ...]:
        """The subjects alone, for who looks at many threads."""
        parts = _parts(bytes(packed))
        return tuple(parts[4] or ()) if len(parts) > 4 else ()

    @staticmethod
    def goes_of(packed: bytes, grace: int) -> int | None:
        """When a thread may go without a sweep: a grace (milliseconds) after its deadline, or the end of its lease.

        None: it has no deadline. 0: not as it stands, as it waits for a human.
        """
        parts = _parts(packed)
        if len(parts) <= _EXPIRES_AT or not parts[_EXPIRES_AT]:
            return None
        if parts[2]:
            return 0
        lease = Lease(*parts[3]).until if parts[3] else 0
        return int(max(parts[_EXPIRES_AT], lease)) + grace

    def with_extents(self, extents: Extents) -> State:
        return self.moved(extents, self.head, self.run_head, self.since_trim, self.compacted)

    def moved(
        self, extents: Extents, head: bytes | None, run_head: bytes | None, since_trim: int, compacted: bool
    ) -> State:
        """What `replace` would make, at a quarter of its price: every write makes one."""
        return State(
            extents, head, self.pending, self.lease, self.subjects, run_head, self.tick, self.answered,
            self.ttl, self.expires_at, since_trim, self.fenced, compacted, self.paused, self.scrubbed,
            self.ttl_by_default,
        )  # fmt: skip

    def living(self, ttl: int | None, expires_at: int | None, ttl_by_default: bool) -> State:
        """With another time to live, likewise."""
        return State(
            self.extents, self.head, self.pending, self.lease, self.subjects, self.run_head, self.tick, self.answered,
            ttl, expires_at, self.since_trim, self.fenced, self.compacted, self.paused, self.scrubbed, ttl_by_default,
        )  # fmt: skip


def _parts(packed: bytes) -> list[Any]:
    try:
        parts = ormsgpack.unpackb(packed)
        if type(parts) is list:
            return parts
    except ValueError:
        pass
    raise TruncatedError(_DAMAGED)
