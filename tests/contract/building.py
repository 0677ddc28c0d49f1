"""Checkpoints and configs as LangGraph would make them, and a whole thread as one comparable value."""

from __future__ import annotations

import itertools
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointTuple
from langgraph.checkpoint.base.id import uuid6

_sequence = itertools.count()


def config(thread_id: Any = "t", ns: str = "", checkpoint_id: str | None = None, **more: Any) -> RunnableConfig:
    """A config that names a thread, a namespace, and maybe a checkpoint."""
    configurable = {"thread_id": thread_id, "checkpoint_ns": ns, **more}
    if checkpoint_id is not None:
        configurable["checkpoint_id"] = checkpoint_id
    return {"configurable": configurable}


def id_of(named: RunnableConfig | None) -> str | None:
    """The checkpoint id of a config."""
    return named["configurable"].get("checkpoint_id") if named else None


def new_id() -> str:
    """A checkpoint id greater than every one before it."""
    return str(uuid6(clock_seq=next(_sequence) % 8192))


def checkpoint(values: dict[str, Any], *, id: str | None = None, **fields: Any) -> Checkpoint:
    """A checkpoint whose every channel has a version."""
    made: dict[str, Any] = {
        "v": 4,
        "id": id or new_id(),
        "ts": "2026-01-02T03:04:05.678901+00:00",
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, "00000001"),
        "versions_seen": {},
        "updated_channels": None,
        **fields,
    }
    return made  # type: ignore[return-value]


async def put(
    saver: Any,
    values: dict[str, Any] | None = None,
    *,
    at: RunnableConfig | None = None,
    id: str | None = None,
    metadata: dict[str, Any] | None = None,
    new: dict[str, Any] | None = None,
    **fields: Any,
) -> RunnableConfig:
    """Store a checkpoint below `at`; every channel is new unless `new` says which are."""
    made = checkpoint(values or {}, id=id, **fields)
    fresh = made["channel_versions"] if new is None else new
    kept = {"source": "loop", "step": 0, "parents": {}, **(metadata or {})}
    return await saver.aput(at or config(), made, kept, fresh)


async def listed(saver: Any, at: RunnableConfig | None = None, **arguments: Any) -> list[CheckpointTuple]:
    """What a list yields."""
    return [entry async for entry in saver.alist(at, **arguments)]


async def ids(saver: Any, at: RunnableConfig | None = None, **arguments: Any) -> list[str]:
    """The checkpoint ids that a list yields."""
    return [entry.checkpoint["id"] for entry in await listed(saver, at, **arguments)]


async def whole(saver: Any, thread_id: Any = "t") -> list[CheckpointTuple]:
    """A thread with everything in it, newest first; read one by one, as a list may only agree with itself."""
    found = []
    for entry in await listed(saver, {"configurable": {"thread_id": thread_id}}):
        single = await saver.aget_tuple(entry.config)
        assert single == entry
        found.append(single)
    return found
