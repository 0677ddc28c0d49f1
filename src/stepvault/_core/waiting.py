"""Which nodes run next, read off a checkpoint without the graph.

LangGraph's rules (1.x), kept in this one place: a node of a state graph is triggered by the channel `branch:to:NODE`,
and by `join:A+B:NODE` once A and B are done; what was sent stands in `__pregel_tasks`. A trigger counts if it has a
value and a version that the node has not seen. Deferred nodes hold `(value, ready)` in their triggers. A graph of
another make has triggers of its own names; what they lead to cannot be known here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.serde.types import TASKS

_BRANCH, _JOIN, _INPUT = "branch:to:", "join:", "__start__"


def next_nodes(checkpoint: Checkpoint, done: Collection[str | int] = ()) -> tuple[str | None, ...]:
    """The nodes that run next, sorted; sends first, one entry each. None stands for the function of an input.

    Args:
        checkpoint: A root checkpoint.
        done: Nodes, and places among the sends, whose results are stored with it.
    """
    values = checkpoint["channel_values"]
    sends = [send for place, send in enumerate(values.get(TASKS) or ()) if place not in done]
    pulled = {_target(channel) for channel in values if _triggers(checkpoint, channel, values)}
    named = sorted(node for node in pulled if node is not None and node not in done)
    started = [None] if None in pulled else []
    return (*sorted(str(getattr(send, "node", "")) for send in sends), *named, *started)


def _target(channel: str) -> str | None:
    """The node that a trigger leads to; node names hold no colon."""
    return None if channel == _INPUT else channel.rpartition(":")[2]


def _triggers(checkpoint: Checkpoint, channel: str, values: Mapping[str, Any]) -> bool:
    if channel != _INPUT and not channel.startswith((_BRANCH, _JOIN)):
        return False
    version = checkpoint["channel_versions"].get(channel)
    seen = (checkpoint["versions_seen"].get(_target(channel) or _INPUT) or {}).get(channel)
    if version is None or (seen is not None and not version > seen):  # type: ignore[operator]
        return False
    value = values[channel]
    if channel.startswith(_JOIN):
        names, ready = value if isinstance(value, tuple) else (value, True)
        awaited = channel[len(_JOIN) :].rpartition(":")[0].split("+")  # a name may hold a plus of its own
        return bool(ready) and sorted("+".join(names).split("+")) == sorted(awaited)
    return bool(value[1]) if isinstance(value, tuple) else True  # a plain branch holds None
