"""The kinds of steps."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated, Any, Literal, TypeAlias

from langchain_core.messages import BaseMessage
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from stepvault._steps.payloads import AssistantMessage, Message, StoredSystemMessage, Value


def _in_utc(at: datetime) -> datetime:
    return at.astimezone(timezone.utc).replace(fold=0) if at.tzinfo is not None else at


Moment = Annotated[datetime, AfterValidator(_in_utc)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class Step(_Frozen):
    """What all steps have.

    Attributes:
        id: Unique in its thread, the same at every reading: the source checkpoint and a number.
        checkpoint_id: The checkpoint it was read from.
        run_id: The run that made it, where the saver knows.
        at: When; None where that is not stored.
        seconds: How long the superstep before it took, a human's time included.
        missing: Fields that are None or empty because nothing is stored of them (with `durability="exit"`, or in a
            saver that keeps less), and not because there was nothing.
    """

    id: str
    checkpoint_id: str
    run_id: str | None = None
    at: Moment | None = None
    seconds: float | None = None
    missing: tuple[str, ...] = ()

    def to_messages(self) -> list[BaseMessage]:
        """The messages of this step, in order."""
        return []


class TaskStep(Step):
    """What was asked of the graph: a human's messages, or the input of a run without messages.

    Attributes:
        messages: The messages.
        input: What else the input held, or all of it.
    """

    kind: Literal["task"] = "task"
    messages: tuple[Message, ...] = ()
    input: Value = None

    def to_messages(self) -> list[BaseMessage]:
        return list(self.messages)


class ToolResult(_Frozen):
    """The result of one tool call.

    Attributes:
        tool_call_id: The call.
        message: The tool's message; None if it never came.
        checkpoint_id: The checkpoint it was read from.
        seconds: How long the superstep took that brought it.
    """

    tool_call_id: str
    message: Message | None = None
    checkpoint_id: str | None = None
    seconds: float | None = None


class ActionStep(Step):
    """What the model said before the end, with the results of the tools it called.

    Attributes:
        message: The model's message; None if only results are stored.
        results: Results in the order in which they came, then the calls without one.
    """

    kind: Literal["action"] = "action"
    message: AssistantMessage | None = None
    results: tuple[ToolResult, ...] = ()

    @property
    def usage(self) -> dict[str, Any] | None:
        """The tokens it took, as the model said."""
        return _usage(self.message)

    def to_messages(self) -> list[BaseMessage]:
        said: list[BaseMessage] = [self.message] if self.message is not None else []
        return [*said, *(result.message for result in self.results if result.message is not None)]


class InterruptStep(Step):
    """A question to a human, or a pause before a node.

    Attributes:
        interrupt_id: LangGraph's id of it.
        node: The node that asked, where the saver knows; of a pause, the node that is next.
        value: What was asked; None for a pause.
    """

    kind: Literal["interrupt"] = "interrupt"
    interrupt_id: str | None = None
    node: str | None = None
    value: Value = None


class ResumeStep(Step):
    """A human's answer.

    Attributes:
        interrupt_id: The question it answers.
        answer: What was answered.
        by: Who decided, if it was decided through the inbox.
        note: What they remarked.
    """

    kind: Literal["resume"] = "resume"
    interrupt_id: str | None = None
    answer: Value = None
    by: str | None = None
    note: str | None = None


class FinalStep(Step):
    """How a run ended: the model's last message, or the value that a function returned.

    Attributes:
        message: The message.
        value: The value of a run without messages.
    """

    kind: Literal["final"] = "final"
    message: AssistantMessage | None = None
    value: Value = None

    @property
    def usage(self) -> dict[str, Any] | None:
        """The tokens it took, as the model said."""
        return _usage(self.message)

    def to_messages(self) -> list[BaseMessage]:
        return [self.message] if self.message is not None else []


AnyStep: TypeAlias = Annotated[
    TaskStep | ActionStep | InterruptStep | ResumeStep | FinalStep, Field(discriminator="kind")
]


class StoredSystem(_Frozen):
    """A system message found in the state: set apart from the steps.

    Attributes:
        message: The message.
        checkpoint_id: The checkpoint it was read from.
    """

    message: StoredSystemMessage
    checkpoint_id: str


def _usage(message: Any) -> dict[str, Any] | None:
    usage = getattr(message, "usage_metadata", None)
    return dict(usage) if usage is not None else None
