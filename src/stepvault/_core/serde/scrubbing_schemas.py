"""Taking a person out of the schema of an answer: what it says and the names in it, not what makes it a schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_SAID: Final = frozenset(
    ("title", "description", "$comment", "default", "examples", "enum", "const", "required", "$ref")
)
_NAMED: Final = frozenset(("properties", "patternProperties", "$defs", "definitions"))


def scrubbed(schema: Any, walk: Callable[[Any], Any]) -> Any:
    """A JSON Schema of which `walk` has looked through what names or tells something."""
    if type(schema) is list:
        return [scrubbed(one, walk) for one in schema]
    if type(schema) is not dict:
        return schema
    found: dict[Any, Any] = {}
    for key, value in schema.items():
        if key in _SAID:
            found[key] = walk(value)
        elif key in _NAMED and type(value) is dict:
            found[key] = {walk(name): scrubbed(one, walk) for name, one in value.items()}
        else:
            found[key] = scrubbed(value, walk)
    return found
