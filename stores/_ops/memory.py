"""Memories and what a search of them reports; how a memory lies in an item."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import fmean
from typing import Any, Literal, NamedTuple, TypeAlias, overload

from langgraph.store.base import Item

from stepvault._core.labels import SHARED_ROOT, USER_ROOT, label_of
from stepvault.errors import ConfigurationError
from stepvault.stores._ops.context import Source
from stepvault.stores._ops.namespaces import check_labels

Kind: TypeAlias = Literal["memory", "summary"]


@dataclass(frozen=True, slots=True)
class Memory:
    """Something worth remembering.

    Attributes:
        id: Its name within its scope.
        text: What is remembered, in words; what searches look at.
        data: What is remembered, for programs.
        about: What it is about. Memories of one scope about the same thing contradict each other if they differ.
        tags: Labels to find it by.
        scope: Where it belongs.
        user: Whose it is; None: nobody's, shared.
        kind: `"summary"` if it sums up old turns of a thread.
        thread_id: The thread that a summary is of.
        checkpoint_ids: The checkpoints that a summary was made from.
        created_at: When it was first stored, by the database's clock; None if it is not yet.
        updated_at: When it was last stored.
        source: The thread and checkpoint of the run that stored it, if a run did.
        score: How well it fits the query that found it.
    """

    id: str
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    about: str | None = None
    tags: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    user: str | None = None
    kind: Kind = "memory"
    thread_id: str | None = None
    checkpoint_ids: tuple[str, ...] = ()
    created_at: datetime | None = None
    updated_at: datetime | None = None
    source: Source | None = None
    score: float | None = None

    def says_what(self, other: Memory) -> bool:
        """Whether it says the same as another one."""
        return self.text == other.text and self.data == other.data


class Upserted(NamedTuple):
    """What an upsert did: the ids it stored, and those it removed because something newer stands in their place."""

    stored: tuple[str, ...]
    removed: tuple[str, ...]

    @property
    def id(self) -> str | None:
        """The id that was stored, or the first of several; None if a policy kept what there was."""
        return self.stored[0] if self.stored else None


@dataclass(frozen=True, slots=True)
class RetrievalReport:
    """What searches found, in numbers, so that a memory that drifts out of date can be seen to.

    Attributes:
        searches: How many searches this is about.
        empty: How many of them found nothing.
        ages: Time since each hit was last stored.
        scores: Of each hit, where there was a query. Only those of one mode can be compared.
        stale_after: The age from which a hit counts as stale.
    """

    searches: int = 0
    empty: int = 0
    ages: tuple[timedelta, ...] = ()
    scores: tuple[float, ...] = ()
    stale_after: timedelta | None = None

    @property
    def hits(self) -> int:
        """How many memories were found."""
        return len(self.ages)

    @property
    def stale(self) -> int:
        """How many of them are stale."""
        limit = self.stale_after
        return 0 if limit is None else sum(age >= limit for age in self.ages)

    @property
    def share_stale(self) -> float | None:
        """The share of stale ones; None if nothing was found or nothing says what is stale."""
        return self.stale / self.hits if self.hits and self.stale_after is not None else None

    @property
    def median_age(self) -> timedelta | None:
        """The age that half of them have not passed."""
        return sorted(self.ages)[(self.hits - 1) // 2] if self.ages else None

    @property
    def mean_score(self) -> float | None:
        """The mean of the scores."""
        return fmean(self.scores) if self.scores else None

    @classmethod
    def combined(cls, reports: Iterable[RetrievalReport]) -> RetrievalReport:
        """One report of many searches. Stale is what the strictest of them calls so."""
        listed = list(reports)
        limits = [report.stale_after for report in listed if report.stale_after is not None]
        return cls(
            sum(report.searches for report in listed),
            sum(report.empty for report in listed),
            tuple(age for report in listed for age in report.ages),
            tuple(score for report in listed for score in report.scores),
            min(limits, default=None),
        )

    def as_dict(self) -> dict[str, float | int | None]:
        """Its numbers for a metric or a log; ages in days."""
        median_age = self.median_age
        return {
            "searches": self.searches,
            "empty": self.empty,
            "hits": self.hits,
            "median_age_days": None if median_age is None else median_age / timedelta(days=1),
            "oldest_days": max(self.ages) / timedelta(days=1) if self.ages else None,
            "best_score": max(self.scores, default=None),
            "mean_score": self.mean_score,
            "worst_score": min(self.scores, default=None),
            "stale": self.stale,
            "share_stale": self.share_stale,
        }

    def __str__(self) -> str:
        shown = {name: number for name, number in self.as_dict().items() if number is not None}
        return ", ".join(f"{name} {number:.3g}" for name, number in shown.items())


@dataclass(frozen=True, slots=True)
class Retrieved(Sequence[Memory]):
    """The memories a search found, best first, and the report of the search."""

    memories: tuple[Memory, ...]
    report: RetrievalReport

    @overload
    def __getitem__(self, at: int) -> Memory: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Memory]: ...
    def __getitem__(self, at: int | slice) -> Memory | Sequence[Memory]:
        return self.memories[at]

    def __len__(self) -> int:
        return len(self.memories)

    def __iter__(self) -> Iterator[Memory]:
        return iter(self.memories)


def report_of(memories: Sequence[Memory], now: datetime, stale_after: timedelta | None) -> RetrievalReport:
    """The report of one search; a clock that is behind the database's makes no age negative."""
    stored = [memory.updated_at for memory in memories if memory.updated_at is not None]
    ages = tuple(max(now - moment, timedelta(0)) for moment in stored)
    scores = tuple(memory.score for memory in memories if memory.score is not None)
    return RetrievalReport(1, int(not memories), ages, scores, stale_after)


def namespace_of(user: str | None, scope: Sequence[str]) -> tuple[str, ...]:
    """Where memories of a person, or shared ones, lie.

    Raises:
        ConfigurationError: The user is no text.
        InvalidNamespaceError: The scope is no tuple of labels.
    """
    labels = check_labels(scope)
    if user is None:
        return (SHARED_ROOT, *labels)
    if not isinstance(user, str) or not user:
        raise ConfigurationError(f"user is the id of a person, a str that is not empty, not {user!r:.40}.")
    return (USER_ROOT, label_of(user), *labels)


def value_of_memory(memory: Memory) -> dict[str, Any]:
    """What is stored of a memory."""
    return {
        "kind": memory.kind,
        "text": memory.text,
        "data": dict(memory.data),
        "about": memory.about,
        "tags": _marked(memory.tags),
        "scope": list(memory.scope),
        "thread_id": memory.thread_id,
        "checkpoint_ids": list(memory.checkpoint_ids),
    }


def memory_of(item: Item, user: str | None) -> Memory:
    """The memory in an item."""
    value = item.value
    if not isinstance(value.get("text"), str) or "kind" not in value:
        raise ConfigurationError(
            f"The item {item.key!r} in {item.namespace} is no memory; something else put it there."
        )
    return Memory(
        id=item.key,
        text=value["text"],
        data=value["data"],
        about=value["about"],
        tags=tuple(mark[1:] for mark in value["tags"]),
        scope=tuple(value["scope"]),
        user=user,
        kind=value["kind"],
        thread_id=value["thread_id"],
        checkpoint_ids=tuple(value["checkpoint_ids"]),
        created_at=item.created_at,
        updated_at=item.updated_at,
        source=getattr(item, "source", None),
        score=getattr(item, "score", None),
    )


def _marked(tags: Iterable[str]) -> dict[str, bool]:
    """Tags as fields, so that a filter finds one; the mark in front keeps each from being an operator."""
    return {f"#{tag}": True for tag in tags}


def filter_for(
    *,
    tags: Sequence[str] = (),
    data: Mapping[str, Any] | None = None,
    about: str | None = None,
    kind: str | None = None,
    thread_id: str | None = None,
    scope: Sequence[str] | None = None,
) -> dict[str, Any] | None:
    """What items have to hold; None if that is nothing."""
    wanted: dict[str, Any] = {}
    for name, value in (("about", about), ("kind", kind), ("thread_id", thread_id)):
        if value is not None:
            wanted[name] = value
    if tags:
        wanted["tags"] = _marked(checked_tags(tags))
    if data:
        wanted["data"] = data
    if scope is not None:
        wanted["scope"] = list(scope)
    return wanted or None


def checked_tags(tags: Any) -> tuple[str, ...]:
    """Tags, each once.

    Raises:
        ConfigurationError: They are no list of str.
    """
    if isinstance(tags, str) or not isinstance(tags, Iterable) or not all(isinstance(tag, str) for tag in tags):
        raise ConfigurationError("tags are a list of str.")
    return tuple(dict.fromkeys(tags))
