"""Reading: ormsgpack does the walk, a hook builds what stands in extension types."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import ormsgpack
import pydantic

from stepvault._core.serde import arrays, foreign, messages, moments, stdlib, wire
from stepvault._core.serde.generics import shown
from stepvault._core.serde.nesting import depth_of, unpackb
from stepvault._core.serde.raw import RawValue
from stepvault.errors import (
    MissingDependencyError,
    PayloadError,
    TruncatedError,
    UnsupportedFormatError,
)

if TYPE_CHECKING:
    from stepvault._core.serde.policy import Policy

_END: Final = "sv1.end"
_TAIL: Final = ormsgpack.packb(_END)
# ormsgpack bounds the containers it recurses into, but anew in each extension. Extensions that stand this deep are
# therefore counted before; each object of ours is an extension, an array and a map.
_GUARD_FROM: Final = 3
_FEW: Final = 8
# A little more than is ever written: a writer counts containers, a reader what stands for them.
_MAX_DEPTH: Final = wire.MAX_DEPTH + 4
_MAX_CONTAINERS: Final = 5 * _MAX_DEPTH
_NOT_CONTAINERS: Final = bytes(b for b in range(256) if not (0x80 <= b <= 0x9F or 0xDC <= b <= 0xDF))


def loads(policy: Policy, data: bytes) -> Any:
    """Decode one value; every failure is a PayloadError."""
    return Decoder(policy).whole(data)


class Decoder:
    """One call of `loads`. A hook's own error is kept here, because ormsgpack drops it."""

    __slots__ = ("containers", "depth", "error", "policy")
    has_messages = True

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.depth = 0
        self.containers = 0
        self.error: Exception | None = None

    def whole(self, data: bytes) -> Any:
        """Decode a value that must end where the data ends."""
        try:
            # ormsgpack ignores what follows a value; as the first of a pair, it cannot.
            value, end = unpackb(b"".join((b"\x92", data, _TAIL)), ext_hook=self.hook, option=wire.UNPACK)
        except Exception as exc:
            raise self._translated(exc) from (self.error if isinstance(self.error, RecursionError) else None)
        if type(end) is not str or end != _END:
            raise PayloadError("a stored payload does not end where it should; it was damaged")
        return value

    def hook(self, code: int, data: bytes) -> Any:
        """Build the value of one extension. It recurses through ormsgpack: one Python frame for each level."""
        self.depth += 1
        try:
            inner = self.hook if self.depth < _GUARD_FROM else self.deep_hook
            payload = unpackb(data, ext_hook=inner, option=wire.UNPACK)
            if code == wire.MESSAGE and self.has_messages:
                return messages.shape(payload[0]).restore(payload)
            return self.build(code, payload, data)
        except Exception as exc:
            if self.error is None:
                self.error = exc
            raise
        finally:
            self.depth -= 1

    def deep_hook(self, code: int, data: bytes) -> Any:
        """Do the same where extensions stand deep, after counting what ormsgpack will recurse into."""
        added = 0
        try:
            if self.depth >= _MAX_DEPTH:
                raise PayloadError(f"a stored payload is nested deeper than {wire.MAX_DEPTH} levels")
            added = len(data.translate(None, _NOT_CONTAINERS))
            if added > _FEW:
                added = depth_of(data)
            self.containers += added
            if self.containers > _MAX_CONTAINERS:
                raise PayloadError(f"a stored payload is nested deeper than {wire.MAX_DEPTH} levels")
            return self.hook(code, data)
        except Exception as exc:
            if self.error is None:
                self.error = exc
            raise
        finally:
            self.containers -= added

    def build(self, code: int, payload: Any, data: bytes) -> Any:
        """Build the value of an extension that is no message."""
        if type(payload) is not list:
            raise PayloadError("a stored value is malformed")
        build = _BUILDERS.get(code)
        if build is not None:
            return build(payload)
        if code == wire.RECORD:
            return self._record(payload, data)
        raise UnsupportedFormatError(f"a stored value has kind {code}, unknown to this version; upgrade Stepvault")

    def _record(self, payload: list[Any], data: bytes) -> Any:
        if len(payload) < 5:
            raise PayloadError("a stored object is malformed")
        described = payload[2] == wire.FOREIGN and type(payload[0]) is str
        plan = foreign.plan_named(self.policy, payload[0]) if described else self.policy.plan_named(payload[0])
        if plan is not None:
            return foreign.made(plan, payload[3]) if described else plan.revive(payload)
        return RawValue(shown(payload[0]), payload[1], payload[3], data)

    def _translated(self, exc: Exception) -> Exception:
        cause = self.error
        if isinstance(cause, (PayloadError, MissingDependencyError)):
            return cause
        text = str(exc)
        if "unexpected end of file" in text and (cause is None or "unexpected end of file" in str(cause)):
            return TruncatedError()
        if isinstance(cause, RecursionError) or "Recursion limit" in text or "Recursion limit" in str(cause):
            return PayloadError("a stored payload is nested too deeply to be read")
        kind = type(cause or exc).__name__
        return PayloadError(f"a stored payload cannot be read ({kind}); it is damaged or of another format")


def _pairs(items: list[Any]) -> dict[Any, Any]:
    if len(items) % 2:
        raise PayloadError("a stored dict is malformed")
    return dict(zip(items[::2], items[1::2], strict=True))


def _secret(items: list[Any]) -> Any:
    (value,) = items
    if type(value) is str:
        return pydantic.SecretStr(value)
    if type(value) is bytes:
        return pydantic.SecretBytes(value)
    raise PayloadError("a stored secret is malformed")


_BUILDERS: Final[dict[int, Callable[[list[Any]], Any]]] = {
    **stdlib.BUILDERS,
    **moments.BUILDERS,
    **arrays.BUILDERS,
    wire.TUPLE: tuple,
    wire.SET: set,
    wire.FROZENSET: frozenset,
    wire.PAIRS: _pairs,
    wire.SECRET: _secret,
}
