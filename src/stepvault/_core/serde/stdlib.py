"""Standard library value types: how each becomes a msgpack array and comes back."""

from __future__ import annotations

import re
import types
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from pathlib import PosixPath, PurePath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any
from uuid import UUID, SafeUUID

from stepvault._core.serde import wire
from stepvault._core.serde.wire import Reduced, Refused
from stepvault.errors import PayloadError

Reduce = Callable[[Any], Reduced]
Build = Callable[[Any], Any]

PATHS: tuple[type[PurePath], ...] = (PurePosixPath, PureWindowsPath, PosixPath, WindowsPath)
IPS: tuple[type, ...] = (IPv4Address, IPv4Network, IPv4Interface, IPv6Address, IPv6Network, IPv6Interface)
_SAFE_UUIDS = (SafeUUID.unknown, SafeUUID.safe, SafeUUID.unsafe)
_FLAGS = re.ASCII | re.IGNORECASE | re.LOCALE | re.MULTILINE | re.DOTALL | re.VERBOSE | re.UNICODE
# The factories of a defaultdict that may be stored: calling them runs no user code.
FACTORIES: Mapping[str, Callable[[], Any]] = {
    f.__name__: f for f in (int, float, complex, str, bytes, bytearray, bool, list, tuple, dict, set, frozenset)
} | {f"collections.{f.__name__}": f for f in (Counter, OrderedDict, deque)}
_FACTORY_NAMES: dict[Any, str] = {factory: name for name, factory in FACTORIES.items()}


def _int_bytes(value: int) -> bytes:
    return value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)


def _bigint(value: int) -> Reduced:
    return wire.BIGINT, [_int_bytes(value)], ("",)


def _bytearray(value: bytearray) -> Reduced:
    return wire.BYTEARRAY, [bytes(value)], ("",)


def _deque(value: deque[Any]) -> Reduced:
    return wire.DEQUE, [value.maxlen, list(value)], ("", "")


def _defaultdict(value: defaultdict[Any, Any]) -> Reduced:
    factory = value.default_factory
    name = None if factory is None else _FACTORY_NAMES.get(factory)
    if factory is not None and name is None:
        raise Refused("its default_factory is not a builtin type; use a plain dict or a builtin factory such as list")
    return wire.DEFAULTDICT, [name, dict(value)], ("", "")


def _ordereddict(value: OrderedDict[Any, Any]) -> Reduced:
    return wire.ORDEREDDICT, [dict(value)], ("",)


def _counter(value: Counter[Any]) -> Reduced:
    return wire.COUNTER, [dict(value)], ("",)


def _chainmap(value: ChainMap[Any, Any]) -> Reduced:
    return wire.CHAINMAP, list(value.maps), None


def _mappingproxy(value: types.MappingProxyType[Any, Any]) -> Reduced:
    return wire.MAPPINGPROXY, [value.copy()], ("",)


def _decimal(value: Decimal) -> Reduced:
    return wire.DECIMAL, [str(value)], ("",)


def _fraction(value: Fraction) -> Reduced:
    return wire.FRACTION, [value.numerator, value.denominator], ("", "")


def _complex(value: complex) -> Reduced:
    return wire.COMPLEX, [value.real, value.imag], ("", "")


def _range(value: range) -> Reduced:
    return wire.RANGE, [value.start, value.stop, value.step], ("", "", "")


def _slice(value: slice) -> Reduced:
    return wire.SLICE, [value.start, value.stop, value.step], (".start", ".stop", ".step")


def _ellipsis(_: object) -> Reduced:
    return wire.ELLIPSIS, [], ()


def _uuid(value: UUID) -> Reduced:
    safe = _SAFE_UUIDS.index(value.is_safe)
    return wire.UUID, [value.bytes, safe] if safe else [value.bytes], ("", "")


def _path(value: PurePath) -> Reduced:
    cls = type(value)
    text = str(value)
    again = cls(text)
    if again != value or again.parts != value.parts:
        raise Refused("its parts are lost when it is written as text")
    return wire.PATH, [PATHS.index(cls), text], ("", "")


def _ip(value: Any) -> Reduced:
    return wire.IP, [IPS.index(type(value)), str(value)], ("", "")


def _pattern(value: re.Pattern[Any]) -> Reduced:
    if value.flags & ~int(_FLAGS):
        raise Refused("its flags are not stored; compile it without re.DEBUG or re.TEMPLATE")
    return wire.PATTERN, [value.pattern, value.flags], ("", "")


REDUCERS: dict[type, Reduce] = {
    int: _bigint,
    bytearray: _bytearray,
    deque: _deque,
    defaultdict: _defaultdict,
    OrderedDict: _ordereddict,
    Counter: _counter,
    ChainMap: _chainmap,
    types.MappingProxyType: _mappingproxy,
    Decimal: _decimal,
    Fraction: _fraction,
    complex: _complex,
    range: _range,
    slice: _slice,
    type(Ellipsis): _ellipsis,
    UUID: _uuid,
    re.Pattern: _pattern,
    **dict.fromkeys(PATHS, _path),
    **dict.fromkeys(IPS, _ip),
}


def _build_deque(items: list[Any]) -> deque[Any]:
    maxlen, values = items
    found = deque(_typed(values, list), maxlen)
    if len(found) != len(values):
        raise PayloadError("a stored deque is longer than its maxlen")
    return found


def _build_defaultdict(items: list[Any]) -> defaultdict[Any, Any]:
    name, values = items
    factory = None if name is None else FACTORIES.get(name)
    if name is not None and factory is None:
        raise PayloadError("a stored defaultdict has an unknown factory")
    return defaultdict(factory, _typed(values, dict))


def _build_counter(items: list[Any]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    # Not Counter(mapping): that checks nothing, and update() adds the counts.
    dict.update(found, _typed(items[0], dict))
    return found


def _build_path(items: list[Any]) -> PurePath:
    kind, text = items
    try:
        made: PurePath = PATHS[kind](_typed(text, str))
        return made
    except NotImplementedError:
        raise PayloadError(f"a stored {PATHS[kind].__name__} cannot be made on this operating system") from None


def _build_pattern(items: list[Any]) -> re.Pattern[Any]:
    pattern, flags = items
    if type(pattern) not in (str, bytes) or flags & ~int(_FLAGS):
        raise PayloadError("a stored pattern is malformed")
    return re.compile(pattern, flags)


def _build_uuid(items: list[Any]) -> UUID:
    data, *safe = items
    return UUID(bytes=data, is_safe=_SAFE_UUIDS[safe[0]] if safe else SafeUUID.unknown)


def _typed(value: Any, cls: type) -> Any:
    if type(value) is not cls:
        raise PayloadError(f"a stored value has a {type(value).__name__} where a {cls.__name__} belongs")
    return value


BUILDERS: dict[int, Build] = {
    wire.BIGINT: lambda p: int.from_bytes(_typed(p[0], bytes), "little", signed=True),
    wire.BYTEARRAY: lambda p: bytearray(_typed(p[0], bytes)),
    wire.DEQUE: _build_deque,
    wire.DEFAULTDICT: _build_defaultdict,
    wire.ORDEREDDICT: lambda p: OrderedDict(_typed(p[0], dict)),
    wire.COUNTER: _build_counter,
    wire.CHAINMAP: lambda p: ChainMap(*p),
    wire.MAPPINGPROXY: lambda p: types.MappingProxyType(_typed(p[0], dict)),
    wire.DECIMAL: lambda p: Decimal(_typed(p[0], str)),
    wire.FRACTION: lambda p: Fraction(_typed(p[0], int), _typed(p[1], int)),
    wire.COMPLEX: lambda p: complex(_typed(p[0], float), _typed(p[1], float)),
    wire.RANGE: lambda p: range(*p),
    wire.SLICE: lambda p: slice(p[0], p[1], p[2]),
    wire.ELLIPSIS: lambda _: ...,
    wire.UUID: _build_uuid,
    wire.PATH: _build_path,
    wire.IP: lambda p: IPS[p[0]](_typed(p[1], str)),
    wire.PATTERN: _build_pattern,
    wire.TEXT: lambda p: _typed(p[0], bytes).decode("utf-8", "surrogatepass"),
}
