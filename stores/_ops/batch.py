"""A batch of operations: checked first, embedded next, then one trip to the database.

Reads see the state before the writes of their batch, and the last of several puts of one key wins, as in
LangGraph's stores.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from langgraph.store.base import GetOp, ListNamespacesOp, PutOp, SearchOp, tokenize_path

from stepvault._core.ids import text_key, thread_text
from stepvault._core.labels import THREAD_ROOT
from stepvault._core.numbers import check_count, minutes_of
from stepvault._core.plan import Op
from stepvault.errors import ConfigurationError
from stepvault.stores._dialect import ItemRow, NewItem, Reply, Work
from stepvault.stores._ops import namespaces
from stepvault.stores._ops.context import Path, Scope, Source
from stepvault.stores._ops.embed import embed
from stepvault.stores._ops.erased import people_in
from stepvault.stores._ops.filters import tokens_of
from stepvault.stores._ops.indexing import check_index, fields_text
from stepvault.stores._ops.searching import ExtendedSearch, Search, SearchExtras, hits_of, items_of, mode_of, search_of
from stepvault.stores._ops.texts import texts_at, words_at
from stepvault.stores._ops.values import encode_value, item_of, plain_value


@dataclass(slots=True)
class Draft:
    """A put, ready but for its vectors."""

    item: NewItem
    texts: list[str]


@dataclass(slots=True)
class Plan:
    """A batch, checked: what to ask, and which result each answer is."""

    count: int = 0
    gets: list[tuple[int, GetOp, tuple[bytes, bytes]]] = field(default_factory=list)
    searches: list[tuple[int, SearchOp, SearchExtras]] = field(default_factory=list)
    listings: list[tuple[int, ListNamespacesOp, bytes]] = field(default_factory=list)
    puts: dict[tuple[bytes, bytes], Draft | None] = field(default_factory=dict)  # None: a delete
    queries: list[str] = field(default_factory=list)
    seen: list[ItemRow] = field(default_factory=list)  # what its reads found, once it is done

    @property
    def texts(self) -> list[str]:
        """What the puts embed."""
        return [text for draft in self.puts.values() if draft for text in draft.texts]


def prepare(scope: Scope, ops: Iterable[Any], source: Source | None) -> Plan:
    """Check a batch whole, before anything is done. Values are encoded here: later changes to them do not count.

    Raises:
        ConfigurationError, InvalidNamespaceError, ValueNotSerializableError: An operation cannot be done.
    """
    plan = Plan()
    for position, op in enumerate(ops):
        plan.count += 1
        if isinstance(op, GetOp):
            plan.gets.append((position, op, _name(namespaces.check_labels(op.namespace), op.key)))
        elif isinstance(op, PutOp):
            _add_put(scope, plan, op, source)
        elif isinstance(op, (SearchOp, ExtendedSearch)):
            _add_search(scope, plan, position, op)
        elif isinstance(op, ListNamespacesOp):
            plan.listings.append((position, op, _listing_prefix(op)))
        else:
            raise ConfigurationError(f"Unknown operation {type(op).__name__}.")
    return plan


def _name(labels: tuple[str, ...], key: Any) -> tuple[bytes, bytes]:
    return namespaces.ns_key(labels), namespaces.item_key(key)


def _add_search(scope: Scope, plan: Plan, position: int, op: SearchOp | ExtendedSearch) -> None:
    search, extras = op if isinstance(op, ExtendedSearch) else (op, SearchExtras())
    # Once without its vector, so that a mistake is found before the embedder is paid.
    mode = mode_of(scope, search.query, extras.mode)
    search_of(scope, search, extras, b"")
    if mode in ("vector", "hybrid"):
        assert search.query is not None
        plan.queries.append(search.query)
    plan.searches.append((position, search, extras))


def _listing_prefix(op: ListNamespacesOp) -> bytes:
    for name, number in (("limit", op.limit), ("offset", op.offset), ("max_depth", op.max_depth)):
        check_count(name, number, least=0, optional=name == "max_depth")
    return namespaces.literal_prefix(op.match_conditions or ())


def _add_put(scope: Scope, plan: Plan, op: PutOp, source: Source | None) -> None:
    if op.value is None:
        name = _name(namespaces.check_labels(op.namespace), op.key)
        plan.puts.pop(name, None)
        plan.puts[name] = None
        return
    name = _name(namespaces.check_target(op.namespace), op.key)
    value = plain_value(op.value)
    fields = fields_text(op.index)
    item = NewItem(
        *name,
        ttl=None if _lives_with_a_thread(scope, op) else minutes_of("ttl", op.ttl),
        thread=text_key("thread_id", thread_text(source.thread_id)) if source else None,
        checkpoint=text_key("checkpoint_id", source.checkpoint_id) if source and source.checkpoint_id else None,
        tokens=tokens_of(value),
        fields=fields,
        words=words_at(value, _paths(op, scope.core.text_paths)),
        vectors=(),
        body=encode_value(scope, value),
    )
    texts = texts_at(value, _paths(op, scope.core.index.paths)) if scope.core.index else []
    plan.puts.pop(name, None)  # the order of puts is the order of their last ones
    plan.puts[name] = Draft(item, texts)


def _lives_with_a_thread(scope: Scope, op: PutOp) -> bool:
    return scope.core.wired.threads is not None and op.namespace[0] == THREAD_ROOT and len(op.namespace) > 1


def _paths(op: PutOp, default: Any) -> list[Path]:
    if default is None or op.index is False:
        return []
    if op.index is None:
        return list(default)
    return [(path, "$" if path == "$" else tokenize_path(path)) for path in op.index]


def vectors(scope: Scope, plan: Plan) -> Op[tuple[dict[str, bytes], ...]]:
    """The vectors of the texts and queries of a batch; outside of any transaction."""
    if scope.core.index is None:
        return {}, {}
    return (yield from embed(scope.core.index, plan.texts, plan.queries))


def execute(scope: Scope, plan: Plan, made: tuple[dict[str, bytes], ...]) -> Op[list[Any]]:
    """Do a batch; its results in the order of its operations."""
    documents, queries = made
    if documents or queries:
        yield from check_index(scope.core, searching=bool(queries))
    searches = [
        (position, search_of(scope, op, extras, queries.get(op.query or ""))) for position, op, extras in plan.searches
    ]
    reads = Work(
        gets=[name for _, _, name in plan.gets],
        finds=[find for _, search in searches for find in search.finds],
        namespaces=[prefix for _, _, prefix in plan.listings],
    )
    writes = Work(
        puts=[_finished(draft, documents) for draft in plan.puts.values() if draft],
        deletes=[name for name, draft in plan.puts.items() if draft is None],
        people=people_in(scope, [ns for (ns, _), draft in plan.puts.items() if draft]),
    )
    if searches and plan.puts:
        op = _read_then_write(scope, plan, searches, reads, writes)
        return (yield from scope.core.dialect.transaction(op))  # type: ignore[no-any-return]
    reads.puts, reads.deletes, reads.people = writes.puts, writes.deletes, writes.people
    reply = yield from scope.core.dialect.work(scope.tenant, reads)
    return (yield from _results(scope, plan, searches, reply))


def _read_then_write(
    scope: Scope, plan: Plan, searches: list[tuple[int, Search]], reads: Work, writes: Work
) -> Op[list[Any]]:
    """A search may have to read on, and must not come upon what its own batch writes."""
    reply = yield from scope.core.dialect.work(scope.tenant, reads)
    results = yield from _results(scope, plan, searches, reply)
    yield from scope.core.dialect.work(scope.tenant, writes)
    return results


def _finished(draft: Draft, documents: dict[str, bytes]) -> NewItem:
    return draft.item._replace(vectors=[documents[text] for text in draft.texts]) if draft.texts else draft.item


def _results(scope: Scope, plan: Plan, searches: list[tuple[int, Search]], reply: Reply) -> Op[list[Any]]:
    results: list[Any] = [None] * plan.count
    touched: list[ItemRow] = []
    for (position, op, _), row in zip(plan.gets, reply.gets, strict=True):
        if row is not None:
            results[position] = item_of(scope, row)
            plan.seen.append(row)
            if op.refresh_ttl and row.ttl is not None:
                touched.append(row)
    for (position, listing, _), found in zip(plan.listings, reply.namespaces, strict=True):
        results[position] = _listed(listing, found)
    at = 0
    for position, search in searches:
        hits = yield from hits_of(scope, search, reply.finds[at : at + len(search.finds)])
        at += len(search.finds)
        results[position] = items_of(hits)
        plan.seen += [hit.row for hit in hits]
        if search.op.refresh_ttl:
            touched += [hit.row for hit in hits if hit.row.ttl is not None]
    if touched:
        yield from scope.core.dialect.touch(scope.tenant, touched)
    return results


def _listed(op: ListNamespacesOp, found: list[bytes]) -> list[tuple[str, ...]]:
    listed = map(namespaces.ns_of, found)
    matching = (labels for labels in listed if namespaces.matches(labels, op.match_conditions or ()))
    cut = dict.fromkeys(labels if op.max_depth is None else labels[: op.max_depth] for labels in matching)
    return list(cut)[op.offset : op.offset + op.limit]
