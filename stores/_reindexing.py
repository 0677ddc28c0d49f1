"""Making the vectors of a store anew; sync and async."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

from stepvault._core import plan
from stepvault.stores._ops import indexing
from stepvault.stores._ops.embed import embed

Report: TypeAlias = Callable[[int], None]


class _NoDatabase:
    """Where an embedder is called: no database, so no transaction can be open and no worker thread is held."""

    def execute(self, batch: plan.Batch) -> NoReturn:
        raise NotImplementedError

    session: Any = execute


NOWHERE: Any = _NoDatabase()


class Reindexing:
    """The part of a store that a change of model needs."""

    _scope: Any
    _run: Any
    _arun: Any

    def reindex(self, *, report: Report | None = None) -> int:
        """Make every vector of this database anew, after a change of model, `dims` or distance.

        Vector searches are refused meanwhile. If it is interrupted, call it again. Stop writers with the old
        settings first.

        Args:
            report: Called after each page with the number of items that are done.

        Returns:
            The number of items that have vectors now.

        Raises:
            ConfigurationError: This store has no `index=`; or it is just being sealed or unsealed.
            EmbeddingError: The embedder failed; what was made before it stays.
        """
        core = self._scope.core
        self._run(indexing.begin_reindex(core))
        after, done, count = None, 0, 0
        while True:
            wanted, after = self._run(indexing.reindex_page(self._scope, after))
            made = plan.run(self._documents(wanted), NOWHERE)
            self._run(indexing.store_page(self._scope, wanted, made))
            done, count = done + len(wanted), count + sum(bool(texts) for _, texts in wanted)
            if report is not None:
                report(done)
            if after is None:
                break
        self._run(indexing.finish_reindex(core))
        return count

    async def areindex(self, *, report: Report | None = None) -> int:
        """Async version of `reindex`."""
        core = self._scope.core
        await self._arun(indexing.begin_reindex(core))
        after, done, count = None, 0, 0
        while True:
            wanted, after = await self._arun(indexing.reindex_page(self._scope, after))
            made = await plan.arun(self._documents(wanted), NOWHERE)
            await self._arun(indexing.store_page(self._scope, wanted, made))
            done, count = done + len(wanted), count + sum(bool(texts) for _, texts in wanted)
            if report is not None:
                report(done)
            if after is None:
                break
        await self._arun(indexing.finish_reindex(core))
        return count

    def _documents(self, wanted: list[tuple[Any, list[str]]]) -> plan.Op[dict[str, bytes]]:
        index = self._scope.core.index
        assert index is not None
        return (yield from embed(index, (text for _, texts in wanted for text in texts), ()))[0]
