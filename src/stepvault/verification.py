"""What `verify()` finds: checkpoints that cannot be read, and threads that wait for something the code lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

ProblemKind: TypeAlias = Literal[
    "unreadable", "type not loaded", "state invalid", "node gone", "channel gone", "thread unreadable"
]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something a thread holds that this process cannot use.

    Attributes:
        kind: `unreadable`: damaged; `type not loaded`: a class is not loaded or registered in this process, the row is
            sound; `state invalid`: it cannot be migrated or does not fit `state_schema`; `node gone`, `channel gone`:
            the graph has no such node or channel any more; `thread unreadable`: nothing of it could be read.
        thread_id: The thread.
        checkpoint_ns: The namespace; `""` is the root.
        checkpoint_id: The checkpoint, None if it is about the whole thread.
        reason: What is wrong.
        nearest: The nearest older checkpoint of the namespace that can be read, see `repair`.
    """

    kind: ProblemKind
    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str | None
    reason: str
    nearest: str | None = None

    def __str__(self) -> str:
        place = f"thread {self.thread_id!r}"
        if self.checkpoint_ns:
            place += f", namespace {self.checkpoint_ns!r}"
        if self.checkpoint_id:
            place += f", checkpoint {self.checkpoint_id}"
        older = f" (nearest older readable checkpoint: {self.nearest})" if self.nearest else ""
        return f"{place}: {self.kind}: {self.reason}{older}"


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was looked at and what is wrong with it.

    Attributes:
        threads: How many threads were read.
        checkpoints: How many checkpoints, subgraphs included.
        problems: What is wrong, newest threads and checkpoints first.
    """

    threads: int = 0
    checkpoints: int = 0
    problems: tuple[Problem, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def __add__(self, other: VerifyReport) -> VerifyReport:
        return VerifyReport(
            self.threads + other.threads, self.checkpoints + other.checkpoints, self.problems + other.problems
        )

    def __str__(self) -> str:
        counts = f"{_count(self.threads, 'thread')}, {_count(self.checkpoints, 'checkpoint')}"
        return "\n".join((f"{counts}: {_count(len(self.problems), 'problem')}", *map(str, self.problems)))


def _count(number: int, name: str) -> str:
    return f"{number or 'no'} {name}{'' if number == 1 else 's'}"
