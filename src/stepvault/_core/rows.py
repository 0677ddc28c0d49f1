"""Rows as they travel between the operations and a backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stepvault._core.chunks import ChunkRow
from stepvault._core.knowledge import ThreadKey


class ThreadRow(NamedTuple):
    """The part of a thread row that a writer needs."""

    no: Any  # the thread's integer; whatever else a backend addresses it by
    uid: bytes
    rev: bytes
    extents: bytes  # the packed `State`


class CheckpointRow(NamedTuple):
    """A checkpoint: routing columns in clear, one body."""

    ns: bytes
    id: bytes
    parent: bytes | None
    run: bytes | None
    source: bytes | None
    step: int | None
    created_at: int | None  # milliseconds since 1970 by the database's clock; None: now
    refs: bytes | None
    body: bytes


class WriteRow(NamedTuple):
    """One `put_writes` call of a task: `k` is 0 for ordinary channels, negative for a special one."""

    ns: bytes
    checkpoint: bytes
    task: bytes
    k: int
    run: bytes | None
    created_at: int | None
    refs: bytes | None
    body: bytes


@dataclass(slots=True)
class Guard:
    """What a write relies on, and the revision it leaves.

    `thread` None: the thread is created by this write, with `uid`; somebody else's creation refuses it.
    """

    key: ThreadKey
    thread: ThreadRow | None
    uid: bytes
    rev: bytes
    extents: bytes  # the packed `State` it leaves
    durable: bool = False  # commit past a power loss, whatever the connection's setting
    holder: bytes = b""  # whose hold of the thread does not keep this write waiting, see `Hold`


class Hold(NamedTuple):
    """That writers of a thread wait: for whom, and how long if it is not prolonged."""

    key: ThreadKey
    holder: bytes
    seconds: float


SUBJECT = b"s"  # begins the key of a note that names a person; their token follows


class Note(NamedTuple):
    """A small record that belongs to a thread: written with a guarded write, copied and deleted with the thread."""

    key: bytes
    body: bytes | None  # None: remove it


class Deleted(NamedTuple):
    """What a thread was that has been removed whole; nothing, if there was none."""

    checkpoints: int = 0
    uid: bytes | None = None
    notes: Sequence[Note] = ()


class Doc(NamedTuple):
    """A small record outside any thread, ordered by key within its space."""

    key: bytes
    version: bytes
    body: bytes


class DocChange(NamedTuple):
    """What becomes of a doc. `expected` None: it must not exist; b"": whatever it is."""

    key: bytes
    body: bytes | None  # None: remove it
    version: bytes
    expected: bytes | None = b""


def beyond(prefix: bytes) -> bytes:
    """The first key that is greater than every key with this prefix."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,)) if kept else b"\xff" * 64


@dataclass(slots=True)
class Loaded:
    """What one read returned, from one snapshot."""

    thread: ThreadRow | None = None
    checkpoints: list[CheckpointRow] = field(default_factory=list)
    writes: list[WriteRow] = field(default_factory=list)
    chunks: list[ChunkRow] = field(default_factory=list)

    def refs(self) -> set[bytes]:
        """The page ranges that the rows name; a set, as most name the same."""
        found = {row.refs for row in self.checkpoints}
        found.update([row.refs for row in self.writes])
        return {refs for refs in found if refs}


@dataclass(slots=True)
class Elements:
    """New elements of a write: rows to add, after the rows of `closed` pages are taken out (they are packed anew).

    `fresh` names the closed pages that hold nothing but elements of this write.
    """

    rows: Sequence[ChunkRow] = ()
    closed: Sequence[int] = ()
    fresh: Sequence[int] = ()


@dataclass(slots=True)
class Held:
    """What the reader already has: pages that need not be sent if the thread is still at `rev`."""

    rev: bytes
    pages: frozenset[int] | set[int]


@dataclass(slots=True)
class Skeleton:
    """A whole thread without its elements: for prune, garbage collection and copies."""

    thread: ThreadRow
    checkpoints: list[CheckpointRow]
    writes: list[WriteRow]
    chunks: list[tuple[int, int, int]]  # number, count, bytes
    needs: dict[tuple[Any, ...], list[tuple[int, int]]] | None = None  # elements of each row, once asked for


@dataclass(frozen=True, slots=True)
class Removal:
    """Rows to take out of a thread, and elements to put in place of rows that held dead and live ones."""

    checkpoints: Sequence[tuple[bytes, bytes]] = ()  # ns, id
    writes: Sequence[tuple[bytes, bytes, bytes, int]] = ()  # ns, checkpoint, task, k
    chunks: Sequence[int] = ()
    rewritten: Sequence[ChunkRow] = ()


class ThreadSummary(NamedTuple):
    """One line of the thread overview."""

    no: Any
    thread: bytes
    created_at: int
    updated_at: int
    expires_at: int | None
    subjects: bytes | None
    head: bytes | None
    checkpoints: int
    size: int
    interrupted: bool
    extents: bytes = b""  # the packed `State`


@dataclass(frozen=True, slots=True)
class Query:
    """One page of a list: newest first, from `after` (exclusive) on."""

    tenant: bytes
    thread: bytes | None = None
    ns: bytes | None = None
    checkpoint: bytes | None = None
    before: bytes | None = None
    source: bytes | None = None
    step: int | None = None
    run: bytes | None = None
    tokens: Sequence[bytes] = ()
    after: tuple[bytes, bytes, bytes] | None = None  # checkpoint id, namespace, thread
    limit: int = 50
    held: Held | None = None  # of the one thread it asks for; a backend need not care
