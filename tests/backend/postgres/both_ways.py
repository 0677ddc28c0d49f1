"""A saver called from threads or from tasks, so that a test is written once and holds for both."""

from __future__ import annotations

import asyncio
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from tests.contract.building import checkpoint, config, put

WAYS = ("sync", "async")


class Caller:
    """Calls a saver's methods by their plain names, the way its `way` says."""

    def __init__(self, saver: Any, way: str) -> None:
        self.saver = saver
        self.way = way

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        if self.way == "sync":
            return await asyncio.to_thread(getattr(self.saver, method), *args, **kwargs)
        return await getattr(self.saver, f"a{method}")(*args, **kwargs)

    async def aput(self, *args: Any) -> Any:
        return await self.call("put", *args)

    async def put(self, value: Any, thread: str = "t", **more: Any) -> Any:
        """Store a checkpoint with one channel."""
        return await put(self, {"value": value}, at=config(thread), **more)

    async def get(self, thread: str = "t") -> Any:
        """The value of the thread's newest checkpoint."""
        found: CheckpointTuple | None = await self.call("get_tuple", config(thread))
        return None if found is None else found.checkpoint["channel_values"]["value"]

    async def close(self) -> None:
        await self.call("close")


__all__ = ["WAYS", "Caller", "checkpoint", "config"]
