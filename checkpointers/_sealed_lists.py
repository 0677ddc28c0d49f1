"""Lists over sealed threads: real ids for tokens, one sealer per thread, and nothing of what was shredded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.rows import Loaded, Query, ThreadRow, ThreadSummary
from stepvault._keystore.keys import Keys
from stepvault.checkpointers import _sealing as rows_of
from stepvault.checkpointers._dialect import Dialect
from stepvault.checkpointers._sealing import REAL_ID
from stepvault.errors import KeyShreddedError


class Place(NamedTuple):
    """Where a thread is: how the backend addresses it, whose it is, and whether it is still unsealed."""

    no: Any
    tenant: bytes
    plain: bool


class _Name(NamedTuple):
    thread: bytes
    plain: bool


class SealedLists:
    """See `Dialect`."""

    _inner: Dialect
    _keys: Keys

    def page(self, query: Query) -> Op[list[tuple[ThreadKey, Loaded]]]:
        """See `Dialect`; what belongs to a shredded owner is passed over, as if it were deleted already."""
        asked = yield from self._query(query)
        found: list[tuple[ThreadKey, Loaded]] = []
        while True:
            groups = yield from self._inner.page(asked)
            if not groups and query.thread is not None and self._keys.accept_plain:
                groups = yield from self._inner.page(replace(query, limit=asked.limit))
            shown = yield from self._shown(query, groups)
            found += shown
            read, kept = _count(groups), _count(shown)
            if kept == read or read < asked.limit:
                return found
            last = groups[-1][1].checkpoints[-1]
            asked = replace(asked, after=(last.id, last.ns, groups[-1][0].thread), limit=asked.limit - kept)

    def unopened(self, query: Query) -> Op[list[tuple[ThreadKey, Loaded]]]:
        """As `page`, with bodies as they are stored: which rows there are, though one of them cannot be opened."""
        return (yield from self._inner.page((yield from self._query(query))))

    def _query(self, query: Query) -> Op[Query]:
        index, tenant = (yield from self._keys.index()), query.tenant
        after = query.after and (*query.after[:2], index.thread(tenant, query.after[2]))
        # Hits are compared in full anyway; an unsealed thread has other tokens.
        tokens = [] if self._keys.accept_plain else [index.metadata(tenant, token) for token in query.tokens]
        thread = None if query.thread is None else index.thread(tenant, query.thread)
        return replace(query, thread=thread, tokens=tokens, after=after)

    def _shown(self, query: Query, groups: list[tuple[ThreadKey, Loaded]]) -> Op[list[tuple[ThreadKey, Loaded]]]:
        """Groups with real ids, opened, those of each thread with one sealer."""
        bodies: dict[bytes, list[bytes]] = {}
        for _, loaded in groups:
            assert loaded.thread is not None
            bodies.setdefault(bytes(loaded.thread.uid), []).extend(rows_of.bodies_of(loaded))
        seals = yield from self._keys.sealers(query.tenant, bodies)
        names = yield from self._names(query.tenant, [key.thread for key, _ in groups], query.thread)
        shown = []
        for key, loaded in groups:
            thread, name = loaded.thread, names[key.thread]
            if thread is None or name is None:
                continue
            if name.plain:
                shown.append((key, replace(loaded, thread=placed(thread, query.tenant, plain=True))))
                continue
            try:
                opened = rows_of.opened(seals[bytes(thread.uid)], loaded)
            except KeyShreddedError:
                continue
            opened = replace(opened, thread=placed(thread, query.tenant))
            shown.append((ThreadKey(query.tenant, name.thread), opened))
        return shown

    def _names(
        self, tenant: bytes, stored: Sequence[bytes], known: bytes | None = None
    ) -> Op[dict[bytes, _Name | None]]:
        """Real ids by what stands in thread columns; None where the thread or its key is gone."""
        if known is not None:
            return {thread: _Name(known, thread == known and self._keys.accept_plain) for thread in stored}
        distinct = list(dict.fromkeys(stored))
        found = yield from self._inner.notes_at([(ThreadKey(tenant, thread), REAL_ID) for thread in distinct])
        owners = {bytes(row.uid): [body] for row, body in found if row is not None and body is not None}
        seals = yield from self._keys.sealers(tenant, owners)
        names: dict[bytes, _Name | None] = {}
        for thread, (row, body) in zip(distinct, found, strict=True):
            names[thread] = None
            if row is not None and body is not None:
                try:
                    names[thread] = _Name(rows_of.opened_id(seals[bytes(row.uid)], body), False)
                except KeyShreddedError:
                    continue
            elif row is not None and self._keys.accept_plain:
                names[thread] = _Name(thread, True)
        return names

    def threads_of_runs(self, tenant: bytes, runs: Sequence[bytes]) -> Op[list[ThreadKey]]:
        found = yield from self._inner.threads_of_runs(tenant, runs)
        names = yield from self._names(tenant, [key.thread for key in found])
        return [ThreadKey(tenant, name.thread) for name in names.values() if name is not None]

    def threads(self, tenant: bytes, limit: int, after: Any) -> Op[list[ThreadSummary]]:
        found: list[ThreadSummary] = []
        while True:
            rows = yield from self._inner.threads(tenant, limit - len(found), after)
            names = yield from self._names(tenant, [row.thread for row in rows])
            asked = limit - len(found)
            found += [row._replace(thread=name.thread) for row in rows if (name := names[row.thread]) is not None]
            if len(rows) < asked or len(found) == limit:
                return found
            after = rows[-1].no


def place_of(thread: ThreadRow) -> Place:
    assert isinstance(thread.no, Place)
    return thread.no


def placed(thread: ThreadRow, tenant: bytes, *, plain: bool = False) -> ThreadRow:
    return thread._replace(no=Place(thread.no, tenant, plain))


def _count(groups: Sequence[tuple[ThreadKey, Loaded]]) -> int:
    return sum(len(loaded.checkpoints) for _, loaded in groups)
