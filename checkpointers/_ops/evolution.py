"""Older threads under newer code: what is read is brought up to date, what is written to an old checkpoint goes back.

Nothing is rewritten: a checkpoint keeps the form it was stored in, and each reading makes the present form of it.
What a run adds to a checkpoint that names nodes as they were once called is stored under those names too, so that a
worker with the older code still finds it. The first checkpoint that the new code stores is wholly in the present
form.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

from langgraph.checkpoint.base import CheckpointTuple, PendingWrite
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME, TASKS

from stepvault._core import renames
from stepvault._core.chunks import unpack_row
from stepvault._core.codec import unpack
from stepvault._core.evolution import Evolution
from stepvault._core.ids import id_key, id_of, text_key, text_of
from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.record import Record, decode_record, decode_writes
from stepvault._core.renames import NS_END, NS_SEP, Clues, Place, Task, in_ns, interrupt_id
from stepvault._core.rows import CheckpointRow, WriteRow
from stepvault._core.runs import Former, Run
from stepvault._core.values import Decoder
from stepvault.checkpointers._ops.answers import NOBODY
from stepvault.checkpointers._ops.context import Address, Scope
from stepvault.errors import StateInvalidError

_OUTCOMES = frozenset(("__error__", "__error_source_node__", INTERRUPT, RESUME))
_INTERRUPTS = 64  # of one task


class Namespace(NamedTuple):
    """A namespace as it is stored, and under present names."""

    stored: str = ""
    present: str = ""


@dataclass(slots=True)
class Renames:
    """What the tasks of a checkpoint and their interrupts are called now."""

    space: Namespace
    tasks: dict[str, tuple[Task, Task]] = field(default_factory=dict)  # by stored id: as stored, now
    interrupts: dict[str, str] = field(default_factory=dict)  # stored -> now
    lost: list[str] = field(default_factory=list)  # nodes whose tasks cannot be recognised

    @classmethod
    def none(cls, ns: str) -> Renames:
        """Those of a checkpoint where nothing was renamed."""
        return cls(Namespace(ns, ns))

    def former(self) -> dict[str, Former]:
        """By the present id of each renamed task, what is stored of it."""
        back = {now: stored for stored, now in self.interrupts.items()}
        return {now.id: Former(was.id, was.path, was.ns, now.ns, back) for was, now in self.tasks.values()}


# -- reading


def renames_of(
    scope: Scope, key: ThreadKey, row: CheckpointRow, writes: Sequence[WriteRow], decoder: Decoder, space: Namespace
) -> Op[Renames]:
    """The renamed tasks of a checkpoint, with the interrupts of what runs inside them."""
    aliases = scope.core.evolution.aliases
    found = Renames(space)
    if not aliases:
        return found
    record = decode_record(unpack(row.body))
    place = _place(row, record, decoder)
    paths = {id_of(write.task): decode_writes(unpack(write.body)).path for write in writes if write.task != NOBODY}
    sends = _sends(record, decoder)
    names = dict.fromkeys((*aliases.names, *aliases.names.values(), *record.seen))
    clues = Clues(sends, record.versions, names)
    present = Clues(aliases.value(TASKS, sends), list(map(aliases.channel, record.versions)), names)
    for task in renames.begun(aliases, place, space.stored, clues):
        found.tasks[task.id] = (task, renames.renamed(aliases, place, space.present, task))
    for task_id, path in paths.items():
        was = renames.recognise(place, space.stored, task_id, path, clues)
        if was is not None:
            now = renames.renamed(aliases, place, space.present, was)
            if was.id != now.id:
                found.tasks[task_id] = (was, now)
            yield from _add_interrupts(scope, key, writes, decoder, found, was, now)
        elif renames.recognise(place, space.present, task_id, path, present) is None:
            found.lost += _lost(scope, place, task_id, path)
    return found


def _place(row: CheckpointRow, record: Record, decoder: Decoder) -> Place:
    step = (decoder.value(record.metadata) or {}).get("step")
    return Place(id_of(row.id), record.v, step + 1 if type(step) is int else 0)


def _sends(record: Record, decoder: Decoder) -> list[Any]:
    value = decoder.value(record.forms.get(TASKS))
    return value if type(value) is list else []


def _lost(scope: Scope, place: Place, task_id: str, path: str) -> set[str]:
    if renames.is_replay(place, task_id):
        return set()
    aliases = scope.core.evolution.aliases
    return {name for name in renames.names_in(path) if aliases.node(name) != name}


def _add_interrupts(
    scope: Scope, key: ThreadKey, writes: Sequence[WriteRow], decoder: Decoder, found: Renames, was: Task, now: Task
) -> Op[None]:
    """The ids of a task's interrupts; those that are not its own were asked in the subgraph below it."""
    asked = _asked(writes, was.id, decoder)
    if not asked:
        return
    old, new = was.ns, now.ns
    own = {interrupt_id(old, n): interrupt_id(new, n) for n in range(_INTERRUPTS)}
    found.interrupts |= {one: own[one] for one in asked if one in own and own[one] != one}
    if not asked <= own.keys():
        below = yield from renames_at(scope, key, Namespace(old, new), None)
        found.interrupts |= below.interrupts


def _asked(writes: Sequence[WriteRow], task_id: str, decoder: Decoder) -> set[str]:
    values = [
        decoder.value(write.form)
        for row in writes
        if id_of(row.task) == task_id
        for write in decode_writes(unpack(row.body)).writes
        if write.channel == INTERRUPT
    ]
    return {one.id for value in values for one in value if hasattr(one, "id")}


def renames_at(scope: Scope, key: ThreadKey, space: Namespace, checkpoint: bytes | None) -> Op[Renames]:
    """The renamed tasks of a stored checkpoint, the newest of its namespace if none is named."""
    loaded = yield from scope.core.dialect.load(key, text_key("checkpoint_ns", space.stored), checkpoint, None)
    if not loaded.checkpoints:
        return Renames(space)
    elements: dict[int, bytes] = {}
    for chunk in loaded.chunks:
        unpack_row(chunk, elements)
    decoder = scope.decoder(elements)
    return (yield from renames_of(scope, key, loaded.checkpoints[0], loaded.writes, decoder, space))


def stored_space(scope: Scope, at: Address) -> Op[Namespace]:
    """Where the namespace of a config is stored: what runs inside a renamed node stands under the node's old name."""
    present = text_of(at.ns)
    aliases = scope.core.evolution.aliases
    if not aliases or not present:
        return Namespace(present, present)
    if at.run is not None and present in at.run.spaces:
        return Namespace(at.run.spaces[present], present)
    space = Namespace()
    for segment in present.split(NS_SEP):
        name, _, task_id = segment.partition(NS_END)
        stored = in_ns(space.stored, segment)
        if space.stored != space.present or name in aliases.names.values():
            parent = at.parents.get(space.present)
            known = yield from renames_at(scope, at.key, space, id_key("checkpoint_id", parent) if parent else None)
            stored = next((was.ns for was, now in known.tasks.values() if now.id == task_id), stored)
        space = Namespace(stored, in_ns(space.present, segment))
    if at.run is not None:
        at.run.spaces[present] = space.stored
    return space


def stored_at(at: Address, space: Namespace) -> Address:
    """An address as rows have it."""
    return at if space.stored == space.present else replace(at, ns=text_key("checkpoint_ns", space.stored))


def same_space(ns: bytes) -> Namespace:
    """A namespace without renamed nodes."""
    return Namespace(text_of(ns), text_of(ns))


def evolved(
    evolution: Evolution, record: Record, found: CheckpointTuple, written: Sequence[int | None], known: Renames
) -> CheckpointTuple:
    """A checkpoint and its writes as the present code wants them.

    Args:
        evolution: What the present code says of its state.
        record: As it is stored.
        found: The same, decoded; taken over.
        written: The state version that each pending write was made under.
        known: What its tasks are called now.

    Raises:
        StateInvalidError: It is newer than this code, cannot be migrated, or does not fit the schema.
    """
    writes = found.pending_writes or []
    root = not known.space.stored
    checkpoint = cast(dict[str, Any], found.checkpoint)
    if root:
        if writes:
            writes = _migrated_writes(evolution, writes, written, checkpoint["channel_values"])
        if evolution.is_stale(record.state_version):
            _migrate(evolution, checkpoint, record.state_version)
    if evolution.aliases:
        _rename(evolution, checkpoint)
        writes = [_renamed_write(evolution, known, *write) for write in writes]
    if root and evolution.schema is not None:
        begun = (found.metadata.get("step") or 0) >= 0
        evolution.schema.check(checkpoint["channel_values"], begun=begun)
    if known.space.stored != known.space.present:
        found = found._replace(
            config=_in_space(found.config, known.space),
            parent_config=_in_space(found.parent_config, known.space) if found.parent_config else None,
        )
    return found._replace(pending_writes=writes)


def _migrated_writes(
    evolution: Evolution, writes: list[PendingWrite], written: Sequence[int | None], values: Mapping[str, Any]
) -> list[PendingWrite]:
    stale = {version for version in written if evolution.is_stale(version)}
    return [
        (task, name, one)
        for (task, channel, value), version in zip(writes, written, strict=True)
        for name, one in (evolution.write(channel, value, values, version) if version in stale else [(channel, value)])
    ]


def _migrate(evolution: Evolution, checkpoint: dict[str, Any], written: int | None) -> None:
    """Migrate the channel values; a channel that comes is as new as the newest, and nobody's reason to run."""
    before = checkpoint["channel_values"]
    after = evolution.migrated(dict(before), written)
    gone, come = before.keys() - after.keys(), [name for name in after if name not in before]
    checkpoint["channel_values"] = after
    versions = {name: version for name, version in checkpoint["channel_versions"].items() if name not in gone}
    if versions:
        newest = max(versions.values())
        versions |= dict.fromkeys(come, newest)
    checkpoint["channel_versions"] = versions
    seen = {
        node: {name: version for name, version in known.items() if name not in gone}
        for node, known in checkpoint["versions_seen"].items()
    }
    if INTERRUPT in seen and versions:
        seen[INTERRUPT] |= {name: versions[name] for name in come}
    checkpoint["versions_seen"] = seen
    if checkpoint.get("updated_channels") is not None:
        checkpoint["updated_channels"] = [name for name in checkpoint["updated_channels"] if name not in gone]


def _rename(evolution: Evolution, checkpoint: dict[str, Any]) -> None:
    aliases = evolution.aliases
    checkpoint["channel_values"] = aliases.values(checkpoint["channel_values"])
    checkpoint["channel_versions"] = aliases.versions(checkpoint["channel_versions"])
    checkpoint["versions_seen"] = aliases.seen(checkpoint["versions_seen"])
    if checkpoint.get("updated_channels") is not None:
        checkpoint["updated_channels"] = sorted({aliases.channel(name) for name in checkpoint["updated_channels"]})


def _renamed_write(evolution: Evolution, known: Renames, task: str, channel: str, value: Any) -> PendingWrite:
    now = known.tasks[task][1].id if task in known.tasks else task
    if channel == INTERRUPT:
        return now, channel, _with_ids(value, known.interrupts)
    return now, evolution.aliases.channel(channel), evolution.aliases.value(channel, value)


def _with_ids(interrupts: Any, ids: Mapping[str, str]) -> Any:
    """Interrupts with the ids they have now; the caller's stay as they are."""
    if not isinstance(interrupts, (list, tuple)) or not any(getattr(one, "id", None) in ids for one in interrupts):
        return interrupts
    changed = [copy.copy(one) for one in interrupts]
    for one in changed:
        if getattr(one, "id", None) in ids:
            one.id = ids[one.id]
    return type(interrupts)(changed)


def _in_space(config: Any, space: Namespace) -> Any:
    return {**config, "configurable": {**config["configurable"], "checkpoint_ns": space.present}}


# -- writing


def version_at(scope: Scope, at: Address) -> int | None:
    """The state version that rows written here carry: subgraphs have a state of their own."""
    return None if at.ns else scope.core.evolution.version


def lender(scope: Scope, at: Address, parent: Record | None) -> Record | None:
    """The parent of a new checkpoint, if what is stored of it may stand for what did not change since.

    Raises:
        StateInvalidError: It is newer than this code.
    """
    if parent is None or at.ns:
        return parent
    scope.core.evolution.check_writable(parent.state_version)
    return None if scope.core.evolution.is_stale(parent.state_version) else parent


def note(at: Address, known: Renames) -> None:
    """Remember what a run was told its tasks are called.

    Raises:
        StateInvalidError: A task of a renamed node cannot be recognised: the run would do it again from the start.
    """
    if at.run is None:
        return
    if known.lost and not at.addressed:
        raise StateInvalidError(
            f"Thread {text_of(at.key.thread)!r} holds unfinished work of the renamed node {known.lost[0]!r} that "
            "node_aliases cannot follow: name every @task and error handler of it as well (as itself if it keeps its "
            "name), let it finish under the old name, or drop it with update_state()."
        )
    at.run.former.update(known.former())


def inward(at: Address, task_id: str, path: str, writes: Sequence[tuple[str, Any]]) -> tuple[str, str, Any]:
    """The writes of a task as they are stored: a task that has writes under an old name keeps it there."""
    former = at.run.former.get(task_id) if at.run is not None else None
    if at.run is None or (former is None and not at.run.former):
        return task_id, path, writes
    ids = _former_ids(at.run, former)
    stored = [(channel, _with_ids(value, ids) if channel == INTERRUPT else value) for channel, value in writes]
    return (former.id, former.path, stored) if former else (task_id, path, stored)


def _former_ids(run: Run, former: Former | None) -> dict[str, str]:
    ids = {now: stored for one in run.former.values() for now, stored in one.interrupts.items()}
    if former is not None:
        ids |= {interrupt_id(former.present_ns, n): interrupt_id(former.ns, n) for n in range(_INTERRUPTS)}
        former.interrupts.update(ids)
    return ids


def former_task(run: Run | None, task_id: str) -> str:
    """The id under which a task has stored what it did before its node was renamed."""
    former = run.former.get(task_id) if run is not None else None
    return former.id if former is not None else task_id
