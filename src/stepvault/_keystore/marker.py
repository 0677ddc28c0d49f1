"""What a database says of itself: that it is sealed and by which keys, or on the way there or back, or that it was."""

from __future__ import annotations

from dataclasses import dataclass

from stepvault._core.blind_index import BlindIndex, Marks
from stepvault._core.rows import Doc
from stepvault._core.seal_marker import PREPARING, SEALING, UNSEALING, WINDOW_BYTES, marker, plain_passes

MARKER_SPACE, MARKER_KEY = b"vault", b"seal"
RECHECK = 10.0  # seconds after which a process looks at it again
WINDOW = 600_000  # milliseconds for which plain rows pass; whoever converts renews it on the way

_SEALED, _PREPARING, _SEALING, _UNSEALING, _UNSEALED = b"S", b"P", b"M", b"U", b"O"
_PURPOSE = {_PREPARING: PREPARING, _SEALING: SEALING, _UNSEALING: UNSEALING}
_KIND, _DEPLOYMENT = 1, 16


@dataclass(frozen=True, slots=True)
class Marker:
    """The marker of a database.

    Attributes:
        deployment: Whose keys it is sealed with, or was.
        kind: Which state it is in.
        window: While it changes: until when plain rows pass, see `seal_marker`.
        marked: What is unsealed in it has the marks of a sealed one: it was sealed before.
        marks: Of one that was unsealed: the key of its marks, see `BlindIndex.given_away`.
    """

    deployment: bytes
    kind: bytes
    window: bytes | None = None
    marked: bool = False
    marks: bytes = b""

    @classmethod
    def of(cls, doc: Doc) -> Marker:
        body = bytes(doc.body)
        kind, deployment, rest = body[:_KIND], body[_KIND : _KIND + _DEPLOYMENT], body[_KIND + _DEPLOYMENT :]
        if kind in _PURPOSE:
            return cls(deployment, kind, rest[:WINDOW_BYTES], bool(rest[WINDOW_BYTES:]))
        return cls(deployment, kind, marked=kind == _UNSEALED, marks=rest)

    def body(self) -> bytes:
        if self.window is None:
            return self.kind + self.deployment + self.marks
        return self.kind + self.deployment + self.window + (b"m" if self.marked else b"")

    @property
    def is_sealed(self) -> bool:
        """Whether every row has to be sealed."""
        return self.kind not in (*_PURPOSE, _UNSEALED)

    @property
    def is_preparing(self) -> bool:
        """Whether it will be sealed as soon as every process must know."""
        return self.kind == _PREPARING

    @property
    def grows_plain(self) -> bool:
        """Whether new threads and items are unsealed for now."""
        return self.kind in (_PREPARING, _UNSEALING)

    @property
    def is_leaving(self) -> bool:
        """Whether it is being unsealed."""
        return self.kind == _UNSEALING

    @property
    def is_unsealed(self) -> bool:
        """Whether it was sealed and is not any more."""
        return self.kind == _UNSEALED

    def plain_passes(self, index: BlindIndex, now: int) -> bool:
        """Whether unsealed rows may be read."""
        return self.kind in _PURPOSE and plain_passes(index, self.window, now, _PURPOSE[self.kind])

    def opened_marks(self) -> Marks | None:
        """The marks of a database that was unsealed."""
        return Marks(self.marks) if self.is_unsealed else None


def sealed(index: BlindIndex) -> Marker:
    """The marker of a sealed database."""
    return Marker(index.deployment, _SEALED)


def preparing(index: BlindIndex, until: int, *, marked: bool = False) -> Marker:
    """The marker of a database that will be sealed as soon as every process must have seen it."""
    return Marker(index.deployment, _PREPARING, marker(index, until, PREPARING), marked)


def sealing(index: BlindIndex, until: int, *, marked: bool = False) -> Marker:
    """The marker of a database that is being sealed."""
    return Marker(index.deployment, _SEALING, marker(index, until, SEALING), marked)


def unsealing(index: BlindIndex, until: int) -> Marker:
    """The marker of a database that is being unsealed."""
    return Marker(index.deployment, _UNSEALING, marker(index, until, UNSEALING), True)


def unsealed(index: BlindIndex) -> Marker:
    """The marker of a database that was unsealed."""
    return Marker(index.deployment, _UNSEALED, marked=True, marks=index.given_away())
