"""What databases with transactions have in common: a thread that is locked stands still until the transaction ends."""

from __future__ import annotations

from collections.abc import Sequence

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.rows import Guard, Hold, ThreadRow
from stepvault.checkpointers._removal import RemovalByPerson


class Locking(RemovalByPerson):
    """See `Dialect`."""

    locks = True

    def finish_copy(self, guard: Guard, hold: Hold | None = None) -> Op[bool]:
        """See `Dialect`."""
        return True
        yield

    def hold(self, hold: Hold, *, again: bool = False) -> Op[bool]:
        """See `Dialect`."""
        return True
        yield

    def remains(self, keys: Sequence[ThreadKey]) -> Op[list[ThreadRow | None]]:
        """See `Dialect`: no thread goes by itself."""
        return [None] * len(keys)
        yield

    def warnings(self) -> Op[list[str]]:
        """See `Dialect`."""
        return []
        yield

    def let_go(self, hold: Hold) -> Op[None]:
        """See `Dialect`."""
        return
        yield
