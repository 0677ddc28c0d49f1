"""What the rows of a thread take: their records and writes, and the elements that nothing else needs.

Elements are weighed without being read: each by its share of the row that it is stored in.
"""

from __future__ import annotations

from stepvault._core.rows import Removal, Skeleton
from stepvault.checkpointers._ops.remove import Row, live, needs

Run = tuple[int, int]  # first number, count


class Scales:
    """Weighs rows one after the other: each takes what those before it have not taken yet."""

    def __init__(self, thread: Skeleton) -> None:
        self._own = own_sizes(thread)
        self._shares = _shares(thread)
        self._runs: dict[Row, set[Run]] = {}
        for (ns, checkpoint, *_), runs in needs(thread).items():
            self._runs.setdefault((ns, checkpoint), set()).update(runs)
        self._ends: dict[int, int] = {}  # of runs, by where they begin: those of a list that grows begin alike

    def add(self, row: Row) -> float:
        """The bytes that this row takes beside those that were added before."""
        taken = 0.0
        for first, count in self._runs.get(row, ()):
            start, end = self._ends.get(first, first), first + count
            for number in range(start, end):
                taken += self._shares.pop(number, 0)
            self._ends[first] = max(start, end)
        return self._own.get(row, 0) + taken


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


def _shares(thread: Skeleton) -> dict[int, float]:
    return {no: size / count for first, count, size in thread.chunks for no in range(first, first + count)}
