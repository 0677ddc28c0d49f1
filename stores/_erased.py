"""The store's part in closing the door behind a person; sync and async."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from stepvault._core.plan import Op
from stepvault.stores._dialect import Removed
from stepvault.stores._ops import erased as erasing
from stepvault.stores._ops import remove, threads
from stepvault.stores._ops.context import Scope
from stepvault.stores._ops.namespaces import ns_key, scope_keys
from stepvault.stores._sealed import SealedDialect


def forget_threads(scope: Scope, thread_ids: Iterable[Any]) -> Op[Removed]:
    """Remove the memory that is scoped to threads, together; its keys first: later nothing would lead to them."""
    ids = list(thread_ids)
    if isinstance(scope.core.dialect, SealedDialect):
        yield from scope.core.dialect.shred_below(scope.tenant, scope_keys(ids))
    return (yield from remove.delete_thread_scopes(scope, ids))


def forget_orphans(scope: Scope) -> Op[int]:
    """Remove old memory of threads that are no more, with its keys; see `threads.orphans`."""
    dialect = scope.core.dialect
    if not isinstance(dialect, SealedDialect):
        return (yield from threads.orphans(scope))

    def with_keys(prefix: bytes, removal: Op[threads.Orphaned]) -> Op[threads.Orphaned]:
        owners = yield from dialect.owners_below(scope.tenant, [prefix])
        done = yield from removal
        if done.empty and owners:  # not before: what is written meanwhile stays, and is to be read
            yield from dialect.keys.shred(owners)
        return done

    return (yield from threads.orphans(scope, with_keys))


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

    def _linked(self, namespaces: Sequence[tuple[str, ...]], tokens: Sequence[bytes]) -> Op[None]:
        dialect = self._scope.core.dialect
        if isinstance(dialect, SealedDialect):
            yield from dialect.link(self._scope.tenant, [ns_key(labels) for labels in namespaces], tokens)

    def drop_shut(self) -> int:
        """Of a sealed store: remove items whose key was destroyed, as a restore brings back; how many there were."""
        return self._run(self._shut_dropped())  # type: ignore[no-any-return]

    async def adrop_shut(self) -> int:
        """Async version of `drop_shut`."""
        return await self._arun(self._shut_dropped())  # type: ignore[no-any-return]

    def _shut_dropped(self) -> Op[int]:
        dialect = self._scope.core.dialect
        return (yield from dialect.drop_shut(self._scope.tenant)) if isinstance(dialect, SealedDialect) else 0

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
