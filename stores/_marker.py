"""What a database of items says of itself: an item of nobody's tenant, which any store looks at before it does more.

Savers keep theirs apart: a store may stand alone, and be sealed at another time.
"""

from __future__ import annotations

from stepvault._core.plan import Op
from stepvault._core.rows import Doc
from stepvault._keystore.marker import Marker
from stepvault.stores._dialect import NOBODY, Dialect, NewItem, Work

_NAME = (b"vault\0", b"seal")


def read(dialect: Dialect) -> Op[Marker | None]:
    """The marker; None: nothing was ever sealed."""
    (row,) = (yield from dialect.work(NOBODY, Work(gets=[_NAME]))).gets
    return Marker.of(Doc(b"", b"", bytes(row.body))) if row else None


def write(dialect: Dialect, marker: Marker | None) -> Op[None]:
    """Replace the marker, or remove it."""
    if marker is None:
        yield from dialect.work(NOBODY, Work(deletes=[_NAME]))
    else:
        item = NewItem(*_NAME, None, None, None, None, None, "", (), marker.body())
        yield from dialect.work(NOBODY, Work(puts=[item]))
