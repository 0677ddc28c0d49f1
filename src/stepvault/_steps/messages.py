"""The messages of a state, and what came to them from one checkpoint to the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage, convert_to_messages


class Slot(NamedTuple):
    """A message and its number in the thread; an edited message gets a new number."""

    number: int
    message: BaseMessage


class Transcript:
    """The messages of the state as it stands, each with its slot."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self._count = 0

    def move(self, messages: Sequence[BaseMessage]) -> list[Slot]:
        """Take the messages of the next checkpoint; returns those that came or changed."""
        old = self.slots
        same = 0
        while same < min(len(old), len(messages)) and _equal(old[same].message, messages[same]):
            same += 1
        kept: dict[str | None, deque[Slot]] = {}
        for slot in old[same:]:
            kept.setdefault(slot.message.id, deque()).append(slot)
        slots, came = old[:same], []
        for message in messages[same:]:
            found = next((slot for slot in kept.get(message.id, ()) if _equal(slot.message, message)), None)
            if found is not None:
                kept[message.id].remove(found)
            else:
                found = Slot(self._count, message)
                self._count += 1
                came.append(found)
            slots.append(found)
        self.slots = slots
        return came


def _equal(one: BaseMessage, other: BaseMessage) -> bool:
    return one is other or (one.id == other.id and type(one) is type(other) and one == other)


def messages_in(values: Mapping[str, Any], key: str) -> list[BaseMessage] | None:
    """The messages of a state: its channel, or what a function saved for its next call; None if it has none."""
    if key in values:
        return as_messages(values[key], key)
    for name in ("__previous__", "__root__"):
        if name in values:
            return as_messages(values[name], key)
    return None


def as_messages(value: Any, key: str) -> list[BaseMessage] | None:
    """The messages that a value is made of; None if it is made of something else."""
    if isinstance(value, BaseMessage):
        return [value]
    if isinstance(value, Mapping) and key in value:
        value = value[key]
    if not isinstance(value, (list, tuple)) or (not value and value != []):
        return None
    if all(isinstance(item, BaseMessage) for item in value):
        return list(value)
    try:
        return convert_to_messages(value) if all(_looks_like_one(item) for item in value) else None
    except Exception:  # not messages after all
        return None


def _looks_like_one(item: Any) -> bool:
    return isinstance(item, BaseMessage) or (isinstance(item, Mapping) and "role" in item and "content" in item)
