"""Names of parametrised pydantic models such as `Page[int]`: the class and its arguments by name."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from typing import Any, Final

from stepvault._core.serde.wire import Refused
from stepvault.errors import PayloadError

_PLAIN: Final[dict[str, Any]] = {
    "@int": int,
    "@float": float,
    "@complex": complex,
    "@str": str,
    "@bytes": bytes,
    "@bool": bool,
    "@none": type(None),
    "@any": Any,
    "@list": list,
    "@dict": dict,
    "@tuple": tuple,
    "@set": set,
    "@frozenset": frozenset,
    "@...": ...,
}
_NAMES: Final = {id(value): name for name, value in _PLAIN.items()}
_MAX_DEPTH: Final = 16


def origin_of(cls: Any) -> Any:
    """Return the generic model that `cls` parametrises, None if it is no such thing."""
    found = cls.__dict__.get("__pydantic_generic_metadata__")
    return found["origin"] if found and found["origin"] is not None else None


def name_of(cls: Any, class_name: Callable[[type], Any]) -> list[Any]:
    """Return the stored name of a parametrised model."""
    metadata = cls.__pydantic_generic_metadata__
    return [class_name(metadata["origin"]), [_argument(one, class_name) for one in metadata["args"]]]


def _argument(argument: Any, class_name: Callable[[type], Any]) -> Any:
    plain = _NAMES.get(id(argument))
    if plain is not None:
        return plain
    origin = typing.get_origin(argument)
    if origin is None:
        if isinstance(argument, type):
            return class_name(argument)
        raise Refused("its type arguments have no stored name; subclass it and give the subclass a name")
    union = origin is typing.Union or origin is types.UnionType
    if not union and id(origin) not in _NAMES:
        raise Refused("its type arguments have no stored name; subclass it and give the subclass a name")
    head = "@union" if union else _NAMES[id(origin)]
    return [head, [_argument(one, class_name) for one in typing.get_args(argument)]]


def resolve(name: Any, find: Callable[[str], Any], depth: int = 0) -> Any:
    """Return the class or annotation with this stored name; `find` resolves the names of classes."""
    if depth > _MAX_DEPTH:
        raise PayloadError("a stored generic type is nested too deeply")
    if type(name) is str:
        return _PLAIN[name] if name in _PLAIN else find(name)
    if type(name) is not list or len(name) != 2 or type(name[1]) is not list or not name[1]:
        raise PayloadError("a stored type name is malformed")
    arguments = tuple(resolve(one, find, depth + 1) for one in name[1])
    if name[0] == "@union":
        return typing.Union[arguments]  # noqa: UP007 - the arguments are only known here
    head = resolve(name[0], find, depth + 1)
    if not (isinstance(head, type) and (name[0] in _PLAIN or hasattr(head, "__pydantic_generic_metadata__"))):
        raise PayloadError("a stored type name has arguments for a class that takes none")
    generic: Any = head
    return generic[arguments]


def shown(name: Any) -> str:
    """Return a stored name as messages show it."""
    if type(name) is str:
        return name.removeprefix("@")
    if type(name) is list and len(name) == 2 and type(name[1]) is list:
        return f"{shown(name[0])}[{', '.join(map(shown, name[1][:8]))}]"
    return "?"
