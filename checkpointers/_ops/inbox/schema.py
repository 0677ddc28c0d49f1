"""Checking an answer against the response schema of its interrupt: the JSON Schema keywords that matter here."""

from __future__ import annotations

import re
from typing import Any

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
    if isinstance(schema, dict):
        _check(schema, _plain(answer), "answer", schema.get("$defs") or schema.get("definitions") or {})


def _plain(answer: Any) -> Any:
    dump = getattr(answer, "model_dump", None)
    return dump(mode="json") if dump else answer


def _check(schema: dict[str, Any], value: Any, place: str, defs: dict[str, Any]) -> None:
    if "$ref" in schema:
        _check(defs.get(schema["$ref"].rsplit("/", 1)[-1], {}), value, place, defs)
    for options in (schema.get("anyOf"), schema.get("oneOf")):
        if options and not any(_fits(option, value, defs) for option in options):
            raise AnswerInvalidError(f"{place} fits none of the forms that the interrupt allows.")
    for part in schema.get("allOf", ()):
        _check(part, value, place, defs)
    _check_type(schema, value, place)
    if "const" in schema and value != schema["const"]:
        raise AnswerInvalidError(f"{place} must be {schema['const']!r}.")
    if "enum" in schema and value not in schema["enum"]:
        raise AnswerInvalidError(f"{place} must be one of {', '.join(map(repr, schema['enum']))}.")
    if isinstance(value, str):
        _check_text(schema, value, place)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        _check_number(schema, value, place)
    elif isinstance(value, dict):
        _check_object(schema, value, place, defs)
    elif isinstance(value, (list, tuple)) and isinstance(schema.get("items"), dict):
        for at, item in enumerate(value):
            _check(schema["items"], item, f"{place}[{at}]", defs)


def _fits(schema: dict[str, Any], value: Any, defs: dict[str, Any]) -> bool:
    try:
        _check(schema, value, "", defs)
    except AnswerInvalidError:
        return False
    return True


def _check_type(schema: dict[str, Any], value: Any, place: str) -> None:
    wanted = schema.get("type")
    names = [wanted] if isinstance(wanted, str) else wanted or []
    for name in names:
        fits = isinstance(value, _TYPES.get(name, (object,)))
        if fits and not (isinstance(value, bool) and name in ("integer", "number")):
            return
    if names:
        raise AnswerInvalidError(f"{place} must be {' or '.join(names)}, not {type(value).__name__}.")


def _check_text(schema: dict[str, Any], value: str, place: str) -> None:
    if len(value) < schema.get("minLength", 0) or len(value) > schema.get("maxLength", len(value)):
        raise AnswerInvalidError(f"{place} has a length that the interrupt does not allow.")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        raise AnswerInvalidError(f"{place} does not match {schema['pattern']!r}.")


def _check_number(schema: dict[str, Any], value: float, place: str) -> None:
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if (low is not None and value < low) or (high is not None and value > high):
        raise AnswerInvalidError(f"{place} must lie between {low} and {high}.")
    if (above is not None and value <= above) or (below is not None and value >= below):
        raise AnswerInvalidError(f"{place} must lie between {above} and {below}, without them.")


def _check_object(schema: dict[str, Any], value: dict[str, Any], place: str, defs: dict[str, Any]) -> None:
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            raise AnswerInvalidError(f"{place}.{name} is missing.")
    for name, item in value.items():
        if name in known:
            _check(known[name], item, f"{place}.{name}", defs)
        elif schema.get("additionalProperties") is False:
            raise AnswerInvalidError(f"{place}.{name} is not expected.")
        elif isinstance(schema.get("additionalProperties"), dict):
            _check(schema["additionalProperties"], item, f"{place}.{name}", defs)
