"""Checkpoints by hand, for tests that need no graph."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.base import Checkpoint, empty_checkpoint


def config(thread: str, checkpoint: str | None = None, ns: str = "", **more: Any) -> Any:
    found = {"thread_id": thread, "checkpoint_ns": ns, **more}
    return {"configurable": found if checkpoint is None else {**found, "checkpoint_id": checkpoint}}


def checkpoint_id(number: int) -> str:
    return f"1f0b{number:04x}-0000-6000-8000-000000000000"


def checkpoint(number: int, **values: Any) -> Checkpoint:
    versions = dict.fromkeys(values, f"{number:08d}")
    return {**empty_checkpoint(), "id": checkpoint_id(number), "channel_values": values, "channel_versions": versions}


def put(saver: Any, thread: str, number: int, *, ns: str = "", metadata: Any = None, **values: Any) -> Any:
    parent = checkpoint_id(number - 1) if number > 1 else None
    made = checkpoint(number, **values)
    found = {"source": "loop", "step": number, **(metadata or {})}
    return saver.put(config(thread, parent, ns), made, found, made["channel_versions"])


def ids(saver: Any, thread: str | None, **more: Any) -> list[str]:
    return [entry.checkpoint["id"] for entry in saver.list(config(thread) if thread else None, **more)]
