"""Where there are no locks: having the writers of a thread wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.rows import Hold
from stepvault.checkpointers._dialect import Dialect
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.waiting import STOPPED

T = TypeVar("T")

HOLD = 20.0  # seconds for which a thread is held if whoever holds it dies


@dataclass(slots=True)
class Holding:
    """A thread that stands still for one at work with it, where there are no locks.

    Attributes:
        dialect: Where it is, as it is stored.
        hold: What its writers wait for.
        clock: Seconds that only grow.
        since: When it was last prolonged.
    """

    dialect: Dialect
    hold: Hold
    clock: Callable[[], float]
    since: float = float("-inf")

    @classmethod
    def of(cls, scope: Scope, dialect: Dialect, key: ThreadKey) -> Holding:
        return cls(dialect, Hold(key, scope.core.random(8), HOLD), scope.core.monotonic)

    def take(self) -> Op[bool]:
        """Begin; False if somebody else holds it, or it is not there."""
        since = self.clock()
        if not (yield from self.dialect.hold(self.hold)):
            return False
        self.since = since
        return True

    def keep(self) -> Op[bool]:
        """Hold it for longer if it was long ago that this was asked; False if it was lost."""
        since = self.clock()
        if since - self.since > self.hold.seconds / 6:
            if not (yield from self.dialect.hold(self.hold, again=True)):
                return False
            self.since = since
        return True

    def lasted(self) -> bool:
        """Whether nobody can have had it meanwhile."""
        return self.clock() - self.since < self.hold.seconds * 0.9

    def during(self, op: Op[T]) -> Op[T]:
        """Do something; if it fails or is cancelled, nobody waits for the hold to run out."""
        try:
            return (yield from op)
        except STOPPED:
            yield from self.end()
            raise

    def end(self) -> Op[None]:
        """Let the others go on."""
        yield from self.dialect.let_go(self.hold)


def turn(scope: Scope, key: ThreadKey) -> Op[Holding | None]:
    """Hold a thread for what takes longer than a write, or for one's own write, which names the holder.

    Otherwise whoever writes without pause would always be first: he knows the thread already, others have to read it.
    The caller ends it.
    """
    if scope.core.dialect.locks:
        return None
    holding = Holding.of(scope, scope.core.dialect, key)
    return holding if (yield from holding.during(holding.take())) else None
