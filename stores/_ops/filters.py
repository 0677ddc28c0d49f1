"""The filter grammar: one evaluator, the same on every backend, and the tokens that let a database skip items.

A key names the field of exactly that name; if there is none and the key has dots, it is a path into nested
objects. A plain object is a filter on the fields of a nested one, anything else has to be equal.

Numbers are compared by value and exactly, whatever their type; a bool is no number; text, bytes, datetimes and
other values are only comparable with their like. What is missing or cannot be compared does not match.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from numbers import Real
from typing import Any, TypeAlias

import xxhash

from stepvault.errors import ConfigurationError

Predicate: TypeAlias = Callable[[Any], bool]

MISSING: Any = object()
MAX_TOKENS = 64
_ORDER: Mapping[str, Callable[[Any, Any], Any]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
OPERATORS = ("$eq", "$ne", *_ORDER)


def compile_filter(wanted: Mapping[str, Any] | None) -> Predicate | None:
    """The test of a filter; None if there is nothing to test.

    Raises:
        ConfigurationError: An unknown operator, or a filter or key of a wrong kind.
    """
    if not wanted:
        if wanted is not None and not isinstance(wanted, Mapping):
            raise ConfigurationError(f"filter must be a mapping, not {type(wanted).__name__}.")
        return None
    if not isinstance(wanted, Mapping):
        raise ConfigurationError(f"filter must be a mapping, not {type(wanted).__name__}.")
    return _fields(wanted)


def _fields(wanted: Mapping[str, Any]) -> Predicate:
    tests = []
    for key, condition in wanted.items():
        if not isinstance(key, str):
            raise ConfigurationError(f"Filter keys must be str, not {type(key).__name__}.")
        tests.append((key, _condition(condition)))

    def test(value: Any) -> bool:
        return isinstance(value, Mapping) and all(one(field_of(value, key)) for key, one in tests)

    return test


def _condition(condition: Any) -> Predicate:
    if not isinstance(condition, Mapping):
        return _operator("$eq", condition)
    if not any(isinstance(key, str) and key.startswith("$") for key in condition):
        return _fields(condition)
    tests = [_operator(name, operand) for name, operand in condition.items()]
    return lambda value: all(test(value) for test in tests)


def _operator(name: str, operand: Any) -> Predicate:
    if name == "$eq":
        return lambda value: same(value, operand)
    if name == "$ne":
        return lambda value: value is not MISSING and not same(value, operand)
    compare = _ORDER.get(name)
    if compare is None:
        raise ConfigurationError(f"Unknown filter operator {name!r}; known are {', '.join(OPERATORS)}.")
    return lambda value: ordered(value, operand, compare)


def field_of(value: Mapping[str, Any], key: str) -> Any:
    """The field a filter key names, or `MISSING`."""
    found = value.get(key, MISSING)
    if found is not MISSING or "." not in key:
        return found
    found = value
    for part in key.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return MISSING
        found = found[part]
    return found


_PLAIN = {type(None): "null", str: "text", bool: "bool", int: "number", float: "number", dict: "object", list: "list"}


def kind_of(value: Any) -> str:
    """What a value is comparable with."""
    plain = _PLAIN.get(type(value))
    if plain is not None:
        return plain
    if value is MISSING:
        return "missing"
    if isinstance(value, str):
        return "text"
    if isinstance(value, (int, Decimal, Real)):
        return "number"
    if isinstance(value, Mapping):
        return "object"
    return "list" if isinstance(value, (list, tuple)) else "other"


def same(a: Any, b: Any) -> bool:
    """Deep equality between values of one kind."""
    kind = kind_of(a)
    if kind != kind_of(b) or kind == "missing":
        return False
    if kind == "object":
        return len(a) == len(b) and all(key in b and same(value, b[key]) for key, value in a.items())
    if kind == "list":
        return len(a) == len(b) and all(map(same, a, b))
    try:
        return bool(a == b)
    except Exception:  # an array, a signalling NaN: not comparable, so not equal
        return False


def ordered(a: Any, b: Any, compare: Callable[[Any, Any], Any]) -> bool:
    """Whether two values of one kind, and of a kind that has an order, stand in it as asked."""
    kind = kind_of(a)
    if kind != kind_of(b) or kind not in ("text", "number", "other"):
        return False
    if kind == "other" and not _orderable(a, b):
        return False
    try:
        return bool(compare(a, b))
    except Exception:
        return False


def _orderable(a: Any, b: Any) -> bool:
    """Whether one type is the other's, and its order is one of size: that of sets is not."""
    return (isinstance(a, type(b)) or isinstance(b, type(a))) and not isinstance(a, (set, frozenset))


# -- tokens: what an item that matches must have


def tokens_of(value: Mapping[str, Any]) -> bytes | None:
    """Eight bytes for each scalar in a value, nested objects included; None if there are too many."""
    found = []
    for token in _walk(value, b""):
        found.append(token)
        if len(found) > MAX_TOKENS:
            return None
    return b"".join(found)


def _walk(value: Mapping[str, Any], path: bytes) -> Iterator[bytes]:
    for key, field in value.items():
        if not isinstance(key, str):
            continue
        below = path + _name(key)
        if kind_of(field) == "object":
            yield from _walk(field, below)
        elif (canonical := _canonical(field)) is not None:
            yield _token(below, canonical)


def required_tokens(wanted: Mapping[str, Any] | None) -> list[bytes]:
    """Tokens without which an item cannot match."""
    return list(_required(wanted, b"")) if wanted else []


def is_decided_by_tokens(wanted: Mapping[str, Any] | None) -> bool:
    """Whether an item that has the tokens matches, but for chance."""
    return not wanted or all(
        "." not in key and (is_decided_by_tokens(condition) if _is_object(condition) else _is_scalar(condition))
        for key, condition in wanted.items()
    )


def _is_object(condition: Any) -> bool:
    """Whether a condition is a filter on the fields of a nested object; an empty one asks for an object."""
    return isinstance(condition, Mapping) and bool(condition) and not any(str(key).startswith("$") for key in condition)


def _is_scalar(condition: Any) -> bool:
    if isinstance(condition, Mapping):
        return list(condition) == ["$eq"] and _is_scalar(condition["$eq"])
    return _canonical(condition) is not None


def _required(wanted: Mapping[str, Any], path: bytes) -> Iterator[bytes]:
    for key, condition in wanted.items():
        if "." in key:
            continue  # a field or a path: it depends on the item
        below = path + _name(key)
        if isinstance(condition, Mapping):
            if "$eq" in condition:
                condition = condition["$eq"]
            elif any(isinstance(name, str) and name.startswith("$") for name in condition):
                continue
            else:
                yield from _required(condition, below)
                continue
        if (canonical := _canonical(condition)) is not None:
            yield _token(below, canonical)


def _canonical(value: Any) -> bytes | None:
    """Equal bytes for scalars that are `same`; None for what has no token."""
    kind = kind_of(value)
    if kind == "text":
        return b"s" + str.encode(value, "utf-8", "surrogatepass")
    if kind == "number":
        try:
            # Python gives equal numbers of all types the same hash; NaN, which equals nothing, has none here.
            return b"n%d" % hash(value) if value == value else None
        except Exception:
            return None
    return {"null": b"0", "bool": b"b1" if value is True else b"b0"}.get(kind)


def _name(key: str) -> bytes:
    name = key.encode("utf-8", "surrogatepass")
    return b"%d:%s" % (len(name), name)


def _token(path: bytes, canonical: bytes) -> bytes:
    return xxhash.xxh64(path + b"=" + canonical).digest()
