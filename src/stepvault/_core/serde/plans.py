"""How objects of one class become fields and come back: the base of every class plan, and what they share."""

from __future__ import annotations

import types
import typing
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from stepvault._core.serde import wire
from stepvault._core.serde.registry import Upcaster
from stepvault._core.serde.wire import Labels, Reduced, qualified
from stepvault.errors import PayloadError, StateInvalidError

MISSING: Final = object()
_LABELS: Final[Labels] = ("", "", "", "{}", "")
set_attribute: Final[Callable[[Any, str, Any], None]] = object.__setattr__


class Plan:
    """Stores and revives the objects of exactly one class.

    A record is `[name, version, kind, fields, fingerprint, *state]`. While the fingerprint of the class is
    the one that was stored, an object comes back exactly; otherwise its fields go through the constructor or
    validator.
    """

    kind = "?"
    strict = False

    def __init__(self, cls: type, name: Any, version: int = 1, upcasters: Mapping[int, Upcaster] | None = None) -> None:
        self.cls: Any = cls
        self.name = name
        self.version = version
        self.upcasters = upcasters or {}
        self.fingerprint: int | None = None

    def reduce(self, value: Any) -> Reduced:
        """Return the stored form of an object."""
        return (
            wire.RECORD,
            [self.name, self.version, self.kind, self.fields_of(value), self.fingerprint],
            _LABELS,
        )

    def fields_of(self, value: Any) -> dict[str, Any]:
        """Return the fields of an object by name."""
        raise NotImplementedError

    def revive(self, payload: list[Any]) -> Any:
        """Rebuild an object from its record, lifting an older version first."""
        _, version, _, fields, fingerprint, *state = payload
        if type(fields) is not dict or type(version) is not int:
            raise PayloadError(f"a stored {self.label} is malformed")
        lifted = self.lift(fields, version)
        same = fingerprint == self.fingerprint and lifted is fields
        try:
            return self.build(lifted, state, same)
        except PayloadError:
            raise
        except Exception as exc:
            raise StateInvalidError(self.unfit(exc)) from None

    def build(self, fields: dict[str, Any], state: list[Any], same: bool) -> Any:
        """Rebuild an object; `same` tells that the class is as it was when the record was written."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """The class, as messages name it."""
        return qualified(self.cls)

    def lift(self, fields: dict[str, Any], version: int) -> dict[str, Any]:
        """Return the fields as the current version has them."""
        if version > self.version:
            raise PayloadError(
                f"a stored {self.label} has version {version}, this process knows version {self.version}; "
                "deploy the newer code or register the newer class"
            )
        for step in range(version, self.version):
            upcaster = self.upcasters.get(step)
            if upcaster is None:
                raise PayloadError(
                    f"a stored {self.label} has version {version}, this process has version {self.version} "
                    f"and no upcaster for {step}; add upcasters={{{step}: function}} to its register_type"
                )
            try:
                fields = upcaster(dict(fields))
            except Exception as exc:
                raise StateInvalidError(f"the upcaster from version {step} of {self.label} failed") from exc
            if not isinstance(fields, dict):
                raise StateInvalidError(f"the upcaster from version {step} of {self.label} returned no dict")
        return fields

    def unfit(self, exc: Exception) -> str:
        """Return the message for an object that its class refused."""
        # Validation messages quote the input; payloads stay out of ours, so only places and kinds are named.
        errors: Any = getattr(exc, "errors", None)
        found = type(exc).__name__
        if callable(errors):
            listed: Any = errors()
            places = [f"{'.'.join(map(str, one['loc']))}: {one['type']}" for one in listed[:5] if "loc" in one]
            found = ", ".join(places) or found
        return f"a stored {self.label} does not fit its class ({found}); raise its version and add an upcaster"


def fingerprint_of(names: Mapping[str, Any]) -> int:
    """Return a number that changes when a field is added, dropped, reordered or annotated anew."""
    return zlib.crc32(";".join(f"{name}:{_text(annotation)}" for name, annotation in names.items()).encode())


def _text(annotation: Any) -> str:
    # Not repr(): that differs between Python versions, and with the module a class stands in.
    if isinstance(annotation, str):
        return annotation.replace(" ", "")
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _text(typing.get_args(annotation)[0])
    if origin is None:
        return str(getattr(annotation, "__qualname__", None) or getattr(annotation, "__forward_arg__", "?"))
    inner = [repr(one) if origin is typing.Literal else _text(one) for one in typing.get_args(annotation)]
    if origin is typing.Union or origin is types.UnionType:
        return "|".join(inner)
    return f"{_text(origin)}[{','.join(inner)}]"


def overlay(value: Any, fields: Mapping[str, Any]) -> None:
    """Set fields the constructor made otherwise, past any converter, `__setattr__` or frozen mark."""
    for name, stored in fields.items():
        if getattr(value, name, MISSING) is not stored:
            if name[:2] == "__":
                raise PayloadError("a stored object has fields that no object has")
            set_attribute(value, name, stored)


def refuse_unknown(label: str, fields: Mapping[str, Any], known: Any) -> None:
    """Raise on stored fields that the class no longer has."""
    gone = [name for name in fields if name not in known]
    if gone:
        raise StateInvalidError(
            f"a stored {label} has fields its class no longer has: {', '.join(map(str, gone))}; "
            "raise its version and add an upcaster that drops or renames them"
        )


def stray_attributes(value: Any, known: Any) -> list[str]:
    """Return instance attributes that are no fields, cached properties aside (they are computed anew)."""
    return [
        name
        for name in getattr(value, "__dict__", ())
        if name not in known
        and name != "__orig_class__"  # left by `Box[int](1)`
        and type(getattr(type(value), name, None)).__name__ != "cached_property"
    ]
