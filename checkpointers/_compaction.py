"""`compact_thread` of a saver, sync and async."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any

from langgraph.checkpoint.base.id import uuid6

from stepvault.checkpointers._ops import compacting
from stepvault.checkpointers._ops.context import address_of
from stepvault.checkpointers._verification import VerifyingSaver
from stepvault.compaction import Compaction, CompactionReport, CountTokens, Summarise
from stepvault.errors import ConfigurationError


class CompactingSaver(VerifyingSaver):
    """A saver that shortens the messages of live threads."""

    def compact_thread(
        self,
        thread_id: str,
        *,
        keep_messages: int,
        summarise: Summarise | None = None,
        keep_types: Sequence[str | type] = ("system",),
        messages_key: str = "messages",
        count_tokens: CountTokens | None = None,
        dry_run: bool = False,
    ) -> CompactionReport:
        """Shorten the messages of a thread by a new checkpoint; every older checkpoint stays as it is.

        Holds the thread's lease: a run that begins meanwhile is stopped before its first node. A tool call and its
        results stay or go together. It does not count as activity: no deadline of the thread moves.

        Args:
            thread_id: The thread.
            keep_messages: So many of the newest messages stay.
            summarise: Called with the messages that go; returns text or a message, which takes their place and carries
                their ids and the checkpoint's. None: they go without a summary.
            keep_types: Messages of these types stay: names such as `"system"` and `"human"`, or classes.
            messages_key: The channel that holds the messages.
            count_tokens: Counts tokens for the report, which has characters anyway.
            dry_run: Only say what would go; `summarise` is not called.

        Raises:
            ConfigurationError: There is no such thread, or its channel holds no list of messages.
            ConflictError: A question to a human or an unfinished step is pending at its head.
            LeaseHeldError: A worker is at work on it.
        """
        asked = Compaction(keep_messages, summarise, keep_types, messages_key, count_tokens)
        bare = address_of(self._scope, {"configurable": {"thread_id": thread_id}})
        draft = self._run(compacting.draft(self._scope, bare, asked))
        if dry_run or not draft.removed:
            return draft.report(None, dry_run=dry_run)
        with self.lease(thread_id) as config:
            at = address_of(self._scope, config)
            draft = self._run(compacting.draft(self._scope, at, asked))
            summary = summarise(draft.removed) if summarise else None
            if inspect.isawaitable(summary):
                getattr(summary, "close", lambda: None)()
                raise ConfigurationError("summarise returned an awaitable; await acompact_thread() instead.")
            return self._told(self._run(compacting.store(at, draft, summary, str(uuid6()))))

    async def acompact_thread(
        self,
        thread_id: str,
        *,
        keep_messages: int,
        summarise: Summarise | None = None,
        keep_types: Sequence[str | type] = ("system",),
        messages_key: str = "messages",
        count_tokens: CountTokens | None = None,
        dry_run: bool = False,
    ) -> CompactionReport:
        """Async version of `compact_thread`; `summarise` may be a coroutine function, others run in a thread."""
        asked = Compaction(keep_messages, summarise, keep_types, messages_key, count_tokens)
        bare = address_of(self._scope, {"configurable": {"thread_id": thread_id}})
        draft = await self._arun(compacting.draft(self._scope, bare, asked))
        if dry_run or not draft.removed:
            return draft.report(None, dry_run=dry_run)
        async with self.lease(thread_id) as config:
            at = address_of(self._scope, config)
            draft = await self._arun(compacting.draft(self._scope, at, asked))
            summary: Any = await asyncio.to_thread(summarise, draft.removed) if summarise else None
            if inspect.isawaitable(summary):
                summary = await summary
            return self._told(await self._arun(compacting.store(at, draft, summary, str(uuid6()))))

    def _told(self, done: CompactionReport) -> CompactionReport:
        numbers = {"removed": len(done.removed), "kept": done.kept, "characters_saved": done.characters_saved}
        self._scope.tell("compacted", key=self._scope.key(done.thread_id), numbers=numbers)
        return done
