"""Values and messages as JSON that loses nothing.

What JSON can say stands as it is. Anything else (a tuple, a date, a NaN, an object) is `{"$value": base64}` of our
own encoding, and a dict that JSON or these marks would change is `{"$dict": [[key, value], ...]}`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from functools import cache
from math import isfinite
from typing import Annotated, Any

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, messages_from_dict
from pydantic import PlainSerializer, PlainValidator, ValidationInfo, WithJsonSchema

from stepvault.errors import StepvaultError
from stepvault.types import TypedSerializer

_VALUE, _DICT = "$value", "$dict"
_MARKS = {_VALUE, _DICT}
_DEPTH = 200


@cache
def _serializer() -> TypedSerializer:
    return TypedSerializer()


def to_json(value: Any, depth: int = 0) -> Any:
    """A value as JSON; `from_json` gives it back."""
    kind = type(value)
    if depth < _DEPTH:
        if value is None or kind is bool or (kind is int and abs(value) < 2**63) or (kind is float and isfinite(value)):
            return value
        if kind is str and _is_text(value):
            return value
        if kind is list:
            return [to_json(item, depth + 1) for item in value]
        if kind is dict:
            if all(type(key) is str and _is_text(key) for key in value) and not (_MARKS & value.keys()):
                return {key: to_json(item, depth + 1) for key, item in value.items()}
            return {_DICT: [[to_json(key, depth + 1), to_json(item, depth + 1)] for key, item in value.items()]}
    return {_VALUE: base64.b64encode(_serializer().dumps(value)).decode()}


def _is_text(value: str) -> bool:
    return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)


def from_json(value: Any) -> Any:
    """Read `to_json`.

    Raises:
        ValueError: A mark is not what it should be, or a type is not loaded here.
    """
    if type(value) is list:
        return [from_json(item) for item in value]
    if type(value) is not dict:
        return value
    if value.keys() == {_DICT}:
        return _dict(value[_DICT])
    if value.keys() == {_VALUE}:
        return _value(value[_VALUE])
    if _MARKS & value.keys():
        raise ValueError("a mark stands beside other keys")
    return {key: from_json(item) for key, item in value.items()}


def _dict(pairs: Any) -> dict[Any, Any]:
    if type(pairs) is not list or not all(type(pair) is list and len(pair) == 2 for pair in pairs):
        raise ValueError(f"{_DICT} is no list of pairs")
    try:
        return {from_json(key): from_json(item) for key, item in pairs}
    except TypeError as exc:
        raise ValueError(f"a key under {_DICT} cannot be one") from exc


def _value(encoded: Any) -> Any:
    if type(encoded) is not str:
        raise ValueError(f"{_VALUE} is no text")
    try:
        return _serializer().loads(base64.b64decode(encoded, validate=True))
    except binascii.Error as exc:
        raise ValueError(f"{_VALUE} is no base64") from exc
    except StepvaultError as exc:
        raise ValueError(str(exc)) from exc


def message_to_json(message: BaseMessage) -> dict[str, Any]:
    """A message as its type and the fields that are not at their defaults."""
    fields = type(message).model_fields
    data = {name: getattr(message, name) for name in fields if name != "type"}
    kept = {name: value for name, value in data.items() if value != fields[name].get_default(call_default_factory=True)}
    return {"type": message.type, "data": to_json({"content": message.content, **kept, **(message.model_extra or {})})}


def message_from_json(value: Any) -> BaseMessage:
    """Read `message_to_json`.

    Raises:
        ValueError: It is no message.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
        raise ValueError("a message is an object with type and data")
    data = from_json(value.get("data"))
    if type(data) is not dict or not all(type(key) is str for key in data):
        raise ValueError("the data of a message is an object")
    try:
        (message,) = messages_from_dict([{"type": value["type"], "data": data}])
    except Exception as exc:  # whatever the message class thinks of its fields
        raise ValueError(f"no {value['type'][:40]} message can be made of its data ({type(exc).__name__})") from exc
    return message


def _read_message(value: Any, info: ValidationInfo) -> BaseMessage:
    message = message_from_json(value) if info.mode == "json" else value
    if not isinstance(message, BaseMessage):
        raise ValueError("not a message")
    return message


def _read_ai(value: Any, info: ValidationInfo) -> AIMessage:
    message = _read_message(value, info)
    if not isinstance(message, AIMessage):
        raise ValueError("not an ai message")
    return message


def _read_system(value: Any, info: ValidationInfo) -> SystemMessage:
    message = _read_message(value, info)
    if not isinstance(message, SystemMessage):
        raise ValueError("not a system message")
    return message


def _write_value(value: Any) -> Any:
    return to_json(value)


def _read_value(value: Any, info: ValidationInfo) -> Any:
    return from_json(value) if info.mode == "json" else value


_MESSAGE_SCHEMA = WithJsonSchema(
    {
        "type": "object",
        "description": "A LangChain message: its type and the fields that are not at their defaults.",
        "properties": {"type": {"type": "string"}, "data": {"type": "object"}},
        "required": ["type", "data"],
    }
)
_WRITE = PlainSerializer(message_to_json)

_ANYTHING = WithJsonSchema(
    {"description": 'Any JSON. What JSON cannot say is {"$value": base64} or {"$dict": [[key, value], ...]}.'}
)

Message = Annotated[BaseMessage, PlainValidator(_read_message), _WRITE, _MESSAGE_SCHEMA]
AssistantMessage = Annotated[AIMessage, PlainValidator(_read_ai), _WRITE, _MESSAGE_SCHEMA]
StoredSystemMessage = Annotated[SystemMessage, PlainValidator(_read_system), _WRITE, _MESSAGE_SCHEMA]
Value = Annotated[Any, PlainValidator(_read_value), PlainSerializer(_write_value), _ANYTHING]
