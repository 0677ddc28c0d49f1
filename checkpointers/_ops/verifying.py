"""Reading everything a thread holds, so that what cannot be read is known before somebody needs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from stepvault._core.chunks import unpack_row
from stepvault._core.codec import unpack
from stepvault._core.ids import id_of, text_of
from stepvault._core.knowledge import ThreadKey
from stepvault._core.manifest import pack_runs, unpack_runs
from stepvault._core.plan import Op
from stepvault._core.record import decode_record, decode_writes
from stepvault._core.rows import CheckpointRow, Loaded, Query, WriteRow
from stepvault._core.values import LIST, Decoder, Form
from stepvault.checkpointers._ops import evolution
from stepvault.checkpointers._ops.context import Address, Scope
from stepvault.checkpointers._ops.expiry import is_over
from stepvault.checkpointers._ops.graph_facts import GraphFacts, lost_parts
from stepvault.checkpointers._ops.load import metadata_of, tuple_of
from stepvault.errors import (
    PayloadError,
    RowMismatchError,
    StateInvalidError,
    StepvaultError,
    TamperedError,
    TruncatedError,
    UnknownTypeError,
    UnsupportedFormatError,
)
from stepvault.verification import Problem, ProblemKind, VerifyReport

_PAGE = 50
_OLDER = 200  # so many older checkpoints are tried
_DAMAGE = (TruncatedError, TamperedError, RowMismatchError, UnsupportedFormatError)

T = TypeVar("T")


@dataclass(slots=True)
class _Reading:
    """One thread while it is read."""

    thread_id: str
    sound: set[int] = field(default_factory=set)  # elements of lists that were decoded
    checkpoints: int = 0
    problems: list[Problem] = field(default_factory=list)
    waiting: dict[str, list[int]] = field(default_factory=dict)  # problems by namespace that want an older checkpoint

    def failed(self, kind: ProblemKind, ns: str, checkpoint_id: str | None, reason: str) -> None:
        self.waiting.setdefault(ns, []).append(len(self.problems))
        self.problems.append(Problem(kind, self.thread_id, ns, checkpoint_id, reason))

    def passed(self, ns: str, checkpoint_id: str) -> None:
        for at in self.waiting.pop(ns, ()):
            self.problems[at] = replace(self.problems[at], nearest=checkpoint_id)


def verify_thread(scope: Scope, key: ThreadKey, facts: GraphFacts | None) -> Op[VerifyReport]:
    """Read every checkpoint and write of a thread, newest first."""
    reading = _Reading(text_of(key.thread))
    query: Query | None = Query(key.tenant, key.thread, limit=_PAGE)
    while query is not None:
        try:
            rows = yield from _rows(scope, query)
        except PayloadError as exc:
            if query.limit > 1:
                query = replace(query, limit=1)  # as far as it goes
                continue
            where = f"what is older than checkpoint {id_of(query.after[0])}" if query.after else "its newest checkpoint"
            reading.failed("thread unreadable", "", None, f"{where} cannot be read: {exc}")
            break
        for row, loaded in rows:
            if loaded is not None and loaded.thread is not None and (yield from is_over(scope.core, loaded.thread)):
                return VerifyReport()
            yield from _verify(scope, key, row, loaded, reading)
        last = rows[-1][0] if len(rows) == query.limit else None
        query = last and replace(query, after=(last.id, last.ns, key.thread))
    if facts is not None and reading.checkpoints:
        for kind, ns, checkpoint_id, reason in (yield from lost_parts(scope, key, facts)):
            reading.problems.append(Problem(kind, reading.thread_id, ns, checkpoint_id, reason))
    return VerifyReport(bool(reading.checkpoints or reading.problems), reading.checkpoints, tuple(reading.problems))


def _rows(scope: Scope, query: Query) -> Op[list[tuple[CheckpointRow, Loaded | None]]]:
    """A page of checkpoints; without what belongs to them if that cannot be opened together."""
    try:
        groups = yield from scope.core.dialect.page(query)
    except PayloadError:
        unopened = getattr(scope.core.dialect, "unopened", None)  # only what is sealed is opened before it is read
        if unopened is None:
            raise
        groups = yield from unopened(query)
        return [(row, None) for _, loaded in groups for row in loaded.checkpoints]
    return [(row, loaded) for _, loaded in groups for row in loaded.checkpoints]


def _verify(scope: Scope, key: ThreadKey, row: CheckpointRow, loaded: Loaded | None, reading: _Reading) -> Op[None]:
    ns, checkpoint_id = text_of(row.ns), id_of(row.id)
    reading.checkpoints += 1
    try:
        if loaded is None:
            loaded = yield from scope.core.dialect.load(key, row.ns, row.id, None)
        decoder, damaged = _decoder(scope, loaded)
        writes = [write for write in loaded.writes if (write.ns, write.checkpoint) == (row.ns, row.id)]
        row = next(one for one in loaded.checkpoints if (one.ns, one.id) == (row.ns, row.id))
        try:
            if scope.core.evolution:
                tuple_of(scope, key, row, writes, decoder)
            else:
                _check(row, writes, decoder, reading.sound)
        except TruncatedError as exc:
            raise damaged or exc from None
    except UnknownTypeError as exc:
        reading.failed("type not loaded", ns, checkpoint_id, str(exc))
    except StateInvalidError as exc:
        reading.failed("state invalid", ns, checkpoint_id, str(exc))
    except PayloadError as exc:
        reading.failed("unreadable", ns, checkpoint_id, str(exc))
    except StepvaultError:
        raise
    except (TypeError, ValueError, LookupError) as exc:  # parts that no writer of ours puts together
        reading.failed("unreadable", ns, checkpoint_id, f"a record is damaged ({type(exc).__name__})")
    else:
        reading.passed(ns, checkpoint_id)


def _decoder(scope: Scope, loaded: Loaded) -> tuple[Decoder, PayloadError | None]:
    """A decoder of what can be unpacked, and what is wrong with the first row that cannot."""
    elements: dict[int, bytes] = {}
    damaged: PayloadError | None = None
    for chunk in loaded.chunks:
        try:
            unpack_row(chunk, elements)
        except PayloadError as exc:
            damaged = damaged or exc
    return scope.decoder(elements), damaged


def _check(row: CheckpointRow, writes: Sequence[WriteRow], decoder: Decoder, sound: set[int]) -> None:
    """Decode everything, but an element that many checkpoints share only once."""
    record = decode_record(unpack(row.body))
    for channel, form in record.forms.items():
        try:
            _check_form(form, decoder, sound)
        except PayloadError as exc:
            exc.args = (f"channel {channel!r}: {exc}",)
            raise
    decoder.value(record.rest)
    metadata_of(record, decoder)
    for write in writes:
        for part in decode_writes(unpack(write.body)).writes:
            _check_form(part.form, decoder, sound)


def _check_form(form: Form, decoder: Decoder, sound: set[int]) -> None:
    if type(form) is not list or form[0] != LIST:
        decoder.value(form)
        return
    for first, count in unpack_runs(form[2]):
        for number in range(first, first + count):
            if number not in sound:
                decoder.value([LIST, 1, pack_runs([(number, 1)])])
                sound.add(number)


def explained(scope: Scope, at: Address, op: Op[T]) -> Op[T]:
    """A read of a checkpoint; if that is damaged, the error names it and the nearest older one that can be read."""
    try:
        return (yield from op)
    except PayloadError as exc:
        if isinstance(exc, _DAMAGE) or type(exc) is PayloadError:
            yield from _explain(scope, at, exc)
        raise


def _explain(scope: Scope, at: Address, exc: PayloadError) -> Op[None]:
    ns = evolution.stored_at(at, (yield from evolution.stored_space(scope, at))).ns
    damaged = at.checkpoint
    if damaged is None:
        newest = yield from _rows(scope, Query(at.key.tenant, at.key.thread, ns=ns, limit=1))
        damaged = newest[0][0].id if newest else None
    if damaged is None:
        return
    thread, older = text_of(at.key.thread), (yield from nearest_older(scope, at.key, ns, damaged))
    message = str(exc)
    if not message.startswith("Thread "):
        message = f"Thread {thread!r}, checkpoint {id_of(damaged)!r}: {message}"
    if message[-1:] not in ".!?":
        message += "."
    found = f"is {older!r}; repair({thread!r}, to={older!r}) goes back to it" if older else "does not exist"
    exc.args = (f"{message} The nearest older checkpoint that can be read {found}.",)


def nearest_older(scope: Scope, key: ThreadKey, ns: bytes, before: bytes | None) -> Op[str | None]:
    """The newest checkpoint of a namespace that can be read, older than a given one (None: than the head)."""
    reading = _Reading("")
    query: Query | None = Query(key.tenant, key.thread, ns=ns, before=before, limit=10)
    while query is not None and reading.checkpoints < _OLDER:
        rows = yield from _rows(scope, query)
        for row, loaded in rows:
            count = len(reading.problems)
            yield from _verify(scope, key, row, loaded, reading)
            if len(reading.problems) == count:
                return id_of(row.id)
        last = rows[-1][0] if len(rows) == query.limit else None
        query = last and replace(query, after=(last.id, last.ns, key.thread))
    return None
