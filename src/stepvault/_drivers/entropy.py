"""Random bytes, taken from the system by the kilobyte: each call there gives the interpreter away, and waits for it."""

from __future__ import annotations

import os

from stepvault._drivers.gate import renew_after_fork

_PIECE, _PIECES = 8, 128


class Entropy:
    """`os.urandom`, at a tenth of its price for eight bytes. A forked child never gets what its parent has."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        renew_after_fork(self)

    def __call__(self, count: int) -> bytes:
        """So many random bytes."""
        if count != _PIECE:
            return os.urandom(count)
        try:
            return self._pieces.pop()
        except IndexError:
            data = os.urandom(_PIECE * _PIECES)
            self._pieces.extend(data[at : at + _PIECE] for at in range(_PIECE, len(data), _PIECE))
            return data[:_PIECE]

    def renew(self) -> None:
        """Begin anew in a forked child."""
        self._pieces = []
