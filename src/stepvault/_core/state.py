"""The writer's state of a thread: one small blob in the thread row, replaced by every write.

Every write compares the revision it was read at, so whatever stands here (where numbers come from, which checkpoint
is the head, who holds the lease) holds at the moment of the commit, on every backend.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import ormsgpack

from stepvault._core.manifest import Extents
from stepvault.errors import TruncatedError


class Lease(NamedTuple):
    """Who may write: one worker, until a time of the database's clock (milliseconds since 1970)."""

    token: bytes
    owner: str
    until: int


@dataclass(frozen=True, slots=True)
class State:
    """What a writer must know of a thread.

    Attributes:
        extents: Where the next element numbers come from.
        head: The newest checkpoint of the root namespace.
        pending: How many interrupts wait for an answer.
        lease: Who may write, if somebody asked for that.
        subjects: Keys of the data subjects this thread belongs to.
    """

    extents: Extents = field(default_factory=Extents)
    head: bytes | None = None
    pending: int = 0
    lease: Lease | None = None
    subjects: tuple[bytes, ...] = ()

    def pack(self) -> bytes:
        parts = [self.extents.parts(), self.head, self.pending, self.lease and list(self.lease), list(self.subjects)]
        while len(parts) > 1 and not parts[-1]:
            parts.pop()
        return ormsgpack.packb(parts)

    @classmethod
    def unpack(cls, packed: bytes) -> State:
        try:
            parts: list[Any] = [*ormsgpack.unpackb(bytes(packed)), *(None,) * 4]
            lease = Lease(*parts[3]) if parts[3] else None
            return cls(Extents.of(parts[0]), parts[1], parts[2] or 0, lease, tuple(parts[4] or ()))
        except (ValueError, TypeError) as exc:
            raise TruncatedError("The state of a thread row is damaged; restore the row from a backup.") from exc

    def with_extents(self, extents: Extents) -> State:
        return replace(self, extents=extents)
