"""What a database says of itself: that it is sealed and by which keys, or that it is being sealed."""

from __future__ import annotations

from typing import NamedTuple

from stepvault._core.blind_index import BlindIndex
from stepvault._core.rows import Doc
from stepvault._core.seal_marker import marker, plain_passes

MARKER_SPACE, MARKER_KEY = b"vault", b"seal"

_SEALED, _SEALING = b"S", b"M"
_DEPLOYMENT = 16


class Marker(NamedTuple):
    """The marker of a database."""

    deployment: bytes
    window: bytes | None  # while it is being sealed: until when plain rows pass, see `seal_marker`

    @classmethod
    def of(cls, doc: Doc) -> Marker:
        body = bytes(doc.body)
        return cls(body[1 : 1 + _DEPLOYMENT], body[1 + _DEPLOYMENT :] if body[:1] == _SEALING else None)

    def body(self) -> bytes:
        if self.window is None:
            return _SEALED + self.deployment
        return _SEALING + self.deployment + self.window

    def plain_passes(self, index: BlindIndex, now: int) -> bool:
        """Whether unsealed rows may still be read."""
        return plain_passes(index, self.window, now)


def sealed(index: BlindIndex) -> Marker:
    """The marker of a sealed database."""
    return Marker(index.deployment, None)


def sealing(index: BlindIndex, until: int) -> Marker:
    """The marker of a database that is being sealed."""
    return Marker(index.deployment, marker(index, until))
