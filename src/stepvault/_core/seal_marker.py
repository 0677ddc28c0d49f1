"""The mark of a database that is being sealed: until it ends, rows may still be plain.

It is authenticated, so nobody without keys can set it; and it ends, so an old one put back does not open the door.
Whoever seals renews it as he goes.
"""

from __future__ import annotations

from stepvault._core.blind_index import TOKEN_BYTES, BlindIndex

_TIME_BYTES = 8


def marker(index: BlindIndex, until: int) -> bytes:
    """Plain rows pass until then (milliseconds since 1970)."""
    time = until.to_bytes(_TIME_BYTES, "big")
    return time + index.mark(b"sealing", time)


def plain_passes(index: BlindIndex, stored: bytes | None, now: int) -> bool:
    """Whether this marker is ours and has not ended."""
    if stored is None or len(stored) != _TIME_BYTES + TOKEN_BYTES:
        return False
    until = int.from_bytes(stored[:_TIME_BYTES], "big")
    return now < until and stored == marker(index, until)
