"""Searches: what is asked of the database, and what of its answer really matches.

The database narrows (prefix, age, tokens, vectors, words), the evaluator of `filters` decides, and a search reads
on until it has what was asked for or everything was seen: a filter never starves it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal, NamedTuple, TypeAlias

from langgraph.store.base import SearchOp

from stepvault._core.numbers import check_count, check_number
from stepvault._core.plan import Op
from stepvault.errors import ConfigurationError
from stepvault.stores._dialect import Find, Found, ItemRow, Match, Near, Work
from stepvault.stores._ops.context import Scope
from stepvault.stores._ops.filters import Predicate, compile_filter, is_decided_by_tokens, required_tokens
from stepvault.stores._ops.namespaces import check_labels, ns_key
from stepvault.stores._ops.texts import words_in
from stepvault.stores._ops.values import FoundItem, found_of, value_of

SearchMode: TypeAlias = Literal["vector", "text", "hybrid"]

_PAGE, _LARGEST_PAGE = 256, 4096
_FUSED = 200  # how deep each of two rankings is read before they are fused
_FUSION_CONSTANT = 60  # of reciprocal rank fusion: how little the first places count more than the next


class SearchExtras(NamedTuple):
    """What our search takes beyond LangGraph's."""

    mode: SearchMode | None = None
    min_score: float | None = None
    max_age: timedelta | None = None


class ExtendedSearch(NamedTuple):
    """A search with extras, in a batch."""

    op: SearchOp
    extras: SearchExtras


@dataclass(frozen=True, slots=True)
class Search:
    """A search, checked."""

    op: SearchOp
    mode: SearchMode | None
    matches: Predicate | None
    min_score: float | None
    finds: tuple[Find, ...]
    fused: bool = False

    @property
    def wanted(self) -> int:
        """How many hits have to be known, of which the first `offset` are skipped."""
        return self.op.offset + self.op.limit

    @property
    def depth(self) -> int:
        """How many hits of one ranking have to be known."""
        return max(_FUSED, 2 * self.wanted) if self.fused else self.wanted

    @property
    def paged(self) -> bool:
        """Whether the database may skip the `offset` itself."""
        return self.mode is None and self.matches is None


class Hit(NamedTuple):
    """A row that matches."""

    row: ItemRow
    value: dict[str, Any]
    score: float | None


def mode_of(scope: Scope, query: str | None, mode: SearchMode | None) -> SearchMode | None:
    """How to rank; None is newest first.

    Raises:
        ConfigurationError: The store has not what the mode needs.
    """
    if mode is not None and mode not in ("vector", "text", "hybrid"):
        raise ConfigurationError(f'mode must be "vector", "text" or "hybrid", not {mode!r}.')
    if not query:
        if mode is not None:
            raise ConfigurationError(f"mode={mode!r} needs a query.")
        return None
    index, text = scope.core.index is not None, scope.core.text_paths is not None
    chosen: SearchMode = mode or ("vector" if index else "text")
    if chosen != "text" and not index:
        raise ConfigurationError(f'mode={chosen!r} needs a store with index={{"dims": ..., "embed": ...}}.')
    if chosen != "vector" and not text:
        raise ConfigurationError("This store has no text index (text=False) and no vector index for this query.")
    return chosen


def search_of(scope: Scope, op: SearchOp, extras: SearchExtras, vector: bytes | None) -> Search:
    """Check a search and say what to ask of the database.

    Raises:
        ConfigurationError: A wrong limit, offset, filter, mode or age.
        InvalidNamespaceError: The prefix has a label that cannot be.
    """
    for name, number in (("limit", op.limit), ("offset", op.offset)):
        check_count(name, number, least=0)
    mode = mode_of(scope, op.query, extras.mode)
    check_number("min_score", extras.min_score)
    if extras.min_score is not None and mode is None:
        raise ConfigurationError("min_score needs a query: without one nothing is ranked.")
    matches = compile_filter(op.filter)
    search = Search(op, mode, matches, extras.min_score, (), mode == "hybrid")
    known = op.limit if search.paged else search.depth
    base = Find(
        prefix=ns_key(check_labels(op.namespace_prefix)),
        limit=known if is_decided_by_tokens(op.filter) else max(_PAGE, known),
        offset=op.offset if search.paged else 0,
        tokens=required_tokens(op.filter),
        max_age=_microseconds(extras.max_age),
    )
    return replace(search, finds=tuple(_finds(scope, base, mode, op.query or "", vector)))


def _finds(scope: Scope, base: Find, mode: SearchMode | None, query: str, vector: bytes | None) -> Iterable[Find]:
    common = (base.prefix, base.limit, base.offset, base.tokens, None, base.max_age)
    if mode is None:
        yield base
    if mode in ("vector", "hybrid"):
        assert vector is not None
        assert scope.core.index is not None
        yield Near(*common, vector=vector, distance=scope.core.index.distance)
    if mode in ("text", "hybrid"):
        yield Match(*common, words=tuple(dict.fromkeys(words_in(query))))


def _microseconds(age: Any) -> int | None:
    if age is None:
        return None
    if not isinstance(age, timedelta) or age < timedelta(0):
        raise ConfigurationError(f"max_age must be a timedelta, not {age!r}.")
    return age // timedelta(microseconds=1)


def hits_of(scope: Scope, search: Search, found: list[list[Found]]) -> Op[list[Hit]]:
    """The hits of a search, given the first rows of each of its rankings."""
    rankings = []
    for find, rows in zip(search.finds, found, strict=True):
        hits = _select(scope, search, rows)
        if not _enough(search, find, rows, hits):
            hits = yield from scope.core.dialect.snapshot(_scan(scope, search, find))
        rankings.append(hits)
    hits = _fuse(search, rankings) if search.fused else rankings[0]
    return hits[: search.op.limit] if search.paged else hits[search.op.offset : search.wanted]


def _scan(scope: Scope, search: Search, find: Find) -> Op[list[Hit]]:
    """Read a ranking from its beginning, in growing pages, until there are enough hits."""
    hits: list[Hit] = []
    find = replace(find, limit=max(_PAGE, find.limit))
    while True:
        reply = yield from scope.core.dialect.work(scope.tenant, Work(finds=[find]))
        rows = reply.finds[0]
        if search.mode is None:
            seen = {(hit.row.ns, hit.row.key, hit.row.no) for hit in hits}
            found = _select(scope, search, rows)
            hits += [hit for hit in found if (hit.row.ns, hit.row.key, hit.row.no) not in seen]
        else:
            hits = _select(scope, search, rows)
        if _enough(search, find, rows, hits):
            return hits
        if search.mode is None:
            find = replace(find, before=rows[-1].row.no, limit=min(_LARGEST_PAGE, 4 * find.limit))
        else:
            find = replace(find, limit=4 * find.limit)


def _enough(search: Search, find: Find, rows: list[Found], hits: list[Hit]) -> bool:
    if len(rows) < find.limit or search.paged or len(hits) >= search.depth:
        return True
    last = rows[-1].score if rows else None
    # Rankings fall: what follows a row below min_score is below it too.
    return search.min_score is not None and not search.fused and last is not None and last < search.min_score


def _select(scope: Scope, search: Search, rows: list[Found]) -> list[Hit]:
    hits = []
    for row, score in rows:
        if search.min_score is not None and not search.fused and (score is None or score < search.min_score):
            continue
        value = value_of(scope, row)
        if search.matches is None or search.matches(value):
            hits.append(Hit(row, value, score))
            if not search.paged and len(hits) >= search.depth:
                break
    return hits


def _fuse(search: Search, rankings: list[list[Hit]]) -> list[Hit]:
    """Reciprocal rank fusion: a hit scores by its places alone, so that two kinds of scores can be mixed."""
    scores: dict[tuple[bytes, bytes], float] = {}
    known: dict[tuple[bytes, bytes], Hit] = {}
    for hits in rankings:
        for place, hit in enumerate(hits[: search.depth], 1):
            name = (hit.row.ns, hit.row.key)
            scores[name] = scores.get(name, 0.0) + 1 / (_FUSION_CONSTANT + place)
            known.setdefault(name, hit)
    order = sorted(known, key=lambda name: (-scores[name], -known[name].row.no))
    floor = -math.inf if search.min_score is None else search.min_score
    return [known[name]._replace(score=scores[name]) for name in order if scores[name] >= floor]


def items_of(hits: list[Hit]) -> list[FoundItem]:
    """The results of a search."""
    return [found_of(hit.row, hit.value, hit.score) for hit in hits]
