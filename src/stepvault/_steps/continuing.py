"""Beginning a new thread with what was said in another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint

from stepvault._core.plan import Call, Op
from stepvault._steps.reading import call
from stepvault.errors import ConfigurationError

if TYPE_CHECKING:
    from stepvault.steps import Run

_PREVIOUS, _START, _END = "__previous__", "__start__", "__end__"


def begin(run: Run, graph: Any, config: RunnableConfig) -> Op[RunnableConfig]:
    """Seed the thread of a config with the messages of a run."""
    saver, channels = graph.checkpointer, graph.channels
    named = config.get("configurable") or {}
    if not hasattr(saver, "get_tuple"):
        raise ConfigurationError("continue_in needs a graph that was compiled with a checkpointer.")
    if (yield from call(saver, "get_tuple", config)) is not None:
        raise ConfigurationError(f"Thread {named.get('thread_id')!r} exists; name a new one.")
    if run.messages_key in channels:
        yield from _update(graph, config, {run.messages_key: run.to_messages()}, _START)
        yield from _update(graph, config, None, _END)  # nothing is to run before the next turn
    elif _PREVIOUS in channels:
        yield from _save(run, saver, config)
    else:
        raise ConfigurationError(f"The graph has no channel {run.messages_key!r}; its messages are kept elsewhere.")
    return config


def _update(graph: Any, config: RunnableConfig, values: Any, as_node: str) -> Op[Any]:
    return (
        yield Call(
            lambda: graph.update_state(config, values, as_node=as_node),
            lambda: graph.aupdate_state(config, values, as_node=as_node),
        )
    )


def _save(run: Run, saver: Any, config: RunnableConfig) -> Op[None]:
    """What a function finds as `previous`: nothing in LangGraph sets it from outside."""
    previous = run.to_messages() if run.saved is None else run.saved
    versions = {_PREVIOUS: saver.get_next_version(None, None)}
    checkpoint = {**empty_checkpoint(), "channel_values": {_PREVIOUS: previous}, "channel_versions": versions}
    configurable = {"checkpoint_ns": "", **(config.get("configurable") or {})}
    metadata = {"source": "update", "step": 0, "parents": {}}
    yield from call(saver, "put", {"configurable": configurable}, checkpoint, metadata, versions)
