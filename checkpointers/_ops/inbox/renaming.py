"""Interrupts of nodes that were renamed since: listed and answered under present names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.evolution import Namespace, renames_at
from stepvault.inbox import Change, ChangePage, Decision, InboxPage, PendingInterrupt

T = TypeVar("T")


def present(scope: Scope, op: Op[T]) -> Op[T]:
    """What an operation of the inbox returns, with the node names and resume ids that the present code knows.

    The id of an interrupt in the inbox stays the one it was asked under.
    """
    result = yield from op
    if not scope.core.evolution.aliases:
        return result
    return (yield from _Present(scope).of(result))  # type: ignore[no-any-return]


def present_ids(scope: Scope, key: ThreadKey) -> Op[Mapping[str, str]]:
    """The ids of the interrupts that wait at a thread's head, by the ids they were asked under."""
    if not scope.core.evolution.aliases:
        return {}
    return (yield from renames_at(scope, key, Namespace(), None)).interrupts


class _Present:
    """One result; the heads of its threads are read once each."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._ids: dict[str, Mapping[str, str]] = {}

    def of(self, result: Any) -> Op[Any]:
        if isinstance(result, PendingInterrupt):
            return (yield from self._interrupt(result))
        if isinstance(result, Decision):
            return (yield from self._decision(result))
        if isinstance(result, InboxPage):
            return replace(result, interrupts=(yield from self._each(result.interrupts)))
        if isinstance(result, ChangePage):
            changed = yield from self._each([change.interrupt for change in result.changes])
            pairs = zip(result.changes, changed, strict=True)
            return replace(result, changes=[Change(change.kind, interrupt) for change, interrupt in pairs])
        if isinstance(result, (list, tuple)):
            return type(result)((yield from self._each(result)))
        return result

    def _each(self, interrupts: Any) -> Op[list[PendingInterrupt]]:
        found = []
        for interrupt in interrupts:
            found.append((yield from self._interrupt(interrupt)))
        return found

    def _interrupt(self, interrupt: PendingInterrupt) -> Op[PendingInterrupt]:
        node = interrupt.node and self._scope.core.evolution.aliases.node(interrupt.node)
        if interrupt.status not in ("pending", "decided"):
            return replace(interrupt, node=node)
        ids = yield from self._ids_of(interrupt.thread_id)
        decision = (yield from self._decision(interrupt.decision)) if interrupt.decision else None
        present_id = ids.get(interrupt.interrupt_id, interrupt.interrupt_id)
        return replace(interrupt, node=node, interrupt_id=present_id, decision=decision)

    def _decision(self, decision: Decision) -> Op[Decision]:
        if decision.command is None:
            return decision
        ids = yield from self._ids_of((decision.config.get("configurable") or {})["thread_id"])
        resume = cast(dict[str, Any], decision.command.resume)
        return replace(
            decision, command=type(decision.command)(resume={ids.get(asked, asked): resume[asked] for asked in resume})
        )

    def _ids_of(self, thread_id: str) -> Op[Mapping[str, str]]:
        if thread_id not in self._ids:
            self._ids[thread_id] = yield from present_ids(self._scope, self._scope.key(thread_id))
        return self._ids[thread_id]
