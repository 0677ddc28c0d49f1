"""Taking a person out of stored values: declared fields, what messages say, and ids of theirs, each replaced in place.

It works on payloads as they are stored, so it needs none of the application's classes, and what it does not replace
stays byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from uuid import UUID

import ormsgpack

from stepvault._core.serde import messages, wire
from stepvault._core.serde.scrubbing_schemas import scrubbed

ERASED: Final = "[erased]"

Path: TypeAlias = "tuple[str, ...]"

_OPAQUE: Final = frozenset((
    wire.BIGINT, wire.BYTEARRAY, wire.DECIMAL, wire.FRACTION, wire.COMPLEX, wire.RANGE, wire.SLICE, wire.ELLIPSIS,
    wire.DATETIME, wire.DATE, wire.TIME, wire.TIMEDELTA, wire.TIMEZONE, wire.ZONEINFO, wire.PYDANTIC_TZ, wire.UUID,
    wire.PATH, wire.IP, wire.PATTERN, wire.NUMPY_ARRAY, wire.NUMPY_SCALAR,
))  # fmt: skip
_ROLES: Final = frozenset(("human", "user", "ai", "assistant", "system", "tool", "function", "developer"))
_ENUM: Final = "e"
_INTERRUPT: Final = "langgraph.types:Interrupt"
ASKED: Final = ("__interrupt__", "value")
SCHEMA: Final = ("__interrupt__", "response_schema")
_METADATA: Final = ("metadata",)

# What steers a graph is no data, even where it is spelt like a person's id or a declared field.
_STEERING: Final = ("join:", "branch:")  # channels of names of nodes
_KEPT: Final[Mapping[str, Collection[str]]] = {  # fields, by the class they are stored under
    "langgraph.types:Send": ("node",),
    _INTERRUPT: ("id", "response_schema"),
}
_KEPT_METADATA: Final = frozenset(("source", "step", "parents", "counters_since_delta_snapshot"))
_OF_MESSAGES: Final = frozenset((
    "content", "role", "type", "id", "name", "tool_calls", "tool_call_id", "invalid_tool_calls", "tool_call_chunks",
    "additional_kwargs", "response_metadata", "usage_metadata", "artifact", "status", "chunk_position",
))  # fmt: skip
_NOBODY: Final = bytes(16)  # of a UUID


@dataclass(frozen=True, slots=True)
class _Extension:
    """An extension type as it is stored."""

    code: int
    data: bytes


class Scrubber:
    """Replaces a person in payloads.

    Args:
        ids: The person's ids: replaced wherever they stand as a word of their own.
        fields: Declared fields, by the end of their path (`("customer", "name")` or just `("name",)`), each with the
            packed value to put in its place; None keeps the shape and blanks what is in it.
        subject_keys: Keys whose value is a person's id even if it is a number.

    `said` names channels and keys where plain text is what somebody said, as in a list of messages.
    """

    def __init__(
        self, ids: Collection[str], fields: Mapping[Path, bytes | None], subject_keys: Collection[str] = ()
    ) -> None:
        self.said = {"messages", "__error__"}
        self._ids = frozenset(ids)
        words = "|".join(re.escape(name) for name in sorted(self._ids, key=len, reverse=True) if name)
        self._words = re.compile(rf"(?<!\w)(?:{words})(?!\w)") if words else None
        self._fields = fields
        self._depths = sorted({len(path) for path in fields})
        self._subject_keys = frozenset(subject_keys)

    def payload(self, packed: bytes, path: Path) -> bytes:
        """One packed value at a path."""
        if path and path[0].startswith(_STEERING):
            return packed
        value = _unpack(packed)
        declared, replacement = self._declared(path)
        after = self._replaced(value, replacement) if declared else self._walk(value, path)
        return packed if after == value else _pack(after)

    def text(self, text: str) -> str:
        """Text without the person's ids."""
        return self._words.sub(ERASED, text) if self._words is not None else text

    def declares(self, path: Path) -> bool:
        """Whether a path is that of a declared field."""
        return self._declared(path)[0]

    def _declared(self, path: Path) -> tuple[bool, bytes | None]:
        for depth in self._depths:
            if (end := path[-depth:]) in self._fields:
                return True, self._fields[end]
        return False, None

    # -- what is looked through

    def _is_said(self, path: Path) -> bool:
        return bool(path) and (path[-1] in self.said or path == ASKED)

    def _walk(self, value: Any, path: Path) -> Any:
        kind = type(value)
        if kind is str:
            return _marked(value) if self._is_said(path) else self.text(value)
        if kind is dict:
            return scrubbed(value, lambda part: self._walk(part, ())) if path == SCHEMA else self._dict(value, path)
        if kind is list:
            if _is_pair(value) and self._is_said(path):
                return [value[0], _marked(value[1])]
            return [self._walk(item, path) for item in value]
        return self._extension(value, path) if kind is _Extension else value

    def _dict(self, value: dict[Any, Any], path: Path) -> dict[Any, Any]:
        if _is_message(value):
            return self._message(value, path)
        kept = _KEPT_METADATA if path == _METADATA else ()
        return {
            **{self._key(key): self._field(key, item, path) for key, item in value.items() if key not in kept},
            **{key: value[key] for key in kept if key in value},
        }

    def _key(self, key: Any) -> Any:
        return self.text(key) if type(key) is str else key

    def _field(self, key: Any, value: Any, path: Path) -> Any:
        if type(key) is not str:
            return self._walk(value, path)
        path = (*path, key)
        declared, replacement = self._declared(path)
        if declared:
            return self._replaced(value, replacement)
        return self._walk(self._unnumbered(value) if key in self._subject_keys else value, path)

    def _unnumbered(self, value: Any) -> Any:
        """What names people, with numbers that are the person's ids replaced."""
        if type(value) is list:
            return [self._unnumbered(one) for one in value]
        return ERASED if type(value) is int and str(value) in self._ids else value

    def _extension(self, value: _Extension, path: Path) -> Any:
        code = value.code
        if code == wire.UUID and str(UUID(bytes=_unpack(value.data)[0])) in self._ids:
            return _Extension(code, _pack([_NOBODY]))
        if code in _OPAQUE and code != wire.PATH:
            return value
        items = _unpack(value.data)
        if code == wire.TEXT:
            text = items[0].decode("utf-8", "surrogatepass")
            after = self._walk(text, path)
            return value if after == text else _text(after)
        if code == wire.MESSAGE:
            fields = messages.SHAPES[items[0]][2]
            done = self._record(dict(zip(fields, items[2:], strict=False)), path)
            return _extension(value, items, [*items[:2], *(done[name] for name in fields)])
        if code == wire.RECORD:
            return value if items[2] == _ENUM else _extension(value, items, self._object(items, path))
        if code == wire.PAIRS:
            pairs = [
                part
                for key, item in zip(items[::2], items[1::2], strict=True)
                for part in (self._walk(key, path), self._field(key, item, path))
            ]
            return _extension(value, items, pairs)
        return _extension(value, items, self._walk(items, path))

    def _object(self, items: list[Any], path: Path) -> list[Any]:
        """The parts of a stored object: its class, its fields; which of them are set, and dicts beside them."""
        name, version, kind, fields, *rest = items
        inside = self._record(fields, path, _KEPT.get(name, ()))
        if name == _INTERRUPT and type(inside) is dict:
            inside["response_schema"] = self._walk(inside.get("response_schema"), SCHEMA)
        behind = [self._walk(one, path) if type(one) is dict else self._set(one, fields) for one in rest]
        return [name, version, kind, inside, *behind]

    def _set(self, names: Any, fields: Any) -> Any:
        """Which fields of an object are set, those that it has beyond its class too."""
        return [name if name in fields else self._key(name) for name in names] if type(names) is list else names

    def _record(self, fields: Any, path: Path, kept: Collection[str] = ()) -> Any:
        """The fields of an object; a message that is stored by name (a class of its own, another version) is one."""
        if type(fields) is not dict:
            return self._walk(fields, path)
        if "content" in fields and "type" in fields and "additional_kwargs" in fields:
            return self._message(fields, path)
        return {key: item if key in kept else self._field(key, item, path) for key, item in fields.items()}

    # -- what is replaced

    def _message(self, fields: Mapping[Any, Any], path: Path) -> dict[Any, Any]:
        """A message that says nothing: what it is, its ids and what it cost stay."""
        after = {
            key if key in _OF_MESSAGES else self._key(key): item
            if key in _OF_MESSAGES
            else self._field(key, item, path)
            for key, item in fields.items()
        }
        content = after["content"]
        after["content"] = ERASED if content else content
        for name in ("additional_kwargs", "response_metadata"):
            if after.get(name):
                after[name] = {}
        for name in ("invalid_tool_calls", "tool_call_chunks"):
            if after.get(name):
                after[name] = []
        if after.get("artifact") is not None:
            after["artifact"] = None
        if after.get("name") and (
            (after.get("type") or after.get("role")) in ("human", "user") or self._names(after["name"])
        ):
            after["name"] = None
        if self._names(after.get("role")) and after["role"] not in _ROLES:
            after["role"] = ERASED
        after["tool_calls"] = [self._call(call) for call in after.get("tool_calls") or ()]
        if "tool_calls" not in fields:
            del after["tool_calls"]
        elif fields["tool_calls"] is None:
            after["tool_calls"] = None
        return after

    def _names(self, value: Any) -> bool:
        return type(value) is str and value in self._ids

    def _call(self, call: Any) -> Any:
        if type(call) is not dict:
            return self._blank(call)
        if "function" in call:  # as OpenAI's API has it: arguments are JSON text
            return {**call, "function": {**call["function"], "arguments": "{}"}}
        return {key: self._blank(item) if key == "args" else item for key, item in call.items()}

    def _replaced(self, value: Any, replacement: bytes | None) -> Any:
        if value is None or replacement is None:
            return self._blank(value)
        return _unpack(replacement)

    def _blank(self, value: Any) -> Any:
        """The same shape with nothing in it."""
        kind = type(value)
        if kind is str:
            return _marked(value)
        if kind is dict:
            return {self._key(key): self._blank(item) for key, item in value.items()}
        if kind is list:
            return [self._blank(item) for item in value]
        if kind in (int, float):
            return kind(0)
        if kind is bytes:
            return b""
        return self._blank_extension(value) if kind is _Extension else value

    def _blank_extension(self, value: _Extension) -> Any:
        if value.code in _OPAQUE:
            return None
        items = _unpack(value.data)
        if value.code == wire.TEXT:
            return ERASED
        if value.code == wire.MESSAGE:
            fields = messages.SHAPES[items[0]][2]
            if "content" in fields:
                return self._extension(value, ())
            blank = [
                item if name == "type" else self._blank(item) for name, item in zip(fields, items[2:], strict=False)
            ]
            return _extension(value, items, [*items[:2], *blank])
        if value.code == wire.RECORD:
            if items[2] == _ENUM:
                return None
            rest = [self._blank(one) if type(one) is dict else self._set(one, items[3]) for one in items[4:]]
            return _extension(value, items, [*items[:3], self._blank(items[3]), *rest])
        if value.code == wire.PAIRS:
            return _extension(value, items, [self._blank(item) if n % 2 else item for n, item in enumerate(items)])
        return _extension(value, items, self._blank(items))


def says_something(packed: bytes) -> bool:
    """Whether a packed value is a message, or a list that begins with one."""
    value = _unpack(packed)
    first = value[0] if type(value) is list and value else value
    if type(first) is dict:
        return _is_message(first)
    if type(first) is not _Extension or first.code not in (wire.MESSAGE, wire.RECORD):
        return False
    items = _unpack(first.data)
    if first.code == wire.MESSAGE:
        return "content" in messages.SHAPES[items[0]][2]
    return type(items[3]) is dict and "content" in items[3] and "additional_kwargs" in items[3]


def _marked(text: str) -> str:
    return ERASED if text else text


def _is_message(value: Mapping[Any, Any]) -> bool:
    return "content" in value and ("role" in value or str(value.get("type")) in _ROLES)


def _is_pair(value: Sequence[Any]) -> bool:
    """Whether this is a message as a pair of role and text."""
    return len(value) == 2 and type(value[0]) is str and value[0] in _ROLES and type(value[1]) is str


def _text(text: str) -> Any:
    try:
        text.encode()
    except UnicodeEncodeError:
        return _Extension(wire.TEXT, ormsgpack.packb([text.encode("utf-8", "surrogatepass")]))
    return text


def _extension(before: _Extension, items: Any, after: Any) -> _Extension:
    return before if after == items else _Extension(before.code, _pack(after))


def _unpack(packed: bytes) -> Any:
    return ormsgpack.unpackb(packed, ext_hook=_Extension, option=wire.UNPACK)


def _pack(value: Any) -> bytes:
    return ormsgpack.packb(value, default=_ext, option=wire.PACK | ormsgpack.OPT_NON_STR_KEYS)


def _ext(value: Any) -> Any:
    if type(value) is _Extension:
        return ormsgpack.Ext(value.code, value.data)
    raise TypeError
