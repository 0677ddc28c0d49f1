"""Questions and answers of one checkpoint, from its pending writes and from what the inbox knows.

LangGraph keeps the newest question of a task and the list of the answers that the task has used. The inbox keeps every
question, and who decided what. What neither keeps is marked as missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME

from stepvault.inbox import PendingInterrupt

_SPECIAL = frozenset((ERROR, "__error_source_node__", INTERRUPT, RESUME))
NOBODY = "00000000-0000-0000-0000-000000000000"


@dataclass(slots=True)
class Asked:
    """The writes of a task that asked."""

    interrupts: list[Any] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    done: bool = False


@dataclass(slots=True)
class Question:
    """A question with what is known of its answer."""

    fields: dict[str, Any]
    missing: tuple[str, ...] = ()
    answered: bool = False
    answer: dict[str, Any] = field(default_factory=dict)
    answer_missing: tuple[str, ...] = ()


def questions_of(found: CheckpointTuple, known: Sequence[PendingInterrupt]) -> list[Question]:
    """What was asked at a checkpoint, in order."""
    tasks = _tasks(found)
    if known:
        places = accumulate((interrupt.kind == "question" for interrupt in known), initial=0)
        return [_known(interrupt, tasks, place) for place, interrupt in zip(places, known, strict=False)]
    return [question for task in tasks.values() for question in _unknown(task)]


def is_waiting(found: CheckpointTuple) -> bool:
    """Whether a task of a checkpoint waits for an answer."""
    return any(task.interrupts and not task.done for task in _tasks(found).values())


def _tasks(found: CheckpointTuple) -> dict[str, Asked]:
    tasks: dict[str, Asked] = {}
    scalar: list[Any] = []
    for task_id, channel, value in found.pending_writes or []:
        task = tasks.setdefault(task_id, Asked())
        if channel == INTERRUPT:
            task.interrupts += value if isinstance(value, (list, tuple)) else [value]
        elif channel == RESUME and task_id == NOBODY:
            scalar = [value]
        elif channel == RESUME:
            task.answers += value if isinstance(value, list) else [value]
        elif channel not in _SPECIAL:
            task.done = True
    asking = {task_id: task for task_id, task in tasks.items() if task.interrupts}
    if len(asking) == 1 and scalar:
        (task,) = asking.values()
        if not task.answers and not task.done:
            task.answers = scalar  # given, and not used yet
    return asking


def _known(interrupt: PendingInterrupt, tasks: dict[str, Asked], place: int) -> Question:
    fields = {"interrupt_id": interrupt.interrupt_id, "node": interrupt.node, "value": interrupt.value}
    question = Question({**fields, "at": interrupt.created_at})
    decision = interrupt.decision
    if decision is not None:
        question.answered = True
        question.answer = {"answer": decision.answer, "by": decision.by, "note": decision.note, "at": decision.at}
    elif interrupt.status == "answered":
        question.answered, question.answer_missing = True, ("at", "by")
        answers = [True] if interrupt.kind == "pause" else _answers_to(interrupt, tasks, place)
        if answers:
            question.answer = {"answer": answers[0]}
        else:
            question.answer_missing = ("answer", "at", "by")
    return question


def _answers_to(interrupt: PendingInterrupt, tasks: dict[str, Asked], place: int) -> list[Any]:
    """The answer to a question: of the only task that asked by its place, else the newest of the task it stands in."""
    if len(tasks) == 1:
        (task,) = tasks.values()
        return task.answers[place : place + 1]
    for task in tasks.values():
        if any(getattr(one, "id", None) == interrupt.interrupt_id for one in task.interrupts):
            return task.answers[-1:]
    return []


def _unknown(task: Asked) -> Iterator[Question]:
    """The questions of a task without an inbox: all but the newest are known by their answers only."""
    earlier = task.answers[:-1] if task.done else task.answers
    for answer in earlier:
        yield Question(
            {}, ("interrupt_id", "node", "value", "at"), True, {"answer": answer}, ("interrupt_id", "at", "by")
        )
    for interrupt in task.interrupts:
        fields = {"interrupt_id": getattr(interrupt, "id", None), "value": getattr(interrupt, "value", None)}
        question = Question(fields, ("node", "at"))
        if task.done:
            question.answered, question.answer_missing = True, ("at", "by")
            question.answer = {"answer": task.answers[-1]} if task.answers else {}
            if not task.answers:
                question.answer_missing = ("answer", "at", "by")
        yield question
