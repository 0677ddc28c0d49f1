"""Removing items: a namespace whole, a thread's own memory, what has expired."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stepvault._core.plan import Op
from stepvault.errors import ConfigurationError
from stepvault.stores._dialect import Removed
from stepvault.stores._ops.context import Scope
from stepvault.stores._ops.namespaces import check_labels, ns_key, scope_keys

SWEEP_PAGE = 1000


def delete_namespace(scope: Scope, prefix: Any) -> Op[Removed]:
    """Remove every item below a prefix.

    Raises:
        ConfigurationError: An empty prefix: that would be everything.
    """
    labels = check_labels(prefix)
    if not labels:
        raise ConfigurationError("delete_namespace needs at least one label; an empty prefix means every item.")
    return (yield from scope.core.dialect.delete_below(scope.tenant, [ns_key(labels)]))


def delete_thread_scopes(scope: Scope, thread_ids: Iterable[Any]) -> Op[Removed]:
    """Remove the memory that is scoped to threads, together."""
    prefixes = scope_keys(thread_ids)
    if not prefixes:
        return Removed(0, 0)
    return (yield from scope.core.dialect.delete_below(scope.tenant, prefixes))


def sweep(scope: Scope) -> Op[int]:
    """Remove expired items, a bounded number per transaction."""
    total = 0
    while True:
        removed = yield from scope.core.dialect.sweep(SWEEP_PAGE)
        total += removed
        if removed < SWEEP_PAGE:
            return total


def overdue(scope: Scope) -> Op[int]:
    """How many expired items a sweep would remove."""
    return (yield from scope.core.dialect.overdue())
