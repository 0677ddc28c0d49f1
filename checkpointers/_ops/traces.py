"""Whether two savers look at one database: what one leaves behind, the other finds. URLs have too many spellings."""

from __future__ import annotations

from stepvault._core.plan import Op
from stepvault._core.rows import DocChange
from stepvault._keystore.marker import MARKER_SPACE
from stepvault.checkpointers._dialect import Dialect

_TRACE = b"trace"


def leave(dialect: Dialect, trace: bytes) -> Op[None]:
    """Leave a trace."""
    yield from dialect.write_docs(MARKER_SPACE, [DocChange(_TRACE + trace, b"", trace[:8])])


def is_there(dialect: Dialect, trace: bytes) -> Op[bool]:
    """Whether it is found here."""
    return bool((yield from dialect.get_docs(MARKER_SPACE, [_TRACE + trace])))


def remove(dialect: Dialect, trace: bytes) -> Op[None]:
    """Take it away."""
    yield from dialect.write_docs(MARKER_SPACE, [DocChange(_TRACE + trace, None, b"")])
