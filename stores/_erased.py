"""The store's part in closing the door behind a person; sync and async."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepvault._core.plan import Op
from stepvault.stores._ops import erased as erasing
from stepvault.stores._ops.namespaces import ns_key
from stepvault.stores._sealed import SealedDialect


class Door:
    """What an erasure asks of a store."""

    _scope: Any
    _run: Any
    _arun: Any

    @property
    def is_sealed(self) -> bool:
        """Whether this store has a keyring."""
        return isinstance(self._scope.core.dialect, SealedDialect)

    def link_keys(self, namespaces: Sequence[tuple[str, ...]], tokens: Sequence[bytes]) -> None:
        """Of a sealed store: have the erasure of these people destroy the keys of these namespaces. Idempotent.

        Most are linked since their first item, but not those that no pattern of that time named.
        """
        self._run(self._linked(namespaces, tokens))

    async def alink_keys(self, namespaces: Sequence[tuple[str, ...]], tokens: Sequence[bytes]) -> None:
        """Async version of `link_keys`."""
        await self._arun(self._linked(namespaces, tokens))

    def shred_keys(self, *namespaces: tuple[str, ...]) -> None:
        """Of a sealed store: destroy the keys of namespaces and of all below them, before their items are deleted."""
        self._run(self._shredded(namespaces))

    async def ashred_keys(self, *namespaces: tuple[str, ...]) -> None:
        """Async version of `shred_keys`."""
        await self._arun(self._shredded(namespaces))

    def _linked(self, namespaces: Sequence[tuple[str, ...]], tokens: Sequence[bytes]) -> Op[None]:
        dialect = self._scope.core.dialect
        if isinstance(dialect, SealedDialect):
            yield from dialect.link(self._scope.tenant, [ns_key(labels) for labels in namespaces], tokens)

    def _shredded(self, namespaces: Sequence[tuple[str, ...]]) -> Op[None]:
        dialect = self._scope.core.dialect
        if isinstance(dialect, SealedDialect):
            yield from dialect.shred_below(self._scope.tenant, list(map(ns_key, namespaces)))

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
