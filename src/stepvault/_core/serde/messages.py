"""LangChain messages and documents, the bulk of most threads: fields in a fixed order, no validation.

The field orders are part of the format. A message class whose fields are others (a newer langchain-core) is
stored as a record with names instead; a stored message whose class has changed since goes through the class's
validator.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

from pydantic import BaseModel

from stepvault._core.serde import wire
from stepvault._core.serde.wire import Reduced
from stepvault.errors import PayloadError, StateInvalidError

_BASE: Final = ("content", "additional_kwargs", "response_metadata", "type", "name", "id")
_AI: Final = (*_BASE, "tool_calls", "invalid_tool_calls", "usage_metadata")
_TOOL: Final = (*_BASE, "tool_call_id", "artifact", "status")
_PACKAGE: Final = "langchain_core.messages"

# Append only: a stored message names its row here.
SHAPES: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    (f"{_PACKAGE}.human", "HumanMessage", _BASE),
    (f"{_PACKAGE}.ai", "AIMessage", _AI),
    (f"{_PACKAGE}.tool", "ToolMessage", _TOOL),
    (f"{_PACKAGE}.system", "SystemMessage", _BASE),
    (f"{_PACKAGE}.ai", "AIMessageChunk", (*_AI, "tool_call_chunks", "chunk_position")),
    (f"{_PACKAGE}.human", "HumanMessageChunk", _BASE),
    (f"{_PACKAGE}.system", "SystemMessageChunk", _BASE),
    (f"{_PACKAGE}.tool", "ToolMessageChunk", _TOOL),
    (f"{_PACKAGE}.chat", "ChatMessage", (*_BASE, "role")),
    (f"{_PACKAGE}.chat", "ChatMessageChunk", (*_BASE, "role")),
    (f"{_PACKAGE}.function", "FunctionMessage", _BASE),
    (f"{_PACKAGE}.function", "FunctionMessageChunk", _BASE),
    (f"{_PACKAGE}.modifier", "RemoveMessage", _BASE),
    (f"{_PACKAGE}.base", "BaseMessage", _BASE),
    (f"{_PACKAGE}.base", "BaseMessageChunk", _BASE),
    ("langchain_core.documents.base", "Document", ("id", "metadata", "page_content", "type")),
)
_INDEX: Final = {(module, name): index for index, (module, name, _) in enumerate(SHAPES)}
_MAX_MASKS: Final = 1024

# What `object.__setattr__` would find each time: the four parts of a pydantic model's state.
_set_dict, _set_fields_set, _set_extra, _set_private = (
    BaseModel.__dict__[name].__set__
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


@dataclass(slots=True)
class Shape:
    """One message class as this process has it."""

    index: int
    cls: Any
    fields: tuple[str, ...]
    exact: bool
    size: int
    extra: dict[str, Any] | None
    pick: Callable[[Any], tuple[Any, ...]]
    labels: tuple[str, ...]
    masks: dict[tuple[str, ...], int] = field(default_factory=dict)
    sets: dict[int, frozenset[str]] = field(default_factory=dict)

    def mask_of(self, names: tuple[str, ...]) -> int:
        """Return the bits of the fields set; KeyError when one is not a field."""
        mask = 0
        for name in names:
            if name not in self.fields:
                raise KeyError(name)
            mask |= 1 << self.fields.index(name)
        if len(self.masks) >= _MAX_MASKS:
            self.masks.clear()
        self.masks[names] = mask
        return mask

    def set_of(self, mask: int) -> frozenset[str]:
        """Return the names of the fields set."""
        if type(mask) is not int or mask < 0 or mask >> self.size:
            raise PayloadError("a stored message names fields it does not have")
        found = frozenset(name for bit, name in enumerate(self.fields) if mask >> bit & 1)
        if len(self.sets) >= _MAX_MASKS:
            self.sets.clear()
        self.sets[mask] = found
        return found

    def payload(self, message: Any) -> list[Any] | None:
        """Return index, mask and values; None if this message has more than its class's fields."""
        values = message.__dict__
        if (
            len(values) != self.size
            or message.__pydantic_private__ is not None
            or message.__pydantic_extra__ != self.extra
        ):
            return None
        names = (*message.__pydantic_fields_set__,)
        try:
            mask = self.masks.get(names)
            return [self.index, self.mask_of(names) if mask is None else mask, *self.pick(values)]
        except KeyError:
            return None

    def restore(self, payload: list[Any]) -> Any:
        """Rebuild a message from index, mask and values."""
        mask = payload[1]
        fields_set = self.sets.get(mask)
        if fields_set is None:
            fields_set = self.set_of(mask)
        values = dict(zip(self.fields, payload[2:], strict=False))
        if len(payload) != self.size + 2:
            raise PayloadError("a stored message has too many or too few fields")
        if not self.exact:
            return self._validated(values, fields_set)
        message = self.cls.__new__(self.cls)
        _set_dict(message, values)
        _set_fields_set(message, set(fields_set))
        _set_extra(message, None if self.extra is None else {})
        _set_private(message, None)
        return message

    def _validated(self, values: dict[str, Any], fields_set: frozenset[str]) -> Any:
        # Another langchain-core: new fields take their defaults, dropped ones stay as extras.
        try:
            message = self.cls.model_validate(values)
        except Exception as exc:
            raise StateInvalidError(
                f"a stored {self.cls.__name__} does not fit this langchain-core ({type(exc).__name__}); "
                "install the version that wrote it"
            ) from None
        message.__pydantic_fields_set__.intersection_update(fields_set)
        return message


_shapes: dict[int, Shape] = {}


def shape(index: Any) -> Shape:
    """Return the shape with this number. Only this table's own modules are ever imported."""
    found = _shapes.get(index)
    if found is None:
        if type(index) is not int or not 0 <= index < len(SHAPES):
            raise PayloadError("a stored message is of a kind this version does not know; upgrade Stepvault")
        module, name, fields = SHAPES[index]
        cls = getattr(importlib.import_module(module), name)
        exact = tuple(cls.model_fields) == fields and not cls.__private_attributes__
        labels = ("", "", *(f".{one}" for one in fields))
        extra: dict[str, Any] | None = {} if cls.model_config.get("extra") == "allow" else None
        found = _shapes[index] = Shape(index, cls, fields, exact, len(fields), extra, itemgetter(*fields), labels)
    return found


def shape_of(cls: type) -> Shape | None:
    """Return the shape of exactly this class, None if it is not stored as one."""
    index = _INDEX.get((cls.__module__, cls.__qualname__))
    if index is None:
        return None
    found = shape(index)
    return found if found.cls is cls and found.exact else None


def reduce_message(found: Shape, message: Any) -> Reduced | None:
    """Return the compact form of a message, None if it must be a record."""
    payload = found.payload(message)
    return None if payload is None else (wire.MESSAGE, payload, found.labels)
