"""Checking an answer against the response schema of its interrupt: JSON Schema, as far as it is written in one piece.

Annotations (`format`, `title`) say nothing about what fits; references lead to places in the schema itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from pydantic_core import to_jsonable_python

from stepvault.errors import AnswerInvalidError

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list, tuple),
    "null": (type(None),),
}


def check_answer(schema: Any, answer: Any) -> None:
    """Raise AnswerInvalidError naming the place that does not fit; without a schema everything does."""
    if isinstance(schema, (dict, bool)):
        _check(schema, answer, "answer", schema)


def _plain(value: Any) -> Any:
    """What JSON makes of a value, such as a model, a dataclass or a time."""
    if value is None or isinstance(value, (str, int, float, dict, list, tuple)):
        return value
    return to_jsonable_python(value, fallback=str, bytes_mode="base64", inf_nan_mode="constants")


def _check(schema: Any, value: Any, place: str, root: Any) -> None:
    if not isinstance(schema, dict):
        if schema is False:
            raise AnswerInvalidError(f"{place} is not expected.")
        return
    value = _plain(value)
    if "$ref" in schema:
        _check(_referred(root, schema["$ref"]), value, place, root)
    _check_parts(schema, value, place, root)
    _check_type(schema, value, place)
    if "const" in schema and not _same(value, schema["const"]):
        raise AnswerInvalidError(f"{place} must be {schema['const']!r}.")
    if "enum" in schema and not any(_same(value, choice) for choice in schema["enum"]):
        raise AnswerInvalidError(f"{place} must be one of {', '.join(map(repr, schema['enum']))}.")
    if isinstance(value, str):
        _check_text(schema, value, place)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        _check_number(schema, value, place)
    elif isinstance(value, dict):
        _check_object(schema, value, place, root)
    elif isinstance(value, (list, tuple)):
        _check_array(schema, value, place, root)


def _referred(root: Any, pointer: str) -> Any:
    """What a reference within the schema names; anything goes for one that leads nowhere."""
    found = root
    for part in pointer.lstrip("#").split("/")[1:]:
        found = found.get(part.replace("~1", "/").replace("~0", "~"), {}) if isinstance(found, dict) else {}
    return found


def _check_parts(schema: dict[str, Any], value: Any, place: str, root: Any) -> None:
    """Schemas put together from others."""
    for part in schema.get("allOf", ()):
        _check(part, value, place, root)
    for key in ("anyOf", "oneOf"):
        fitting = [option for option in schema.get(key, ()) if _fits(option, value, root)]
        if key in schema and (not fitting or (key == "oneOf" and len(fitting) > 1)):
            raise AnswerInvalidError(f"{place} fits none of the forms that the interrupt allows, or several.")
    if "not" in schema and _fits(schema["not"], value, root):
        raise AnswerInvalidError(f"{place} has a form that the interrupt excludes.")
    if "if" in schema:
        _check(schema.get("then" if _fits(schema["if"], value, root) else "else", True), value, place, root)


def _fits(schema: Any, value: Any, root: Any) -> bool:
    try:
        _check(schema, value, "", root)
    except AnswerInvalidError:
        return False
    return True


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON is: true is not 1."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _check_type(schema: dict[str, Any], value: Any, place: str) -> None:
    wanted = schema.get("type")
    names = [wanted] if isinstance(wanted, str) else wanted or []
    if names and not any(_is(name, value) for name in names):
        raise AnswerInvalidError(f"{place} must be {' or '.join(names)}, not {type(value).__name__}.")


def _is(name: str, value: Any) -> bool:
    if isinstance(value, bool) and name in ("integer", "number"):
        return False
    return isinstance(value, _TYPES.get(name, (object,))) or (
        name == "integer" and isinstance(value, float) and value.is_integer()
    )


def _check_text(schema: dict[str, Any], value: str, place: str) -> None:
    if len(value) < schema.get("minLength", 0) or len(value) > schema.get("maxLength", len(value)):
        raise AnswerInvalidError(f"{place} has a length that the interrupt does not allow.")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        raise AnswerInvalidError(f"{place} does not match {schema['pattern']!r}.")


def _check_number(schema: dict[str, Any], value: float, place: str) -> None:
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if (low is not None and not value >= low) or (high is not None and not value <= high):
        raise AnswerInvalidError(f"{place} must lie between {low} and {high}.")
    if (above is not None and not value > above) or (below is not None and not value < below):
        raise AnswerInvalidError(f"{place} must lie between {above} and {below}, without them.")
    step = schema.get("multipleOf")
    if step is not None and not (math.isfinite(value) and Decimal(str(value)) % Decimal(str(step)) == 0):
        raise AnswerInvalidError(f"{place} must be a multiple of {step}.")


def _check_object(schema: dict[str, Any], value: dict[Any, Any], place: str, root: Any) -> None:
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name in schema.get("required", ()):
        if name not in value:
            raise AnswerInvalidError(f"{place}.{name} is missing.")
    if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value)):
        raise AnswerInvalidError(f"{place} has a number of properties that the interrupt does not allow.")
    for name, item in value.items():
        fitting = [part for pattern, part in patterns.items() if re.search(pattern, str(name))]
        if name in known:
            _check(known[name], item, f"{place}.{name}", root)
        for part in fitting:
            _check(part, item, f"{place}.*", root)  # the names of others are part of the answer, and not told
        if "propertyNames" in schema:
            _check(schema["propertyNames"], name, f"{place}, a name,", root)
        if name not in known and not fitting:
            _check(schema.get("additionalProperties", True), item, f"{place}.*", root)


def _check_array(schema: dict[str, Any], value: Sequence[Any], place: str, root: Any) -> None:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        raise AnswerInvalidError(f"{place} has a number of items that the interrupt does not allow.")
    if schema.get("uniqueItems") and any(_same(a, b) for at, a in enumerate(value) for b in value[:at]):
        raise AnswerInvalidError(f"{place} has an item twice.")
    if "contains" in schema and not any(_fits(schema["contains"], item, root) for item in value):
        raise AnswerInvalidError(f"{place} lacks an item that the interrupt asks for.")
    first = schema.get("prefixItems", ())
    for at, item in enumerate(value):
        _check(first[at] if at < len(first) else schema.get("items", True), item, f"{place}[{at}]", root)
