"""Interrupts that wait for a human, and what the human decided."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from langchain_core.runnables import RunnableConfig
from pydantic_core import to_jsonable_python

from stepvault._core.paging import Page

if TYPE_CHECKING:
    from langgraph.types import Command

Status: TypeAlias = Literal["pending", "decided", "answered", "superseded", "expired"]
STATUSES: tuple[Status, ...] = ("pending", "decided", "answered", "superseded", "expired")


@dataclass(frozen=True, slots=True)
class Decision:
    """A human's answer, once.

    Run the graph with it: `graph.invoke(decision.command, decision.config)`.

    Attributes:
        command: Resumes exactly this interrupt. None for a pause: LangGraph goes on from there without an input.
        config: Names its thread.
        answer: What was decided.
        by: Who decided.
        note: What they remarked.
        at: When, by the database's clock.
    """

    command: Command[Any] | None
    config: RunnableConfig
    answer: Any
    by: str | None
    note: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class PendingInterrupt:
    """One question of a graph to a human, or one pause before it goes on.

    Attributes:
        id: Unique; LangGraph's id, with a suffix in a copied thread.
        thread_id: The thread that waits.
        checkpoint_ns: Where it was asked: `""`, or the subgraph's namespace.
        checkpoint_id: The root checkpoint that waits.
        node: The node that asked.
        value: What is asked.
        response_schema: What the answer must look like, if the graph said so.
        subject: The data subject of the thread, the first if there are several.
        subjects: All of them.
        created_at: When it was asked, by the database's clock.
        deadline: When it stops waiting, if it does.
        default: The answer that counts when the deadline passes.
        status: `pending`; `decided`: answered here, not yet used by a run; `answered`: used; `superseded`: the thread
            moved on without it; `expired`.
        decision: The answer, once there is one.
        external_ref: Whatever a bot wants to find it by (a message id, a ticket).
        interrupt_id: LangGraph's id, as `Command(resume={interrupt_id: answer})` takes it.
        kind: `question`: a node called `interrupt`; `pause`: `interrupt_before` or `interrupt_after` stopped the run.
            A pause asks nothing (`value` is None), and its one answer is True: go on.
        next: The nodes that run next, where a pause knows them, as `get_state().next` names them.
    """

    id: str
    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    node: str | None
    value: Any
    response_schema: Any
    subject: str | None
    subjects: tuple[str, ...]
    created_at: datetime
    deadline: datetime | None
    default: Any
    status: Status
    decision: Decision | None
    external_ref: str | None
    interrupt_id: str
    kind: Literal["question", "pause"] = "question"
    next: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Everything that JSON can hold: times as ISO text, payloads in plain form, no command."""
        shown = {name: getattr(self, name) for name in self.__slots__ if name != "decision"}
        decided = self.decision
        shown["decision"] = decided and {name: getattr(decided, name) for name in ("answer", "by", "note", "at")}
        plain: dict[str, Any] = to_jsonable_python(shown, fallback=str, bytes_mode="base64", inf_nan_mode="strings")
        return plain


@dataclass(frozen=True, slots=True)
class InboxPage(Page[PendingInterrupt]):
    """Interrupts, oldest first, and where the next page starts (None: there is none)."""

    interrupts: list[PendingInterrupt]
    cursor: str | None

    def _rows(self) -> list[PendingInterrupt]:
        return self.interrupts


@dataclass(frozen=True, slots=True)
class Change:
    """Something happened to an interrupt: `created`, or what became of it."""

    kind: Literal["created", "decided", "answered", "superseded", "expired"]
    interrupt: PendingInterrupt


@dataclass(frozen=True, slots=True)
class ChangePage(Page[Change]):
    """Changes in the order in which they were made, and the cursor to go on from, now or later."""

    changes: list[Change]
    cursor: str

    def _rows(self) -> list[Change]:
        return self.changes
