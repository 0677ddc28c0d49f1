"""Reads what LangGraph's `JsonPlusSerializer` wrote, msgpack and JSON, under our type policy.

It writes nothing. Unlike the original it imports no module a row names, calls no method a row names, and
returns no half-built value: what may not or cannot be revived is an error.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

import pydantic

from stepvault._core.serde import foreign, library, stdlib, wire
from stepvault._core.serde.arrays import build_array
from stepvault._core.serde.decode import Decoder
from stepvault.errors import PayloadError, UnknownTypeError, UnsupportedFormatError

if TYPE_CHECKING:
    from stepvault._core.serde.policy import Policy

_SINGLE, _ARGS, _KWARGS, _METHOD, _MODEL_V1, _MODEL_V2, _NUMPY, _DELTA = range(8)


def _path(*parts: str) -> Path:
    return Path(*parts)


_FREE: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    ("datetime", "datetime"): datetime.fromisoformat,
    ("datetime", "date"): date,
    ("datetime", "time"): time,
    ("datetime", "timedelta"): timedelta,
    ("datetime", "timezone"): timezone,
    ("zoneinfo", "ZoneInfo"): ZoneInfo,
    ("uuid", "UUID"): UUID,
    ("decimal", "Decimal"): Decimal,
    # Inside a set, a list can only have been a tuple.
    ("builtins", "set"): lambda items: set(map(foreign.hashable, items)),
    ("builtins", "frozenset"): lambda items: frozenset(map(foreign.hashable, items)),
    ("builtins", "bytes"): bytes.fromhex,
    ("builtins", "bytearray"): bytearray.fromhex,
    ("collections", "deque"): deque,
    ("re", "compile"): lambda pattern, flags=0: stdlib.BUILDERS[wire.PATTERN]([pattern, flags]),
    ("pydantic.types", "SecretStr"): pydantic.SecretStr,
    ("pydantic.types", "SecretBytes"): pydantic.SecretBytes,
    **{("ipaddress", cls.__name__): cls for cls in stdlib.IPS},
    **{(module, cls.__name__): cls for module in ("pathlib", "pathlib._local") for cls in stdlib.PATHS},
    ("pathlib", "Path"): _path,
    ("pathlib._local", "Path"): _path,
}
# `{"lc": 1}` ids name public import paths that moved over the years; the last part is what counts.
_LC1: Final = {name.partition(":")[2]: name for name in library.TRUSTED if name.startswith("langchain_core.")}


def loads_msgpack(policy: Policy, data: bytes) -> Any:
    """Decode a payload with the tag `msgpack`."""
    return _Reader(policy).whole(data)


def loads_json(policy: Policy, data: bytes) -> Any:
    """Decode a payload with the tag `json`."""
    reader = _Reader(policy)
    try:
        return json.loads(data, object_hook=reader.envelope)
    except PayloadError:
        raise
    except RecursionError:
        raise PayloadError("a stored JSON payload is nested too deeply to be read") from None
    except Exception as exc:
        raise PayloadError(f"a stored JSON payload cannot be read ({type(exc).__name__})") from None


class _Reader(Decoder):
    __slots__ = ()
    has_messages = False

    def build(self, code: int, payload: Any, data: bytes) -> Any:
        if code == _DELTA:
            cls = library.trusted_class("langgraph.checkpoint.serde.types:_DeltaSnapshot")
            if cls is None:
                raise PayloadError("a stored delta snapshot needs a newer langgraph-checkpoint")
            return cls(payload)
        if code > _DELTA:
            raise UnsupportedFormatError(f"a stored value has msgpack kind {code}, not one of LangGraph's")
        if type(payload) is not list or len(payload) < 3:
            raise PayloadError("a stored value is malformed")
        if code == _NUMPY:
            return build_array(payload)
        if type(payload[0]) is not str or type(payload[1]) is not str:
            raise PayloadError("a stored value is malformed")
        return self.revive(code, payload[0], payload[1], payload[2])

    def revive(self, code: int, module: str, name: str, payload: Any) -> Any:
        """Rebuild the object that a module, a name and arguments describe."""
        free = _FREE.get((module, name))
        if free is not None:
            if code == _ARGS:
                return free(*payload)
            return free(**payload) if code == _KWARGS else free(payload)
        stored = f"{module}:{name}"
        plan = foreign.plan_named(self.policy, stored)
        if plan is None:
            return foreign.kept(self.policy, stored, payload)
        if code == _ARGS and type(payload) is list and isinstance(plan, library.LibraryPlan):
            payload = dict(zip((*plan.names, *plan.optional), payload, strict=False))
        return foreign.made(plan, payload)

    def envelope(self, value: dict[str, Any]) -> Any:
        """Revive a JSON object that is a constructor call; anything else is data."""
        kind, ident = value.get("lc"), value.get("id")
        if value.get("type") != "constructor" or type(ident) is not list or len(ident) < 2:
            return value
        if not all(type(part) is str for part in ident):
            return value
        if kind == 2 and type(kind) is int:
            return self._constructor(".".join(ident[:-1]), ident[-1], value.get("args"), value.get("kwargs"))
        if kind == 1 and type(kind) is int and ident[0].startswith("langchain"):
            name = _LC1.get(ident[-1])
            if name is None:
                raise UnknownTypeError(
                    f"a stored value is the LangChain object {ident[-1]!r}, no message or document; "
                    "export it with the version that wrote it",
                    type_name=ident[-1],
                )
            module, _, cls = name.partition(":")
            return self.revive(_MODEL_V2, module, cls, value.get("kwargs") or {})
        return value

    def _constructor(self, module: str, name: str, args: Any, kwargs: Any) -> Any:
        if (module, name) in _FREE:
            return self.revive(_KWARGS if kwargs else _ARGS, module, name, kwargs or args or [])
        if kwargs or not args:
            return self.revive(_KWARGS, module, name, kwargs or {})
        if len(args) == 1:
            return self.revive(_SINGLE, module, name, args[0])
        return self.revive(_ARGS, module, name, args)
