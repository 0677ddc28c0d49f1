"""`vault.inbox`: the shell over the inbox operations, sync and async."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from langchain_core.callbacks import BaseCallbackHandler

from stepvault._core.plan import Op
from stepvault.checkpointers._ops.inbox import decisions, feed, keeping, queries, renaming
from stepvault.checkpointers._ops.inbox.entries import interrupt_of
from stepvault.checkpointers._pauses import pause_handler
from stepvault.errors import ConfigurationError
from stepvault.inbox import ChangePage, Decision, InboxPage, PendingInterrupt

if TYPE_CHECKING:
    from stepvault.checkpointers._saver import BaseSaver

T = TypeVar("T")
_UNSET: Any = object()


class Inbox:
    """Interrupts of all threads of a tenant: find them, decide them once, run on."""

    def __init__(self, saver: BaseSaver) -> None:
        self._saver = saver

    def _run(self, op: Op[T]) -> T:
        return self._saver._run(renaming.present(self._saver._scope, op))

    async def _arun(self, op: Op[T]) -> T:
        return await self._saver._arun(renaming.present(self._saver._scope, op))

    @property
    def pauses(self) -> BaseCallbackHandler:
        """Lists pauses of `interrupt_before` and `interrupt_after`: a handler for the `callbacks` of a config.

        `graph.with_config(callbacks=[vault.inbox.pauses])`; the config of a lease has it.

        Raises:
            ConfigurationError: This LangGraph does not tell handlers of pauses.
        """
        return pause_handler(self._saver)

    def list(
        self,
        *,
        subject: str | None = None,
        thread_id: str | None = None,
        node: str | None = None,
        external_ref: str | None = None,
        status: str | None = "pending",
        limit: int = 50,
        cursor: str | None = None,
    ) -> InboxPage:
        """Interrupts, oldest first.

        Args:
            subject: Only those of threads of this data subject.
            thread_id: Only those of this thread.
            node: Only those asked by this node.
            external_ref: Only those that carry this reference, see `amend`.
            status: `pending`, `decided`, `answered`, `superseded`, `expired`; None for all.
            limit: At most this many.
            cursor: Where the page before ended.
        """
        return self._run(self._list(subject, thread_id, node, external_ref, status, limit, cursor))

    async def alist(
        self,
        *,
        subject: str | None = None,
        thread_id: str | None = None,
        node: str | None = None,
        external_ref: str | None = None,
        status: str | None = "pending",
        limit: int = 50,
        cursor: str | None = None,
    ) -> InboxPage:
        """Async version of `list`."""
        return await self._arun(self._list(subject, thread_id, node, external_ref, status, limit, cursor))

    def _list(
        self,
        subject: str | None,
        thread_id: str | None,
        node: str | None,
        external_ref: str | None,
        status: str | None,
        limit: int,
        cursor: str | None,
    ) -> Op[InboxPage]:
        scope = self._saver._scope
        wanted = queries.wanted(subject, thread_id, node, external_ref, scope.core.evolution.aliases)
        if external_ref is not None:
            return queries.with_reference(scope, external_ref, status, wanted, limit, cursor)
        if thread_id is not None:
            return queries.of_thread(scope, scope.key(thread_id), status, wanted, limit, cursor)
        return queries.listed(scope, queries.families_of(scope, subject, node), status, wanted, limit, cursor)

    def get(self, interrupt_id: str) -> PendingInterrupt:
        """One interrupt, with its decision if there is one.

        Raises:
            InterruptNotFoundError: No thread has it.
        """
        return self._run(self._get(interrupt_id))

    async def aget(self, interrupt_id: str) -> PendingInterrupt:
        """Async version of `get`."""
        return await self._arun(self._get(interrupt_id))

    def _get(self, interrupt_id: str) -> Op[PendingInterrupt]:
        found = yield from queries.by_id(self._saver._scope, interrupt_id)
        return interrupt_of(self._saver._scope, found.key, found.thread.uid, found.entry)

    def decide(self, interrupt_id: str, answer: Any, *, by: str | None = None, note: str | None = None) -> Decision:
        """Record the answer to an interrupt, once, and return what to run.

        The decision is kept until a run has used it: `get` and `list(status="decided")` give it again.

        Args:
            interrupt_id: As the inbox or `result["__interrupt__"]` names it.
            answer: What `interrupt()` returns in the node; checked against its response schema, if it has one.
            by: Who decided.
            note: What they remarked.

        Raises:
            AlreadyDecidedError: Somebody else was first; `by` and `at` say who and when.
            SupersededError: The thread moved on without an answer.
            DeadlinePassedError: Too late.
            AnswerInvalidError: The answer does not fit; the message names the place.
            InterruptNotFoundError: No thread has it.
        """
        return self._run(decisions.decide(self._saver._scope, interrupt_id, answer, by, note))

    async def adecide(
        self, interrupt_id: str, answer: Any, *, by: str | None = None, note: str | None = None
    ) -> Decision:
        """Async version of `decide`."""
        return await self._arun(decisions.decide(self._saver._scope, interrupt_id, answer, by, note))

    def amend(
        self,
        interrupt_id: str,
        *,
        deadline: datetime | None = _UNSET,
        default: Any = _UNSET,
        external_ref: str | None = _UNSET,
    ) -> PendingInterrupt:
        """Set the deadline of an interrupt, the answer that counts when it passes, or a reference to find it by."""
        return self._run(decisions.amend(self._saver._scope, interrupt_id, **_fields(deadline, default, external_ref)))

    async def aamend(
        self,
        interrupt_id: str,
        *,
        deadline: datetime | None = _UNSET,
        default: Any = _UNSET,
        external_ref: str | None = _UNSET,
    ) -> PendingInterrupt:
        """Async version of `amend`."""
        fields = _fields(deadline, default, external_ref)
        return await self._arun(decisions.amend(self._saver._scope, interrupt_id, **fields))

    def due(self, now: datetime | None = None) -> Sequence[PendingInterrupt]:
        """Pending interrupts whose deadline has passed, earliest first, each with its default answer.

        `expire` settles one.
        """
        return self._run(self._due(now))

    async def adue(self, now: datetime | None = None) -> Sequence[PendingInterrupt]:
        """Async version of `due`."""
        return await self._arun(self._due(now))

    def _due(self, now: datetime | None) -> Op[Sequence[PendingInterrupt]]:
        scope = self._saver._scope
        until = (yield from scope.core.dialect.now()) if now is None else _milliseconds("now", now)
        return (yield from queries.due(scope, until))

    def expire(self, interrupt_id: str) -> PendingInterrupt:
        """Settle an interrupt whose deadline has passed.

        One with a default answer is decided with it: run its `decision`. Any other is closed as `expired`.

        Raises:
            DeadlinePassedError: It has not passed.
        """
        return self._run(decisions.expire(self._saver._scope, interrupt_id))

    async def aexpire(self, interrupt_id: str) -> PendingInterrupt:
        """Async version of `expire`."""
        return await self._arun(decisions.expire(self._saver._scope, interrupt_id))

    def changes(self, cursor: str | None = None) -> ChangePage:
        """What happened since a cursor, in order, nothing left out and nothing twice.

        Keep the page's cursor and come again, also after an empty page. Each change shows its interrupt as it is now.
        """
        return self._run(feed.changes(self._saver._scope, cursor))

    async def achanges(self, cursor: str | None = None) -> ChangePage:
        """Async version of `changes`."""
        return await self._arun(feed.changes(self._saver._scope, cursor))

    def rebuild(self) -> int:
        """Make every list and the feed anew from the threads themselves; returns how many interrupts there are.

        Lists heal by themselves when they are read. This is for a database that was put together from parts.
        """
        return self._run(keeping.rebuild(self._saver._scope))

    async def arebuild(self) -> int:
        """Async version of `rebuild`."""
        return await self._arun(keeping.rebuild(self._saver._scope))


def _milliseconds(name: str, moment: datetime) -> int:
    if not isinstance(moment, datetime):
        raise ConfigurationError(f"{name} must be a datetime, not {type(moment).__name__}.")
    return int(moment.timestamp() * 1000)


def _fields(deadline: Any, default: Any, external_ref: Any) -> dict[str, Any]:
    fields = {"default": default, "external_ref": external_ref}
    if deadline is not _UNSET:
        fields["deadline"] = None if deadline is None else _milliseconds("deadline", deadline)
    fields = {name: value for name, value in fields.items() if value is not _UNSET}
    if not fields:
        raise ConfigurationError("amend() takes deadline=, default= or external_ref=.")
    return fields
