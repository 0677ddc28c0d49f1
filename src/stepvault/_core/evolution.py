"""Evolving state: from the version a checkpoint was written under to the version of the code that reads it.

Migrations see the state channels of a checkpoint, as a dict that is theirs to change. Everything here is pure; what
it is applied to stands in `checkpointers/_ops/evolution.py`.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, get_type_hints

from pydantic import BaseModel, ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from stepvault._core.renames import SENDS, START, Aliases, is_control
from stepvault.errors import ConfigurationError, StateInvalidError

Values: TypeAlias = dict[str, Any]
Migration: TypeAlias = Callable[[Values], Values]
Failure: TypeAlias = tuple[tuple[int | str, ...], str]  # where, and what is wrong

FIRST = 1  # the version of what was written before the option was used
_STATE = frozenset(("__root__", "__previous__"))  # channels of the state, in spite of their names
_MISSING = object()


@dataclasses.dataclass(frozen=True, slots=True)
class Evolution:
    """What the code that reads says about its state.

    Attributes:
        version: The version of its state; None: it does not say.
        migrations: `{1: fn}`: makes the channel values of version 2 from those of version 1.
        schema: Checks the channel values, None if they are not checked.
        aliases: Former names of nodes.
    """

    version: int | None = None
    migrations: Mapping[int, Migration] = dataclasses.field(default_factory=dict)
    schema: Schema | None = None
    aliases: Aliases = dataclasses.field(default_factory=Aliases)

    @classmethod
    def of(cls, version: Any, migrations: Any, schema: Any, aliases: Any) -> Evolution:
        """Check the options.

        Raises:
            ConfigurationError: They do not fit together.
        """
        if migrations is not None and not isinstance(migrations, Mapping):
            raise ConfigurationError("state_migrations is a dict of functions: {1: from_1_to_2}.")
        steps = dict(migrations or {})
        if version is not None and (type(version) is not int or version < FIRST):
            raise ConfigurationError(f"state_version must be an int >= {FIRST}, not {version!r}.")
        for step, function in steps.items():
            if version is None:
                raise ConfigurationError("state_migrations needs state_version=, the version that they lead to.")
            if type(step) is not int or not callable(function):
                raise ConfigurationError("state_migrations is a dict of functions: {1: from_1_to_2}.")
            if not FIRST <= step < version:
                raise ConfigurationError(
                    f"state_migrations[{step}] leads beyond state_version={version}; raise state_version to {step + 1}."
                )
        return cls(version, steps, Schema.of(schema) if schema is not None else None, Aliases.of(aliases))

    def __bool__(self) -> bool:
        return self.version is not None or self.schema is not None or bool(self.aliases)

    def is_stale(self, written: int | None) -> bool:
        """Whether what was written under this version is to be migrated.

        Raises:
            StateInvalidError: It is newer than this code, or a migration is missing.
        """
        if self.version is None or (written or FIRST) == self.version:
            return False
        self.check_writable(written)
        for step in range(written or FIRST, self.version):
            if step not in self.migrations:
                raise StateInvalidError(
                    f"it was written under state version {written or FIRST}, this code has state_version="
                    f"{self.version}, and there is no migration from {step} to {step + 1}; add state_migrations[{step}]"
                )
        return True

    def check_writable(self, written: int | None) -> None:
        """Keep code from going on with a state that is newer than it.

        Raises:
            StateInvalidError: Names both versions.
        """
        mine = "none" if self.version is None else str(self.version)
        if (written or FIRST) > (self.version or FIRST):
            raise StateInvalidError(
                f"it was written under state version {written}, newer than this code (state_version={mine}); "
                "deploy the newer code here, or read it without running it"
            )

    def migrated(self, values: Values, written: int | None) -> Values:
        """Channel values of an older version as values of this one. The argument may be changed.

        Raises:
            StateInvalidError: A migration failed.
        """
        control = {name: value for name, value in values.items() if is_control(name)}
        state = {name: value for name, value in values.items() if name not in control}
        stored = copy.deepcopy(state)
        if START in control:
            control[START] = self._part(control[START], stored, written)
        if type(sends := control.get(SENDS)) is list:
            control[SENDS] = [self._sent(send, stored, written) for send in sends]
        return {**control, **(self._steps(state, written) if state else {})}

    def write(self, channel: str, value: Any, values: Mapping[str, Any], written: int | None) -> list[tuple[str, Any]]:
        """The writes that a pending write becomes, given the channel values it was made at.

        The migrations see the state as if the write were the value of its channel; what differs then from the
        migrated state is the write. So a renamed channel, a changed value and a split one all follow.
        """
        if channel == SENDS:
            return [(channel, self._sent(value, values, written))]
        if is_control(channel) or (channel.startswith("__") and channel not in _STATE):
            return [(channel, value)]
        return list(self._part({channel: value}, values, written).items())

    def _sent(self, send: Any, values: Mapping[str, Any], written: int | None) -> Any:
        """A send whose argument is a part of the state is migrated like a write; others are as they were."""
        return type(send)(send.node, self._part(send.arg, values, written)) if hasattr(send, "arg") else send

    def _part(self, given: Any, values: Mapping[str, Any], written: int | None) -> Any:
        if type(given) is not dict or not given or not all(type(name) is str for name in given):
            return given
        state = {name: value for name, value in values.items() if not is_control(name)}
        before = self._steps(copy.deepcopy(state), written) if state else {}
        after = self._steps({**copy.deepcopy(state), **copy.deepcopy(given)}, written)
        changed = {name: one for name, one in after.items() if not _same(before.get(name, _MISSING), one)}
        # What is given and there already is given still: to a reducer that makes a difference.
        found = {**{name: after[name] for name in given if name in after}, **changed}
        return found or {name: one for name, one in after.items() if name not in state}

    def _steps(self, state: Values, written: int | None) -> Values:
        assert self.version is not None
        for step in range(written or FIRST, self.version):
            try:
                state = self.migrations[step](state)
            except Exception as exc:
                raise StateInvalidError(
                    f"state_migrations[{step}] failed on it ({type(exc).__name__}); a migration meets states in which "
                    "channels are not written yet"
                ) from exc
            if type(state) is not dict or not all(type(name) is str for name in state):
                raise StateInvalidError(f"state_migrations[{step}] returned no dict of channel values")
            if control := next(filter(is_control, state), None):
                raise StateInvalidError(f"state_migrations[{step}] returned {control!r}, which is no part of the state")
        return state


def _same(one: Any, other: Any) -> bool:
    try:
        return one is other or bool(one == other)
    except Exception:  # values that cannot be compared
        return False


@dataclasses.dataclass(frozen=True, slots=True)
class Schema:
    """Checks channel values: whole for a model or dataclass, key by key for a TypedDict."""

    name: str
    fields: frozenset[str]
    whole: TypeAdapter[Any] | None
    each: Mapping[str, TypeAdapter[Any]]

    @classmethod
    def of(cls, schema: Any) -> Schema:
        """Read the `state_schema=` option.

        Raises:
            ConfigurationError: It is no pydantic model, dataclass or TypedDict.
        """
        if not isinstance(schema, type):
            raise ConfigurationError(f"state_schema must be a class, not {schema!r}.")
        try:
            if issubclass(schema, BaseModel):
                return cls(schema.__name__, frozenset(schema.model_fields), TypeAdapter(schema), {})
            if dataclasses.is_dataclass(schema):
                names = frozenset(field.name for field in dataclasses.fields(schema))
                return cls(schema.__name__, names, _adapter(schema), {})
            if issubclass(schema, dict) and hasattr(schema, "__total__"):
                hints = get_type_hints(schema, include_extras=True)
                return cls(schema.__name__, frozenset(hints), None, {n: _adapter(hint) for n, hint in hints.items()})
        except (PydanticUserError, NameError) as exc:
            raise ConfigurationError(f"state_schema {schema.__name__} cannot be checked: {exc}") from exc
        raise ConfigurationError(f"state_schema must be a pydantic model, dataclass or TypedDict, not {schema!r}.")

    def check(self, values: Mapping[str, Any], *, begun: bool) -> None:
        """Check the channel values that the schema names.

        Args:
            values: Channel values.
            begun: Whether a field without default must be there; a thread's input does not have them all.

        Raises:
            StateInvalidError: Names the path and what is wrong, never the value.
        """
        wrong = [(loc, kind) for loc, kind in self._errors(values) if begun or kind != "missing" or len(loc) > 1]
        if wrong:
            (loc, kind), more = wrong[0], f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            place = ".".join(map(str, loc)) or "the whole"
            raise StateInvalidError(f"the state does not fit {self.name} at {place} ({kind}{more}); add a migration")

    def _errors(self, values: Mapping[str, Any]) -> Iterator[Failure]:
        present = {name: value for name, value in values.items() if name in self.fields}
        if self.whole is not None:
            yield from _failures(self.whole, present)
        for name in self.each.keys() & present.keys():
            yield from (((name, *loc), kind) for loc, kind in _failures(self.each[name], present[name]))


def _failures(adapter: TypeAdapter[Any], value: Any) -> list[Failure]:
    try:
        adapter.validate_python(value)
    except ValidationError as exc:
        errors = exc.errors(include_url=False, include_context=False, include_input=False)
        return [(error["loc"], error["type"]) for error in errors]
    except Exception as exc:  # a validator of the application
        return [((), type(exc).__name__)]
    return []


def _adapter(annotation: Any) -> TypeAdapter[Any]:
    """An adapter that takes classes pydantic does not know by their `isinstance`."""
    try:
        return TypeAdapter(annotation, config=ConfigDict(arbitrary_types_allowed=True))
    except PydanticUserError as exc:
        if exc.code != "type-adapter-config-unused":
            raise
        return TypeAdapter(annotation)  # a pydantic model has a config of its own
