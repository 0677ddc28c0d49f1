"""Renamed nodes: what LangGraph derives from a node's name, under the old name and under the new one.

A node's name stands in control channels (`branch:to:X`, `join:a+b:X`), in what each node has seen, in sends, and,
hashed, in the ids of its tasks and interrupts. Stored rows keep the names they were written under; names are
translated on the way out, and task and interrupt ids of a checkpoint that has old ones on the way in.

The rules are LangGraph's (1.x); keep them here so that a new release breaks one place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

import xxhash

from stepvault.errors import ConfigurationError

_BRANCH, _JOIN = "branch:to:", "join:"
_PULL, _PUSH = "__pregel_pull", "__pregel_push"
_BUMPS = "__snapshot_bumps__"
_SOURCE_NODE = "__error_source_node__"
_HANDLER = "node_error_handler"
SENDS = "__pregel_tasks"
START = "__start__"
NS_SEP, NS_END = "|", ":"
_MANY_JOINS = 6  # of one node: every subset of them is tried


def is_control(channel: str) -> bool:
    """Whether a channel says what runs next, rather than being part of the state."""
    return channel in (START, SENDS) or channel.startswith((_BRANCH, _JOIN))


def interrupt_id(task_ns: str, answered: int) -> str:
    """The id of a task's interrupt after so many answers."""
    return xxhash.xxh3_128_hexdigest((f"{task_ns}{NS_SEP}{answered}" if answered else task_ns).encode())


def in_ns(ns: str, name: str) -> str:
    """The path of a node below a namespace."""
    return f"{ns}{NS_SEP}{name}" if ns else name


@dataclass(frozen=True, slots=True)
class Aliases:
    """Former names of nodes, each with the present one."""

    names: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, str] | None) -> Aliases:
        """Check the `node_aliases=` option and follow its chains.

        Raises:
            ConfigurationError: It is no dict of names, or names go round in a circle.
        """
        pairs = dict(given or {})
        if not all(type(name) is str and name for pair in pairs.items() for name in pair):
            raise ConfigurationError('node_aliases is a dict of node names: {"old": "new"}.')
        resolved = {}
        for old, new in pairs.items():
            met = {old}
            while new in pairs and pairs[new] != new:
                if new in met:
                    raise ConfigurationError(f"node_aliases goes round in a circle at {new!r}.")
                met.add(new)
                new = pairs[new]
            resolved[old] = new
        return cls(resolved)

    def __bool__(self) -> bool:
        return bool(self.names)

    def node(self, name: str) -> str:
        """The present name of a node."""
        return self.names.get(name, name)

    def channel(self, name: str) -> str:
        """The present name of a channel."""
        if name.startswith(_BRANCH):
            return _BRANCH + self.node(name.removeprefix(_BRANCH))
        if name.startswith(_JOIN):
            starts, _, end = name.removeprefix(_JOIN).rpartition(":")
            return f"{_JOIN}{'+'.join(map(self.node, starts.split('+')))}:{self.node(end)}"
        return name

    def value(self, channel: str, value: Any) -> Any:
        """The value of a channel, or a write to it, where node names are what it holds."""
        if channel.startswith(_JOIN):
            if type(value) is str:
                return self.node(value)
            if type(value) is set:
                return {self.node(name) if type(name) is str else name for name in value}
            if type(value) is tuple:  # a deferred join: the names, and whether it is finished
                return tuple(self.value(channel, part) for part in value)
        if channel == SENDS:
            if type(value) is list:
                return [self.value(channel, part) for part in value]
            if getattr(value, "node", None) in self.names:
                return type(value)(self.node(value.node), value.arg)
        if channel == _SOURCE_NODE and type(value) is str:
            return self.node(value)
        return value

    def values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Channel values under present names; what stands under a present name already wins."""
        renamed = {self.channel(name): self.value(name, value) for name, value in values.items()}
        return {**renamed, **{name: renamed[name] for name in values if self.channel(name) == name}}

    def versions(self, versions: Mapping[str, Any]) -> dict[str, Any]:
        """Channel versions under present names; of two the newer."""
        found: dict[str, Any] = {}
        for name, version in versions.items():
            present = self.channel(name)
            found[present] = max(found[present], version) if present in found else version
        return found

    def seen(self, seen: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """What each node has seen."""
        found: dict[str, dict[str, Any]] = {}
        for node, versions in seen.items():
            if node == _BUMPS:
                found[node] = {self._bump(name): version for name, version in versions.items()}
            else:
                earlier = found.get(self.node(node), {})
                found[self.node(node)] = self.versions(versions) if not earlier else {**earlier, **versions}
        return found

    def _bump(self, mark: str) -> str:
        for separator in (NS_SEP, NS_END):
            node, found, channel = mark.partition(separator)
            if found and node not in ("branch", "join"):
                return f"{self.node(node)}{separator}{self.channel(channel)}"
        return mark


class Place(NamedTuple):
    """Where a task stands: what its id is made from, beside its node's name."""

    checkpoint_id: str
    v: int
    step: int  # of the task: one more than its checkpoint's


class Task(NamedTuple):
    """A task with stored writes."""

    id: str
    path: str
    name: str
    parts: tuple[str, ...]  # what its id is made from, after its name

    def ns(self, ns: str) -> str:
        """The namespace of what runs inside it."""
        return f"{in_ns(ns, self.name)}{NS_END}{self.id}"


def task_id(place: Place, ns: str, name: str, parts: Iterable[str]) -> str:
    """The id LangGraph gives to a task."""
    try:
        head = bytes.fromhex(place.checkpoint_id.replace("-", ""))
    except ValueError:
        return ""  # not one of LangGraph's
    payload = head + "".join((in_ns(ns, name), str(place.step), name, *parts)).encode("utf-8", "surrogatepass")
    digest = xxhash.xxh3_128_hexdigest(payload) if place.v > 1 else hashlib.sha1(payload).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


def recognise(
    place: Place, ns: str, id: str, path: str, sends: Sequence[Any], channels: Iterable[str], names: Iterable[str]
) -> Task | None:
    """The task behind a stored id, found by making the id again; None if that is not possible.

    Args:
        place: The checkpoint it stands at.
        ns: The namespace.
        id: Its id.
        path: Its path, as stored with its writes.
        sends: The sends of the checkpoint.
        channels: The channels of the checkpoint.
        names: Names that tasks whose path does not name them may have.
    """
    for name, parts in _candidates(id, path, sends, channels, names):
        if task_id(place, ns, name, parts) == id:
            return Task(id, path, name, parts)
    return None


def _candidates(
    id: str, path: str, sends: Sequence[Any], channels: Iterable[str], names: Iterable[str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    kind, _, rest = path.removeprefix("~").partition(", ")
    if kind == _PULL and rest and _HANDLER not in rest:
        for triggers in _triggers(rest, channels):
            yield rest, (_PULL, *triggers)
    elif kind == _PUSH and rest.endswith(", False") and _HANDLER not in rest:
        at = rest.removesuffix(", False")
        if at.isdigit() and int(at) < len(sends) and (node := getattr(sends[int(at)], "node", None)):
            yield node, (_PUSH, str(int(at)))
    elif kind == _PUSH and rest.endswith(", True"):
        parent, _, index = rest.removesuffix(", True").rpartition(", ")
        if index.isdigit():
            yield from ((name, (_PUSH, parent, str(int(index)))) for name in names)


def _triggers(name: str, channels: Iterable[str]) -> Iterator[list[str]]:
    """What may trigger a node: its branch and its joins, or a function's input."""
    joins = [channel for channel in channels if channel.startswith(_JOIN) and channel.endswith(f":{name}")]
    for size in range(min(len(joins), _MANY_JOINS), -1, -1):
        for chosen in combinations(joins, size):
            yield sorted((_BRANCH + name, *chosen))
    yield [START]


def renamed(aliases: Aliases, place: Place, ns: str, task: Task) -> Task:
    """A task as the present code makes it, in a namespace under its present name."""
    name, path = aliases.node(task.name), renamed_path(aliases, task.path)
    kind, *rest = task.parts
    rest = sorted(map(aliases.channel, rest)) if kind == _PULL else [renamed_path(aliases, part) for part in rest]
    return Task(task_id(place, ns, name, (kind, *rest)), path, name, (kind, *rest))


def names_in(path: str) -> set[str]:
    """The nodes that a task path names."""
    parts = path.split(", ")
    return {parts[at] for at in range(1, len(parts)) if parts[at - 1].strip("~") == _PULL}


def renamed_path(aliases: Aliases, path: str) -> str:
    """A task path with the present name of the node in it."""
    parts = path.split(", ")
    for at in range(1, len(parts)):
        if parts[at - 1].strip("~") == _PULL:
            parts[at] = aliases.node(parts[at])
    return ", ".join(parts)
