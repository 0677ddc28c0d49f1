"""What a thread read of the store beside it: noted with its writes, and kept alive while it waits for a human.

A vault tells a saver of its store, and the store of its saver (`Beside`, and `_beside.py` of each); neither knows the
other otherwise. Without a vault, nothing here costs anything.

An item with a time to live that a thread has read is pinned before the thread's interrupt is stored: a doc in the
space `pins` says by whom, then the item loses its deadline. When the thread waits no more, its docs go, and an item
that no other thread has pinned gets a full time to live. Who is killed in between leaves a doc; the next sweep looks
whether its thread still waits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import ormsgpack

from stepvault._core.codec import unpack
from stepvault._core.ids import text_of
from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.reads import Read
from stepvault._core.rows import Doc, DocChange, Elements, Guard, Note
from stepvault._core.state import State
from stepvault.checkpointers._ops.context import Address, Scope, thread_of
from stepvault.checkpointers._ops.expiry import MINUTE, db_now
from stepvault.checkpointers._ops.inbox.entries import Entry
from stepvault.checkpointers._ops.spaces import drop_docs, space

T = TypeVar("T")

PREFIX = b"v"
PINS = "pins"
ASKED, INSIDE, DONE = "?", ">", ""
_PAGE = 200
_GRACE = 10 * MINUTE  # a pin is older than the interrupt it is for


Name = tuple[tuple[str, ...], str]


class Beside(Protocol):
    """The store beside a saver."""

    def pin(self, tenant: bytes, names: Sequence[Name], *, pinned: bool) -> Op[None]:
        """Take the deadlines of items, or give them back."""
        ...

    def forget(self, tenant: bytes, thread_ids: Sequence[str]) -> Op[int]:
        """Remove the own memory of threads; how many items there were."""
        ...

    def forget_before(self, tenant: bytes, thread_id: str, before: int) -> Op[None]:
        """Remove of a thread's own memory what was written before a time (milliseconds)."""
        ...


@dataclass(slots=True)
class Along:
    """What a write takes along: notes of what was read. Then: whether the thread waits, or has just ended waiting."""

    notes: Sequence[Note] = ()
    waits: bool = False
    settled: bool = False
    announced: list[Entry] = field(default_factory=list)  # to the inbox, for this write

    def moved(self, before: State, after: State) -> None:
        """Note what a stored write made of the thread's state."""
        self.waits, self.settled = bool(after.pending), bool(before.pending and not after.pending)


@dataclass(frozen=True, slots=True)
class Noted:
    """A note, read.

    Attributes:
        key: Of the note.
        at: When it was written, in milliseconds.
        by: The root checkpoint it was written with; `ASKED`: with a question to a human; `INSIDE`: with a checkpoint of
            a subgraph; `DONE`: with the result of a task.
        reads: What was read.
    """

    key: bytes
    at: int
    by: str
    reads: list[Read]


def along(scope: Scope, at: Address, by: str, write: Callable[[Along], Op[T]]) -> Op[T]:
    """A write that notes what its thread has read since the last one; `by` as in `Noted`."""
    beside, reads = scope.core.wired.store, scope.core.wired.reads
    if beside is None:
        return (yield from write(Along()))
    taken = reads.take(at.key)
    try:
        carried = Along((yield from _notes(scope, taken, by)))
        if by == ASKED:
            yield from _pin(scope, beside, at.key)
        result = yield from write(carried)
    except BaseException:
        reads.add(at.key, taken)
        raise
    finally:
        reads.noted(at.key, taken)
    if carried.waits and by != ASKED:  # a task beside the one that asks
        yield from pin(scope, beside, at.key, [read.name for read in taken if read.mortal])
    if carried.settled:
        yield from _release(scope, beside, [(at.key, name) for name in _mortal((yield from noted(scope, at.key)))])
    return result


def _notes(scope: Scope, taken: list[Read], by: str) -> Op[list[Note]]:
    """One note for each checkpoint they were read at, under a key of its own: writes of parallel tasks add up."""
    if not taken:
        return []
    now = yield from db_now(scope.core)
    by_checkpoint: dict[str, list[Any]] = {}
    for read in taken:
        by_checkpoint.setdefault(read.checkpoint, []).append([*_spelled(read.name), read.updated_at, read.mortal])
    return [
        Note(PREFIX + scope.core.random(12), scope.core.codec.pack(_packed([checkpoint, now, by, found])))
        for checkpoint, found in by_checkpoint.items()
    ]


def _packed(parts: Any) -> bytes:
    return ormsgpack.packb(parts)


def noted(scope: Scope, key: ThreadKey) -> Op[list[Noted]]:
    """Every note of a thread on what it read."""
    thread = yield from thread_of(scope, key)
    if thread is None:
        return []
    return read_of((yield from scope.core.dialect.notes(thread, PREFIX)))


def read_of(notes: Iterable[Note]) -> list[Noted]:
    """Those of a thread's notes that say what it read."""
    found = []
    for note in notes:
        if note.key[:1] == PREFIX and note.body is not None:
            checkpoint, at, by, items = ormsgpack.unpackb(unpack(note.body))
            reads = [Read(*_named(item), item[2], item[3], checkpoint) for item in items]
            found.append(Noted(note.key, at, by, reads))
    return found


def _mortal(notes: Iterable[Noted]) -> list[Name]:
    return list(dict.fromkeys(read.name for note in notes for read in note.reads if read.mortal))


# -- pins


def _pin(scope: Scope, beside: Beside, key: ThreadKey) -> Op[None]:
    """Pin what the thread has read: first what is being stored, then what is, so that nothing falls in between."""
    names = [read.name for read in scope.core.wired.reads.under_way(key) if read.mortal]
    yield from pin(scope, beside, key, [*names, *_mortal((yield from noted(scope, key)))])


def pin(scope: Scope, beside: Beside, key: ThreadKey, names: Iterable[Name]) -> Op[None]:
    """Keep items from expiring for a thread that waits."""
    listed = list(dict.fromkeys(names))
    if not listed:
        return
    now = yield from db_now(scope.core)
    changes = [DocChange(_place(scope, key, name), _packed([key.thread, now, *_spelled(name)]), scope.core.random(8))
               for name in listed]  # fmt: skip
    yield from scope.core.dialect.write_docs(space(scope, PINS), changes)
    yield from beside.pin(scope.tenant, listed, pinned=True)


def _release(scope: Scope, beside: Beside, pinned: Sequence[tuple[ThreadKey, Name]]) -> Op[None]:
    """Give items back that threads had pinned, unless another thread has pinned them too."""
    if not pinned:
        return
    yield from drop_docs(scope, PINS, [_place(scope, key, name) for key, name in pinned])
    names = list(dict.fromkeys(name for _, name in pinned))
    others = yield from _pinned(scope, names)
    free = [name for name in names if name not in others]
    if free:
        yield from beside.pin(scope.tenant, free, pinned=False)
    again = yield from _pinned(scope, free)  # by another thread at this very moment
    if again:
        yield from beside.pin(scope.tenant, list(again), pinned=True)


def _pinned(scope: Scope, names: Iterable[Name]) -> Op[set[Name]]:
    """Which of these any thread has pinned."""
    found = set()
    for name in names:
        if (yield from scope.core.dialect.docs(space(scope, PINS), _item_mark(scope, name), b"", 1)):
            found.add(name)
    return found


def _place(scope: Scope, key: ThreadKey, name: Name) -> bytes:
    thread = hashlib.blake2b(key.thread, digest_size=16).digest()
    return _item_mark(scope, name) + scope.mark(thread)[:16]


def _item_mark(scope: Scope, name: Name) -> bytes:
    return scope.mark(hashlib.blake2b(_packed(_spelled(name)), digest_size=16).digest())[:16]


def _spelled(name: Name) -> list[Any]:
    """A name as msgpack can hold it: labels may have lone surrogates."""
    return [[label.encode("utf-8", "surrogatepass") for label in name[0]], name[1].encode("utf-8", "surrogatepass")]


def _named(spelled: Sequence[Any]) -> Name:
    return tuple(text_of(label) for label in spelled[0]), text_of(spelled[1])


def heal(scope: Scope) -> Op[None]:
    """Drop the pins of threads that wait no more."""
    beside = scope.core.wired.store
    after = b""
    while beside is not None:
        docs = yield from scope.core.dialect.docs(space(scope, PINS), b"", after, _PAGE)
        for doc in docs:
            yield from _heal(scope, beside, doc)
        if len(docs) < _PAGE:
            return
        after = docs[-1].key


def drop_pins(scope: Scope, is_gone: Callable[[Sequence[str]], bool]) -> Op[None]:
    """Drop the pins of items whose namespaces are gone, which name them."""
    if scope.core.wired.store is None:
        return
    after = b""
    while True:
        docs = yield from scope.core.dialect.docs(space(scope, PINS), b"", after, _PAGE)
        gone = [doc.key for doc in docs if is_gone(_named(ormsgpack.unpackb(doc.body)[2:])[0])]
        if gone:
            changes = [DocChange(key, None, b"") for key in gone]
            yield from scope.core.dialect.write_docs(space(scope, PINS), changes)
        if len(docs) < _PAGE:
            return
        after = docs[-1].key


def _heal(scope: Scope, beside: Beside, doc: Doc) -> Op[None]:
    thread, at, *spelled = ormsgpack.unpackb(doc.body)
    if at + _GRACE > (yield from db_now(scope.core)):
        return
    key = ThreadKey(scope.tenant, thread)
    row = yield from thread_of(scope, key)
    if row is None or not State.unpack(row.extents).pending:
        yield from _release(scope, beside, [(key, _named(spelled))])


# -- the end of a thread, or of a part of it


def forget(scope: Scope, key: ThreadKey, notes: Iterable[Note] = ()) -> Op[None]:
    """A thread is gone: so are its memory and its pins. Must not be called inside a transaction."""
    yield from forget_all(scope, [(key, notes)])


def forget_all(scope: Scope, gone: Sequence[tuple[ThreadKey, Iterable[Note]]]) -> Op[int]:
    """The same for several threads; how many items there were."""
    beside = scope.core.wired.store
    if beside is None or not gone:
        return 0
    for key, _ in gone:
        scope.core.wired.reads.noted(key, scope.core.wired.reads.take(key))
    items: int = yield from beside.forget(scope.tenant, [text_of(key.thread) for key, _ in gone])
    yield from _release(scope, beside, [(key, name) for key, notes in gone for name in _mortal(read_of(notes))])
    return items


def forget_before(scope: Scope, key: ThreadKey, before: int) -> Op[None]:
    """A thread begins anew after its time was over: its older memory is gone. Not inside a transaction."""
    beside = scope.core.wired.store
    if beside is not None:
        scope.core.wired.reads.noted(key, scope.core.wired.reads.take(key))
        yield from beside.forget_before(scope.tenant, text_of(key.thread), before)


def pin_copy(scope: Scope, key: ThreadKey) -> Op[None]:
    """A copy that waits keeps what its original read."""
    beside = scope.core.wired.store
    if beside is None:
        return
    row = yield from thread_of(scope, key)
    if row is not None and State.unpack(row.extents).pending:
        yield from _pin(scope, beside, key)


def trim(scope: Scope, key: ThreadKey, checkpoints: Iterable[str]) -> Op[None]:
    """Drop the notes on reads at checkpoints that were taken out, unless somebody writes at this very moment."""
    lost = set(checkpoints)
    if scope.core.wired.store is None or not lost:
        return
    thread = yield from thread_of(scope, key)
    if thread is None:
        return
    notes = read_of((yield from scope.core.dialect.notes(thread, PREFIX)))
    gone = [Note(note.key, None) for note in notes if note.reads and note.reads[0].checkpoint in lost]
    if gone:
        guard = Guard(key, thread, thread.uid, scope.core.random(8), thread.extents)
        yield from scope.core.dialect.put_writes(guard, Elements(), (), gone)
