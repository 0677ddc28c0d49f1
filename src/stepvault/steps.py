"""A thread's history as typed steps: read, shown, moved as JSON, and continued elsewhere. See docs/steps.md."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from typing import Any, Literal, cast

from langchain_core.messages import BaseMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from typing_extensions import Self

from stepvault._core.numbers import check_count
from stepvault._core.plan import Op, arun, run
from stepvault._steps import continuing, reading
from stepvault._steps.building import Builder
from stepvault._steps.models import (
    ActionStep,
    AnyStep,
    FinalStep,
    InterruptStep,
    ResumeStep,
    Step,
    StoredSystem,
    TaskStep,
    ToolResult,
)
from stepvault._steps.payloads import Value
from stepvault.errors import ConfigurationError, StepsLoadError

__all__ = [
    "ActionStep",
    "AnyStep",
    "FinalStep",
    "InterruptStep",
    "ResumeStep",
    "Run",
    "Step",
    "StoredSystem",
    "TaskStep",
    "ToolResult",
    "aiter_steps",
    "iter_steps",
]


class Run(BaseModel):
    """A thread's history up to one checkpoint.

    Attributes:
        thread_id: The thread it was read from.
        checkpoint_id: The checkpoint up to which it was read.
        messages_key: The channel of the messages.
        steps: The steps, in order.
        system_messages: System messages found in the state.
        order: Where each message of the state stands among the messages of the steps, where that is not simply their
            order: messages may have been edited or removed. -1, -2, ... are system messages.
        memory: Whether a graph keeps its messages in its state or a function saves them for its next call.
        saved: What a function saved, if it is not just messages.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["stepvault.run"] = "stepvault.run"
    version: Literal[1] = 1
    thread_id: str
    checkpoint_id: str
    messages_key: str = "messages"
    steps: tuple[AnyStep, ...] = ()
    system_messages: tuple[StoredSystem, ...] = ()
    order: tuple[int, ...] | None = None
    memory: Literal["state", "saved"] = "state"
    saved: Value = None

    @model_validator(mode="after")
    def _order_fits(self) -> Self:
        count, system = len(_flat(self.steps)), len(self.system_messages)
        if self.order is not None and not all(-system <= place < count for place in self.order):
            raise ValueError("order names a message that is not there")
        return self

    # -- reading threads

    @classmethod
    def from_thread(
        cls, saver: Any, thread_id: str, *, messages_key: str = "messages", checkpoint_id: str | None = None
    ) -> Self:
        """Read a thread.

        Args:
            saver: Any LangGraph checkpointer; with one of ours steps also say who decided and which run they are of.
            thread_id: The thread.
            messages_key: The channel that holds the messages.
            checkpoint_id: A checkpoint to follow back, for a fork; None: the head.

        Raises:
            ConfigurationError: There is no such thread or checkpoint.
            PayloadError: A checkpoint cannot be read.
        """
        return run(cls._read(saver, thread_id, messages_key, checkpoint_id), cast(Any, None))

    @classmethod
    async def afrom_thread(
        cls, saver: Any, thread_id: str, *, messages_key: str = "messages", checkpoint_id: str | None = None
    ) -> Self:
        """Async version of `from_thread`."""
        return await arun(cls._read(saver, thread_id, messages_key, checkpoint_id), cast(Any, None))

    @classmethod
    def _read(cls, saver: Any, thread_id: str, messages_key: str, checkpoint_id: str | None) -> Op[Self]:
        ids, builder = yield from _start(saver, thread_id, messages_key, checkpoint_id)
        steps: list[Step] = []
        for first in range(0, len(ids), reading.PAGE):
            for found in (yield from reading.get_each(saver, thread_id, ids[first : first + reading.PAGE])):
                steps += builder.feed(found)
        steps += builder.end()
        return cls(
            thread_id=str(thread_id),
            checkpoint_id=ids[-1],
            messages_key=messages_key,
            steps=cast(Any, tuple(steps)),
            system_messages=tuple(builder.system),
            order=builder.order(),
            memory="saved" if builder.functional else "state",
            saved=builder.saved_value(),
        )

    # -- looking at them

    def to_messages(self, system_prompt: str | None = None) -> list[BaseMessage]:
        """The messages as the model sees them at the next turn.

        Args:
            system_prompt: Put in front, in place of system messages that the state holds; None leaves those where
                they stand.
        """
        flat = _flat(self.steps)
        order = range(len(flat)) if self.order is None else self.order
        system = [stored.message for stored in self.system_messages]
        if system_prompt is None:
            return [flat[place] if place >= 0 else system[-1 - place] for place in order]
        return [SystemMessage(system_prompt), *(flat[place] for place in order if place >= 0)]

    def iter_steps(
        self, *, since: str | datetime | None = None, limit: int | None = None, run_id: str | None = None
    ) -> Iterator[Step]:
        """The steps that come after a step id or a time, at most so many, of one run if that is named."""
        wanted = _Wanted(since, limit, run_id)
        for step in self.steps:
            yield from wanted.of([step], step.at)

    # -- JSON

    def dump_json(self, *, indent: int | None = None) -> str:
        """This run as JSON text. `load_json` gives an equal one."""
        return self.model_dump_json(indent=indent)

    @classmethod
    def load_json(cls, text: str | bytes) -> Self:
        """Read `dump_json`.

        Raises:
            StepsLoadError: It is no such text; the message says where.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as exc:
            error = exc.errors(include_url=False, include_context=False, include_input=False)[0]
            if error["loc"] == ("version",):
                raise StepsLoadError("This dump of typed steps has a format version other than 1; upgrade.") from None
            place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"])
            raise StepsLoadError(f"This is no dump of typed steps: at ${place}: {error['msg']}.") from None
        except RecursionError as exc:
            raise StepsLoadError("This is no dump of typed steps: it nests too deeply.") from exc

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """The JSON Schema of `dump_json`."""
        schema = cls.model_json_schema(mode="serialization")
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}

    # -- going on

    def continue_in(self, graph: Any, config: RunnableConfig) -> RunnableConfig:
        """Begin a new thread with what was said, so that its next turn sees it.

        Args:
            graph: A compiled graph with a checkpointer, or an entrypoint.
            config: Names the new thread.

        Returns:
            The config of the thread.

        Raises:
            ConfigurationError: The thread exists, or the graph keeps no messages under `messages_key`.
        """
        return run(continuing.begin(self, graph, config), cast(Any, None))

    async def acontinue_in(self, graph: Any, config: RunnableConfig) -> RunnableConfig:
        """Async version of `continue_in`."""
        return await arun(continuing.begin(self, graph, config), cast(Any, None))


def iter_steps(
    saver: Any,
    thread_id: str,
    *,
    since: str | datetime | None = None,
    limit: int | None = None,
    run_id: str | None = None,
    messages_key: str = "messages",
    checkpoint_id: str | None = None,
) -> Iterator[Step]:
    """The steps of a thread as they are read, page by page: a long thread never stands in memory whole.

    Args:
        saver: Any LangGraph checkpointer.
        thread_id: The thread.
        since: Only what comes after this step id, or is stored after this time.
        limit: At most this many.
        run_id: Only steps of this run.
        messages_key: The channel that holds the messages.
        checkpoint_id: A checkpoint to follow back, for a fork; None: the head.

    Raises:
        ConfigurationError: There is no such thread, checkpoint or step.
    """
    driver = cast(Any, None)
    ids, builder = run(_start(saver, thread_id, messages_key, checkpoint_id), driver)
    wanted = _Wanted(since, limit, run_id)
    for first in range(0, len(ids), reading.PAGE):
        for found in run(reading.get_each(saver, thread_id, ids[first : first + reading.PAGE]), driver):
            yield from wanted.of(builder.feed(found), found.checkpoint["ts"])
            if wanted.done:
                return
    yield from wanted.of(builder.end(), None)
    wanted.check()


async def aiter_steps(
    saver: Any,
    thread_id: str,
    *,
    since: str | datetime | None = None,
    limit: int | None = None,
    run_id: str | None = None,
    messages_key: str = "messages",
    checkpoint_id: str | None = None,
) -> AsyncIterator[Step]:
    """Async version of `iter_steps`."""
    driver = cast(Any, None)
    ids, builder = await arun(_start(saver, thread_id, messages_key, checkpoint_id), driver)
    wanted = _Wanted(since, limit, run_id)
    for first in range(0, len(ids), reading.PAGE):
        for found in await arun(reading.get_each(saver, thread_id, ids[first : first + reading.PAGE]), driver):
            for step in wanted.of(builder.feed(found), found.checkpoint["ts"]):
                yield step
            if wanted.done:
                return
    for step in wanted.of(builder.end(), None):
        yield step
    wanted.check()


def _start(saver: Any, thread_id: str, messages_key: str, checkpoint_id: str | None) -> Op[tuple[list[str], Builder]]:
    config: RunnableConfig = {"configurable": {"thread_id": thread_id}}
    if checkpoint_id is not None:
        config["configurable"]["checkpoint_id"] = checkpoint_id
    ids = yield from reading.ancestors(saver, config)
    if not ids:
        what = f"no checkpoint {checkpoint_id!r}" if checkpoint_id else "no checkpoint"
        raise ConfigurationError(f"Thread {thread_id!r} has {what}; there are no steps to read.")
    return ids, Builder(messages_key, (yield from reading.interrupts(saver, thread_id)))


class _Wanted:
    """Which steps are asked for, and how far that got."""

    def __init__(self, since: str | datetime | None, limit: int | None, run_id: str | None) -> None:
        check_count("limit", limit, least=0, optional=True)
        self._since, self._left, self._run_id = since, limit, run_id
        self._begun = since is None
        self.done = limit == 0

    def of(self, steps: Sequence[Step], at: datetime | str | None) -> Iterator[Step]:
        """Those of the steps, read at this time, that are wanted."""
        if isinstance(self._since, datetime) and at is not None:
            at = datetime.fromisoformat(at.replace("Z", "+00:00")) if isinstance(at, str) else at
            self._begun = self._begun or at > self._since
        for step in steps:
            if not self._begun:
                self._begun = step.id == self._since
            elif not self.done and self._run_id in (None, step.run_id):
                yield step
                if self._left is not None:
                    self._left -= 1
                    self.done = not self._left

    def check(self) -> None:
        """Raise ConfigurationError if the step to begin after never came."""
        if isinstance(self._since, str) and not self._begun:
            raise ConfigurationError(f"No step of this thread has the id {self._since!r}.")


def _flat(steps: Sequence[Step]) -> list[BaseMessage]:
    return [message for step in steps for message in step.to_messages()]
