"""A thread's history in order, for typed steps: which checkpoints led to a head, and many of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from stepvault._core.ids import id_key, id_of, text_of
from stepvault._core.manifest import unpack_runs
from stepvault._core.plan import Op
from stepvault._core.rows import Query
from stepvault._core.values import LIST, Decoder, Form
from stepvault.checkpointers._ops import evolution
from stepvault.checkpointers._ops.context import Address, Scope
from stepvault.checkpointers._ops.expiry import is_over
from stepvault.checkpointers._ops.inbox import queries, renaming
from stepvault.checkpointers._ops.load import read, tuple_of
from stepvault.inbox import PendingInterrupt

_PAGE = 200
_INTERRUPTS = 1000


def ancestors(scope: Scope, at: Address) -> Op[list[str]]:
    """The ids of a root checkpoint (the head if none is named) and of its ancestors, oldest first."""
    query: Query | None = Query(at.key.tenant, at.key.thread, ns=b"", limit=_PAGE)
    wanted, found = at.checkpoint, list[str]()
    while query is not None:
        rows = []
        for _, loaded in (yield from scope.core.dialect.page(query)):
            if loaded.thread is None or not (yield from is_over(scope.core, loaded.thread)):
                rows += loaded.checkpoints
        for row in rows:
            if wanted is None and not found and at.checkpoint is None:
                wanted = row.id
            if row.id == wanted:
                found.append(id_of(row.id))
                wanted = row.parent
                if wanted is None:
                    return found[::-1]
        last = rows[-1] if len(rows) == _PAGE else None
        query = last and replace(query, after=(last.id, last.ns, at.key.thread))
    return found[::-1]


@dataclass(slots=True)
class _Sharing(Decoder):
    """Decodes each element of a list once: the lists of many checkpoints share their items."""

    items: dict[int, Any] = field(default_factory=dict)

    def value(self, form: Form) -> Any:
        if type(form) is not list or form[0] != LIST:
            return Decoder.value(self, form)
        numbers = [n for first, count in unpack_runs(form[2]) for n in range(first, first + count)]
        for number in numbers:
            if number not in self.items:
                self.items[number] = self.native.loads(self._join([(number, 1)]))
        return [self.items[number] for number in numbers]


def get_each(scope: Scope, at: Address, checkpoint_ids: Sequence[str]) -> Op[list[CheckpointTuple]]:
    """Root checkpoints of a thread, with the run of each in its metadata; ids that are not there are left out."""
    known = scope.core.knowledge.of(at.key)
    items: dict[int, Any] = {}
    found: list[CheckpointTuple] = []
    for checkpoint_id in checkpoint_ids:
        loaded, elements, _ = yield from read(scope, known, at.key, b"", id_key("checkpoint_id", checkpoint_id))
        if loaded.thread is None or (yield from is_over(scope.core, loaded.thread)):
            return []
        for row in loaded.checkpoints:
            decoder = scope.decoder(elements)
            if not scope.core.evolution.migrations:  # these may change what they are given
                decoder = _Sharing(scope.port, scope.native, elements, items)
            space = evolution.same_space(b"")
            renames = yield from evolution.renames_of(scope, at.key, row, loaded.writes, decoder, space)
            one = tuple_of(scope, at.key, row, loaded.writes, decoder, renames=renames)
            if row.run is not None:
                one.metadata.setdefault("run_id", text_of(row.run))
            found.append(one)
    return found


def interrupts(scope: Scope, at: Address) -> Op[list[PendingInterrupt]]:
    """Every interrupt of a thread that the inbox knows, with what was decided, oldest first."""

    def every(interrupt: PendingInterrupt) -> bool:
        return True

    found: list[PendingInterrupt] = []
    cursor: str | None = None
    while True:
        page = yield from renaming.present(scope, queries.of_thread(scope, at.key, None, every, _INTERRUPTS, cursor))
        found += page.interrupts
        cursor = page.cursor
        if cursor is None:
            return sorted(found, key=lambda interrupt: interrupt.created_at)
