"""What typed steps read of a saver beside checkpoints, sync and async; see `stepvault.steps`."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from stepvault.checkpointers._ops import tracing
from stepvault.checkpointers._ops.context import address_of
from stepvault.checkpointers._saver import BaseSaver
from stepvault.inbox import PendingInterrupt


class TracingSaver(BaseSaver):
    """A saver that hands out histories in order."""

    def ancestors(self, config: RunnableConfig) -> list[str]:
        """The ids of a checkpoint (the head if none is named) and of its ancestors, oldest first."""
        return self._run(tracing.ancestors(self._scope, address_of(self._scope, config)))

    async def aancestors(self, config: RunnableConfig) -> list[str]:
        """Async version of `ancestors`."""
        return await self._arun(tracing.ancestors(self._scope, address_of(self._scope, config)))

    def get_each(self, config: RunnableConfig, checkpoint_ids: Sequence[str]) -> list[CheckpointTuple]:
        """Checkpoints of a thread, the run of each in its metadata.

        Lists in them share their items, each of which is decoded once; do not change them.
        """
        return self._run(tracing.get_each(self._scope, address_of(self._scope, config), checkpoint_ids))

    async def aget_each(self, config: RunnableConfig, checkpoint_ids: Sequence[str]) -> list[CheckpointTuple]:
        """Async version of `get_each`."""
        return await self._arun(tracing.get_each(self._scope, address_of(self._scope, config), checkpoint_ids))

    def interrupts(self, config: RunnableConfig) -> list[PendingInterrupt]:
        """Every interrupt of a thread that the inbox knows, with what was decided, oldest first."""
        return self._run(tracing.interrupts(self._scope, address_of(self._scope, config)))

    async def ainterrupts(self, config: RunnableConfig) -> list[PendingInterrupt]:
        """Async version of `interrupts`."""
        return await self._arun(tracing.interrupts(self._scope, address_of(self._scope, config)))
