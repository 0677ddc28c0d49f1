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
        pairs: Any = {} if given is None else given
        if not isinstance(pairs, Mapping) or not all(type(n) is str and n for pair in pairs.items() for n in pair):
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
        former = [name for name in values if self.channel(name) != name]
        renamed = {self.channel(name): self.value(name, values[name]) for name in former}
        return {**renamed, **{name: self.value(name, value) for name, value in values.items() if name not in former}}

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
    """A task, and what its id is made from."""

    id: str
    path: str
    name: str
    base: str  # the namespace it runs in: for a call, that of its caller
    parts: tuple[str, ...]
    caller: Task | None = None

    @property
    def ns(self) -> str:
        """The namespace of what runs inside it."""
        return f"{in_ns(self.base, self.name)}{NS_END}{self.id}"


class Clues(NamedTuple):
    """What a checkpoint tells of its tasks, beside their paths."""

    sends: Sequence[Any]
    channels: Iterable[str]
    names: Iterable[str]  # of tasks whose path does not name them


def recognise(place: Place, ns: str, id: str, path: str, clues: Clues) -> Task | None:
    """The task behind a stored id, found by making the id again; None if that is not possible."""
    return next((task for task in _possible(place, ns, path, clues) if task.id == id), None)


def is_replay(place: Place, id: str) -> bool:
    """Whether a row is no task's, but what DeltaChannels are rebuilt from: its id begins with a step in eight digits.

    One hash in forty begins with eight digits too, so the step must be the one after the checkpoint, or the next.
    """
    return id[:8].isdigit() and int(id[:8]) - place.step in (0, 1)


def begun(aliases: Aliases, place: Place, ns: str, clues: Clues) -> Iterator[Task]:
    """The tasks of a stored checkpoint that run renamed nodes, whether or not they have written anything."""
    for name in aliases.names:
        if any(channel == _BRANCH + name or _ends_at(channel, name) for channel in clues.channels):
            yield from _possible(place, ns, f"~{_PULL}, {name}", clues)
    for at, send in enumerate(clues.sends):
        if getattr(send, "node", None) in aliases.names:
            yield from _possible(place, ns, f"~{_PUSH}, {at:010d}, {0:010d}", clues)


def _ends_at(channel: str, name: str) -> bool:
    return channel.startswith(_JOIN) and channel.endswith(f":{name}")


def _possible(place: Place, ns: str, path: str, clues: Clues) -> Iterator[Task]:
    """The tasks that may have a path."""
    kind, _, rest = path.removeprefix("~").partition(", ")
    if not rest or _HANDLER in rest:
        return
    if kind == _PULL:
        for triggers in _triggers(rest, clues.channels):
            yield _made(place, ns, path, rest, (_PULL, *triggers))
    elif kind == _PUSH:
        parts = rest.split(", ")  # where it was called from, which of the calls, whether it is a call
        caller_path, index = ", ".join(parts[:-2]), parts[-2] if len(parts) > 1 else ""
        if not index.isdigit():
            return
        if not caller_path and int(index) < len(clues.sends):
            yield _made(place, ns, path, getattr(clues.sends[int(index)], "node", ""), (_PUSH, str(int(index))))
        for caller in _possible(place, ns, caller_path, clues):
            for name in clues.names:
                yield _made(place, caller.ns, path, name, (_PUSH, caller_path, str(int(index))), caller)


def _made(place: Place, base: str, path: str, name: str, parts: tuple[str, ...], caller: Task | None = None) -> Task:
    try:
        head = bytes.fromhex(place.checkpoint_id.replace("-", ""))
    except ValueError:
        head = b""  # not one of LangGraph's: the id will not fit
    payload = head + "".join((in_ns(base, name), str(place.step), name, *parts)).encode("utf-8", "surrogatepass")
    digest = xxhash.xxh3_128_hexdigest(payload) if place.v > 1 else hashlib.sha1(payload).hexdigest()
    id = f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
    return Task(id, path, name, base, parts, caller)


def _triggers(name: str, channels: Iterable[str]) -> Iterator[list[str]]:
    """What may trigger a node: its branch and its joins, or a function's input."""
    joins = [channel for channel in channels if _ends_at(channel, name)]
    for size in range(min(len(joins), _MANY_JOINS), -1, -1):
        for chosen in combinations(joins, size):
            yield sorted((_BRANCH + name, *chosen))
    yield [START]


def renamed(aliases: Aliases, place: Place, ns: str, task: Task) -> Task:
    """A task as the present code makes it, in a namespace under its present name."""
    name, path = aliases.node(task.name), renamed_path(aliases, task.path)
    kind, *rest = task.parts
    if task.caller is not None:
        caller = renamed(aliases, place, ns, task.caller)
        return _made(place, caller.ns, path, name, (kind, caller.path, rest[-1]), caller)
    parts = sorted(map(aliases.channel, rest)) if kind == _PULL else rest
    return _made(place, ns, path, name, (kind, *parts))


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
