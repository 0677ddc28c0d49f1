"""An interrupt as the note of its thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timezone
from functools import cache
from typing import Any

from stepvault._core.codec import unpack
from stepvault._core.ids import id_of, text_of
from stepvault._core.knowledge import ThreadKey
from stepvault._core.rows import Note
from stepvault.checkpointers._ops.context import Scope
from stepvault.errors import UnknownTypeError
from stepvault.inbox import Decision, PendingInterrupt, Status
from stepvault.types import TypedSerializer

WAITING = b"i"  # note keys of interrupts that wait, of others, and of where one was asked
CLOSED = b"j"
ORIGIN = b"o"
OPEN = ("pending", "decided")


@dataclass(frozen=True, slots=True)
class Entry:
    """What is kept of an interrupt; times are milliseconds by the database's clock.

    `value`, `default` and `answer` are packed: keeping an entry in step needs none of the application's classes.
    """

    id: str
    uid: bytes  # the thread generation it was asked in: a copy of the thread has another
    ns: str
    task: bytes
    checkpoint: bytes
    node: str | None
    path: str
    value: bytes
    schema: bytes
    created: int
    status: Status = "pending"
    deadline: int | None = None
    default: bytes | None = None
    answer: bytes | None = None
    by: str | None = None
    remark: str | None = None
    decided: int | None = None
    closed: int | None = None
    external_ref: str | None = None
    subjects: tuple[str, ...] = ()
    events: tuple[tuple[int, str], ...] = ()  # what the feed says of it: number, kind
    nodes: tuple[str | None, ...] | None = None  # a pause before these nodes; None: a question
    taken: int | None = None  # when a run went on from a pause

    @property
    def is_open(self) -> bool:
        return self.status in OPEN

    def close(self, status: Status, now: int) -> Entry:
        return replace(self, status=status, closed=now)


_FIELDS = tuple(field.name for field in fields(Entry))
_PLAIN = _FIELDS.index("nodes")  # fields that every entry has stored


def note_keys(interrupt_id: str) -> tuple[bytes, bytes]:
    """Where the note of an interrupt may stand: while it waits, and afterwards."""
    key = interrupt_id.encode("utf-8", "surrogatepass")
    return WAITING + key, CLOSED + key


def notes_of(scope: Scope, entries: Sequence[Entry]) -> list[Note]:
    """The notes of entries, and the removal of what they replace."""
    notes = []
    for entry in entries:
        waiting, closed = note_keys(entry.id)
        names = _FIELDS if entry.nodes is not None else _FIELDS[:_PLAIN]
        body = scope.core.codec.pack(scope.native.dumps([getattr(entry, name) for name in names]))
        if entry.is_open:
            notes += [Note(waiting, body), Note(closed, None)]
        else:
            notes += [Note(waiting, None), Note(closed, body), Note(ORIGIN + waiting[1:], None)]
    return notes


def entry_of(scope: Scope, body: bytes) -> Entry:
    """Read a note that `notes_of` made."""
    return Entry(*scope.native.loads(unpack(body)))


def public_id(entry: Entry, uid: bytes) -> str:
    """The id the inbox shows: LangGraph's, told apart in a copy of the thread that asked."""
    return entry.id if entry.uid == uid else f"{entry.id}:{uid.hex()[:12]}"


def interrupt_of(scope: Scope, key: ThreadKey, uid: bytes, entry: Entry) -> PendingInterrupt:
    """An entry as the inbox shows it."""
    return PendingInterrupt(
        id=public_id(entry, uid),
        thread_id=text_of(key.thread),
        checkpoint_ns=entry.ns,
        checkpoint_id=id_of(entry.checkpoint),
        node=entry.node,
        value=shown(scope, entry.value),
        response_schema=shown(scope, entry.schema),
        subject=entry.subjects[0] if entry.subjects else None,
        subjects=entry.subjects,
        created_at=moment(entry.created),
        deadline=moment(entry.deadline) if entry.deadline is not None else None,
        default=shown(scope, entry.default),
        status=entry.status,
        decision=decision_of(scope, key, entry),
        external_ref=entry.external_ref,
        interrupt_id=entry.id,
        kind="question" if entry.nodes is None else "pause",
        next=tuple(node for node in entry.nodes or () if node is not None),
    )


def decision_of(scope: Scope, key: ThreadKey, entry: Entry) -> Decision | None:
    """The decision of an entry, ready to run."""
    if entry.decided is None:
        return None
    from langgraph.types import Command  # whoever decides has LangGraph; whoever only stores need not

    answer = shown(scope, entry.answer)
    return Decision(
        command=Command(resume={entry.id: answer}) if entry.nodes is None else None,
        config={"configurable": {"thread_id": text_of(key.thread)}},
        answer=answer,
        by=entry.by,
        note=entry.remark,
        at=moment(entry.decided),
    )


def shown(scope: Scope, packed: bytes | None) -> Any:
    """A packed value; what is of a type that is not loaded here is shown raw."""
    if packed is None:
        return None
    try:
        return scope.native.loads(packed)
    except UnknownTypeError:
        return lenient().loads(packed)


@cache
def lenient() -> TypedSerializer:
    return TypedSerializer(unknown_types="raw")


def moment(milliseconds: int) -> datetime:
    """A time of the database's clock."""
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
