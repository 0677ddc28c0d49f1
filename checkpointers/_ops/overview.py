"""The overview of threads: who waits, how long, how big."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone

from stepvault._core.ids import id_of, text_of
from stepvault._core.plan import Op
from stepvault._core.rows import ThreadSummary
from stepvault._core.state import State
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.expiry import db_now, is_expired
from stepvault.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class ThreadInfo:
    """One thread.

    Attributes:
        thread_id: Its id.
        status: `running` while a worker holds its lease, `interrupted` while it waits for a human, else `idle`.
        head: Id of its newest checkpoint in the root namespace.
        created_at: When it was first written, by the database's clock.
        updated_at: When it was last written.
        expires_at: When it expires, if it does.
        subjects: The data subjects it belongs to.
        checkpoints: How many checkpoints it has, subgraphs included.
        bytes: Size of its stored payloads.
    """

    thread_id: str
    status: str
    head: str | None
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    subjects: tuple[str, ...]
    checkpoints: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ThreadPage:
    """Threads, newest first, and where the next page starts (None: there is none)."""

    threads: list[ThreadInfo]
    cursor: str | None

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self.threads)

    def __len__(self) -> int:
        return len(self.threads)


def threads(scope: Scope, limit: int, cursor: str | None) -> Op[ThreadPage]:
    """One page of the threads of a tenant."""
    if limit < 1:
        raise ConfigurationError(f"limit must be an int >= 1, not {limit!r}.")
    rows = yield from scope.core.dialect.threads(scope.tenant, limit, _position(cursor))
    after = str(rows[-1].no) if len(rows) == limit else None
    found = []
    for row in rows:
        state = State.unpack(row.extents) if row.extents else State(pending=int(row.interrupted))
        if not (yield from is_expired(scope.core, state)):
            leased = state.lease is not None and (yield from db_now(scope.core)) < state.lease.until
            found.append(_info(row, state, leased=leased))
    return ThreadPage(found, after)


def _position(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    try:
        return int(cursor)
    except ValueError as exc:
        raise ConfigurationError(f"cursor {cursor!r} is not one that threads() returned.") from exc


def _info(row: ThreadSummary, state: State, *, leased: bool) -> ThreadInfo:
    return ThreadInfo(
        thread_id=text_of(row.thread),
        status="running" if leased else "interrupted" if state.pending or row.interrupted else "idle",
        head=id_of(row.head) if row.head is not None else None,
        created_at=_time(row.created_at),
        updated_at=_time(row.updated_at),
        expires_at=_time(state.expires_at) if state.expires_at is not None else None,
        subjects=(),
        checkpoints=row.checkpoints,
        bytes=row.size,
    )


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
