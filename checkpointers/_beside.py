"""What a store beside this saver is told of threads; a vault introduces the two."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, TypeAlias

from stepvault._core.ids import text_key, thread_text
from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Call, Op
from stepvault._core.reads import Read
from stepvault._core.state import State
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.expiry import is_expired
from stepvault.checkpointers._saver import BaseSaver

Standing: TypeAlias = Literal["live", "expired", "missing", "gone"]


class Threads:
    """The threads of every tenant of a saver."""

    def __init__(self, saver: BaseSaver) -> None:
        self._saver = saver

    def note(self, tenant: bytes, thread_id: str, reads: Iterable[Read]) -> None:
        """Remember, in this process, what a run has read; the thread's next write notes it."""
        self._saver._core.wired.reads.add(_key(tenant, thread_id), reads)

    def standing(
        self, tenant: bytes, thread_ids: Collection[str], config: Mapping[str, Any] | None
    ) -> Op[dict[str, Standing]]:
        """How threads stand: `gone` are those that the run of this config has loaded and that are no more."""
        saver, scope = self._saver, Scope(self._saver._core, tenant, self._saver._scope.port)
        standing: dict[str, Standing] = yield Call(
            lambda: saver._run(_standing(scope, thread_ids, config)),
            lambda: saver._arun(_standing(scope, thread_ids, config)),
        )
        return standing


def _key(tenant: bytes, thread_id: str) -> ThreadKey:
    return ThreadKey(tenant, text_key("thread_id", thread_text(thread_id)))


def _standing(scope: Scope, thread_ids: Collection[str], config: Mapping[str, Any] | None) -> Op[dict[str, Standing]]:
    keys = {thread_id: _key(scope.tenant, thread_id) for thread_id in thread_ids}
    run = scope.core.runs.of(config) if config and config.get("configurable") else None
    known = {} if run is None else {key: run.loaded.get(key) for key in keys.values()}  # before: one may just be made
    found = yield from scope.core.dialect.notes_at([(key, b"") for key in keys.values()])
    missing = [key for key, (row, _) in zip(keys.values(), found, strict=True) if row is None]
    left = dict(zip(missing, (yield from scope.core.dialect.remains(missing)), strict=True)) if missing else {}
    standing: dict[str, Standing] = {}
    for (thread_id, key), (row, _) in zip(keys.items(), found, strict=True):
        loaded = known.get(key)
        if loaded is not None and (row is None or bytes(row.uid) != loaded):
            standing[thread_id] = "gone"
        elif row is None:
            standing[thread_id] = "missing" if left[key] is None else "expired"
        else:
            over = loaded is None and (yield from is_expired(scope.core, State.unpack(row.extents)))
            standing[thread_id] = "expired" if over else "live"
    return standing
