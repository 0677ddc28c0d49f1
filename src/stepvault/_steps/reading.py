"""Reading the checkpoints of a thread in order from any saver; ours hands them out in pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from stepvault._core.plan import Call, Op
from stepvault.inbox import PendingInterrupt

PAGE = 50


def call(saver: Any, name: str, *args: Any) -> Op[Any]:
    """A method of a saver, or its async twin."""
    return (yield Call(lambda: getattr(saver, name)(*args), lambda: getattr(saver, f"a{name}")(*args)))


def ancestors(saver: Any, config: RunnableConfig) -> Op[list[str]]:
    """The ids of a root checkpoint (the head if none is named) and its ancestors, oldest first."""
    if hasattr(saver, "ancestors"):
        return (yield from call(saver, "ancestors", config))  # type: ignore[no-any-return]
    named = config.get("configurable") or {}
    everything: RunnableConfig = {"configurable": {"thread_id": named["thread_id"], "checkpoint_ns": ""}}
    parents: dict[str, str | None] = yield Call(
        lambda: dict(map(_link, saver.list(everything))), lambda: _links(saver, everything)
    )
    at = named.get("checkpoint_id") or next(iter(parents), None)
    found: list[str] = []
    while at is not None and at in parents:
        found.append(at)
        at = parents[at]
    return found[::-1]


def _link(found: CheckpointTuple) -> tuple[str, str | None]:
    parent = (found.parent_config or {}).get("configurable") or {}
    return found.checkpoint["id"], parent.get("checkpoint_id")


async def _links(saver: Any, config: RunnableConfig) -> dict[str, str | None]:
    return dict([_link(found) async for found in saver.alist(config)])


def get_each(saver: Any, thread_id: str, checkpoint_ids: Sequence[str]) -> Op[list[CheckpointTuple]]:
    """These checkpoints of a thread."""
    if hasattr(saver, "get_each"):
        return (  # type: ignore[no-any-return]
            yield from call(saver, "get_each", {"configurable": {"thread_id": thread_id}}, checkpoint_ids)
        )
    found = []
    for checkpoint_id in checkpoint_ids:
        named = {"thread_id": thread_id, "checkpoint_ns": "", "checkpoint_id": checkpoint_id}
        one = yield from call(saver, "get_tuple", {"configurable": named})
        if one is not None:
            found.append(one)
    return found


def interrupts(saver: Any, thread_id: str) -> Op[list[PendingInterrupt]]:
    """What the saver's inbox knows, if it has one."""
    if not hasattr(saver, "interrupts"):
        return []
    return (yield from call(saver, "interrupts", {"configurable": {"thread_id": thread_id}}))  # type: ignore[no-any-return]
