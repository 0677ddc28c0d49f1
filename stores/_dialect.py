"""What a store backend provides: its storage primitives as operations, and the rows they take and give.

Primitives decide nothing about values: they see namespaces, keys, tokens and vectors, never what an item means.
Expired rows do not exist for them, by the database's own clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from stepvault._core.plan import Op

NOBODY = b"\xff"  # the tenant of what the database says of itself: no text begins like this, so none is called so


class ItemRow(NamedTuple):
    """A stored item. `no` grows with every write, so newest first is `no` descending."""

    no: int
    ns: bytes
    key: bytes
    created_at: int  # microseconds since 1970
    updated_at: int
    ttl: float | None  # minutes
    thread: bytes | None  # the run that wrote it, if a run did
    checkpoint: bytes | None
    body: bytes


class NewItem(NamedTuple):
    """An item to store."""

    ns: bytes
    key: bytes
    ttl: float | None
    thread: bytes | None
    checkpoint: bytes | None
    tokens: bytes | None  # 8 bytes for each scalar in the value; None: too many to list, look inside
    fields: str | None  # the `index=` it was put with, if not the store's own
    words: str
    vectors: Sequence[bytes]  # float32, native order
    body: bytes


@dataclass(frozen=True, slots=True)
class Find:
    """Items below a namespace prefix, newest first.

    `tokens`: an item that lacks one of them cannot match; others still may not.
    `before`: continue below this `no`, or with it where several items can have one. `max_age` is in microseconds.
    """

    prefix: bytes
    limit: int
    offset: int = 0
    tokens: Sequence[bytes] = ()
    before: int | None = None
    max_age: int | None = None


@dataclass(frozen=True, slots=True)
class Near(Find):
    """Items below a prefix by similarity of their nearest vector to this one, best first."""

    vector: bytes = b""
    distance: str = "cosine"


@dataclass(frozen=True, slots=True)
class Match(Find):
    """Items below a prefix that hold any of these words, best first."""

    words: Sequence[str] = ()


class Found(NamedTuple):
    """A row of a search with its score, higher is better; None where nothing was ranked."""

    row: ItemRow
    score: float | None = None


@dataclass(slots=True)
class Work:
    """One batch: reads see the state before its writes."""

    gets: Sequence[tuple[bytes, bytes]] = ()
    finds: Sequence[Find] = ()
    namespaces: Sequence[bytes] = ()  # prefixes to list below
    puts: Sequence[NewItem] = ()
    deletes: Sequence[tuple[bytes, bytes]] = ()
    people: Sequence[bytes] = ()  # marks of those whose items the puts may be; without puts, only looked up


@dataclass(slots=True)
class Reply:
    """What a batch read, in the order it was asked."""

    gets: list[ItemRow | None] = field(default_factory=list)
    finds: list[list[Found]] = field(default_factory=list)
    namespaces: list[list[bytes]] = field(default_factory=list)


class Removed(NamedTuple):
    """What `delete_namespace` removed."""

    items: int
    vectors: int


class IndexRecord(NamedTuple):
    """The vector index as the database has it."""

    dims: int
    distance: str
    model: str
    ready: bool  # False: a reindex is under way


class Whole(NamedTuple):
    """One version of an item with all that belongs to it.

    Attributes:
        name: Of this version, as `Dialect.page` gives it.
        no: As in `ItemRow`.
        tenant: Whose it is.
        item: What was stored; the vectors of an item may be one behind the other.
    """

    name: Any
    no: int
    tenant: bytes
    item: NewItem


def keyed_mark(token: bytes) -> bytes:
    """The mark of a person where it is made with a key; else it is the bare token."""
    return b"k" + token


def is_keyed(mark: bytes) -> bool:
    """Whether a mark is made with a key."""
    return len(mark) > 16


class Dialect(Protocol):
    """Storage primitives of one backend."""

    automatic_setup: bool  # tables are made on first use, as the official package of this backend does

    def setup(self) -> Op[None]:
        """Create or migrate the tables; idempotent, safe with many callers at once."""
        ...

    def snapshot(self, op: Op[Any]) -> Op[Any]:
        """Run reads that must agree with one another."""
        ...

    def transaction(self, op: Op[Any]) -> Op[Any]:
        """Run reads, and writes that follow from them."""
        ...

    def work(self, tenant: bytes, work: Work) -> Op[Reply]:
        """Read, then write, in one round trip.

        Raises:
            SubjectErasedError: One of `people` was erased; nothing was written. Looked at in the write itself.
        """
        ...

    def set_erased(self, tenant: bytes, marks: Sequence[bytes], *, erased: bool) -> Op[None]:
        """Refuse puts for people from here on, durably, or accept them again. Puts before it are visible after it."""
        ...

    def erased(self) -> Op[list[tuple[bytes, bytes]]]:
        """Everybody of every tenant who is erased: tenant and mark."""
        ...

    def touch(self, tenant: bytes, rows: Sequence[ItemRow]) -> Op[None]:
        """Move the deadline of rows that still are as they were read."""
        ...

    def drop(self, tenant: bytes, rows: Sequence[ItemRow]) -> Op[None]:
        """Remove rows that still are as they were read."""
        ...

    def pin(self, tenant: bytes, names: Sequence[tuple[bytes, bytes]], *, pinned: bool) -> Op[None]:
        """Take the deadline of items that have one; or give each that has lost it so a new one, a whole `ttl` away.

        A pinned item keeps its `ttl`, stays pinned when it is put again, and is not touched.
        """
        ...

    def delete_below(self, tenant: bytes, prefixes: Sequence[bytes]) -> Op[Removed]:
        """Remove every item below these prefixes, none of which is below another.

        The counts are of what was visible.
        """
        ...

    def sweep(self, limit: int) -> Op[int]:
        """Remove up to `limit` expired items of any tenant."""
        ...

    def overdue(self) -> Op[int]:
        """How many items of any tenant a sweep would remove."""
        ...

    def index(self) -> Op[IndexRecord | None]:
        """The vector index of this database."""
        ...

    def make_index(self, record: IndexRecord) -> Op[None]:
        """Record and prepare an empty vector index, dropping the one that is there."""
        ...

    def finish_index(self, record: IndexRecord) -> Op[None]:
        """Mark a rebuilt index as ready."""
        ...

    def page(self, after: Any, limit: int) -> Op[tuple[list[tuple[Any, str | None, bytes]], Any]]:
        """Items of every tenant but `NOBODY` as name, `fields` and `body`, and where the next page begins.

        `after` is None for the first page, and where there is no next one. A name is of one version of an item.
        """
        ...

    def names(self, tenant: bytes, rows: Sequence[ItemRow]) -> list[Any]:
        """The names of rows, as `page` gives them."""
        ...

    def whole(self, names: Sequence[Any]) -> Op[list[Whole]]:
        """All of these versions that still are."""
        ...

    def exchange(self, changes: Sequence[tuple[Whole, NewItem | None]]) -> Op[None]:
        """Give versions that still are another form, which may have another name, or none.

        Their times, deadline and order stay. Where there is a newer item of the new name, that one stays.
        """
        ...

    def now(self) -> Op[int]:
        """The database's time in milliseconds since 1970."""
        ...

    def set_vectors(self, vectors: Sequence[tuple[Any, Sequence[bytes]]]) -> Op[None]:
        """Replace the vectors of the items that still are the version of this name."""
        ...
