"""An interrupt as the note of its thread."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from typing import Any

from stepvault._core.codec import unpack
from stepvault._core.ids import id_of, text_of
from stepvault._core.knowledge import ThreadKey
from stepvault._core.rows import Note
from stepvault.checkpointers._ops.context import Scope
from stepvault.inbox import Decision, PendingInterrupt, Status

PREFIX = b"i"
ORIGIN = b"o"
OPEN = ("pending", "decided")


@dataclass(frozen=True, slots=True)
class Entry:
    """What is kept of an interrupt; times are milliseconds by the database's clock."""

    id: str
    uid: bytes  # the thread generation it was asked in: a copy of the thread has another
    ns: str
    task: bytes
    checkpoint: bytes
    node: str | None
    path: str
    value: Any
    schema: Any
    created: int
    status: Status = "pending"
    deadline: int | None = None
    default: Any = None
    answer: Any = None
    by: str | None = None
    remark: str | None = None
    decided: int | None = None
    closed: int | None = None
    external_ref: str | None = None

    @property
    def is_open(self) -> bool:
        return self.status in OPEN

    def close(self, status: Status, now: int) -> Entry:
        return replace(self, status=status, closed=now)


def note_key(interrupt_id: str) -> bytes:
    return PREFIX + interrupt_id.encode("utf-8", "surrogatepass")


def note_of(scope: Scope, entry: Entry) -> Note:
    """The note of an entry."""
    body = scope.core.codec.pack(scope.native.dumps(asdict(entry)))
    return Note(note_key(entry.id), body)


def entry_of(scope: Scope, body: bytes) -> Entry:
    """Read `note_of`."""
    return Entry(**scope.native.loads(unpack(body)))


def public_id(entry: Entry, uid: bytes) -> str:
    """The id the inbox shows: LangGraph's, told apart in a copy of the thread that asked."""
    return entry.id if entry.uid in (uid, b"") else f"{entry.id}:{uid.hex()[:12]}"


def interrupt_of(key: ThreadKey, uid: bytes, entry: Entry) -> PendingInterrupt:
    """An entry as the inbox shows it."""
    return PendingInterrupt(
        id=public_id(entry, uid),
        thread_id=text_of(key.thread),
        checkpoint_ns=entry.ns,
        checkpoint_id=id_of(entry.checkpoint),
        node=entry.node,
        value=entry.value,
        response_schema=entry.schema,
        subject=None,
        created_at=_time(entry.created),
        deadline=_time(entry.deadline) if entry.deadline is not None else None,
        default=entry.default,
        status=entry.status,
        decision=decision_of(key, entry),
        external_ref=entry.external_ref,
        interrupt_id=entry.id,
    )


def decision_of(key: ThreadKey, entry: Entry) -> Decision | None:
    """The decision of an entry, ready to run."""
    if entry.decided is None:
        return None
    from langgraph.types import Command  # whoever decides has LangGraph; whoever only stores need not

    return Decision(
        command=Command(resume={entry.id: entry.answer}),
        config={"configurable": {"thread_id": text_of(key.thread)}},
        answer=entry.answer,
        by=entry.by,
        note=entry.remark,
        at=_time(entry.decided),
    )


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
