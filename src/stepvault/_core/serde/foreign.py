"""Objects of an application's classes as LangGraph's serializer describes them: a module, a name and the fields.

Where the class is not known, the description itself is kept and can be stored again; it is read as late as an
object is needed, by whoever knows the class then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepvault._core.serde import encode, wire
from stepvault._core.serde.models import LegacyModelPlan, ModelPlan
from stepvault._core.serde.raw import RawValue
from stepvault._core.serde.records import EnumPlan
from stepvault.errors import PayloadError, StateInvalidError

if TYPE_CHECKING:
    from stepvault._core.serde.plans import Plan
    from stepvault._core.serde.policy import Policy


def plan_named(policy: Policy, stored: str) -> Plan | None:
    """Return the plan of a class that is stored as `module:name`; None if its objects stay as they are."""
    # Only the last part of a nested class's name was stored; a registered class says which one it is.
    module, _, name = stored.partition(":")
    entry = policy.registry.by_short_name(module, name)
    return policy.plan_named(entry.name if entry else stored)


def made(plan: Plan, payload: Any) -> Any:
    """Rebuild an object from its fields, or a member of an enum from its value."""
    try:
        if isinstance(plan, EnumPlan):
            return _member(plan, payload)
        if type(payload) is not dict:
            raise PayloadError(f"a stored {plan.label} is malformed")
        fields = plan.lift(payload, 1)
        if isinstance(plan, ModelPlan):
            # model_dump() also writes computed fields, which no constructor takes.
            computed = set(plan.cls.model_computed_fields) - plan.all_names
            fields = {name: value for name, value in fields.items() if name not in computed}
            return plan.validated(fields, set(fields), None, None)
        return plan.build(fields, [], not isinstance(plan, LegacyModelPlan))
    except PayloadError:
        raise
    except Exception as exc:
        raise StateInvalidError(plan.unfit(exc)) from None


def _member(plan: EnumPlan, value: Any) -> Any:
    try:
        return plan.build(plan.lift({"value": value}, 1), [], False)
    except ValueError:
        if type(value) is not list:
            raise
    return plan.build(plan.lift({"value": hashable(value)}, 1), [], False)  # a tuple, stored as a list


def hashable(value: Any) -> Any:
    """Return tuples in place of lists: LangGraph stores both alike."""
    return tuple(map(hashable, value)) if isinstance(value, list) else value


def kept(policy: Policy, stored: str, payload: Any) -> RawValue:
    """Return an object as it is described, with the record that stores it again."""
    return RawValue(stored, 1, payload, encode.dumps(policy, [stored, 1, wire.FOREIGN, payload, None]))
