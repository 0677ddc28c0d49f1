"""Data subjects: whose data a thread holds, how a person's threads are found, and who may not come back.

A write whose config names a person adds them to the thread: a hint in the index of subjects first, then, in the
guarded write itself, their token in the state and their name in a note. An erased person has a tombstone; it is
looked up whenever a write adds a person to a thread, so that also a late write of an older run is refused: erasing
removed the thread, or the person from it. It is looked up again once the hint stands: whoever erases writes the
tombstone first and reads the hints then, so either they see the hint, or the writer sees the tombstone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import ormsgpack

from stepvault._core.ids import LIMITS
from stepvault._core.knowledge import ThreadKey
from stepvault._core.people import digest_of, subject_key
from stepvault._core.plan import Op
from stepvault._core.rows import SUBJECT, DocChange, Note, ThreadRow
from stepvault._core.state import State
from stepvault.checkpointers._ops.context import Address, Scope, thread_of
from stepvault.checkpointers._ops.fencing import shut
from stepvault.checkpointers._ops.spaces import drop_docs, space
from stepvault.errors import ConfigurationError, SubjectErasedError

PREFIX = SUBJECT
SUBJECTS, TOMBSTONES, DECIDERS = "subjects", "tombstones", "deciders"
NOBODY: Sequence[Note] = ()


class Joined(NamedTuple):
    """A state with the subjects of a write, and the notes that name the new ones."""

    state: State
    notes: Sequence[Note]


def token(scope: Scope, subject: str) -> bytes:
    """Sixteen bytes that stand for a person in the tables."""
    return scope.mark(digest_of(scope.tenant, subject_key(subject)))


def pseudonym(mark: bytes) -> str:
    """What decisions are by, of somebody who was erased."""
    return f"erased:{mark.hex()[:12]}"


def is_possible(subject: str) -> bool:
    """Whether this can be somebody's id: a label of a namespace may be longer."""
    return len(subject.encode("utf-8", "surrogatepass")) <= LIMITS["subject"]


def matters(scope: Scope, at: Address, state: State) -> bool:
    """Whether a write has to look at deadlines or people; most have not."""
    core = scope.core
    return bool(at.subjects or state.fenced or core.require_subject) or not (
        at.ttl is None and state.ttl is None and state.expires_at is None and core.ttl.default_ttl is None
    )


def joined(scope: Scope, at: Address, state: State) -> Op[Joined]:
    """The state of a thread with the subjects that a write names.

    Raises:
        SubjectErasedError: One of them was erased.
        ConfigurationError: The thread has none and `require_subject` asks for one.
    """
    if state.fenced:
        state = replace(state, fenced=False)
    if not at.subjects:
        if scope.core.require_subject and not state.subjects:
            raise ConfigurationError(
                f"require_subject is set: name the person in configurable[{scope.core.subject_keys[0]!r}]."
            )
        return Joined(state, [])
    tokens = {token(scope, subject): subject for subject in at.subjects}
    new = {mark: subject for mark, subject in tokens.items() if mark not in state.subjects}
    if not new:
        return Joined(state, [])
    yield from check_living(scope, new)
    changes = [hint(scope, subject, at.key) for subject in new.values()]
    yield from scope.core.dialect.write_docs(space(scope, SUBJECTS), changes)
    try:
        yield from check_living(scope, new)
    except SubjectErasedError:
        yield from _withdraw(scope, at.key, changes)
        raise
    notes = [Note(PREFIX + mark, scope.native.dumps(subject)) for mark, subject in new.items()]
    return Joined(replace(state, subjects=(*state.subjects, *new)), notes)


def announce(scope: Scope, at: Address) -> Op[None]:
    """Write the hints of a write before a transaction in which it goes on: there, nobody would see them."""
    changes = [hint(scope, subject, at.key) for subject in at.subjects]
    if changes:
        yield from check_named(scope, at)
        yield from scope.core.dialect.write_docs(space(scope, SUBJECTS), changes)


def check_named(scope: Scope, at: Address) -> Op[None]:
    """Refuse a config that names somebody who was erased."""
    if at.subjects:
        yield from check_living(scope, {token(scope, subject): subject for subject in at.subjects})


def _withdraw(scope: Scope, key: ThreadKey, hints: Sequence[DocChange]) -> Op[None]:
    """Take hints back, after nobody can follow them any more: another writer may rely on the same ones."""
    while True:
        thread = yield from thread_of(scope, key)
        subjects = State.unpack(thread.extents).subjects if thread else ()
        if any(change.key[:16] in subjects for change in hints):
            return  # it did store; whoever erases finds it by the hint
        if (yield from shut(scope, key, thread)):
            break
    gone = [DocChange(change.key, None, b"") for change in hints]
    yield from scope.core.dialect.write_docs(space(scope, SUBJECTS), gone)


def hint(scope: Scope, subject: str, key: ThreadKey) -> DocChange:
    """What leads from a person to a thread of theirs."""
    return DocChange(_place(scope, token(scope, subject), key), _body(subject, key), scope.core.random(8))


def check_living(scope: Scope, tokens: Mapping[bytes, str]) -> Op[None]:
    """Refuse people who were erased and not let in again."""
    if (yield from erased(scope, list(tokens))):
        raise SubjectErasedError


def of_thread(scope: Scope, thread: ThreadRow) -> Op[tuple[str, ...]]:
    """The names of a thread's subjects."""
    notes = yield from scope.core.dialect.notes(thread, PREFIX)
    return tuple(scope.native.loads(note.body) for note in notes if note.body)


class Left(NamedTuple):
    """A thread that was removed: its people by their tokens, and who decided which interrupt of it."""

    key: ThreadKey
    tokens: Sequence[bytes]
    decisions: Sequence[tuple[str, str]]


def forget(scope: Scope, gone: Sequence[Left]) -> Op[None]:
    """After threads were removed: drop what led people to them, and what led to the decisions in them.

    Who makes a thread again meanwhile looks for its hints afterwards (`confirm`), as this looks for the thread.
    """
    decided = [_decision(scope, token(scope, by), left.key, id_) for left in gone for by, id_ in left.decisions]
    yield from drop_docs(scope, DECIDERS, decided)
    led = [left for left in gone if left.tokens]
    if not led:
        return
    yield from drop_docs(scope, SUBJECTS, [_place(scope, mark, left.key) for left in led for mark in left.tokens])
    found = yield from scope.core.dialect.notes_at([(left.key, b"") for left in led])
    for left, (thread, _) in zip(led, found, strict=True):
        if thread is not None:
            yield from _announce_again(scope, left.key, (yield from of_thread(scope, thread)))


def confirm(scope: Scope, at: Address) -> Op[None]:
    """After a thread was made: write its hints again if they were dropped with one that went in between."""
    marks = [_place(scope, token(scope, subject), at.key) for subject in at.subjects]
    if len((yield from scope.core.dialect.get_docs(space(scope, SUBJECTS), marks))) < len(marks):
        yield from _announce_again(scope, at.key, at.subjects)


def _announce_again(scope: Scope, key: ThreadKey, subjects: Sequence[str]) -> Op[None]:
    changes = [hint(scope, subject, key) for subject in subjects]
    if changes:
        yield from scope.core.dialect.write_docs(space(scope, SUBJECTS), changes)


def note_decider(scope: Scope, key: ThreadKey, interrupt_id: str, by: str) -> Op[None]:
    """A hint to a decision somebody is about to make: whoever decides is a person too.

    Raises:
        SubjectErasedError: They were erased.
    """
    mark = token(scope, by)
    yield from check_living(scope, {mark: by})
    yield from announce_deciders(scope, key, [(by, interrupt_id)])
    yield from check_living(scope, {mark: by})


def announce_deciders(scope: Scope, key: ThreadKey, decided: Iterable[tuple[str, str]]) -> Op[None]:
    """Write the hints that lead people to decisions of theirs in a thread."""
    changes = [decider_hint(scope, key, interrupt_id, by) for by, interrupt_id in decided]
    if changes:
        yield from scope.core.dialect.write_docs(space(scope, DECIDERS), changes)


def decider_hint(scope: Scope, key: ThreadKey, interrupt_id: str, by: str) -> DocChange:
    """What leads from a person to a decision of theirs."""
    place = _decision(scope, token(scope, by), key, interrupt_id)
    return DocChange(place, ormsgpack.packb([key.thread, interrupt_id]), scope.core.random(8))


def erased(scope: Scope, marks: Sequence[bytes]) -> Op[list[bytes]]:
    """Those of these people who were erased and not let in again."""
    if not marks:
        return []
    stones = yield from scope.core.dialect.get_docs(space(scope, TOMBSTONES), marks)
    return [stone.key for stone in stones if ormsgpack.unpackb(stone.body).get("standing")]


def _decision(scope: Scope, mark: bytes, key: ThreadKey, interrupt_id: str) -> bytes:
    short = hashlib.blake2b(interrupt_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return _place(scope, mark, key) + short


def _place(scope: Scope, mark: bytes, key: ThreadKey) -> bytes:
    return mark + scope.mark(hashlib.blake2b(key.thread, digest_size=16).digest())


def _body(subject: str, key: ThreadKey) -> bytes:
    return ormsgpack.packb([subject_key(subject), key.thread])
