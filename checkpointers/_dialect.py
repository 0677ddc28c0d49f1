"""What a checkpointer backend provides: its storage primitives as operations, nothing else.

Primitives decide nothing: a guarded write either commits whole or leaves everything as it was and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.rows import (
    CheckpointRow,
    Elements,
    Guard,
    Held,
    Loaded,
    Query,
    Removal,
    Skeleton,
    ThreadRow,
    ThreadSummary,
    WriteRow,
)


class Dialect(Protocol):
    """Storage primitives of one backend."""

    automatic_setup: bool  # tables are made on first use, as the official package of this backend does
    locks: bool  # `lock` holds other writers of the thread off until the transaction ends

    def setup(self) -> Op[None]:
        """Create or migrate the tables; idempotent, safe with many callers at once."""
        ...

    def lock(self, key: ThreadKey) -> Op[None]:
        """Inside a write transaction: hold off other writers of the thread."""
        ...

    def load(self, key: ThreadKey, ns: bytes, checkpoint: bytes | None, held: Held | None) -> Op[Loaded]:
        """One checkpoint (the newest of its namespace if none is named) with its writes and elements."""
        ...

    def page(self, query: Query) -> Op[list[tuple[ThreadKey, Loaded]]]:
        """The newest checkpoints of a query, grouped by thread in order."""
        ...

    def put(self, guard: Guard, elements: Elements, row: CheckpointRow, tokens: Sequence[bytes]) -> Op[Any]:
        """Store a checkpoint, replacing one of the same id. Returns the thread's `no`, or None if refused."""
        ...

    def put_writes(self, guard: Guard, elements: Elements, rows: Sequence[WriteRow]) -> Op[tuple[Any, bool] | None]:
        """Store writes; an ordinary row (`k >= 0`) that exists stays, a special one is replaced.

        Returns the thread's `no` and whether every ordinary row was new; None if refused.
        """
        ...

    def delete(self, key: ThreadKey) -> Op[int]:
        """Remove a thread whole; the number of its checkpoints (0: there was none)."""
        ...

    def skeleton(self, key: ThreadKey) -> Op[Skeleton | None]:
        """A thread's rows without elements, from one snapshot."""
        ...

    def chunks(self, thread: ThreadRow, numbers: Sequence[int]) -> Op[Loaded]:
        """Element rows by the number of their first element."""
        ...

    def remove(self, guard: Guard, removal: Removal) -> Op[bool]:
        """Take rows out of a thread; False if refused."""
        ...

    def copy(self, source: ThreadRow, guard: Guard) -> Op[bool]:
        """Copy every row of `source` into the new thread of `guard`; False if the target exists."""
        ...

    def threads_of_runs(self, tenant: bytes, runs: Sequence[bytes]) -> Op[list[ThreadKey]]:
        """Threads that hold rows of these runs."""
        ...

    def threads(self, tenant: bytes, limit: int, after: Any) -> Op[list[ThreadSummary]]:
        """One page of the thread overview, newest first."""
        ...
