"""What a vault does to become sealed, and to be so no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from stepvault.checkpointers._conversion import SETTLE, SealProgress
from stepvault.checkpointers._directions import seal, unseal
from stepvault.checkpointers._shells import ExpiringSaver
from stepvault.stores._conversion import ItemConversion

Report: TypeAlias = "Callable[[SealProgress], None] | None"


class Sealing:
    """See `Vault`."""

    _checkpointer: ExpiringSaver
    _erasing: dict[str, Any]
    store: Any

    def seal(self, *, settle: float = SETTLE, report: Report = None) -> SealProgress:
        """Seal a database that is not sealed yet, memory included, while the app runs; see docs/encryption.md.

        May be killed, repeated, and run by several processes. Begins when every process without a keyring must know.
        In the end, deleted rows are purged from files as an erasure does it: with `vacuum=True`, files are rewritten.

        Args:
            settle: Seconds to wait for other processes, before and at the end; less only if there are none.
            report: Called after each thread.

        Raises:
            ConfigurationError: This vault has no keyring, or an erasure is under way.
            ConflictError: A thread exists sealed and unsealed.
        """
        done = self._checkpointer._driver.run(seal(*self._converting(settle, report, leaving=False)))
        return self._told("sealed", done)

    async def aseal(self, *, settle: float = SETTLE, report: Report = None) -> SealProgress:
        """Async version of `seal`."""
        done = await self._checkpointer._driver.arun(seal(*self._converting(settle, report, leaving=False)))
        return self._told("sealed", done)

    def unseal(self, *, settle: float = SETTLE, report: Report = None) -> SealProgress:
        """Undo `seal`, in the same way: afterwards, the database is opened without keyring=. See docs/encryption.md.

        Raises:
            ConfigurationError: This vault has no keyring, or the database is being sealed.
            PayloadError: Something cannot be opened; what was not converted is still sealed.
        """
        done = self._checkpointer._driver.run(unseal(*self._converting(settle, report, leaving=True)))
        return self._told("unsealed", done)

    async def aunseal(self, *, settle: float = SETTLE, report: Report = None) -> SealProgress:
        """Async version of `unseal`."""
        done = await self._checkpointer._driver.arun(unseal(*self._converting(settle, report, leaving=True)))
        return self._told("unsealed", done)

    def _told(self, kind: Literal["sealed", "unsealed"], done: SealProgress) -> SealProgress:
        self._checkpointer._scope.tell(kind, numbers={"threads": done.threads, "items": done.items})
        return done

    def _converting(self, settle: float, report: Report, *, leaving: bool) -> Any:
        items = ItemConversion(self.store, leaving=leaving)
        return self._checkpointer._scope, settle, report, items, bool(self._erasing.get("vacuum"))
