"""Listing checkpoints, newest first, page by page."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from stepvault._core.chunks import unpack_row
from stepvault._core.codec import unpack
from stepvault._core.ids import id_key, text_key
from stepvault._core.knowledge import ThreadKey, View
from stepvault._core.metadata import check_filter, filter_tokens, fully_indexed, matches
from stepvault._core.numbers import check_count
from stepvault._core.plan import Op
from stepvault._core.record import decode_record
from stepvault._core.rows import Held, Loaded, Query, WriteRow
from stepvault._core.state import State
from stepvault.checkpointers._ops import evolution
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.expiry import is_expired
from stepvault.checkpointers._ops.load import metadata_of, tuple_of
from stepvault.checkpointers._ops.put import run_key, source_key, step_key
from stepvault.errors import PayloadError

_PAGE = 50


@dataclass(frozen=True, slots=True)
class Listing:
    """What is asked for, and how far it got."""

    query: Query | None  # None: at the end
    wanted: Mapping[str, Any]
    left: int | None
    read: State | None = None  # of the thread that the first page was of, if it was one


def start(
    scope: Scope,
    config: RunnableConfig | None,
    filter: Mapping[str, Any] | None,
    before: RunnableConfig | None,
    limit: int | None,
) -> Listing:
    """Check the arguments of a list.

    Raises:
        ConfigurationError: A negative limit, or a filter that could never match.
        IdentifierError: An id is of a kind that cannot be stored.
    """
    check_count("limit", limit, least=0, optional=True)
    wanted = check_filter(filter, scope.core.credentials)
    query = _query(scope, (config or {}).get("configurable") or {}, (before or {}).get("configurable") or {}, wanted)
    return Listing(query if limit != 0 else None, wanted, limit)


def _query(scope: Scope, named: Mapping[str, Any], before: Mapping[str, Any], wanted: Mapping[str, Any]) -> Query:
    thread_id, ns, checkpoint_id = (named.get(name) for name in ("thread_id", "checkpoint_ns", "checkpoint_id"))
    return Query(
        tenant=scope.tenant,
        thread=scope.key(thread_id).thread if "thread_id" in named else None,
        ns=text_key("checkpoint_ns", ns) if ns is not None else None,
        checkpoint=id_key("checkpoint_id", checkpoint_id) if checkpoint_id else None,
        before=id_key("checkpoint_id", before["checkpoint_id"]) if before.get("checkpoint_id") else None,
        source=source_key(wanted.get("source")),
        step=step_key(wanted.get("step")),
        run=run_key(run) if (run := wanted.get("run_id")) and type(run) is str else None,
        tokens=filter_tokens(wanted),
    )


def page(scope: Scope, listing: Listing) -> Op[tuple[list[CheckpointTuple], Listing]]:
    """The next checkpoints of a listing, and what is left of it."""
    assert listing.query is not None
    size = _PAGE if listing.left is None else min(_PAGE, listing.left)
    if not fully_indexed(listing.wanted):
        size = _PAGE
    view = _view(scope, listing.query)
    held = Held(view.rev, view.pages) if view else None
    groups = yield from scope.core.dialect.page(replace(listing.query, limit=size, held=held))
    found: list[CheckpointTuple] = []
    count, after, state = 0, listing.query.after, None
    for key, loaded in groups:
        count += len(loaded.checkpoints)
        state = None if loaded.thread is None else State.unpack(loaded.thread.extents)
        if state is None or not (yield from is_expired(scope.core, state)):
            known = view and held and loaded.thread and loaded.thread.rev == held.rev
            at_hand = view.elements if view and known else {}
            found += yield from _decode(scope, key, loaded, listing.wanted, at_hand)
        if loaded.checkpoints:
            last = loaded.checkpoints[-1]
            after = (last.id, last.ns, key.thread)
    left = listing.left
    if left is not None:
        found = found[:left]
        left -= len(found)
    ended = count < size or left == 0
    query = None if ended else replace(listing.query, after=after)
    return found, Listing(query, listing.wanted, left, state if listing.query.after is None else None)


def _view(scope: Scope, query: Query) -> View | None:
    """What is known of the thread that a query asks for, if it is one."""
    return None if query.thread is None else scope.core.knowledge.of(ThreadKey(query.tenant, query.thread)).view


class _Elements(dict[int, bytes]):
    """Elements that were read, over those at hand."""

    def __init__(self, at_hand: Mapping[int, bytes]) -> None:
        self._at_hand = at_hand

    def __missing__(self, number: int) -> bytes:
        return self._at_hand[number]


def _decode(
    scope: Scope, key: Any, loaded: Loaded, wanted: Mapping[str, Any], at_hand: Mapping[int, bytes]
) -> Op[list[CheckpointTuple]]:
    elements = _Elements(at_hand)
    for chunk in loaded.chunks:
        with suppress(PayloadError):  # the checkpoint that needs it will say what is missing
            unpack_row(chunk, elements)
    writes: dict[tuple[bytes, bytes], list[WriteRow]] = {}
    for write in loaded.writes:
        writes.setdefault((write.ns, write.checkpoint), []).append(write)
    decoder = scope.decoder(elements)
    tuples = []
    for row in loaded.checkpoints:
        if wanted and not matches(metadata_of(decode_record(unpack(row.body)), decoder), wanted):
            continue
        mine, space = writes.get((row.ns, row.id), []), evolution.same_space(row.ns)
        renames = yield from evolution.renames_of(scope, key, row, mine, decoder, space)
        tuples.append(tuple_of(scope, key, row, mine, decoder, renames=renames))
    return tuples
