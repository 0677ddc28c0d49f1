"""From checkpoints, oldest first, to steps.

A checkpoint is compared with its parent: messages that came are steps, pending writes tell of questions. A tool call
is held until its results are there, so the questions that its tools ask come before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import INTERRUPT

from stepvault._steps.messages import Slot, Transcript, as_messages, messages_in
from stepvault._steps.models import (
    ActionStep,
    FinalStep,
    InterruptStep,
    ResumeStep,
    Step,
    StoredSystem,
    TaskStep,
    ToolResult,
)
from stepvault._steps.questions import is_waiting, questions_of
from stepvault.inbox import PendingInterrupt

_START, _END, _PREVIOUS, _SENDS = "__start__", "__end__", "__previous__", "__pregel_tasks"
_UNTIMED = ("at", "seconds")


@dataclass(slots=True)
class _Source:
    """What steps of one checkpoint have in common."""

    checkpoint_id: str
    run_id: str | None
    at: datetime | None
    seconds: float | None
    missing: tuple[str, ...]
    count: int = 0

    def fields(self, *missing: str, **more: Any) -> dict[str, Any]:
        """The fields of a new step."""
        self.count += 1
        given: dict[str, Any] = {
            "id": f"{self.checkpoint_id}:{self.count}",
            "checkpoint_id": self.checkpoint_id,
            "run_id": self.run_id,
            "at": self.at,
            "seconds": self.seconds,
            **more,
        }
        return {**given, "missing": missing if "at" in more else (*missing, *self.missing)}


@dataclass(slots=True)
class _Action:
    """A model's message whose results are still awaited."""

    source: _Source
    message: AIMessage | None
    slots: list[int]
    results: list[ToolResult] = field(default_factory=list)

    @property
    def calls(self) -> list[str]:
        return [call["id"] or "" for call in self.message.tool_calls] if self.message is not None else []

    def open_calls(self) -> list[str]:
        """Calls without a result."""
        done = {result.tool_call_id for result in self.results}
        return [call for call in self.calls if call not in done]


class Builder:
    """Takes checkpoints in order and gives steps as they are complete.

    Args:
        messages_key: The channel of the messages.
        interrupts: What the inbox knows of the thread's questions.
    """

    def __init__(self, messages_key: str, interrupts: Iterable[PendingInterrupt] = ()) -> None:
        self._key = messages_key
        self._known: dict[str, list[PendingInterrupt]] = {}
        for interrupt in interrupts:
            self._known.setdefault(interrupt.checkpoint_id, []).append(interrupt)
        self.transcript = Transcript()
        self.system: list[StoredSystem] = []
        self.flat: list[int] = []  # slots of messages in the order of the steps given, -1 for one that has none
        self.system_slots: list[int] = []
        self._action: _Action | None = None
        self._input: tuple[_Source, Any] | None = None
        self._unanswered: list[str | None] = []
        self._parent: CheckpointTuple | None = None
        self.functional = False
        self.saved: Any = None

    def feed(self, found: CheckpointTuple) -> list[Step]:
        """Take the next checkpoint."""
        source = self._source(found)
        values = found.checkpoint["channel_values"]
        self.functional = self.functional or _PREVIOUS in values or _END in values
        self.saved = values.get(_PREVIOUS, self.saved)
        steps = self._answered_unseen(found, source)
        messages = messages_in(values, self._key)
        came = self.transcript.move(messages) if messages is not None else []
        if found.metadata.get("source") == "input":
            steps += self._task()
            self._input = (source, values.get(_START))
        steps += self._messages(came, source)
        if self._ends(found):
            steps += self._finish(found, source, messages is not None)
        steps += self._questions(found, source)
        self._parent = found
        return steps

    def order(self) -> tuple[int, ...] | None:
        """Where each message of the state stands: in the messages of all steps, or -1, -2, ... in `system`.

        None if they are the messages of all steps as they stand.
        """
        places = {slot: place for place, slot in enumerate(self.flat)}
        places |= {slot: -1 - place for place, slot in enumerate(self.system_slots)}
        order = tuple(places[slot.number] for slot in self.transcript.slots)
        return None if order == tuple(range(len(self.flat))) else order

    def saved_value(self) -> Any:
        """What a function saved for its next call, unless that is the messages."""
        return None if isinstance(self.saved, list) and as_messages(self.saved, self._key) is not None else self.saved

    def end(self) -> list[Step]:
        """What is still held when there are no more checkpoints."""
        return [*self._task(), *self._flush()]

    # -- times

    def _source(self, found: CheckpointTuple) -> _Source:
        at, before = _time(found), _time(self._parent) if self._parent is not None else None
        seconds = (at - before).total_seconds() if at is not None and before is not None else None
        step, last = found.metadata.get("step"), self._parent.metadata.get("step") if self._parent is not None else -2
        collapsed = type(step) is int and type(last) is int and step - last > 1
        run_id = found.metadata.get("run_id")
        return _Source(
            found.checkpoint["id"],
            run_id if isinstance(run_id, str) else None,
            None if collapsed else at,
            None if collapsed else seconds,
            _UNTIMED if collapsed else (),  # several supersteps stored as one checkpoint
        )

    # -- messages

    def _messages(self, came: Sequence[Slot], source: _Source) -> list[Step]:
        steps: list[Step] = []
        asked: list[Slot] = []
        for slot in came:
            message = slot.message
            if isinstance(message, (AIMessage, ToolMessage)):
                steps += self._task(asked, source)
                asked = []
                steps += self._model(slot, source) if isinstance(message, AIMessage) else self._tool(slot, source)
            elif isinstance(message, SystemMessage):
                self.system.append(StoredSystem(message=message, checkpoint_id=source.checkpoint_id))
                self.system_slots.append(slot.number)
            else:
                asked.append(slot)
        return [*steps, *self._task(asked, source)] if asked else steps

    def _task(self, asked: Sequence[Slot] = (), source: _Source | None = None) -> list[Step]:
        """A step for what was asked, if it was: messages that came, or an input, or both."""
        given, self._input = self._input, None
        messages: Sequence[BaseMessage] = [slot.message for slot in asked]
        rest = None
        if given is not None:
            origin, value = given
            source = source if asked else origin
            messages = messages or as_messages(value, self._key) or ()
            rest = _without_messages(value, self._key) if messages else value
        if source is None or (not messages and rest is None):
            return []
        steps = self._flush(final=True)
        self.flat += [slot.number for slot in asked] if asked else [-1] * len(messages)
        return [*steps, TaskStep(**source.fields(messages=tuple(messages), input=rest))]

    def _model(self, slot: Slot, source: _Source) -> list[Step]:
        steps = [*self._task(), *self._flush()]
        assert isinstance(slot.message, AIMessage)
        self._action = _Action(source, slot.message, [slot.number])
        return steps

    def _tool(self, slot: Slot, source: _Source) -> list[Step]:
        message = slot.message
        assert isinstance(message, ToolMessage)
        steps: list[Step] = []
        action = self._action
        if action is None or (action.message is not None and message.tool_call_id not in action.open_calls()):
            steps = self._flush()
            action = self._action = _Action(source, None, [])
        action.slots.append(slot.number)
        action.results.append(
            ToolResult(
                tool_call_id=message.tool_call_id,
                message=message,
                checkpoint_id=source.checkpoint_id,
                seconds=source.seconds,
            )
        )
        return steps if action.message is None or action.open_calls() else [*steps, *self._flush()]

    def _flush(self, *, final: bool = False) -> list[Step]:
        """Give the action that is held; a message without calls may be the end of its run."""
        action, self._action = self._action, None
        if action is None:
            return []
        self.flat += action.slots
        if final and action.message is not None and not action.calls:
            return [FinalStep(**action.source.fields(message=action.message))]
        lost = [ToolResult(tool_call_id=call) for call in action.open_calls()]
        missing = (("results",) if lost else ()) + (("message",) if action.message is None else ())
        fields = action.source.fields(*missing, message=action.message, results=(*action.results, *lost))
        return [ActionStep(**fields)]

    # -- ends

    def _ends(self, found: CheckpointTuple) -> bool:
        """Whether a run ended here: nothing is to run next, and nobody is asked."""
        values = found.checkpoint["channel_values"]
        runs_next = values.get(_SENDS) or any(name == _START or name.startswith("branch:to:") for name in values)
        return found.metadata.get("source") != "input" and not runs_next and not is_waiting(found)

    def _finish(self, found: CheckpointTuple, source: _Source, has_messages: bool) -> list[Step]:
        values = found.checkpoint["channel_values"]
        if self._action is not None:
            return self._flush(final=True)
        if found.metadata.get("source") != "loop" or (has_messages and _END not in values):
            return []
        steps = self._task()
        if _END not in values:
            return [*steps, FinalStep(**source.fields(value=_state(values)))]
        said = as_messages(values[_END], self._key)
        if has_messages and said:
            return steps
        if said and isinstance(said[-1], AIMessage):
            self.flat.append(-1)
            return [*steps, FinalStep(**source.fields(message=said[-1]))]
        return [*steps, FinalStep(**source.fields(value=values[_END]))]

    # -- questions

    def _questions(self, found: CheckpointTuple, source: _Source) -> list[Step]:
        steps: list[Step] = []
        asked = questions_of(found, self._known.get(found.checkpoint["id"], ()))
        if asked:
            steps += self._task()
            if self._action is not None and not self._action.calls:
                steps += self._flush()
        self._unanswered = []
        for question in asked:
            plain = {"at": None, "seconds": None}
            steps.append(InterruptStep(**source.fields(*question.missing, **{**plain, **question.fields})))
            if question.answered:
                fields = {**plain, "interrupt_id": question.fields.get("interrupt_id"), **question.answer}
                steps.append(ResumeStep(**source.fields(*question.answer_missing, **fields)))
            else:
                self._unanswered.append(question.fields.get("interrupt_id"))
        return steps

    def _answered_unseen(self, found: CheckpointTuple, source: _Source) -> list[Step]:
        """Answers that left no trace but the fact that the run went on (`durability="exit"`)."""
        waiting, self._unanswered = self._unanswered, []
        if not waiting or self._parent is None or not _resumed(found, self._parent):
            return []
        plain = {"at": None, "seconds": None}
        return [
            ResumeStep(**source.fields("answer", "at", "by", interrupt_id=interrupt_id, **plain))
            for interrupt_id in waiting
        ]


def _resumed(found: CheckpointTuple, parent: CheckpointTuple) -> bool:
    """Whether a superstep began by a resume: the run marked all that its parent held as seen."""
    seen = found.checkpoint["versions_seen"].get(INTERRUPT)
    before = parent.checkpoint["versions_seen"].get(INTERRUPT)
    return found.metadata.get("source") == "loop" and seen is not None and seen != before


def _time(found: CheckpointTuple) -> datetime | None:
    try:
        return datetime.fromisoformat(found.checkpoint["ts"].replace("Z", "+00:00"))
    except (ValueError, AttributeError):
        return None


def _state(values: Mapping[str, Any]) -> dict[str, Any]:
    """The channels of the state."""
    return {name: value for name, value in values.items() if not name.startswith(("join:", "__"))}


def _without_messages(given: Any, key: str) -> Any:
    """What an input holds beside its messages."""
    if isinstance(given, dict):
        return {name: value for name, value in given.items() if name != key} or None
    return None if as_messages(given, key) is not None else given
