"""What a checkpointer backend provides: its storage primitives as operations, nothing else.

Primitives decide nothing: a guarded write either commits whole or leaves everything as it was and says so.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.rows import (
    CheckpointRow,
    Deleted,
    Doc,
    DocChange,
    Elements,
    Guard,
    Held,
    Hold,
    Loaded,
    Note,
    Query,
    Removal,
    Skeleton,
    ThreadRow,
    ThreadSummary,
    WriteRow,
)
from stepvault.erasure import PurgeStep

SWEPT = (b"expiry", b"sweeps", b"pins")  # names of spaces that a sweep of every tenant looks into
LISTED = (*SWEPT, b"erasures")  # those whose tenants every backend can tell


class Dialect(Protocol):
    """Storage primitives of one backend."""

    automatic_setup: bool  # tables are made on first use, as the official package of this backend does
    locks: bool  # `lock` holds other writers of the thread off until the transaction ends

    def setup(self) -> Op[None]:
        """Create or migrate the tables; idempotent, safe with many callers at once."""
        ...

    def only_theirs(self) -> Op[bool]:
        """Whether LangGraph's own saver has threads in this database, and this one has none yet."""
        ...

    def lock(self, key: ThreadKey) -> Op[None]:
        """Inside a write transaction: hold off other writers of the thread."""
        ...

    def load(self, key: ThreadKey, ns: bytes, checkpoint: bytes | None, held: Held | None) -> Op[Loaded]:
        """One checkpoint (the newest of its namespace if none is named) with its writes and elements."""
        ...

    def page(self, query: Query) -> Op[list[tuple[ThreadKey, Loaded]]]:
        """The newest checkpoints of a query, grouped by thread in order."""
        ...

    def put(
        self,
        guard: Guard,
        elements: Elements,
        row: CheckpointRow,
        tokens: Sequence[bytes],
        notes: Sequence[Note] = (),
    ) -> Op[Any]:
        """Store a checkpoint, replacing one of the same id, and notes with it.

        Returns the thread's `no`, or None if refused.
        """
        ...

    def put_writes(
        self,
        guard: Guard,
        elements: Elements,
        rows: Sequence[WriteRow],
        notes: Sequence[Note] = (),
        *,
        replace_rows: bool = False,
    ) -> Op[tuple[Any, bool] | None]:
        """Store writes and notes; an ordinary row (`k >= 0`) that exists stays, a special one is replaced.

        With `replace_rows` an ordinary one is replaced too.

        Without rows it stores the notes and the guard's state alone. Returns the thread's `no` and whether every
        ordinary row was new; None if refused.
        """
        ...

    def delete(self, key: ThreadKey, rev: bytes | None = None) -> Op[Deleted | None]:
        """Remove a thread whole, and say what it was.

        With a `rev`: only if it still stands at that revision, else None.
        """
        ...

    def delete_all(self, threads: Sequence[tuple[ThreadKey, ThreadRow]]) -> Op[list[Deleted | None]]:
        """Remove threads of one tenant whole, many in one transaction where there are some, and say what each was.

        None for those that stay: they do not stand at the revision they were read at any more.
        """
        ...

    def remains(self, keys: Sequence[ThreadKey]) -> Op[list[ThreadRow | None]]:
        """What tells what led to threads of one tenant that went by themselves, to be deleted as they would be.

        None for each that is there, or of which nothing is left.
        """
        ...

    def delete_of(
        self, keys: Sequence[ThreadKey], person: bytes, beside: Collection[bytes] | None
    ) -> Op[list[Deleted | ThreadRow | None]]:
        """Remove those of these threads that are a person's, by the token, and of nobody but `beside` (None: anybody).

        Of each: what it was that has been removed, or the thread that stays, as it was read, or None: there is none.
        """
        ...

    def skeleton(self, key: ThreadKey) -> Op[Skeleton | None]:
        """A thread's rows without elements, from one snapshot."""
        ...

    def chunks(self, thread: ThreadRow, numbers: Sequence[int]) -> Op[Loaded]:
        """Element rows by the number of their first element."""
        ...

    def remove(self, guard: Guard, removal: Removal) -> Op[bool]:
        """Take rows out of a thread; False if refused."""
        ...

    def copy(self, source: ThreadRow, guard: Guard) -> Op[bool]:
        """Copy every row of `source` into the new thread of `guard`; False if the target exists."""
        ...

    def begin_copy(self, guard: Guard) -> Op[ThreadRow | None]:
        """Begin a thread that is filled by guarded writes; None if it exists. The caller holds a write transaction.

        Where there are none, the thread counts as absent until `finish_copy`, and goes by itself if that never comes.
        """
        ...

    def finish_copy(self, guard: Guard, hold: Hold | None = None) -> Op[bool]:
        """Make a thread that `begin_copy` began as real as any; False if it is gone, or a `hold` of its source is."""
        ...

    def hold(self, hold: Hold, *, again: bool = False) -> Op[bool]:
        """Where `lock` does nothing: have writers of a thread wait for some seconds from now.

        When the time has passed, or the thread is gone, they look again. False: there is no thread, or somebody else
        holds it; `again`: or this hold was lost.
        """
        ...

    def let_go(self, hold: Hold) -> Op[None]:
        """End a hold; writers go on."""
        ...

    def tenants(self) -> Op[list[bytes]]:
        """Every tenant that has a thread, or had one of which something is left."""
        ...

    def tenants_with(self, name: bytes) -> Op[list[bytes]]:
        """Every tenant that has docs in its space of this name, one of `LISTED`."""
        ...

    def spaces(self) -> Op[list[bytes]]:
        """Every space that has docs, where the backend can tell; Redis cannot, and gives none."""
        ...

    def threads_of_runs(self, tenant: bytes, runs: Sequence[bytes]) -> Op[list[ThreadKey]]:
        """Threads that hold rows of these runs."""
        ...

    def threads(self, tenant: bytes, limit: int, after: Any) -> Op[list[ThreadSummary]]:
        """One page of the thread overview, newest first."""
        ...

    def born(self, thread: ThreadRow) -> Op[int | None]:
        """When a thread was made, in milliseconds since 1970; None if it is gone."""
        ...

    def notes(self, thread: ThreadRow, prefix: bytes) -> Op[list[Note]]:
        """A thread's notes whose keys begin with `prefix`, in key order."""
        ...

    def notes_at(self, places: Sequence[tuple[ThreadKey, bytes]]) -> Op[list[tuple[ThreadRow | None, bytes | None]]]:
        """Notes of many threads of one tenant by their keys, each with its thread as it stands with it."""
        ...

    def docs(self, space: bytes, prefix: bytes, after: bytes, limit: int, *, oldest: bool = False) -> Op[list[Doc]]:
        """Docs whose keys begin with `prefix` and are greater than `after`, in key order.

        With `oldest`, and where the backend can tell: of the next few thousand those that were written first.
        """
        ...

    def get_docs(self, space: bytes, keys: Sequence[bytes]) -> Op[list[Doc]]:
        """The docs of these keys that exist."""
        ...

    def write_docs(self, space: bytes, changes: Sequence[DocChange], *, durable: bool = False) -> Op[bool]:
        """Make every change, or none and False if one does not find what it expects."""
        ...

    def warnings(self) -> Op[list[str]]:
        """What is wrong with a server that answers: settings with which data may be lost, or it takes no writes."""
        ...

    def now(self) -> Op[int]:
        """Milliseconds since 1970 by the database's clock."""
        ...

    def purge(self, *, rewrite: bool = False) -> Op[list[PurgeStep]]:
        """Have deleted data leave files too, as far as this role can; says what was done and what was not.

        With `rewrite` also by what holds others up: files are written anew.
        """
        ...

    def reclaim(self) -> Op[None]:
        """Give free space back to the disk in short steps, where nothing else does."""
        ...
