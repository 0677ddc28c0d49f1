"""A thread that stays while a person goes: what it says of them is replaced, in its whole history, row by row.

The rows keep their places, so the thread goes on where it was. The first write of all gives the thread a new
generation: a run that has loaded it before holds the person in its memory, and its writes are refused from then on.
The name leaves the thread with the last write; an anonymising that is killed before is found and done again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from stepvault._core.chunks import ChunkRow, pack_rows
from stepvault._core.codec import unpack
from stepvault._core.knowledge import ThreadKey
from stepvault._core.metadata import tokens
from stepvault._core.plan import Atomic, Op
from stepvault._core.record import decode_record, decode_writes, encode_record, encode_writes
from stepvault._core.rows import CheckpointRow, Elements, Guard, Note, Removal, ThreadRow, WriteRow
from stepvault._core.serde.scrubbing import ASKED, ERASED, SCHEMA, Path, Scrubber
from stepvault._core.state import State
from stepvault._core.values import Decoder, refs_of
from stepvault.checkpointers._ops import effect_hints, effects, reads, subjects, transfer
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.erasing.forms import Rewriter, elements_of
from stepvault.checkpointers._ops.inbox import index
from stepvault.checkpointers._ops.inbox.entries import CLOSED, WAITING, Entry, entry_of, lenient, notes_of
from stepvault.checkpointers._ops.load import metadata_of
from stepvault.checkpointers._ops.transfer import Whole


@dataclass(frozen=True, slots=True)
class Person:
    """Whom to take out: their ids, their marks, and what stands in the place of a decider's name."""

    ids: Sequence[str]
    marks: Sequence[bytes]

    @property
    def pseudonym(self) -> str:
        """What decisions of theirs are by."""
        return subjects.pseudonym(self.marks[0])


@dataclass(frozen=True, slots=True)
class Fields:
    """Declared fields, by the end of their path, each with what takes its place (None: blanks of the same shape)."""

    values: Mapping[Path, Any] = field(default_factory=dict)

    def packed(self, scope: Scope) -> dict[Path, bytes | None]:
        """As a scrubber takes them."""
        return {path: None if value is None else scope.native.dumps(value) for path, value in self.values.items()}


def anonymise(
    scope: Scope, key: ThreadKey, thread: ThreadRow, person: Person, fields: Mapping[Path, bytes | None]
) -> Op[bool]:
    """Take a person out of a thread; False if somebody wrote to it meanwhile."""
    once = _once(scope, key, thread, person, fields)
    done = (yield Atomic(_locked(scope, key, once), "write")) if scope.core.dialect.locks else (yield from once)
    scope.core.knowledge.forget(key)
    return bool(done)


def _locked(scope: Scope, key: ThreadKey, once: Op[bool]) -> Op[bool]:
    yield from scope.core.dialect.lock(key)
    return (yield from once)


def _once(
    scope: Scope, key: ThreadKey, thread: ThreadRow, person: Person, fields: Mapping[Path, bytes | None]
) -> Op[bool]:
    whole = yield from transfer.read(scope, scope.core.dialect, key)
    if whole is None or whole.thread.rev != thread.rev:
        return False
    scrubber = Scrubber(person.ids, fields, scope.core.subject_keys)
    state = State.unpack(whole.thread.extents)
    rewriter = Rewriter(scrubber, scope.port, scope.native, elements_of(whole.chunks), state.extents.copy())
    rows = _Rows.of(scope, rewriter, whole)
    entries = [entry_of(scope, note.body) for note in whole.notes if note.key[:1] in (WAITING, CLOSED) and note.body]
    asked = [(entry, _entry(scrubber, person, entry)) for entry in entries]
    notes = [*notes_of(scope, [after for _, after in asked]), *_others(scope, scrubber, whole.notes)]
    state = replace(state, extents=rewriter.extents, scrubbed=state.scrubbed + 1)
    left = replace(state, subjects=tuple(mark for mark in state.subjects if mark not in person.marks))
    names = [Note(subjects.PREFIX + mark, None) for mark in state.subjects if mark in person.marks]
    moved = [(before, after) for before, after in asked if before.external_ref != after.external_ref]
    if moved:
        yield from index.announce(scope, key, thread.uid, thread.rev, [(None, after) for _, after in moved])
    for step in _steps(scope, whole, rows, notes, state, left, names):
        guard = Guard(key, thread, thread.uid, scope.core.random(8), b"")
        done = yield from step(guard)
        if done is None or done is False:
            return False
        thread = ThreadRow(thread.no, thread.uid, guard.rev, b"")
    yield from index.forget(scope, key, moved)
    return True


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a thread without the person."""

    checkpoints: Sequence[tuple[CheckpointRow, Sequence[bytes]]]
    writes: Sequence[WriteRow]
    elements: Mapping[int, bytes]
    before: Mapping[int, bytes]

    @classmethod
    def of(cls, scope: Scope, rewriter: Rewriter, whole: Whole) -> _Rows:
        records = [(row, decode_record(unpack(row.body))) for row, _ in whole.checkpoints]
        writes = [(row, decode_writes(unpack(row.body))) for row in whole.writes]
        rewriter.learn(item for _, record in records for item in record.forms.items())
        rewriter.learn((write.channel, write.form) for _, found in writes for write in found.writes)
        decoder = Decoder(scope.port if scope.port.flag or not scope.port.splits else lenient(), lenient(), {})
        checkpoints = []
        for row, record in records:
            record = rewriter.record(record)
            body = scope.core.codec.pack(encode_record(record), record=True)
            after = row._replace(body=body, refs=record.refs())
            checkpoints.append((after, tokens(metadata_of(record, decoder))))
        rewritten = []
        for written, found in writes:
            forms = rewriter.writes(found)
            packed = encode_writes(found.path, forms, found.tick, found.state_version)
            refs = refs_of(write.form for write in forms)
            rewritten.append(written._replace(body=scope.core.codec.pack(packed, record=True), refs=refs))
        return cls(checkpoints, rewritten, rewriter.kept, rewriter.elements)


def _steps(
    scope: Scope, whole: Whole, rows: _Rows, notes: list[Note], state: State, left: State, names: list[Note]
) -> Iterator[Any]:
    """The writes, each of which leaves a thread that can be read: elements first, what nothing needs any more last."""
    dialect, codec = scope.core.dialect, scope.core.codec
    present, gone = state.pack(), left.pack()
    yield lambda guard: dialect.put_writes(replace(guard, extents=present), Elements(), (), notes)
    both = pack_rows({**rows.before, **rows.elements}.items(), codec)
    if both:
        yield lambda guard: dialect.remove(replace(guard, extents=present), _in_place(whole.chunks, both))
    for row, found in rows.checkpoints:
        yield lambda guard, row=row, found=found: dialect.put(replace(guard, extents=present), Elements(), row, found)
    for _, group in groupby(sorted(rows.writes, key=transfer.place), transfer.place):
        some = list(group)
        yield lambda guard, some=some: dialect.put_writes(
            replace(guard, extents=present), Elements(), some, replace_rows=True
        )
    if rows.before.keys() - rows.elements.keys():
        needed = pack_rows(rows.elements.items(), codec)
        yield lambda guard: dialect.remove(replace(guard, extents=present), _in_place(both, needed))
    yield lambda guard: dialect.put_writes(replace(guard, extents=gone), Elements(), (), names)


def _in_place(before: Sequence[ChunkRow], after: Sequence[ChunkRow]) -> Removal:
    return Removal(chunks=sorted(row.no for row in before), rewritten=after)


def _others(scope: Scope, scrubber: Scrubber, notes: Sequence[Note]) -> list[Note]:
    """Effects and what runs have read, without the person."""
    found: list[Note] = []
    for note in notes:
        if note.body is None:
            continue
        if note.key[:1] == effect_hints.PREFIX:
            found.append(effects.without(scope, note, scrubber))
        elif note.key[:1] == reads.PREFIX:
            body = scrubber.payload(unpack(note.body), ("__reads__",))
            found.append(Note(note.key, scope.core.codec.pack(body)))
    return found


def _entry(scrubber: Scrubber, person: Person, entry: Entry) -> Entry:
    mine = entry.by in person.ids or entry.by == person.pseudonym
    answered = ("__resume__",)
    return replace(
        entry,
        value=scrubber.payload(entry.value, ASKED),
        schema=scrubber.payload(entry.schema, SCHEMA),
        default=entry.default and scrubber.payload(entry.default, answered),
        answer=entry.answer and scrubber.payload(entry.answer, answered),
        by=person.pseudonym if mine else entry.by,
        remark=entry.remark and (ERASED if mine else scrubber.text(entry.remark)),
        external_ref=entry.external_ref and scrubber.text(entry.external_ref),
        subjects=tuple(name for name in entry.subjects if name not in person.ids),
    )
