"""Registered types: the stored name and version of a class, its old names, its upcasters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from stepvault.errors import ConfigurationError

T = TypeVar("T")
Upcaster: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Registration:
    """What is known about one registered class."""

    cls: type
    name: str
    version: int = 1
    aliases: tuple[str, ...] = ()
    upcasters: Mapping[int, Upcaster] | None = None


def key_of(name: str) -> str:
    """Return the form in which names are compared: `module:Name` and `module.Name` are the same."""
    return name.replace(":", ".")


def default_name(cls: type) -> str:
    """Return the name a class is stored under unless it is given one."""
    return f"{cls.__module__}:{cls.__qualname__}"


class TypeRegistry:
    """Classes that may be stored and revived, by name and by class.

    Registries form a chain: a name or class unknown here is looked up in `parent`.
    """

    def __init__(self, parent: TypeRegistry | None = None) -> None:
        self._parent = parent
        self._by_class: dict[type, Registration] = {}
        self._by_name: dict[str, Registration] = {}
        self._by_short_name: dict[tuple[str, str], Registration] = {}
        self._changes: list[int] = parent._changes if parent else [0]

    @property
    def changes(self) -> list[int]:
        """A counter in a list, shared by a whole chain: it grows with every registration in any of them."""
        return self._changes

    def register(
        self,
        cls: type[T],
        *,
        name: str | None = None,
        version: int = 1,
        aliases: Iterable[str] = (),
        upcasters: Mapping[int, Upcaster] | None = None,
    ) -> type[T]:
        """Register a class; see `stepvault.types.register_type`."""
        entry = _checked(cls, name, version, aliases, upcasters)
        for stored in (entry.name, *entry.aliases):
            known = self._by_name.get(key_of(stored))
            if known is not None and not _same_class(known.cls, cls):
                raise ConfigurationError(
                    f"the name {stored!r} is already registered for {known.cls!r}; choose another name for {cls!r}"
                )
        for stored in (entry.name, *entry.aliases):
            self._by_name[key_of(stored)] = entry
        self._by_class[cls] = entry
        self._by_short_name[cls.__module__, cls.__name__] = entry
        self._changes[0] += 1
        return cls

    def by_class(self, cls: type) -> Registration | None:
        """Return the registration of exactly this class, if any."""
        found = self._by_class.get(cls)
        return self._parent.by_class(cls) if found is None and self._parent else found

    def by_name(self, name: str) -> Registration | None:
        """Return the registration with this stored name or alias, if any."""
        found = self._by_name.get(key_of(name))
        return self._parent.by_name(name) if found is None and self._parent else found

    def by_short_name(self, module: str, name: str) -> Registration | None:
        """Return the registration of a class by its module and `__name__`, as LangGraph stores it."""
        found = self._by_short_name.get((module, name), self._by_name.get(f"{module}.{name}"))
        return self._parent.by_short_name(module, name) if found is None and self._parent else found


def _same_class(one: type, other: type) -> bool:
    # A reloaded module makes the same class again; it replaces the old one.
    return one is other or (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)


def _checked(cls: Any, name: Any, version: Any, aliases: Any, upcasters: Any) -> Registration:
    if not isinstance(cls, type):
        raise ConfigurationError(f"only a class can be registered, not {cls!r}")
    if name is not None and (not isinstance(name, str) or not name):
        raise ConfigurationError(f"the name of {cls!r} must be a non-empty str")
    if isinstance(aliases, str):
        raise ConfigurationError("aliases must be a list of names, not one str")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ConfigurationError(f"the version of {cls!r} must be an int from 1 on")
    steps = dict(upcasters or {})
    for step, function in steps.items():
        if step not in range(1, version) or not callable(function):
            raise ConfigurationError(
                f"upcasters of {cls!r} must map versions from 1 to {version - 1} to functions; got {step!r}"
            )
    return Registration(cls, name or default_name(cls), version, tuple(aliases), steps or None)
