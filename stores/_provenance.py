"""Which run is calling: read from the context LangGraph sets around every node."""

from __future__ import annotations

from langchain_core.runnables.config import var_child_runnable_config

from stepvault.stores._ops.context import Source
from stepvault.stores._ops.threads import Caller


def current_caller() -> Caller | None:
    """The run this is called from, its thread and checkpoint; None outside of runs."""
    config = var_child_runnable_config.get()
    configurable = config.get("configurable") if config else None
    thread_id = configurable.get("thread_id") if configurable else None
    if config is None or configurable is None or thread_id is None:
        return None
    # In a node, the map has the checkpoint of the step by namespace; checkpoint_id is only there if a run named one.
    checkpoints = configurable.get("checkpoint_map") or {}
    checkpoint_id = checkpoints.get("") or configurable.get("checkpoint_id")
    return Caller(Source(str(thread_id), str(checkpoint_id) if checkpoint_id else None), config)
