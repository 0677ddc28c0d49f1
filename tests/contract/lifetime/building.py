"""Moving the database's clock, as far as one saver sees it, and looking at what is left."""

from __future__ import annotations

import asyncio
from typing import Any

from stepvault.checkpointers._ops.doc_marks import SPACES
from stepvault.checkpointers._ops.spaces import space


def later(saver: Any, minutes: float) -> None:
    """From now on the database tells this saver a later time."""
    core = getattr(saver, "saver", saver)._core
    real = core.dialect.now

    def now() -> Any:
        return (yield from real()) + int(minutes * 60_000)

    core.dialect.now = now
    core.clock.at = float("-inf")


async def docs_left(saver: Any) -> list[tuple[str, bytes]]:
    """Everything that leads into threads; the inbox numbers its events with a counter that stays."""
    raw = getattr(saver, "saver", None)
    found = []
    for name in SPACES:
        op = (raw or saver)._scope.core.dialect.docs(space((raw or saver)._scope, name), b"", b"", 100)
        docs = await asyncio.to_thread(raw._run, op) if raw else await saver._arun(op)
        found += [(name, doc.key) for doc in docs if (name, doc.key) != ("inbox", b"\x00")]
    return found
