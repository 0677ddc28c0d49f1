"""Equality as a stored value needs it: the same value of the same type, all the way down."""

from __future__ import annotations

import dataclasses
import math
import struct
from collections import ChainMap, defaultdict, deque
from datetime import datetime, time
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pydantic


def difference(a: Any, b: Any, path: str = "value") -> str | None:
    """Return where two values differ, None if nowhere."""
    if type(a) is not type(b):
        return f"{path}: {type(a)} is not {type(b)}"
    if isinstance(a, float):
        same = struct.pack("<d", a) == struct.pack("<d", b) or (math.isnan(a) and math.isnan(b))
        return None if same else f"{path}: {a!r} is not {b!r}"
    if isinstance(a, complex):
        return difference([a.real, a.imag], [b.real, b.imag], path)
    if isinstance(a, Decimal):
        return None if a.as_tuple() == b.as_tuple() else f"{path}: {a!r} is not {b!r}"
    if isinstance(a, pydantic.BaseModel):
        return _models(a, b, path)
    if isinstance(a, (dict, MappingProxyType)):
        return _dicts(a, b, path)
    if isinstance(a, ChainMap):
        return _sequences(a.maps, b.maps, path)
    if isinstance(a, deque):
        if a.maxlen != b.maxlen:
            return f"{path}: maxlen {a.maxlen} is not {b.maxlen}"
        return _sequences(list(a), list(b), path)
    if isinstance(a, (list, tuple)):
        return _sequences(a, b, path)
    if isinstance(a, (set, frozenset)):
        return _sets(a, b, path)
    if isinstance(a, (datetime, time)):
        return _moments(a, b, path)
    if isinstance(a, slice):
        return _sequences([a.start, a.stop, a.step], [b.start, b.stop, b.step], path)
    if dataclasses.is_dataclass(a) or hasattr(type(a), "__attrs_attrs__"):
        names = [f.name for f in getattr(type(a), "__attrs_attrs__", None) or dataclasses.fields(a)]
        return _sequences([getattr(a, n) for n in names], [getattr(b, n) for n in names], path)
    if type(a).__name__ in ("Send", "Item"):
        return _sequences([getattr(a, n) for n in a.__slots__], [getattr(b, n) for n in b.__slots__], path)
    if type(a).__module__ == "numpy":
        same = a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        return None if same else f"{path}: {a!r} is not {b!r}"
    if isinstance(a, (pydantic.SecretStr, pydantic.SecretBytes)):
        return difference(a.get_secret_value(), b.get_secret_value(), path)
    return None if a == b else f"{path}: {a!r} is not {b!r}"


def assert_same(a: Any, b: Any) -> None:
    found = difference(a, b)
    assert found is None, found


def _models(a: Any, b: Any, path: str) -> str | None:
    for name in ("__pydantic_fields_set__", "__dict__", "__pydantic_extra__", "__pydantic_private__"):
        left, right = getattr(a, name), getattr(b, name)
        if name == "__dict__":
            left = {n: left[n] for n in type(a).model_fields if n in left}
            right = {n: right[n] for n in type(b).model_fields if n in right}
        if found := difference(left, right, f"{path}.{name}"):
            return found
    return difference(a.model_dump(), b.model_dump(), f"{path}.model_dump()")


def _dicts(a: Any, b: Any, path: str) -> str | None:
    if isinstance(a, defaultdict) and a.default_factory is not b.default_factory:
        return f"{path}: factory {a.default_factory} is not {b.default_factory}"
    found = _sequences(list(a), list(b), f"{path} keys")
    return found or _sequences(list(a.values()), list(b.values()), f"{path} values")


def _sequences(a: Any, b: Any, path: str) -> str | None:
    if len(a) != len(b):
        return f"{path}: {len(a)} items are not {len(b)}"
    for index, (left, right) in enumerate(zip(a, b, strict=True)):
        if found := difference(left, right, f"{path}[{index}]"):
            return found
    return None


def _sets(a: Any, b: Any, path: str) -> str | None:
    if len(a) != len(b):
        return f"{path}: {len(a)} members are not {len(b)}"
    rest = list(b)
    for one in a:
        match = next((i for i, other in enumerate(rest) if difference(one, other) is None), None)
        if match is None:
            return f"{path}: {one!r} is missing"
        rest.pop(match)
    return None


def _moments(a: Any, b: Any, path: str) -> str | None:
    if a.replace(tzinfo=None) != b.replace(tzinfo=None) or a.fold != b.fold:
        return f"{path}: {a!r} is not {b!r}"
    if type(a.tzinfo) is not type(b.tzinfo) or str(a.tzinfo) != str(b.tzinfo) or a.tzname() != b.tzname():
        return f"{path}: zone {a.tzinfo!r} is not {b.tzinfo!r}"
    return None
