"""Which classes may be stored and revived, and the plan for each."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime, time, tzinfo
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

import pydantic

from stepvault._core.serde import arrays, generics, messages, moments, stdlib, wire
from stepvault._core.serde.classes import (
    imported,
    is_foreign_serializable,
    is_plain_data,
    plan_of,
    registered_plan,
    unknown,
)
from stepvault._core.serde.library import TRUSTED, trusted_class
from stepvault._core.serde.plans import Plan
from stepvault._core.serde.raw import RawValue
from stepvault._core.serde.records import base_value, is_stateless
from stepvault._core.serde.registry import TypeRegistry, default_name
from stepvault._core.serde.wire import Reduced, Refused, SecretRefused, qualified
from stepvault.errors import UnknownTypeError

UnknownTypes: TypeAlias = Literal["imported", "refuse", "raw"]
_KEPT: Final = "kept"  # for copies: no class of the application is revived, known or not
_STD: Final[dict[type, Callable[[Any], Reduced]]] = {**stdlib.REDUCERS, **moments.REDUCERS}
_BASES: Final = (str, int, float, bytes)
_CONTAINERS: Final = (list, dict, tuple, set, frozenset, deque)
_MAX_PLANS: Final = 4096


def _reduce_tuple(value: tuple[Any, ...]) -> Reduced:
    return wire.TUPLE, list(value), None


def _reduce_set(value: set[Any] | frozenset[Any]) -> Reduced:
    return (wire.SET if type(value) is set else wire.FROZENSET), list(value), None


_SIMPLE: Final[dict[type, Callable[[Any], Reduced]]] = {
    **_STD,
    tuple: _reduce_tuple,
    set: _reduce_set,
    frozenset: _reduce_set,
    RawValue: lambda value: (wire.RAW, [value.payload], None),
}


class Policy:
    """The choices of one serializer, and what it has learned about classes under them."""

    def __init__(
        self,
        registry: TypeRegistry,
        *,
        unknown_types: UnknownTypes | Literal["kept"],
        strict: bool,
        secrets: bool,
        allowlist: frozenset[tuple[str, ...]] = frozenset(),
    ) -> None:
        self.registry = registry
        self.unknown_types: UnknownTypes | Literal["kept"] = unknown_types
        self.strict = strict
        self.secrets = secrets
        self.allowlist = allowlist
        self.shapes: dict[type, messages.Shape] = {}
        self._plans: dict[type, Plan] = {}
        self._named: dict[str, Plan] = {}
        self._changes = registry.changes
        self._seen = self._changes[0]

    def knows(self, cls: type) -> bool:
        """Tell whether a class is registered or the library's own."""
        return self.registry.by_class(cls) is not None or default_name(cls) in TRUSTED or cls in _SIMPLE

    def allowing(self, names: frozenset[tuple[str, ...]], classes: Iterable[type]) -> Policy:
        """Return the same policy with more allowed classes."""
        registry = TypeRegistry(self.registry)
        for cls in classes:
            registry.register(cls)
        return Policy(
            registry,
            unknown_types=self.unknown_types,
            strict=self.strict,
            secrets=self.secrets,
            allowlist=self.allowlist | names,
        )

    def keeping(self) -> Policy:
        """Return the policy of a copy, which moves objects of the application's classes as they are stored."""
        return Policy(TypeRegistry(), unknown_types=_KEPT, strict=self.strict, secrets=self.secrets)

    def refresh(self) -> None:
        """Forget what was learned if a type was registered since."""
        if self._seen != self._changes[0]:
            self._seen = self._changes[0]
            self._plans, self._named, self.shapes = {}, {}, {}

    # --- writing

    def reduce(self, value: Any) -> Any:
        """Return the stored form of a value that is not plain msgpack, or a plain base value in its place."""
        cls = type(value)
        simple = _SIMPLE.get(cls)
        if simple is not None:
            if (cls is datetime or cls is time) and moments.has_foreign_zone(value):
                value = self._without_foreign_zone(value)
            return simple(value)
        plan = self._plans.get(cls)
        if plan is None:
            if (shape := messages.shape_of(cls)) is not None and self.registry.by_class(cls) is None:
                self.shapes[cls] = shape
            plan = self._plan_for(cls)
            if plan is None:
                return self._other(value, cls)
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            self._plans[cls] = plan
        if (shape := self.shapes.get(cls)) is not None:
            compact = messages.reduce_message(shape, value)
            if compact is not None:
                return compact
        return plan.reduce(value)

    def plain_key(self, key: Any) -> Any:
        """Return a dict key, or the base value of a key whose class has a harmless one."""
        cls = type(key)
        if cls in (*_BASES, bool) or not isinstance(key, _BASES) or isinstance(key, enum.Enum):
            return key
        if self.registry.by_class(cls) is not None or arrays.reduce_numpy(key) is not None:
            return key
        return self._base_form(key, cls)

    def _plan_for(self, cls: type) -> Plan | None:
        entry = self.registry.by_class(cls)
        if entry is not None:
            plan = plan_of(cls, entry, self.class_name)
            if plan is None:
                plan = registered_plan(cls, entry)
        else:
            plan = plan_of(cls, None, self.class_name)
            if plan is None:
                return None
            self._check_writable(cls, plan)
        plan.strict = self.strict
        return plan

    def class_name(self, cls: type) -> Any:
        """Return the stored name of a class, or refuse it."""
        entry = self.registry.by_class(cls)
        if entry is not None:
            return entry.name
        if issubclass(cls, pydantic.BaseModel) and generics.origin_of(cls) is not None:
            return generics.name_of(cls, self.class_name)
        if default_name(cls) not in TRUSTED:
            self._check_class(cls)
            if not (self._is_allowed(cls.__module__, cls.__name__, cls.__qualname__) or is_plain_data(cls)):
                raise Refused(f"{qualified(cls)}, its type argument, is not plain data; register it")
        return default_name(cls)

    def _check_writable(self, cls: type, plan: Plan) -> None:
        if type(plan.name) is str and plan.name not in TRUSTED:
            self._check_class(cls)

    def _check_class(self, cls: type) -> None:
        allowed = self._is_allowed(cls.__module__, cls.__name__, cls.__qualname__)
        line = f"register_type({cls.__name__}, name={cls.__name__!r})"
        if cls.__module__ == "__main__" and not allowed:
            raise Refused(f"a class of __main__ has another name in every program; add {line}")
        if "<locals>" in cls.__qualname__:
            raise Refused(f"a class made inside a function cannot be found again; add {line}")
        if self.unknown_types == "refuse" and not allowed:
            raise Refused(f"it is not registered; add types=[{cls.__name__}] or {line}")
        if is_foreign_serializable(cls) and not allowed:
            raise Refused(f"LangChain objects other than messages and documents hold live parts; if it is data, {line}")
        if imported(cls.__module__, cls.__qualname__) is not cls:
            raise Refused(f"it is not found as {qualified(cls)} any more; add {line}")

    def _other(self, value: Any, cls: type) -> Any:
        if isinstance(value, (pydantic.SecretStr, pydantic.SecretBytes)) or hasattr(cls, "get_secret_value"):
            return self._secret(value, cls)
        reduced = arrays.reduce_numpy(value)
        if reduced is not None:
            return reduced
        if isinstance(value, BaseException):
            return self._exception(value)
        if isinstance(value, _BASES):
            return self._base_form(value, cls)
        if isinstance(value, memoryview) and not self.strict:
            return value.tobytes()
        if isinstance(value, UUID) and not self.strict and _is_stateless_uuid(value):
            return UUID(int=value.int, is_safe=value.is_safe)
        if isinstance(value, tzinfo) and not self.strict:
            return moments.fixed_offset(value, None)
        raise Refused(_why_not(value, cls))

    def _secret(self, value: Any, cls: type) -> Reduced:
        if not self.secrets:
            raise SecretRefused('a secret is not stored in clear; set a keyring, or pass secrets="allow"')
        if cls is pydantic.SecretStr or cls is pydantic.SecretBytes:
            return wire.SECRET, [value.get_secret_value()], ("",)
        raise Refused("only pydantic's SecretStr and SecretBytes are stored; convert it to one of them")

    def _exception(self, value: BaseException) -> str:
        if self.strict:
            raise Refused("an exception would be stored as text only; store its message instead")
        return repr(value)

    def _base_form(self, value: Any, cls: type) -> Any:
        base = next(base for base in _BASES if isinstance(value, base))
        if self.strict:
            raise Refused(f"it would be stored as a plain {base.__name__}; convert it first or register its class")
        if not is_stateless(value):
            raise Refused(f"it is a {base.__name__} with attributes, which would be lost; register its class")
        return base_value(value, base)

    def _without_foreign_zone(self, value: Any) -> Any:
        if self.strict:
            raise Refused(f"its time zone is a {qualified(type(value.tzinfo))}; use zoneinfo or datetime.timezone")
        return value.replace(tzinfo=moments.fixed_offset(value.tzinfo, value if type(value) is datetime else None))

    # --- reading

    def plan_named(self, name: Any) -> Plan | None:
        """Return the plan of the class with this stored name; None if it stays raw."""
        if type(name) is str and (known := self._named.get(name)) is not None:
            return known
        try:
            cls = generics.resolve(name, self._find)
        except UnknownTypeError:
            if self.unknown_types in ("raw", _KEPT):
                return None
            raise
        plan = self._plans.get(cls) if isinstance(cls, type) else None
        if plan is None:
            try:
                plan = self._plan_for(cls)
            except Refused:
                plan = None
        if plan is None:
            raise unknown(generics.shown(name))
        if type(name) is str:
            if len(self._named) >= _MAX_PLANS:
                self._named.clear()
            self._named[name] = plan
        return plan

    def _find(self, name: str) -> Any:
        entry = self.registry.by_name(name)
        if entry is not None:
            return entry.cls
        if name in TRUSTED and (trusted := trusted_class(name)) is not None:
            return trusted
        module, _, qualname = name.partition(":")
        allowed = self._is_allowed(module, qualname.rpartition(".")[2], qualname)
        if allowed or (self.unknown_types in ("imported", "raw") and module != "__main__"):
            cls = imported(module, qualname)
            if cls is not None and (allowed or is_plain_data(cls)):
                return cls
        raise unknown(name)

    def _is_allowed(self, module: str, name: str, qualname: str) -> bool:
        return (module, name) in self.allowlist or (module, qualname) in self.allowlist


def _is_stateless_uuid(value: UUID) -> bool:
    """Tell whether a subclass of UUID adds nothing to it."""
    return not getattr(value, "__dict__", None)


def _why_not(value: Any, cls: type) -> str:
    if isinstance(value, _CONTAINERS):
        base = next(base for base in _CONTAINERS if isinstance(value, base))
        return f"it is a subclass of {base.__name__}; convert it to a {base.__name__} or register its class"
    if callable(value):
        return "functions and classes are not stored; store a name and look it up when it is used"
    return "it is not plain data; register its class, convert it, or keep it out of the state"
