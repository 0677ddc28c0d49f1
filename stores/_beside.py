"""What a saver beside this store asks of it; a vault introduces the two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from stepvault._core.plan import Call, Op
from stepvault.stores._erased import forget_threads
from stepvault.stores._ops import threads
from stepvault.stores._store import StoreShell

T = TypeVar("T")


class Beside:
    """The items of every tenant of a store, which is made when it is first needed."""

    def __init__(self, store: Callable[[], StoreShell]) -> None:
        self._store = store

    def pin(self, tenant: bytes, names: Sequence[threads.Name], *, pinned: bool) -> Op[None]:
        """Take the deadlines of items, or give them back whole."""
        yield from self._do(tenant, lambda scope: threads.pin(scope, names, pinned))

    def forget(self, tenant: bytes, thread_ids: Sequence[str]) -> Op[int]:
        """Remove the own memory of threads; how many items there were."""
        removed = yield from self._do(tenant, lambda scope: forget_threads(scope, thread_ids))
        return removed.items

    def forget_before(self, tenant: bytes, thread_id: str, before: int) -> Op[None]:
        """Remove of a thread's own memory what was written before a time."""
        yield from self._do(tenant, lambda scope: threads.forget_before(scope, thread_id, before))

    def _do(self, tenant: bytes, op: Callable[[Any], Op[T]]) -> Op[T]:
        store = self._store()
        scope = replace(store._scope, tenant=tenant)
        return (yield Call(lambda: store._run(op(scope)), lambda: store._arun(op(scope))))  # type: ignore[no-any-return]
