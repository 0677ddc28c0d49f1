"""From a class to its plan, and from a stored name to a class, without importing or calling anything."""

from __future__ import annotations

import dataclasses
import enum
import sys
from collections.abc import Callable
from typing import Any

import pydantic

from stepvault._core.serde import generics
from stepvault._core.serde.library import SPECIAL, TRUSTED, trusted_class
from stepvault._core.serde.models import LegacyModelPlan, ModelPlan
from stepvault._core.serde.plans import Plan
from stepvault._core.serde.records import (
    AttrsPlan,
    BaseValuePlan,
    DataclassPlan,
    EnumPlan,
    NamedTuplePlan,
    ObjectPlan,
)
from stepvault._core.serde.registry import Registration, default_name, key_of
from stepvault.errors import UnknownTypeError


def unknown(name: str) -> UnknownTypeError:
    """Return the error for a stored name that resolves to nothing allowed."""
    last = key_of(name).rpartition(".")[2]
    return UnknownTypeError(
        f"a stored value is of type {name!r}, which this process has not loaded or not registered; import "
        f"its module and pass types=[{last}], or register_type({last}, aliases=[{name!r}]) if it was renamed",
        type_name=name,
    )


def plan_of(cls: type, entry: Registration | None, class_name: Callable[[type], Any]) -> Plan | None:
    """Return the plan of a plain data class, None if it is no such thing."""
    name = default_name(cls)
    if name in SPECIAL and trusted_class(name) is cls:
        return SPECIAL[name](cls, name)
    made: Callable[..., Plan] | None = _plain_plan(cls)
    if made is None:
        return None
    if entry is not None:
        return made(cls, entry.name, entry.version, entry.upcasters)
    if made is ModelPlan and generics.origin_of(cls) is not None:
        return made(cls, generics.name_of(cls, class_name))
    return made(cls, name)


def _plain_plan(cls: Any) -> Any:
    if issubclass(cls, enum.Enum):
        return EnumPlan
    if issubclass(cls, pydantic.BaseModel):
        return ModelPlan
    legacy = sys.modules.get("pydantic.v1")
    if legacy is not None and issubclass(cls, legacy.BaseModel):
        return LegacyModelPlan
    if dataclasses.is_dataclass(cls):
        return DataclassPlan
    if "__attrs_attrs__" in cls.__dict__:
        return AttrsPlan
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return NamedTuplePlan
    return None


def registered_plan(cls: type, entry: Registration) -> Plan:
    """Return the plan of a registered class that is no plain data."""
    made: type[Plan] = BaseValuePlan if issubclass(cls, BaseValuePlan.bases) else ObjectPlan
    return made(cls, entry.name, entry.version, entry.upcasters)


def is_plain_data(cls: type) -> bool:
    """Tell whether a class may be revived without being registered."""
    return (_plain_plan(cls) is not None or default_name(cls) in SPECIAL) and not is_foreign_serializable(cls)


def is_foreign_serializable(cls: type) -> bool:
    """Tell whether a class is a LangChain object that is neither a message nor a document."""
    loaded = sys.modules.get("langchain_core.load.serializable")
    if loaded is None or not issubclass(cls, loaded.Serializable):
        return False
    base = sys.modules.get("langchain_core.messages.base")
    return not (base is not None and issubclass(cls, base.BaseMessage)) and default_name(cls) not in TRUSTED


def imported(module: str, qualname: str) -> Any:
    """Return a class from a module that is already imported, without running anything to get there."""
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        # Through __dict__: a module's __getattr__ may import, a class's descriptors may run.
        found = getattr(found, "__dict__", {}).get(part)
    if isinstance(found, type) and found.__module__ == module and found.__qualname__ == qualname:
        return found
    return None
