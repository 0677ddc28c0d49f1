"""Shortening the messages of a thread that lives on: what is kept, and what was done.

Nothing here touches a database; `saver.compact_thread` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeAlias

from langchain_core.messages import BaseMessage

from stepvault._core.numbers import check_count
from stepvault.errors import ConfigurationError

Summarise: TypeAlias = Callable[[list[Any]], Any]
CountTokens: TypeAlias = Callable[[list[Any]], int]

PROVENANCE = "stepvault_compaction"  # in the `response_metadata` of a summary, which no provider is sent
_ROLES = {"user": "human", "assistant": "ai", "developer": "system"}
_KINDS = (*_ROLES, "human", "ai", "system", "tool", "function", "chat")


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What `compact_thread` did, or would do.

    Attributes:
        thread_id: The thread.
        checkpoint_id: The checkpoint it made; None in a dry run, and where there was nothing to remove.
        compacted_from: The checkpoint whose messages were shortened; they are still there.
        removed: Ids of the messages that were taken out, in order; None for one without an id.
        kept: How many messages stayed.
        summary_id: Id of the message that holds the summary, if one was made.
        characters_before: Characters in the text and tool calls of all messages.
        characters_after: The same afterwards; in a dry run without the summary.
        tokens_before: What `count_tokens` says, if it was given.
        tokens_after: The same afterwards.
        dry_run: Whether nothing was to be changed.
    """

    thread_id: str
    checkpoint_id: str | None
    compacted_from: str
    removed: tuple[str | None, ...]
    kept: int
    summary_id: str | None
    characters_before: int
    characters_after: int
    tokens_before: int | None
    tokens_after: int | None
    dry_run: bool

    @property
    def characters_saved(self) -> int:
        """Characters that a model is no longer sent."""
        return self.characters_before - self.characters_after

    @property
    def tokens_saved(self) -> int | None:
        """Tokens that a model is no longer sent, if `count_tokens` was given."""
        if self.tokens_before is None or self.tokens_after is None:
            return None
        return self.tokens_before - self.tokens_after


@dataclass(frozen=True, slots=True)
class Compaction:
    """What to keep of a thread's messages, and what to put in the place of the rest.

    Attributes:
        keep_messages: So many of the newest stay.
        summarise: Makes a summary of the messages that go; None: they go without one.
        keep_types: Messages of these types stay: names (`"system"`, `"human"`, ...) or classes.
        messages_key: The channel that holds the messages.
        count_tokens: Counts the tokens of messages, for the report.
    """

    keep_messages: int
    summarise: Summarise | None = None
    keep_types: Sequence[str | type] = ("system",)
    messages_key: str = "messages"
    count_tokens: CountTokens | None = None

    def __post_init__(self) -> None:
        check_count("keep_messages", self.keep_messages, least=0)
        if isinstance(self.keep_types, (str, type)):
            raise ConfigurationError('keep_types is a sequence such as ("system",).')
        for kind in self.keep_types:
            _check_kind(kind)
        for name in ("summarise", "count_tokens"):
            given = getattr(self, name)
            if given is not None and not callable(given):
                raise ConfigurationError(f"{name} must be a callable that takes messages.")

    def goes(self, messages: Sequence[Any]) -> list[bool]:
        """Which messages go. A tool call and its results stay or go together; calls without a result stay."""
        newest = len(messages) - self.keep_messages
        stays = [at >= newest or self._is_kept(message) for at, message in enumerate(messages)]
        for unit in _units(messages):
            if any(stays[at] for at in unit.members) or unit.waits:
                for at in unit.members:
                    stays[at] = True
        return [not stay for stay in stays]

    def _is_kept(self, message: Any) -> bool:
        if is_summary(message):  # an earlier summary is summed up in the next one
            return False
        kind = type_of(message)
        wanted = {_ROLES.get(name, name) for name in self.keep_types if isinstance(name, str)}
        classes = tuple(cls for cls in self.keep_types if isinstance(cls, type))
        return kind in wanted or (bool(classes) and isinstance(message, classes))


def _check_kind(kind: Any) -> None:
    """Refuse what is a slip: what it was to keep would go."""
    if not isinstance(kind, (str, type)):
        raise ConfigurationError(f"keep_types holds names and classes of messages, not {kind!r}.")
    near = [] if isinstance(kind, type) or kind in _KINDS else get_close_matches(kind, _KINDS, 1, 0.8)
    if near:
        raise ConfigurationError(
            f"keep_types holds {kind!r}; did you mean {near[0]!r}? If it is a type of your own, give its class."
        )


@dataclass(slots=True)
class _Unit:
    """A message with tool calls, and their results."""

    members: list[int]
    waits: bool


def _units(messages: Sequence[Any]) -> list[_Unit]:
    units: list[_Unit] = []
    asked: dict[str, tuple[_Unit, set[str]]] = {}
    for at, message in enumerate(messages):
        calls = set(_calls(message))
        if calls:
            unit = _Unit([at], True)
            units.append(unit)
            asked.update(dict.fromkeys(calls, (unit, calls)))
        for result in _results(message):
            if result in asked:
                unit, open_calls = asked[result]
                unit.members.append(at)
                open_calls.discard(result)
                unit.waits = bool(open_calls)
    return units


def type_of(message: Any) -> str | None:
    """`human`, `ai`, `system`, `tool`, ...; None for what is no message."""
    if isinstance(message, BaseMessage):
        return message.type
    if isinstance(message, Mapping) and isinstance(role := message.get("role", message.get("type")), str):
        return _ROLES.get(role, role)
    return None


def id_of(message: Any) -> str | None:
    """The id of a message, if it has one."""
    found = message.get("id") if isinstance(message, Mapping) else getattr(message, "id", None)
    return found if isinstance(found, str) else None


def is_summary(message: Any) -> bool:
    """Whether a message is a summary that `compact_thread` made."""
    return PROVENANCE in (getattr(message, "response_metadata", None) or {})


def characters(messages: Iterable[Any]) -> int:
    """Characters in the text and tool calls of messages."""
    return sum(len(text) for message in messages for text in _texts(message))


def _texts(message: Any) -> Iterator[str]:
    content = _field(message, "content")
    for part in content if isinstance(content, (list, tuple)) else (content,):
        text = part.get("text") if isinstance(part, Mapping) else part
        yield text if isinstance(text, str) else "" if part is None else str(part)
    for call in _field(message, "tool_calls") or ():
        yield str(call.get("name", call.get("function", ""))) + str(call.get("args", ""))


def _calls(message: Any) -> Iterator[str]:
    """Ids of the tool calls in a message, as LangChain or a provider spells them."""
    for name in ("tool_calls", "invalid_tool_calls"):
        yield from (call["id"] for call in _field(message, name) or () if isinstance(call.get("id"), str))
    yield from (block["id"] for block in _blocks(message, "tool_use") if isinstance(block.get("id"), str))


def _results(message: Any) -> Iterator[str]:
    """Ids of the tool calls that a message answers."""
    if isinstance(found := _field(message, "tool_call_id"), str):
        yield found
    blocks = _blocks(message, "tool_result")
    yield from (block["tool_use_id"] for block in blocks if isinstance(block.get("tool_use_id"), str))


def _blocks(message: Any, kind: str) -> Iterator[Mapping[str, Any]]:
    content = _field(message, "content")
    for block in content if isinstance(content, (list, tuple)) else ():
        if isinstance(block, Mapping) and block.get("type") == kind:
            yield block


def _field(message: Any, name: str) -> Any:
    return message.get(name) if isinstance(message, Mapping) else getattr(message, name, None)
