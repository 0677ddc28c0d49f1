"""Reading: ormsgpack does the walk, a hook builds what stands in extension types."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import ormsgpack
import pydantic

from stepvault._core.serde import arrays, messages, moments, stdlib, wire
from stepvault._core.serde.generics import shown
from stepvault._core.serde.raw import RawValue
from stepvault.errors import (
    MissingDependencyError,
    PayloadError,
    TruncatedError,
    UnsupportedFormatError,
)

if TYPE_CHECKING:
    from stepvault._core.serde.policy import Policy

_unpackb = ormsgpack.unpackb
_END: Final = "sv1.end"
_TAIL: Final = ormsgpack.packb(_END)
# From this depth on the containers inside an extension are counted before ormsgpack recurses into them.
GUARD_FROM: Final = 3
_NOT_CONTAINERS: Final = bytes(b for b in range(256) if not (0x80 <= b <= 0x9F or 0xDC <= b <= 0xDF))


def loads(policy: Policy, data: bytes) -> Any:
    """Decode one value; every failure is a PayloadError."""
    return Decoder(policy).whole(data)


class Decoder:
    """One call of `loads`. A hook's own error is kept here, because ormsgpack drops it."""

    __slots__ = ("depth", "error", "policy")

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.depth = 0
        self.error: Exception | None = None

    def whole(self, data: bytes) -> Any:
        """Decode a value that must end where the data ends."""
        try:
            # ormsgpack ignores what follows a value; as the first of a pair, it cannot.
            value, end = _unpackb(b"".join((b"\x92", data, _TAIL)), ext_hook=self.hook, option=wire.UNPACK)
        except Exception as exc:
            raise self._translated(exc) from (self.error if isinstance(self.error, RecursionError) else None)
        if end != _END:
            raise PayloadError("a stored payload does not end where it should; it was damaged")
        return value

    def hook(self, code: int, data: bytes) -> Any:
        """Build the value of one extension. It recurses through ormsgpack: one Python frame for each level."""
        self.depth += 1
        try:
            if self.depth > GUARD_FROM:
                self.guard(data)
            payload = _unpackb(data, ext_hook=self.hook, option=wire.UNPACK)
            if code == wire.MESSAGE:
                return messages.shape(payload[0]).restore(payload)
            return self.build(code, payload, data)
        except Exception as exc:
            if self.error is None:
                self.error = exc
            raise
        finally:
            self.depth -= 1

    def guard(self, data: bytes) -> None:
        """Raise if this extension would take the whole deeper than is allowed."""
        if self.depth > wire.MAX_DEPTH:
            raise PayloadError(f"a stored payload is nested deeper than {wire.MAX_DEPTH} levels")
        if len(data.translate(None, _NOT_CONTAINERS)) > wire.MAX_DEPTH:
            _check_depth(data)

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
        plan = self.policy.plan_named(payload[0])
        if plan is not None:
            return plan.revive(payload)
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


def _check_depth(data: bytes) -> None:
    """Raise if containers nest deeper than is allowed, without recursion."""
    position, open_sizes = 0, [1]
    end = len(data)
    while open_sizes and position < end:
        open_sizes[-1] -= 1
        head = data[position]
        position += 1
        size, skip = _head(head, data, position)
        position += skip
        if size:
            open_sizes.append(size)
            if len(open_sizes) > wire.MAX_DEPTH + 2:
                raise PayloadError(f"a stored payload is nested deeper than {wire.MAX_DEPTH} levels")
        while open_sizes and not open_sizes[-1]:
            open_sizes.pop()


def _head(head: int, data: bytes, at: int) -> tuple[int, int]:
    """Return the items inside, and the bytes to skip, of the msgpack value with this first byte."""
    if head < 0x80 or head >= 0xE0 or head in (0xC0, 0xC1, 0xC2, 0xC3):
        return 0, 0
    if head < 0x90:
        return 2 * (head & 0x0F), 0
    if head < 0xA0:
        return head & 0x0F, 0
    if head < 0xC0:
        return 0, head & 0x1F
    if head in _SIZED:
        width, extra = _SIZED[head]
        return 0, width + extra + int.from_bytes(data[at : at + width], "big")
    if head in _COUNTED:
        width, factor = _COUNTED[head]
        return factor * int.from_bytes(data[at : at + width], "big"), width
    return 0, _FIXED[head]


# fmt: off
_SIZED: Final = {
    0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1),
    0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0),
}
_COUNTED: Final = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
_FIXED: Final = {
    0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
    0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}
# fmt: on


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
