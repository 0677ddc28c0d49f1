"""Everything of one person, in clear, as plain lines."""

from __future__ import annotations

from typing import Any

from stepvault._core.ids import text_of
from stepvault._core.plan import Op
from stepvault._core.state import State
from stepvault.checkpointers._ops import listing
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.erasing.items import Items
from stepvault.checkpointers._ops.subjects import threads_of, token


def export(scope: Scope, subject: str, items: Items) -> Op[list[dict[str, Any]]]:
    """One line per checkpoint and per store item."""
    mark = token(scope, subject)
    lines: list[dict[str, Any]] = []
    after = b""
    while True:
        hints = yield from threads_of(scope, subject, after)
        for place, key in hints:
            after = place
            loaded = yield from scope.core.dialect.load(key, b"", b"\x00", None)
            state = State.unpack(loaded.thread.extents) if loaded.thread else State()
            if mark in state.subjects:
                lines += yield from _thread(scope, text_of(key.thread), shared=len(state.subjects) > 1)
        if not hints:
            break
    for item in (yield from items.each(subject)):
        lines.append(
            {"kind": "item", "namespace": list(item.namespace), "key": item.key, "value": plain(item.value),
             "created_at": item.created_at.isoformat(), "updated_at": item.updated_at.isoformat()}
        )  # fmt: skip
    return lines


def _thread(scope: Scope, thread_id: str, *, shared: bool) -> Op[list[dict[str, Any]]]:
    lines: list[dict[str, Any]] = []
    state = listing.start(scope, {"configurable": {"thread_id": thread_id}}, None, None, None)
    while state.query is not None:
        found, state = yield from listing.page(scope, state)
        for entry in found:
            named = entry.config["configurable"]
            lines.append(
                {"kind": "checkpoint", "thread_id": thread_id, "shared": shared, "ns": named["checkpoint_ns"],
                 "checkpoint_id": named["checkpoint_id"], "ts": entry.checkpoint["ts"],
                 "metadata": plain(entry.metadata), "values": plain(entry.checkpoint["channel_values"]),
                 "writes": plain(entry.pending_writes)}
            )  # fmt: skip
    return lines


def plain(value: Any) -> Any:
    """A value as JSON knows it."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    dump = getattr(value, "model_dump", None)
    return plain(dump(mode="json")) if dump else repr(value)
