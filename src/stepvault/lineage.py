"""What came from what in a thread: its runs, where each began, forks, and who decided."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, TypeAlias

RunKind: TypeAlias = Literal["input", "resume", "continue", "fork", "update"]
ItemName: TypeAlias = tuple[tuple[str, ...], str]  # namespace and key


@dataclass(frozen=True, slots=True)
class LineageDecision:
    """A human's decision that a run went on with.

    Attributes:
        interrupt_id: Of the interrupt, as the inbox names it.
        node: The node that had asked.
        by: Who decided, if it was said.
        at: When; None where a run was given the answer without a recorded decision.
        note: What they remarked.
    """

    interrupt_id: str
    node: str | None
    by: str | None
    at: datetime | None
    note: str | None


@dataclass(frozen=True, slots=True)
class LineageRead:
    """A store item that a run had read.

    Attributes:
        namespace: Where it is.
        key: What it is called there.
        updated_at: Its version then: when it had been written.
        checkpoint_id: The checkpoint the run was at.
        since: `same`, `changed` or `gone`: what became of it since; None: not known (ask `vault.lineage`).
    """

    namespace: tuple[str, ...]
    key: str
    updated_at: datetime
    checkpoint_id: str
    since: Literal["same", "changed", "gone"] | None = None


@dataclass(frozen=True, slots=True)
class LineageRun:
    """A run, or an update of the state: a line of checkpoints.

    Attributes:
        kind: `input`: it began with new input; `resume`: it went on after an interrupt, a stop or a crash; `fork`: it
            began again at an older checkpoint; `update`: `update_state`; `continue`: it shares its beginning with
            another run, but nothing tells how it began.
        run_id: LangGraph's run id, where it gave one.
        began_at: The checkpoint it began from; None: the thread began with it.
        checkpoints: Ids of its checkpoints, oldest first.
        started: When its first checkpoint was stored, by the database's clock.
        ended: When its last one was.
        forks: Another run had begun from the same checkpoint before.
        duplicates: The first checkpoint of an earlier run that resumed from the same checkpoint: two workers were at
            one question, or somebody replayed it with another answer.
        decisions: What had been asked where it began, and who decided it.
        is_head: The thread's newest checkpoint is in it.
        reads: Items it had read of the vault's store, each version once.
    """

    kind: RunKind
    run_id: str | None
    began_at: str | None
    checkpoints: tuple[str, ...]
    started: datetime
    ended: datetime
    forks: bool
    duplicates: str | None
    decisions: tuple[LineageDecision, ...]
    is_head: bool
    reads: tuple[LineageRead, ...] = ()

    @property
    def changed(self) -> tuple[LineageRead, ...]:
        """What it had read and what is not so any more."""
        return tuple(read for read in self.reads if read.since in ("changed", "gone"))

    def __str__(self) -> str:
        count = len(self.checkpoints)
        parts = [f"{self.kind} {self.started:%Y-%m-%d %H:%M:%S}, {count} checkpoint{'s' * (count != 1)}"]
        parts.append(f"to ...{self.checkpoints[-1][-8:]}")
        if self.run_id:
            parts.append(f"run {self.run_id}")
        if self.duplicates:
            parts.append(f"DUPLICATE of ...{self.duplicates[-8:]}")
        elif self.forks:
            parts.append("fork")
        parts += [f"{d.node or 'a node'} answered by {d.by or 'somebody'}" for d in self.decisions]
        if self.changed:
            parts.append(f"{len(self.changed)} of {len(self.reads)} items it read changed since")
        return ", ".join(parts) + (" <- head" if self.is_head else "")


@dataclass(frozen=True, slots=True)
class Lineage:
    """The runs of one thread, oldest first. As text: a tree; what goes straight on stands below, forks are indented."""

    thread_id: str
    runs: tuple[LineageRun, ...]

    def __iter__(self) -> Iterator[LineageRun]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def items(self) -> list[ItemName]:
        """The names of the items its runs have read."""
        return list(dict.fromkeys((read.namespace, read.key) for run in self.runs for read in run.reads))

    def compared(self, present: Mapping[ItemName, datetime]) -> Lineage:
        """This lineage, with what became of the items since.

        Args:
            present: When items that are there were last written.
        """

        def since(read: LineageRead) -> LineageRead:
            now = present.get((read.namespace, read.key))
            return replace(read, since="gone" if now is None else "same" if now == read.updated_at else "changed")

        return replace(self, runs=tuple(replace(run, reads=tuple(map(since, run.reads))) for run in self.runs))

    def __str__(self) -> str:
        lines = [f"thread {self.thread_id}: {len(self.runs)} run{'s' * (len(self.runs) != 1)}"]
        home = {checkpoint: number for number, run in enumerate(self.runs) for checkpoint in run.checkpoints}
        below: dict[int | None, list[int]] = {}
        for number, run in enumerate(self.runs):
            below.setdefault(home.get(run.began_at or ""), []).append(number)
        waiting = [(number, 0) for number in reversed(below.get(None, []))]
        while waiting:
            number, depth = waiting.pop()
            lines.append(f"{'|  ' * depth}+- {self.runs[number]}")
            children = below.get(number, [])
            straight = [child for child in children if not self.runs[child].forks]
            forks = [child for child in children if self.runs[child].forks]
            waiting += [(child, depth) for child in reversed(straight)]
            waiting += [(child, depth + 1) for child in reversed(forks)]
        return "\n".join(lines)
