"""The serializers a saver can be given, seen from the storage core.

`splits` says that a list is the concatenation of its elements, so that elements can be stored one by one.
"""

from __future__ import annotations

from typing import Any, Protocol, cast

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from stepvault.errors import ValueNotSerializableError


class Port(Protocol):
    """Values to bytes and back."""

    splits: bool
    flag: int  # set in the form of every value this port split

    def dumps(self, value: Any, /) -> bytes: ...
    def loads(self, payload: bytes, /) -> Any: ...
    def dumps_typed(self, value: Any, /) -> tuple[str, bytes]: ...
    def loads_typed(self, data: tuple[str, bytes], /) -> Any: ...


JSONPLUS_FLAG = 16


class JsonPlusPort:
    """LangGraph's own serializer: msgpack whose lists and dicts are concatenations too."""

    splits = True
    flag = JSONPLUS_FLAG

    def __init__(self, serde: JsonPlusSerializer) -> None:
        self._serde = serde

    def dumps(self, value: Any) -> bytes:
        tag, payload = self._serde.dumps_typed([value])  # in a list, None and bytes are msgpack too
        if tag != "msgpack":  # pickle_fallback: not a concatenation of anything
            raise ValueNotSerializableError(f"{type(value).__name__} is stored by pickle, which Stepvault never reads.")
        return payload[1:]

    def loads(self, payload: bytes) -> Any:
        return self._serde.loads_typed(("msgpack", payload))

    def dumps_typed(self, value: Any) -> tuple[str, bytes]:
        return self._serde.dumps_typed(value)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return self._serde.loads_typed(data)


class ForeignPort:
    """Any other serializer: values are stored whole, under the type tag it gives."""

    splits = False
    flag = 0

    def __init__(self, serde: SerializerProtocol) -> None:
        self._serde = serde

    def dumps(self, value: Any) -> bytes:
        raise NotImplementedError

    def loads(self, payload: bytes) -> Any:
        raise NotImplementedError

    def dumps_typed(self, value: Any) -> tuple[str, bytes]:
        return self._serde.dumps_typed(value)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return self._serde.loads_typed(data)


def port_for(serde: SerializerProtocol) -> Port:
    """The port of a serializer; ours is its own, and of others only an exact `JsonPlusSerializer` splits alike."""
    if getattr(serde, "splits", False):
        return cast(Port, serde)
    if type(serde) is JsonPlusSerializer and not serde.pickle_fallback:
        return JsonPlusPort(serde)
    return ForeignPort(serde)
