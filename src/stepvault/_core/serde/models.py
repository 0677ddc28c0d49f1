"""Plans for pydantic models, version 2 and the version 1 shim."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from stepvault._core.serde import wire
from stepvault._core.serde.making import NOT_ITS_DATA, undisturbed
from stepvault._core.serde.plans import Plan, fingerprint_of, set_attribute
from stepvault._core.serde.registry import Upcaster
from stepvault._core.serde.wire import Labels, Reduced
from stepvault.errors import PayloadError

_BY_NAME = "by_name" in inspect.signature(BaseModel.model_validate).parameters
_LABELS: Labels = ("", "", "", "{}", "", "", "", "?{}")


class ModelPlan(Plan):
    """A pydantic model: fields, fields set, extras and private attributes.

    While the class is unchanged its values are not validated again (a validator need not accept its own
    output): only `model_post_init` runs, as in `model_construct`, and the stored state is laid over what it did.
    """

    kind = "p"

    def __init__(self, cls: type, name: Any, version: int = 1, upcasters: Mapping[int, Upcaster] | None = None) -> None:
        super().__init__(cls, name, version, upcasters)
        fields = self.cls.model_fields
        self.names = tuple(fields)
        self.all_names = frozenset(self.names)
        self.fingerprint = fingerprint_of({name: field.annotation for name, field in fields.items()})
        self.aliases = {name: _input_name(name, field) for name, field in fields.items()}

    def reduce(self, value: Any) -> Reduced:
        stored = value.__dict__
        fields = {name: stored[name] for name in self.names if name in stored}
        fields_set = value.__pydantic_fields_set__
        names = None if fields_set == self.all_names else sorted(fields_set)
        extra, private = value.__pydantic_extra__, value.__pydantic_private__
        state = [names, extra, dict(private) if private else None]
        while state and state[-1] is None:
            state.pop()
        return wire.RECORD, [self.name, self.version, self.kind, fields, self.fingerprint, *state], _LABELS

    def build(self, fields: dict[str, Any], state: list[Any], same: bool) -> Any:
        fields_set, extra, private = _state(state, self.all_names)
        if not same or not self.all_names.issuperset(fields):
            return self.validated(fields, fields_set, extra, private)
        made = self.cls.__new__(self.cls)
        set_attribute(made, "__pydantic_private__", None)
        if self.cls.__pydantic_post_init__ is not None:
            _set_state(made, dict(fields), set(fields_set), dict(extra) if extra is not None else None)
            with contextlib.suppress(*NOT_ITS_DATA):  # it need not accept its own output
                undisturbed(lambda: made.model_post_init(None), [fields, extra])
        _set_state(made, fields, set(fields_set), extra)
        if private:
            self._set_private(made, private)
        return made

    def validated(self, fields: dict[str, Any], fields_set: Any, extra: Any, private: Any) -> Any:
        """Make a model from fields of another version of its class."""
        if _BY_NAME:
            made = self.cls.model_validate({**(extra or {}), **fields}, by_name=True, by_alias=False)
        else:
            named = {self.aliases.get(name, name): value for name, value in fields.items()}
            made = self.cls.model_validate({**(extra or {}), **named})
        # What the stored object had as a default stays a default.
        made.__pydantic_fields_set__.difference_update(set(fields) - set(fields_set))
        self._set_private(made, private or {})
        return made

    def _set_private(self, made: Any, private: dict[str, Any]) -> None:
        kept = {name: value for name, value in private.items() if name in self.cls.__private_attributes__}
        if kept:
            set_attribute(made, "__pydantic_private__", {**(made.__pydantic_private__ or {}), **kept})


def _set_state(made: Any, fields: dict[str, Any], fields_set: set[str], extra: dict[str, Any] | None) -> None:
    set_attribute(made, "__dict__", fields)
    set_attribute(made, "__pydantic_fields_set__", fields_set)
    set_attribute(made, "__pydantic_extra__", extra)


def _input_name(name: str, field: Any) -> str:
    alias = field.validation_alias or field.alias
    return alias if isinstance(alias, str) else name


def _state(state: list[Any], all_names: frozenset[str]) -> tuple[Any, Any, Any]:
    fields_set, extra, private = (*state, None, None, None)[:3]
    if fields_set is None:
        fields_set = all_names
    for part, cls in ((extra, dict), (private, dict)):
        if part is not None and type(part) is not cls:
            raise PayloadError("a stored model is malformed")
    return fields_set, extra, private


class LegacyModelPlan(Plan):
    """A model of `pydantic.v1`."""

    kind = "1"

    def __init__(self, cls: type, name: Any, version: int = 1, upcasters: Mapping[int, Upcaster] | None = None) -> None:
        super().__init__(cls, name, version, upcasters)
        self.names = tuple(self.cls.__fields__)
        self.fingerprint = fingerprint_of({name: f.outer_type_ for name, f in self.cls.__fields__.items()})

    def reduce(self, value: Any) -> Reduced:
        missing = object()
        private = {n: getattr(value, n, missing) for n in self.cls.__private_attributes__}
        private = {name: item for name, item in private.items() if item is not missing}
        items = [self.name, self.version, self.kind, dict(value.__dict__), self.fingerprint]
        return wire.RECORD, [*items, sorted(value.__fields_set__), None, private or None], _LABELS

    def build(self, fields: dict[str, Any], state: list[Any], same: bool) -> Any:
        fields_set, _, private = _state(state, frozenset(self.names))
        if same:
            made = self.cls.construct(set(fields_set), **fields)
            set_attribute(made, "__dict__", fields)
        else:
            made = self.cls.parse_obj(
                {self.cls.__fields__[n].alias if n in self.names else n: v for n, v in fields.items()}
            )
        for name, value in (private or {}).items():
            if name in self.cls.__private_attributes__:
                set_attribute(made, name, value)
        return made
