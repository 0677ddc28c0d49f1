"""The store's part in closing the door behind a person; sync and async."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepvault.stores._ops import erased as erasing


class Door:
    """What an erasure asks of a store."""

    _scope: Any
    _run: Any
    _arun: Any

    def mark_erased(self, tokens: Sequence[bytes], *, erased: bool = True) -> None:
        """Refuse what is put for people from here on, or accept it again; what is there stays. Idempotent.

        Args:
            tokens: The people, as the erasure that calls this knows them.
            erased: Whether to refuse.
        """
        self._run(erasing.set_erased(self._scope, tokens, erased=erased))

    async def amark_erased(self, tokens: Sequence[bytes], *, erased: bool = True) -> None:
        """Async version of `mark_erased`."""
        await self._arun(erasing.set_erased(self._scope, tokens, erased=erased))
