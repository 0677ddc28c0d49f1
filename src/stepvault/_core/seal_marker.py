"""The mark of a database that is being sealed or unsealed: until it ends, rows may be plain.

It is authenticated, so nobody without keys can set it; and it ends, so an old one put back does not open the door.
Whoever seals renews it as he goes.
"""

from __future__ import annotations

from stepvault._core.blind_index import TOKEN_BYTES, BlindIndex

PREPARING, SEALING, UNSEALING = b"preparing", b"sealing", b"unsealing"
WINDOW_BYTES = 8 + TOKEN_BYTES


def marker(index: BlindIndex, until: int, purpose: bytes = SEALING) -> bytes:
    """Plain rows pass until then (milliseconds since 1970)."""
    time = until.to_bytes(8, "big")
    return time + index.window(purpose, time)


def plain_passes(index: BlindIndex, stored: bytes | None, now: int, purpose: bytes = SEALING) -> bool:
    """Whether this marker is ours and has not ended."""
    if stored is None or len(stored) != WINDOW_BYTES:
        return False
    until = int.from_bytes(stored[:8], "big")
    return now < until and stored == marker(index, until, purpose)
