"""Names of parametrised pydantic models such as `Page[int]`: the class and its arguments by name."""

from __future__ import annotations

import collections.abc
import functools
import operator
import pathlib
import types
import typing
from collections.abc import Callable
from typing import Any, Final

import pydantic

from stepvault._core.serde import moments, stdlib
from stepvault._core.serde.wire import Refused
from stepvault.errors import PayloadError

_ABSTRACT: Final = ("Mapping", "MutableMapping", "Sequence", "MutableSequence", "Iterable", "Collection")
_ALIASES: Final = (
    "List",
    "Dict",
    "Tuple",
    "Set",
    "FrozenSet",
    "Deque",
    "DefaultDict",
    "OrderedDict",
    "Counter",
    "Type",
)
# By short names: modules of the standard library move between Python versions.
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
    "@object": object,
    "@type": type,
    **{f"@{cls.__qualname__}": cls for cls in (*stdlib.REDUCERS, *moments.REDUCERS) if cls is not type(...)},
    **{
        f"@{cls.__qualname__}": cls
        for cls in (pathlib.Path, pathlib.PurePath, pydantic.SecretStr, pydantic.SecretBytes)
    },
    **{f"@abc.{name}": getattr(collections.abc, name) for name in (*_ABSTRACT, "Set")},
    # `Dict[str, int]` and `dict[str, int]` make two classes of a generic model.
    **{f"@typing.{name}": getattr(typing, name) for name in (*_ALIASES, *_ABSTRACT, "AbstractSet")},
}
_NAMES: Final = {id(value): name for name, value in _PLAIN.items()}
_UNION: Final = "@union"
_OR: Final = "@or"
_LITERAL: Final = "@literal"
_LITERALS: Final = (str, int, bool, bytes, type(None))
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
    if origin is None and isinstance(argument, type):
        return class_name(argument)
    head, arguments = _head(argument, origin), typing.get_args(argument)
    if head == _LITERAL and all(type(one) in _LITERALS for one in arguments):
        return [head, list(arguments)]
    if head is None or head == _LITERAL or not arguments:
        raise Refused("its type arguments have no stored name; subclass it and give the subclass a name")
    return [head, [_argument(one, class_name) for one in arguments]]


def _head(argument: Any, origin: Any) -> str | None:
    if origin is types.UnionType:
        return _OR
    if origin is typing.Union:
        return _UNION
    if origin is typing.Literal:
        return _LITERAL
    if isinstance(argument, types.GenericAlias):
        return _NAMES.get(id(origin))
    alias = f"@typing.{getattr(argument, '_name', None)}"
    return alias if alias in _PLAIN else None


def resolve(name: Any, find: Callable[[str], Any], depth: int = 0) -> Any:
    """Return the class or annotation with this stored name; `find` resolves the names of classes."""
    if depth > _MAX_DEPTH:
        raise PayloadError("a stored generic type is nested too deeply")
    if type(name) is str:
        return _PLAIN[name] if name in _PLAIN else find(name)
    if type(name) is not list or len(name) != 2 or type(name[1]) is not list or not name[1]:
        raise PayloadError("a stored type name is malformed")
    if name[0] == _LITERAL:
        if not all(type(one) in _LITERALS for one in name[1]):
            raise PayloadError("a stored type name is malformed")
        return typing.Literal[tuple(name[1])]
    arguments = tuple(resolve(one, find, depth + 1) for one in name[1])
    if name[0] == _UNION:
        return typing.Union[arguments]  # noqa: UP007 - the arguments are only known here
    if name[0] == _OR:
        return functools.reduce(operator.or_, arguments)
    head = resolve(name[0], find, depth + 1)
    if not (name[0] in _PLAIN or (isinstance(head, type) and hasattr(head, "__pydantic_generic_metadata__"))):
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
