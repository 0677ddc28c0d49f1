"""Plans for dataclasses, attrs classes, named tuples, enums and registered classes of other kinds."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import inspect
from collections.abc import Mapping
from typing import Any

from stepvault._core.serde.making import NOT_ITS_DATA, constructed, undisturbed
from stepvault._core.serde.plans import (
    MISSING,
    Plan,
    fingerprint_of,
    overlay,
    refuse_unknown,
    stray_attributes,
)
from stepvault._core.serde.registry import Upcaster
from stepvault._core.serde.wire import Refused
from stepvault.errors import PayloadError

_SCALARS = (str, int, float, bool, type(None), bytes)


_BUILTINS = (str, int, float, complex, bytes, list, dict, tuple, set, frozenset, collections.deque)


def is_generated(cls: Any) -> bool:
    """Tell whether nothing but what the decorator wrote runs in a constructor."""
    parameters = getattr(cls, "__dataclass_params__", None)
    own_init = parameters is not None and not parameters.init
    return not (own_init or hasattr(cls, "__post_init__") or hasattr(cls, "__attrs_post_init__"))


class FieldsPlan(Plan):
    """Objects made by `cls(**fields)`; fields the constructor does not take are set afterwards."""

    open = False  # to attributes that are no fields

    def __init__(self, cls: type, name: Any, version: int = 1, upcasters: Mapping[int, Upcaster] | None = None) -> None:
        super().__init__(cls, name, version, upcasters)
        self.builtin: Any = next((base for base in _BUILTINS if issubclass(cls, base)), None)
        self.generated = is_generated(cls)
        self.arguments, annotations = self.describe()
        self.names = tuple(annotations)
        self.fingerprint = fingerprint_of(annotations)
        self.known = frozenset(self.names)
        self.direct = all(name == argument for name, argument in self.arguments.items())
        self.direct = self.direct and len(self.arguments) == len(self.names)
        self._check_constructor()

    def describe(self) -> tuple[dict[str, str], dict[str, Any]]:
        """Return {field: constructor argument} and {field: annotation}."""
        raise NotImplementedError

    def _check_constructor(self) -> None:
        try:
            inspect.signature(self.cls).bind(**dict.fromkeys(self.arguments.values()))
        except (TypeError, ValueError):
            raise Refused(
                "its constructor does not take exactly its fields, so it could not be made again; "
                "give other arguments a default or store a plain value"
            ) from None

    def fields_of(self, value: Any) -> dict[str, Any]:
        if self.builtin is not None and (not hasattr(self.builtin, "clear") or self.builtin.__len__(value)):
            raise Refused(f"it is a {self.builtin.__name__} besides its fields, which would be lost; store them apart")
        if self.open:
            return {**{n: getattr(value, n) for n in self.names if hasattr(value, n)}, **vars(value)}
        if self.strict and stray_attributes(value, self.known):
            raise Refused("it has attributes that are no fields, which would be lost")
        try:
            return {name: getattr(value, name) for name in self.names}
        except AttributeError:  # a field that was deleted, or never set
            return {name: getattr(value, name) for name in self.names if hasattr(value, name)}

    def build(self, fields: dict[str, Any], state: list[Any], same: bool) -> Any:
        if not self.open and not fields.keys() <= self.known:
            refuse_unknown(self.label, fields, self.known)
        if same and self.direct:
            arguments = fields
        else:
            arguments = {argument: fields[name] for name, argument in self.arguments.items() if name in fields}
        made = constructed(self.cls, arguments, generated=self.generated) if same else self.cls(**arguments)
        overlay(made, fields if same else {n: v for n, v in fields.items() if n not in self.arguments})
        return made


class DataclassPlan(FieldsPlan):
    """A dataclass, pydantic's included."""

    kind = "d"

    def describe(self) -> tuple[dict[str, str], dict[str, Any]]:
        found = dataclasses.fields(self.cls)
        self.open = getattr(self.cls, "__pydantic_config__", {}).get("extra") == "allow"
        return {f.name: f.name for f in found if f.init}, {f.name: f.type for f in found}


class AttrsPlan(FieldsPlan):
    """A class made by attrs."""

    kind = "a"

    def describe(self) -> tuple[dict[str, str], dict[str, Any]]:
        found = self.cls.__attrs_attrs__
        arguments = {a.name: getattr(a, "alias", None) or a.name.lstrip("_") for a in found if a.init}
        return arguments, {a.name: a.type for a in found}


class NamedTuplePlan(Plan):
    """A named tuple, from typing or collections."""

    kind = "n"

    def __init__(self, cls: type, name: Any, version: int = 1, upcasters: Mapping[int, Upcaster] | None = None) -> None:
        super().__init__(cls, name, version, upcasters)
        self.names: tuple[str, ...] = self.cls._fields

    def fields_of(self, value: Any) -> dict[str, Any]:
        if len(value) != len(self.names):
            raise Refused("it has more items than its class has fields")
        if self.strict and stray_attributes(value, self.names):
            raise Refused("it has attributes that are no fields, which would be lost")
        return dict(zip(self.names, tuple.__iter__(value), strict=True))

    def build(self, fields: dict[str, Any], state: list[Any], same: bool) -> Any:
        refuse_unknown(self.label, fields, self.names)
        if len(fields) == len(self.names):  # past a `__new__` that takes something else
            return tuple.__new__(self.cls, [fields[name] for name in self.names])
        return self.cls(**fields)


class EnumPlan(Plan):
    """An enum member: by name, which survives a changed value, else by value."""

    kind = "e"

    def fields_of(self, value: Any) -> dict[str, Any]:
        found: Any = value._value_
        name = value._name_
        if isinstance(value, enum.Flag):
            return {"value": found}
        if self.cls._member_map_.get(name) is not value:
            raise Refused("it is not a member of its class")
        return {"name": name, "value": found if type(found) in _SCALARS else None}

    def build(self, fields: dict[str, Any], state: list[Any], same: bool) -> Any:
        name = fields.get("name")
        if name is not None and name in self.cls._member_map_:
            return self.cls._member_map_[name]
        return self.cls(fields["value"])


class BaseValuePlan(Plan):
    """A registered subclass of a builtin: made again from the value of its base."""

    kind = "b"
    bases = (str, int, float, bytes, list, dict, tuple, set, frozenset)

    def __init__(self, cls: type, name: Any, version: int = 1, upcasters: Mapping[int, Upcaster] | None = None) -> None:
        super().__init__(cls, name, version, upcasters)
        self.base: Any = next(base for base in self.bases if issubclass(cls, base))

    def fields_of(self, value: Any) -> dict[str, Any]:
        state = dict(getattr(value, "__dict__", ()))
        fields = {"value": base_value(value, self.base)}
        return {**fields, "state": state} if state else fields

    def build(self, fields: dict[str, Any], state: list[Any], same: bool) -> Any:
        if type(fields["value"]) is not self.base:
            raise PayloadError(f"a stored {self.label} has another base value than its class")
        made = self._made(fields["value"])
        overlay(made, fields.get("state", {}))
        return made

    def _made(self, value: Any) -> Any:
        with contextlib.suppress(*NOT_ITS_DATA):
            made = undisturbed(lambda: self.cls(value), [value])
            if base_value(made, self.base) == value:
                return made
        # Its constructor takes, or makes of it, something else.
        made = self.base.__new__(self.cls, value)
        if hasattr(self.base, "clear"):
            self.base.__init__(made, value)
        return made


class ObjectPlan(Plan):
    """A registered class of no known kind: its constructor is called with the attributes it names."""

    kind = "o"

    def __init__(self, cls: type, name: Any, version: int = 1, upcasters: Mapping[int, Upcaster] | None = None) -> None:
        super().__init__(cls, name, version, upcasters)
        parameters = inspect.signature(cls).parameters.values()
        if any(p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL) for p in parameters):
            raise Refused("its constructor takes positional arguments; make it a dataclass or a pydantic model")
        self.arguments = {p.name: p.default is p.empty for p in parameters if p.kind != p.VAR_KEYWORD}
        self.slots = [name for base in cls.__mro__ for name in _slots(base) if name not in ("__dict__", "__weakref__")]

    def fields_of(self, value: Any) -> dict[str, Any]:
        found = dict(getattr(value, "__dict__", ()))
        for name in self.slots:
            if (item := getattr(value, name, MISSING)) is not MISSING:
                found[name] = item
        lost = [name for name, needed in self.arguments.items() if needed and name not in found]
        if lost:
            raise Refused(f"its constructor needs {', '.join(lost)}, which it does not keep as attributes")
        return found

    def build(self, fields: dict[str, Any], state: list[Any], same: bool) -> Any:
        made = constructed(self.cls, {name: fields[name] for name in self.arguments if name in fields})
        overlay(made, fields)
        return made


def _slots(cls: type) -> tuple[str, ...]:
    found = cls.__dict__.get("__slots__", ())
    return (found,) if isinstance(found, str) else tuple(found)


def base_value(value: Any, base: type) -> Any:
    """Return the plain value of an instance of a subclass, past any override."""
    if base in (list, set, frozenset, tuple):
        return base(base.__iter__(value))
    if base is dict:
        return dict(zip(dict.keys(value), dict.values(value), strict=True))
    if base is bytes:
        return bytes(memoryview(value))
    # The slot functions of the builtin itself, so that nothing overridden is called.
    plain: dict[type, Any] = {str: str.__str__, int: int.__int__, float: float.__float__}
    return plain[base](value)


def is_stateless(value: Any) -> bool:
    """Tell whether an instance of a builtin's subclass carries nothing but its base value."""
    return not getattr(value, "__dict__", None) and not any(_slots(base) for base in type(value).__mro__)
