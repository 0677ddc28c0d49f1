"""The overview of threads: who waits, how long, how big."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from stepvault._core.ids import id_of, text_of
from stepvault._core.knowledge import ThreadKey
from stepvault._core.numbers import check_count
from stepvault._core.paging import Page
from stepvault._core.plan import Op
from stepvault._core.rows import ThreadSummary
from stepvault._core.state import State
from stepvault.checkpointers._ops.context import Scope, thread_of
from stepvault.checkpointers._ops.expiry import db_now, is_expired
from stepvault.checkpointers._ops.subjects import of_thread, token
from stepvault.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class ThreadInfo:
    """One thread.

    Attributes:
        thread_id: Its id.
        status: `running` while a worker holds its lease, `interrupted` while it waits for a human, `compacted`
            if nothing happened since `compact_thread` shortened it, else `idle`.
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
class ThreadPage(Page[ThreadInfo]):
    """Threads, newest first, and where the next page starts (None: there is none)."""

    threads: list[ThreadInfo]
    cursor: str | None

    def _rows(self) -> list[ThreadInfo]:
        return self.threads


def threads(scope: Scope, subject: str | None, limit: int, cursor: str | None) -> Op[ThreadPage]:
    """One page of the threads of a tenant, or of those of one person."""
    check_count("limit", limit)
    mark = token(scope, subject) if subject is not None else None
    found: list[ThreadInfo] = []
    after: Any = _position(cursor)
    while True:
        rows = yield from scope.core.dialect.threads(scope.tenant, limit, after)
        for row in rows:
            after = row.no
            info = yield from _shown(scope, row, mark)
            if info is not None:
                found.append(info)
                if mark is not None and len(found) == limit:
                    return ThreadPage(found, str(after))
        if len(rows) < limit:
            return ThreadPage(found, None)
        if mark is None:
            return ThreadPage(found, str(after))


def _shown(scope: Scope, row: ThreadSummary, mark: bytes | None) -> Op[ThreadInfo | None]:
    """A thread as the overview shows it; None if it has expired or is not this person's."""
    state = State.unpack(row.extents) if row.extents else State(pending=int(row.interrupted))
    if state.fenced or (mark is not None and mark not in state.subjects) or (yield from is_expired(scope.core, state)):
        return None
    leased = state.lease is not None and (yield from db_now(scope.core)) < state.lease.until
    names = (yield from _names(scope, row)) if state.subjects else ()
    return _info(row, state, names, leased=leased)


def _position(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    try:
        return int(cursor)
    except (ValueError, TypeError) as exc:
        raise ConfigurationError(f"cursor {cursor!r} is not one that threads() returned.") from exc


def _names(scope: Scope, row: ThreadSummary) -> Op[tuple[str, ...]]:
    thread = yield from thread_of(scope, ThreadKey(scope.tenant, row.thread))
    return (yield from of_thread(scope, thread)) if thread else ()


def _info(row: ThreadSummary, state: State, subjects: tuple[str, ...], *, leased: bool) -> ThreadInfo:
    return ThreadInfo(
        thread_id=text_of(row.thread),
        status="running" if leased else _status(row, state),
        head=id_of(row.head) if row.head is not None else None,
        created_at=_time(row.created_at),
        updated_at=_time(row.updated_at),
        expires_at=_time(state.expires_at) if state.expires_at is not None else None,
        subjects=subjects,
        checkpoints=row.checkpoints,
        bytes=row.size,
    )


def _status(row: ThreadSummary, state: State) -> str:
    if state.pending or row.interrupted:
        return "interrupted"
    return "compacted" if state.compacted else "idle"


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
