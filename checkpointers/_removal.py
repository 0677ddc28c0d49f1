"""Removing threads by whose they are, where that takes a look and a comparison."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.rows import Deleted, ThreadRow
from stepvault._core.state import State


class RemovalByPerson:
    """See `Dialect`."""

    def delete_of(
        self, keys: Sequence[ThreadKey], person: bytes, beside: Collection[bytes] | None
    ) -> Op[list[Deleted | ThreadRow | None]]:
        """See `Dialect`; one that is written between the two stays."""
        found: list[Deleted | ThreadRow | None] = []
        going: list[tuple[ThreadKey, ThreadRow]] = []
        places: list[int] = []
        for key, (thread, _) in zip(keys, (yield from self.notes_at([(key, b"") for key in keys])), strict=True):
            if thread is not None and is_theirs(thread, person, beside):
                going.append((key, thread))
                places.append(len(found))
            found.append(thread)
        for place, gone in zip(places, (yield from self.delete_all(going)), strict=True):
            if gone is not None:
                found[place] = gone
        return found

    def notes_at(self, places: Sequence[tuple[ThreadKey, bytes]]) -> Op[list[tuple[ThreadRow | None, bytes | None]]]:
        """See `Dialect`."""
        raise NotImplementedError

    def delete_all(self, threads: Sequence[tuple[ThreadKey, ThreadRow]]) -> Op[list[Deleted | None]]:
        """See `Dialect`."""
        raise NotImplementedError


def is_theirs(thread: ThreadRow, person: bytes, beside: Collection[bytes] | None) -> bool:
    """Whether a thread is a person's, and of nobody but `beside` (None: anybody)."""
    people = State.subjects_of(thread.extents)
    return person in people and (beside is None or len(people) == 1 or set(people) <= {person, *beside})
