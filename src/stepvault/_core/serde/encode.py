"""Writing: a fast encoder that lets ormsgpack do the work, and an exact one that finds what it must not do.

Both give the same bytes for the same value. The fast one gives up on the first thing that needs care (a lone
surrogate, a key that is not a str, a bytearray, a value that cannot be stored); the exact one walks in
Python, so it knows the path and can say what is wrong and where.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import ormsgpack

from stepvault._core.serde import wire
from stepvault._core.serde.wire import NeedsExactError, Refused, array_header, map_header, qualified
from stepvault.errors import ValueNotSerializableError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepvault._core.serde.policy import Policy

_packb = ormsgpack.packb
_Ext = ormsgpack.Ext
_ATOMS: Final = frozenset({str, int, float, bool, type(None), bytes})
# ormsgpack writes these as something they are not.
_TRAPS: Final = frozenset(
    {bytearray, memoryview, ormsgpack.Ext, getattr(ormsgpack, "Fragment", ormsgpack.Ext)}
)
_PLAIN_KEYS: Final = frozenset({str, int, float, bool, type(None), bytes})
_WIDE: Final = 24


def dumps(policy: Policy, value: Any) -> bytes:
    """Encode one value."""
    try:
        return _Fast(policy).pack([value], 0)[1:]
    except Exception:  # whatever it was, the exact encoder finds it again and names the place
        return Exact(policy).encode(value, "", 0)


def _scan(items: Iterable[Any], depth: int) -> int:
    """Return how deep these items nest; raise on what ormsgpack would change."""
    if depth > wire.MAX_DEPTH:
        raise NeedsExactError
    deepest = depth
    for item in items:
        cls = type(item)
        if cls is str or cls is int or item is None:
            continue
        if cls is dict:
            if item:
                below = _scan(item.values(), depth + 1)
                if below > deepest:
                    deepest = below
        elif cls is list:
            if item and not (len(item) > _WIDE and _ATOMS.issuperset(map(type, item))):
                below = _scan(item, depth + 1)
                if below > deepest:
                    deepest = below
        elif cls in _TRAPS:
            raise NeedsExactError
    return deepest


class _Fast:
    """One call of `dumps`. `depth` is an upper bound of where the value at hand stands."""

    __slots__ = ("depth", "policy", "writers")

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.writers = policy.shapes
        self.depth = 0

    def pack(self, payload: list[Any], depth: int) -> bytes:
        outer = self.depth
        self.depth = _scan(payload, depth)
        data = _packb(payload, self.hook, wire.PACK)
        self.depth = outer
        return data

    def hook(self, value: Any) -> Any:
        found = self.writers.get(type(value))
        if found is not None:
            payload = found.payload(value)
            if payload is not None:
                return _Ext(wire.MESSAGE, self.pack(payload, self.depth + 1))
        reduced = self.policy.reduce(value)
        if type(reduced) is not tuple:
            return reduced
        code, items, _ = reduced
        if code == wire.RAW:
            return _Ext(wire.RECORD, items[0])
        if code == wire.SET or code == wire.FROZENSET:
            parts = sorted([self.pack([item], self.depth + 1)[1:] for item in items])
            return _Ext(code, array_header(len(parts)) + b"".join(parts))
        return _Ext(code, self.pack(items, self.depth + 1))


class Exact:
    """The encoder that knows where it is."""

    __slots__ = ("parents", "policy")

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.parents: set[int] = set()

    def encode(self, value: Any, path: str, depth: int) -> bytes:
        """Return the bytes of a value; raise ValueNotSerializableError with its path."""
        cls = type(value)
        if cls in _ATOMS:
            return self._atom(value, cls, path)
        if depth > wire.MAX_DEPTH:
            raise _error(path, cls, f"is nested deeper than {wire.MAX_DEPTH} levels; store it flat")
        if id(value) in self.parents:
            raise _error(path, cls, "contains itself; break the cycle before it is stored")
        self.parents.add(id(value))
        try:
            if cls is list:
                return self._array(value, path, depth)
            if cls is dict:
                return self._mapping(value, path, depth)
            return self._other(value, path, depth)
        except Refused as exc:
            raise _error(path, cls, str(exc)) from None
        except RecursionError:
            raise _error(path, cls, "is nested too deeply for the Python stack; store it flat") from None
        finally:
            self.parents.discard(id(value))

    def _atom(self, value: Any, cls: type, path: str) -> bytes:
        if cls is int and not -(1 << 63) <= value < 1 << 64:
            return self._other(value, path, 0)
        try:
            return _packb(value)
        except TypeError:
            return _ext(wire.TEXT, array_header(1) + _packb(value.encode("utf-8", "surrogatepass")))

    def _below(self, value: Any, path: str, depth: int) -> bytes:
        # Most of a value that needs care is harmless: try each part the fast way first.
        if type(value) in _ATOMS:
            return self._atom(value, type(value), path)
        try:
            fast = _Fast(self.policy)
            fast.depth = depth
            return fast.pack([value], depth)[1:]
        except Exception:  # the exact encoder finds it again
            return self.encode(value, path, depth)

    def _array(self, value: list[Any], path: str, depth: int) -> bytes:
        parts = [self._below(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
        return array_header(len(parts)) + b"".join(parts)

    def _mapping(self, value: dict[Any, Any], path: str, depth: int) -> bytes:
        keys = [self.policy.plain_key(key) for key in value]
        parts: list[bytes] = []
        plain = all(map(_is_plain_key, keys))
        for key, item in zip(keys, value.values(), strict=True):
            if plain:
                parts.append(_packb(key))
            else:
                parts.append(self._below(key, f"{path}{{key {_shown(key)}}}", depth + 1))
            parts.append(self._below(item, f"{path}[{_shown(key)}]", depth + 1))
        if plain:
            return map_header(len(keys)) + b"".join(parts)
        return _ext(wire.PAIRS, array_header(len(parts)) + b"".join(parts))

    def _other(self, value: Any, path: str, depth: int) -> bytes:
        reduced = self.policy.reduce(value)
        if type(reduced) is not tuple:
            return self.encode(reduced, path, depth)
        code, items, labels = reduced
        if code == wire.RAW:
            return _ext(wire.RECORD, items[0])
        if labels is None:
            parts = [self._below(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(items)]
        else:
            parts = [
                self._labelled(item, label, path, depth + 1)
                for item, label in zip(items, labels, strict=False)
            ]
        if code in (wire.SET, wire.FROZENSET):
            parts.sort()
        return _ext(code, array_header(len(parts)) + b"".join(parts))

    def _labelled(self, value: Any, label: str, path: str, depth: int) -> bytes:
        if type(value) is not dict or not label.endswith("{}"):
            return self._below(value, path + label, depth)
        parts: list[bytes] = []
        size = 0
        for name, item in value.items():
            try:
                encoded = self._below(item, f"{path}.{name}", depth + 1)
            except ValueNotSerializableError:
                if label == "{}" or self.policy.strict:
                    raise
                continue
            parts += [_packb(name), encoded]
            size += 1
        return map_header(size) + b"".join(parts)


def _is_plain_key(key: Any) -> bool:
    if type(key) is str:
        try:
            key.encode()
        except UnicodeEncodeError:
            return False
        return True
    return type(key) in _PLAIN_KEYS and not (type(key) is int and not -(1 << 63) <= key < 1 << 64)


def _shown(key: Any) -> str:
    if isinstance(key, str):
        shown = ascii(str(key))
        return shown if len(shown) <= 40 else shown[:37] + "...'"
    return repr(key) if type(key) in (int, bool, float, type(None)) else f"<{type(key).__name__}>"


def _ext(code: int, data: bytes) -> bytes:
    return _packb(_Ext(code, data))


def _error(path: str, cls: type, reason: str) -> ValueNotSerializableError:
    name = qualified(cls)
    where = f" at {path}" if path else ""
    return ValueNotSerializableError(f"cannot store the {name}{where}: {reason}", path=path, type_name=name)
