"""`verify` and `repair` of a saver, sync and async."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from langgraph.checkpoint.base.id import uuid6

from stepvault._core.knowledge import ThreadKey
from stepvault._core.rows import ThreadSummary
from stepvault.checkpointers._ops import repairing, verifying
from stepvault.checkpointers._ops.graph_facts import GraphFacts
from stepvault.checkpointers._tracing import TracingSaver
from stepvault.verification import VerifyReport

_PAGE = 100

Progress = Callable[[VerifyReport], None]


class VerifyingSaver(TracingSaver):
    """A saver that looks whether everything in it can still be read."""

    def verify(
        self, thread_id: str | None = None, *, graph: Any = None, progress: Progress | None = None
    ) -> VerifyReport:
        """Read every checkpoint of every thread of this tenant, old ones too, and say what cannot be used.

        Run it with the options of the application (`types`, `state_version`, ...), before a deploy with the new ones.

        Args:
            thread_id: Only this thread.
            graph: A compiled graph: also tell threads that wait for a node or hold a channel it does not have.
            progress: Called after each thread with the report so far.
        """
        facts = GraphFacts.of(graph) if graph is not None else None
        report = VerifyReport()
        for key in [self._scope.key(thread_id)] if thread_id is not None else self._keys():
            report += self._run(verifying.verify_thread(self._scope, key, facts))
            if progress is not None:
                progress(report)
        return report

    def _keys(self) -> Iterator[ThreadKey]:
        after: Any = None
        while True:
            rows = self._run(self._scope.core.dialect.threads(self._scope.tenant, _PAGE, after))
            yield from map(self._key, rows)
            if len(rows) < _PAGE:
                return
            after = rows[-1].no

    async def averify(
        self, thread_id: str | None = None, *, graph: Any = None, progress: Progress | None = None
    ) -> VerifyReport:
        """Async version of `verify`."""
        facts = GraphFacts.of(graph) if graph is not None else None
        report = VerifyReport()
        after: Any = None
        while True:
            rows = []
            if thread_id is None:
                rows = await self._arun(self._scope.core.dialect.threads(self._scope.tenant, _PAGE, after))
            for key in map(self._key, rows) if thread_id is None else [self._scope.key(thread_id)]:
                report += await self._arun(verifying.verify_thread(self._scope, key, facts))
                if progress is not None:
                    progress(report)
            if len(rows) < _PAGE:
                return report
            after = rows[-1].no

    def _key(self, row: ThreadSummary) -> ThreadKey:
        return ThreadKey(self._scope.tenant, row.thread)

    def repair(self, thread_id: str, to: str) -> str:
        """Put a checkpoint that can be read at the head, as a recorded fork (`source="fork"`); returns the fork's id.

        Everything else stays where it is. What was under way at the checkpoint begins anew; open questions of the
        thread are superseded.

        Args:
            thread_id: The thread.
            to: The checkpoint to go back to, as `verify` or an error names it.

        Raises:
            ConfigurationError: The thread has no such checkpoint.
            PayloadError: It cannot be read either; nothing was changed.
        """
        return self._run(repairing.repair(self._scope, thread_id, to, str(uuid6())))

    async def arepair(self, thread_id: str, to: str) -> str:
        """Async version of `repair`."""
        return await self._arun(repairing.repair(self._scope, thread_id, to, str(uuid6())))
