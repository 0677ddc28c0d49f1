"""Writing: a fast encoder that lets ormsgpack do the work, and an exact one that finds what it must not do.

Both give the same bytes for the same value. The fast one gives up on the first thing that needs care (a lone
surrogate, a key that is not a str, a bytearray, a value that cannot be stored); the exact one walks in
Python, so it knows the path and can say what is wrong and where.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import ormsgpack

from stepvault._core.serde import wire
from stepvault._core.serde.wire import NeedsExactError, Refused, SecretRefused, array_header, map_header, qualified
from stepvault.errors import ValueNotSerializableError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepvault._core.serde.policy import Policy

_packb = ormsgpack.packb
_Ext = ormsgpack.Ext
_ATOMS: Final = frozenset({str, int, float, bool, type(None), bytes})
# ormsgpack writes these as something they are not. (A Fragment of bytes that begin no bin and no ext may go unseen:
# it is then stored as the plain value that it spells.)
_TRAPS: Final = frozenset({bytearray, memoryview, ormsgpack.Ext, getattr(ormsgpack, "Fragment", ormsgpack.Ext)})
_PLAIN_KEYS: Final = frozenset({str, int, float, bool, type(None), bytes})
_WIDE: Final = 24
# Bytes with which neither a bin nor an ext can begin. Any other byte may mean a trap, or may be just a byte.
_HARMLESS: Final = bytes(b for b in range(256) if not (0xC4 <= b <= 0xC9 or 0xD4 <= b <= 0xD8))
_SMALL: Final = 1024
_HOPEFUL: Final = 4  # in so many extensions, depth is left to ormsgpack, which bounds it in each


def dumps(policy: Policy, value: Any) -> bytes:
    """Encode one value."""
    fast = _Fast(policy)
    try:
        if type(value) in fast.shapes:
            return _packb(fast.hook(value))
        return fast.pack([value], False)[1:]
    except Exception:  # whatever it was, the exact encoder finds it again and names the place
        pass
    return Exact(policy).encode(value, "", 0)


def _fast(policy: Policy, value: Any, depth: int) -> bytes | None:
    """Return the bytes of a value that stands `depth` deep, None if the exact encoder must look at it."""
    fast = _Fast(policy)
    fast.depth, fast.level = depth, _HOPEFUL
    try:
        return fast.pack([value], False)[1:]
    except Exception:  # as above
        return None


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
    """One call of `dumps`. `depth` is where the value at hand stands, `level` how many extensions are around it."""

    __slots__ = ("depth", "level", "policy", "shapes")

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.shapes = policy.shapes
        self.depth = 0
        self.level = 0

    def pack(self, items: list[Any], outer: bool = True) -> bytes:
        """Return the bytes of an array; `outer` counts it as a container."""
        depth, level = self.depth, self.level
        self.level = level + 1
        if level < _HOPEFUL:
            # Looking at the bytes is many times cheaper than looking at the values, and nearly always enough.
            self.depth = depth + 1
            data = _packb(items, self.hook, wire.PACK)
            if len(data) > _SMALL or data.translate(None, _HARMLESS):
                _scan(items, depth)
        else:
            self.depth = _scan(items, depth + outer)
            data = _packb(items, self.hook, wire.PACK)
        self.depth, self.level = depth, level
        return data

    def hook(self, value: Any) -> Any:
        """Return the extension of a value that is not plain msgpack, or a plain value in its place."""
        found = self.shapes.get(type(value))
        if found is not None:
            payload = found.payload(value)
            if payload is not None:
                return _Ext(wire.MESSAGE, self.pack(payload))
        reduced = self.policy.reduce(value)
        if type(reduced) is not tuple:
            return reduced
        code, items, _ = reduced
        if code == wire.RAW:
            return _Ext(wire.RECORD, items[0])
        if code == wire.SET or code == wire.FROZENSET:
            parts = sorted([self.pack([item])[1:] for item in items])
            return _Ext(code, array_header(len(parts)) + b"".join(parts))
        # The fields of a record are a dict, which counts; so the record around it does not.
        return _Ext(code, self.pack(items, code != wire.RECORD))


class Exact:
    """The encoder that knows where it is."""

    __slots__ = ("met_secret", "parents", "policy")

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.parents: set[int] = set()
        self.met_secret = False

    def encode(self, value: Any, path: str, depth: int) -> bytes:
        """Return the bytes of a value; raise ValueNotSerializableError with its path."""
        cls = type(value)
        if cls in _ATOMS and not (cls is int and not -(1 << 63) <= value < 1 << 64):
            return _atom(value)
        # Most parts of a value that needs care are harmless. The value itself was tried before.
        if path and (found := _fast(self.policy, value, depth)) is not None:
            return found
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
            self.met_secret = isinstance(exc, SecretRefused)
            raise _error(path, cls, str(exc)) from None
        except RecursionError:
            raise _error(path, cls, "is nested too deeply for the Python stack; store it flat") from None
        except ValueNotSerializableError:
            raise
        except Exception as exc:
            raise _error(path, cls, f"reading it failed with {type(exc).__name__}") from exc
        finally:
            self.parents.discard(id(value))

    def _array(self, value: list[Any], path: str, depth: int) -> bytes:
        parts = [array_header(len(value))]
        for index, item in enumerate(value):
            parts.append(self.encode(item, f"{path}[{index}]", depth + 1))
        return b"".join(parts)

    def _mapping(self, value: dict[Any, Any], path: str, depth: int) -> bytes:
        keys = [self.policy.plain_key(key) for key in value]
        plain = all(map(_is_plain_key, keys))
        parts: list[bytes] = []
        for key, item in zip(keys, value.values(), strict=True):
            shown = _shown(key)
            parts.append(_packb(key) if plain else self.encode(key, f"{path}{{key {shown}}}", depth + 1))
            parts.append(self.encode(item, f"{path}[{shown}]", depth + 1))
        if plain:
            return map_header(len(keys)) + b"".join(parts)
        return _ext(wire.PAIRS, array_header(len(parts)) + b"".join(parts))

    def _other(self, value: Any, path: str, depth: int) -> bytes:
        reduced = self.policy.reduce(value)
        if type(reduced) is not tuple:
            return self.encode(reduced, path or "value", depth)
        code, items, labels = reduced
        if code == wire.RAW:
            return _ext(wire.RECORD, items[0])
        parts: list[bytes] = []
        for index, item in enumerate(items):
            label = f"[{index}]" if labels is None else labels[index]
            if type(item) is dict and label.endswith("{}"):
                parts.append(self._fields(item, label, path, depth))
            else:
                parts.append(self.encode(item, f"{path}{label}", depth + 1))
        if code in (wire.SET, wire.FROZENSET):
            parts.sort()
        return _ext(code, array_header(len(parts)) + b"".join(parts))

    def _fields(self, value: dict[str, Any], label: str, path: str, depth: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        for name, item in value.items():
            try:
                encoded = self.encode(item, f"{path}.{name}", depth + 1)
            except ValueNotSerializableError:
                if label == "{}" or self.policy.strict or self.met_secret:
                    raise
                continue
            parts += [_packb(name), encoded]
            size += 1
        return map_header(size) + b"".join(parts)


def _atom(value: Any) -> bytes:
    try:
        return _packb(value)
    except TypeError:
        return _ext(wire.TEXT, array_header(1) + _packb(value.encode("utf-8", "surrogatepass")))


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
