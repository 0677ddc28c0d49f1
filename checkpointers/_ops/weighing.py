"""What the rows of a thread take: their records and writes, and the elements that nothing else needs.

Elements are weighed without being read: each by its share of the row that it is stored in.
"""

from __future__ import annotations

from stepvault._core.codec import unpack
from stepvault._core.record import decode_record, decode_writes
from stepvault._core.rows import Removal, Skeleton
from stepvault._core.values import runs_in
from stepvault.checkpointers._ops.remove import Row, live

Runs = list[tuple[int, int]]  # first number, count


class Scales:
    """Weighs rows one after the other: each takes what those before it have not taken yet."""

    def __init__(self, thread: Skeleton) -> None:
        self._own = own_sizes(thread)
        self._runs = _runs_of(thread)
        self._shares = _shares(thread)
        self._taken: set[int] = set()

    def add(self, row: Row) -> float:
        """The bytes that this row takes beside those that were added before."""
        fresh: set[int] = set()
        for first, count in self._runs.get(row, ()):
            fresh.update(range(first, first + count))
        fresh -= self._taken
        self._taken |= fresh
        return self._own.get(row, 0) + sum(self._shares.get(number, 0) for number in fresh)


def freed(thread: Skeleton, removal: Removal) -> int:
    """The bytes that a removal gives back."""
    own, alive, shares = own_sizes(thread), live(thread, removal), _shares(thread)
    elements = sum(share for number, share in shares.items() if number not in alive)
    return sum(own.get(row, 0) for row in removal.checkpoints) + round(elements)


def own_sizes(thread: Skeleton) -> dict[Row, int]:
    """The bytes of each checkpoint's record and writes."""
    sizes = {(row.ns, row.id): len(row.body) for row in thread.checkpoints}
    for write in thread.writes:
        at = (write.ns, write.checkpoint)
        sizes[at] = sizes.get(at, 0) + len(write.body)
    return sizes


def _runs_of(thread: Skeleton) -> dict[Row, Runs]:
    """The elements that each checkpoint and its writes need."""
    runs: dict[Row, Runs] = {
        (row.ns, row.id): list(decode_record(unpack(row.body)).runs()) for row in thread.checkpoints
    }
    for write in thread.writes:
        mine = runs.setdefault((write.ns, write.checkpoint), [])
        for part in decode_writes(unpack(write.body)).writes:
            mine += runs_in(part.form)
    return runs


def _shares(thread: Skeleton) -> dict[int, float]:
    return {no: size / count for first, count, size in thread.chunks for no in range(first, first + count)}
