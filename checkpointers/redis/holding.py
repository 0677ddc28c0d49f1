"""Having the writers of a thread wait, as there are no locks: for what takes several calls."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from stepvault._core.plan import Batch, Op, Script
from stepvault.checkpointers._ops.waiting import STOPPED
from stepvault.errors import ConflictError

T = TypeVar("T")

HOLD_MS = 20_000  # for which they wait if whoever has them wait dies
_ATTEMPTS, _HOLD_AFTER = 32, 4  # to read a thread, and without holding it


class Holds:
    """Holds of threads, by the addresses of these."""

    def _hold(self, address: bytes, holder: bytes, millis: int, *, again: bool = False) -> Op[bool]:
        (done,) = yield Batch([Script("hold", (address,), (holder, millis, int(again)))], retry=True)
        return bool(done)

    def _let_go(self, address: bytes, holder: bytes) -> Op[None]:
        yield Batch([Script("let_go", (address,), (holder,))], retry=True)

    def _steady(self, address: bytes, attempt: Callable[[], Op[T | None]]) -> Op[T]:
        """Repeat a read of several calls until the thread stood still meanwhile: after a few times its writers wait.

        While somebody else holds it, it stands still too.
        """
        for tries in range(_ATTEMPTS):
            holder = os.urandom(8)
            held = tries >= _HOLD_AFTER and (yield from self._hold(address, holder, HOLD_MS))
            try:
                result = yield from attempt()
            except STOPPED:
                if held:
                    yield from self._let_go(address, holder)
                raise
            if held:
                yield from self._let_go(address, holder)
            if result is not None:
                return result
        raise ConflictError("A thread is rewritten without pause; repeat later.")
