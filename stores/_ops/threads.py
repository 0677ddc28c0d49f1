"""What a store does for the threads of a vault: their own memory lives as long as they do, and reads are told.

Without a vault there are no threads to ask, and nothing here costs anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote

from stepvault._core.ids import text_key, text_of, thread_text
from stepvault._core.labels import THREAD_ROOT
from stepvault._core.plan import Op
from stepvault._core.reads import Read
from stepvault.errors import ThreadGoneError
from stepvault.stores._dialect import Find, ItemRow, Work
from stepvault.stores._ops.batch import Plan
from stepvault.stores._ops.context import Scope, Source
from stepvault.stores._ops.namespaces import item_key, ns_key, ns_of, scope_keys, thread_scope
from stepvault.stores._ops.values import moment

_PAGE = 500
_YOUNG = 24 * 3600 * 1_000_000  # microseconds: memory may be there before its thread is

Namespace = tuple[str, ...]
Name = tuple[Namespace, str]


class Threads(Protocol):
    """The threads beside a store."""

    def note(self, tenant: bytes, thread_id: str, reads: Iterable[Read]) -> None:
        """Remember what a run has read."""
        ...

    def standing(
        self, tenant: bytes, thread_ids: Collection[str], config: Mapping[str, Any] | None
    ) -> Op[dict[str, Any]]:
        """How threads stand: `live`, `expired`, `missing`, or `gone` under the run of this config."""
        ...


class Caller(NamedTuple):
    """The run that calls a store."""

    source: Source
    config: Mapping[str, Any]


def thread_of(namespace: Sequence[str]) -> str | None:
    """The thread whose own memory a namespace is."""
    if len(namespace) < 2 or namespace[0] != THREAD_ROOT:
        return None
    return "" if namespace[1] == "%" else unquote(namespace[1], errors="surrogatepass")


def witnessed(scope: Scope, caller: Caller | None, plan: Plan, op: Op[list[Any]]) -> Op[list[Any]]:
    """A batch, its results without the memory of threads that have expired; what a run has read is noted.

    Raises:
        ThreadGoneError: The run wrote into the memory of a thread that was deleted under it; that was taken back.
    """
    threads: Threads = scope.core.wired.threads
    results = yield from op
    written = {thread for ns, _ in plan.puts if (thread := thread_of(ns_of(ns))) is not None}
    read = {thread for result in results for ns in _namespaces(result) if (thread := thread_of(ns)) is not None}
    standing: dict[str, Any] = {}
    if written or read:
        config = caller.config if caller else None
        standing = yield from threads.standing(scope.tenant, written | read, config)
    for thread in written:
        if standing[thread] == "gone":
            yield from _take_back(scope, caller, [name for name in plan.puts if thread_of(ns_of(name[0])) == thread])
            raise ThreadGoneError(f"Thread {thread!r} was deleted, erased or expired while this run was at work.")
    if caller is not None and plan.seen:
        reads = [_read(row, caller.source.checkpoint_id or "") for row in plan.seen]
        threads.note(scope.tenant, caller.source.thread_id, reads)
    hidden = {thread for thread in read if standing[thread] in ("expired", "gone")}
    return [_without(hidden, result) for result in results] if hidden else results


def _take_back(scope: Scope, caller: Caller | None, names: Sequence[tuple[bytes, bytes]]) -> Op[None]:
    """Remove what a run has put, and nothing of another run: a thread of the same id may have been made since."""
    if caller is None:
        return
    source, at = caller.source, caller.source.checkpoint_id
    mine = text_key("thread_id", thread_text(source.thread_id)), text_key("checkpoint_id", at) if at else None
    reply = yield from scope.core.dialect.work(scope.tenant, Work(gets=names))
    put = [row for row in reply.gets if row is not None and (row.thread, row.checkpoint) == mine]
    if put:
        yield from scope.core.dialect.drop(scope.tenant, put)


def _namespaces(result: Any) -> Iterator[Namespace]:
    for entry in result if isinstance(result, list) else (result,):
        if entry is not None:
            yield entry if isinstance(entry, tuple) else entry.namespace


def _without(hidden: Collection[str], result: Any) -> Any:
    if isinstance(result, list):
        return [entry for entry in result if not any(thread_of(ns) in hidden for ns in _namespaces(entry))]
    return None if any(thread_of(ns) in hidden for ns in _namespaces(result)) else result


def _read(row: ItemRow, checkpoint: str) -> Read:
    return Read(ns_of(row.ns), text_of(row.key), row.updated_at, row.ttl is not None, checkpoint)


# -- for the saver


def pin(scope: Scope, names: Sequence[Name], pinned: bool) -> Op[None]:
    """Take the deadlines of items, or give them back whole."""
    yield from scope.core.dialect.pin(scope.tenant, [_stored(name) for name in names], pinned=pinned)


def _stored(name: Name) -> tuple[bytes, bytes]:
    return ns_key(name[0]), item_key(name[1])


def forget_before(scope: Scope, thread_id: str, before: int) -> Op[None]:
    """Remove of a thread's own memory what was written before a time, in milliseconds."""
    for prefix in scope_keys([thread_id]):
        yield from _drop_before(scope, prefix, before * 1000)


def _drop_before(scope: Scope, prefix: bytes, before: int) -> Op[None]:
    find: Find | None = Find(prefix, _PAGE)
    while find is not None:
        reply = yield from scope.core.dialect.work(scope.tenant, Work(finds=[find]))
        rows = [found.row for found in reply.finds[0]]
        old = [row for row in rows if row.updated_at < before]
        if old:  # what is written meanwhile is another version, and stays
            yield from scope.core.dialect.drop(scope.tenant, old)
        find = Find(prefix, _PAGE, before=rows[-1].no) if len(rows) == _PAGE else None


def versions(scope: Scope, names: Sequence[Name]) -> Op[dict[Name, datetime]]:
    """When items were last written; those that are gone are not in it."""
    found: dict[Name, datetime] = {}
    for at in range(0, len(names), _PAGE):
        page = names[at : at + _PAGE]
        reply = yield from scope.core.dialect.work(scope.tenant, Work(gets=[_stored(name) for name in page]))
        found |= {name: moment(row.updated_at) for name, row in zip(page, reply.gets, strict=True) if row is not None}
    return found


class Orphaned(NamedTuple):
    """How many items of a thread's memory were removed, and whether nothing is left of it."""

    items: int
    empty: bool


Around = Callable[[bytes, Op[Orphaned]], Op[Orphaned]]


def orphans(scope: Scope, around: Around | None = None) -> Op[int]:
    """Remove memory of threads that are no more, once it is a day old; what killed workers and late runs leave.

    Page by page, each only as it was read: what a thread writes that is made meanwhile stays.

    Args:
        scope: The store's view.
        around: What else is to be done where all of a thread's memory is removed.
    """
    threads = scope.core.wired.threads
    if threads is None:
        return 0
    asked = Work(namespaces=[ns_key((THREAD_ROOT,))])
    (listed,) = (yield from scope.core.dialect.work(scope.tenant, asked)).namespaces
    ids = list(dict.fromkeys(thread for ns in listed if (thread := thread_of(ns_of(ns))) is not None))
    removed = 0
    for at in range(0, len(ids), _PAGE):
        standing = yield from threads.standing(scope.tenant, ids[at : at + _PAGE], None)
        for thread in (thread for thread, how in standing.items() if how == "missing"):
            prefix = ns_key(thread_scope(thread))
            once = _remove_old(scope, thread, prefix)
            removed += (yield from (once if around is None else around(prefix, once))).items
    return removed


def _remove_old(scope: Scope, thread: str, prefix: bytes) -> Op[Orphaned]:
    """Remove the memory of a thread that is not there, unless some of it is younger than a day."""
    removed = 0
    while True:
        work = Work(finds=[Find(prefix, 1, max_age=_YOUNG), Find(prefix, _PAGE)])
        young, found = (yield from scope.core.dialect.work(scope.tenant, work)).finds
        standing = yield from scope.core.wired.threads.standing(scope.tenant, [thread], None)
        if young or not found or standing[thread] != "missing":
            return Orphaned(removed, not found and standing[thread] == "missing")
        yield from scope.core.dialect.drop(scope.tenant, [hit.row for hit in found])
        removed += len(found)
