"""What a compiled graph knows, against what a thread waits for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple
from langgraph.checkpoint.serde.types import INTERRUPT, TASKS

from stepvault._core.codec import unpack
from stepvault._core.ids import text_key
from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.record import decode_record, decode_writes
from stepvault._core.renames import NS_END, in_ns, names_in
from stepvault._core.rows import Loaded
from stepvault.checkpointers._ops import evolution
from stepvault.checkpointers._ops.context import Address, Scope
from stepvault.checkpointers._ops.load import get_tuple
from stepvault.errors import ConfigurationError, PayloadError
from stepvault.verification import ProblemKind

_SPECIAL = frozenset(("__error__", "__error_source_node__", INTERRUPT, "__resume__"))


@dataclass(frozen=True, slots=True)
class GraphFacts:
    """Nodes and channels of a graph, and of its subgraphs by the path of their node."""

    nodes: frozenset[str]
    channels: frozenset[str]
    below: Mapping[str, GraphFacts]

    @classmethod
    def of(cls, graph: Any) -> GraphFacts:
        """Read a compiled graph.

        Raises:
            ConfigurationError: It is none.
        """
        nodes, channels = getattr(graph, "nodes", None), getattr(graph, "channels", None)
        if not isinstance(nodes, Mapping) or not isinstance(channels, Mapping):
            raise ConfigurationError(f"graph must be a compiled graph, not {type(graph).__name__}.")
        below = {name: cls.of(subgraph) for name, subgraph in graph.get_subgraphs()}
        return cls(frozenset(nodes), frozenset(channels), below)


class Lost(NamedTuple):
    """Something that a thread waits for and the graph does not have."""

    kind: ProblemKind
    ns: str
    checkpoint_id: str
    reason: str


def lost_parts(scope: Scope, key: ThreadKey, facts: GraphFacts, ns: str = "") -> Op[list[Lost]]:
    """What the head of a namespace, and what runs below it, waits for in vain."""
    try:
        found = yield from get_tuple(scope, Address(key, text_key("checkpoint_ns", ns), None, None))
    except PayloadError:
        return []  # told as unreadable
    if found is None:
        return []
    checkpoint_id, values = found.checkpoint["id"], found.checkpoint["channel_values"]
    lost = [Lost(kind, ns, checkpoint_id, reason) for kind, reason in _missing(facts, values)]
    asking = _asking(found)
    if asking:
        lost += yield from _lost_askers(scope, key, facts, ns, checkpoint_id)
    for task in asking:
        for name, inner in facts.below.items():
            lost += yield from lost_parts(scope, key, inner, f"{in_ns(ns, name)}{NS_END}{task}")
    return lost


def _asking(found: CheckpointTuple) -> list[str]:
    """The tasks that wait for an answer."""
    writes = found.pending_writes or []
    done = {task for task, channel, _ in writes if channel not in _SPECIAL}
    return list(dict.fromkeys(task for task, channel, _ in writes if channel == INTERRUPT and task not in done))


def _lost_askers(scope: Scope, key: ThreadKey, facts: GraphFacts, ns: str, checkpoint_id: str) -> Op[list[Lost]]:
    """Functions of the functional API that asked and are gone: nothing but the path of their task names them."""
    at = Address(key, text_key("checkpoint_ns", ns), None, None)
    stored = evolution.stored_at(at, (yield from evolution.stored_space(scope, at)))
    loaded = yield from scope.core.dialect.load(key, stored.ns, None, None)
    paths = [decode_writes(unpack(row.body)).path for row in loaded.writes if row.k == WRITES_IDX_MAP[INTERRUPT]]
    names = {scope.core.evolution.aliases.node(name) for path in paths for name in names_in(path)}
    branches = {channel.removeprefix("branch:to:") for channel in _channels(loaded)}
    return [
        Lost("node gone", ns, checkpoint_id, f"{name!r} asked and is not in the graph; add node_aliases")
        for name in sorted(names - facts.nodes - {scope.core.evolution.aliases.node(name) for name in branches})
    ]


def _channels(loaded: Loaded) -> set[str]:
    """The channels with values of a checkpoint as stored."""
    return {channel for row in loaded.checkpoints for channel in decode_record(unpack(row.body)).forms}


def _missing(facts: GraphFacts, values: Mapping[str, Any]) -> Iterator[tuple[ProblemKind, str]]:
    for channel in values:
        kind, _, rest = channel.partition(":")
        if channel in facts.channels or channel.startswith("__"):
            continue
        if kind == "branch":
            name = rest.removeprefix("to:")
            yield "node gone", f"the node {name!r} runs next and is not in the graph; add node_aliases"
        elif kind == "join":
            yield "node gone", f"the edge {rest!r} waits and is not in the graph; add node_aliases"
        else:
            yield "channel gone", f"the channel {channel!r} has a value and is not in the graph; add a migration"
    for send in values.get(TASKS) or ():
        if getattr(send, "node", None) not in facts.nodes:
            yield "node gone", f"the node {getattr(send, 'node', send)!r} was sent to and is not in the graph"
