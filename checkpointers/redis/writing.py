"""Guarded writes: one call each, and for large ones an upload in bounded calls before it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stepvault._core.chunks import ChunkRow
from stepvault._core.knowledge import ThreadKey
from stepvault._core.manifest import first_of, page_of
from stepvault._core.plan import Batch, Op, Script
from stepvault._core.rows import CheckpointRow, Deleted, Elements, Guard, Note, Removal, ThreadRow, WriteRow
from stepvault._core.state import State
from stepvault.checkpointers._ops.waiting import sleeping
from stepvault.checkpointers.redis.indexes import Indexes
from stepvault.checkpointers.redis.keys import member_of
from stepvault.checkpointers.redis.packing import (
    bucket,
    identity,
    pack_checkpoint,
    pack_numbers,
    pack_rows,
    pack_write,
)
from stepvault.checkpointers.redis.reading import header_of
from stepvault.errors import ConflictError, StorageFullError, StorageUnavailableError

_TRIES = 16
_POLL, PATIENCE = 0.02, 60.0  # seconds: how often a writer looks whether a hold has ended, and for how long
_CALL_BYTES, _CALL_ROWS = 524_288, 256  # what one call carries
_CALL_KEYS, _CALL_PAGES, _CALL_THREADS = 256, 32, 32  # what one call removes
_UPLOAD_MS = 600_000
_SEEN = 16_384
_HEADER = 3  # of a thread that stays


@dataclass(slots=True)
class Entry:
    """What a write says of its index entries: their scores, and the fence it has seen."""

    score: bytes = b""
    run: bytes = b""
    run_score: bytes = b""
    fence: bytes = b""


class Writing(Indexes):
    """See `Dialect`."""

    def __init__(self, grace: float | None) -> None:
        self._grace = None if grace is None else int(grace * 60_000)
        self._seen: set[bytes] = set()  # threads whose index entry this process has seen to

    def put(
        self,
        guard: Guard,
        elements: Elements,
        row: CheckpointRow,
        tokens: Sequence[bytes],
        notes: Sequence[Note] = (),
    ) -> Op[Any]:
        words = [row.ns, row.id, bucket(row.ns), _time(row.created_at), pack_checkpoint(row, tokens), *_notes(notes)]
        reply = yield from self._store("put", guard, elements, row.run, words)
        return reply and self._address(guard)

    def put_writes(
        self,
        guard: Guard,
        elements: Elements,
        rows: Sequence[WriteRow],
        notes: Sequence[Note] = (),
        *,
        replace_rows: bool = False,
    ) -> Op[tuple[Any, bool] | None]:
        first = rows[0] if rows else WriteRow(b"", b"", b"", 0, None, None, None, b"")
        words: list[Any] = [first.ns, first.checkpoint, _time(first.created_at), int(replace_rows), len(rows)]
        for row in rows:
            words += (row.task, row.k, pack_write(row))
        words += _notes(notes)
        reply = yield from self._store("put_writes", guard, elements, first.run, words)
        return (self._address(guard), bool(reply[2])) if reply else None

    def _address(self, guard: Guard) -> bytes:
        return self.keys.thread(member_of(guard.key))

    def _store(
        self, script: str, guard: Guard, elements: Elements, run: bytes | None, words: list[Any]
    ) -> Op[list[Any] | None]:
        """One guarded write with its elements; None if refused."""
        entry = Entry(run=run or b"")
        if guard.thread is None:
            entry.score, entry.run_score = yield from self._register_both(guard.key, run)
        rows, staged = _divide(elements)
        try:
            if staged:
                reserved = yield from self._upload(guard, staged, entry)
                if reserved is None:
                    return None
                guard = reserved
            closed = pack_numbers(elements.closed)
            reply = yield from self._call(script, guard, entry, closed, [*words, *pack_rows(rows)])
        except StorageFullError:
            yield from self._take_back(guard, staged)
            raise
        if reply and self._address(guard) not in self._seen:
            yield from self._see(guard, reply[1])
        return reply

    def _see(self, guard: Guard, score: bytes | None) -> Op[None]:
        """On this process's first write to a thread, put its index entry back should it have been lost."""
        if guard.thread is not None and score:
            member = member_of(guard.key)
            yield Batch([Script("restore", (self.keys.index(guard.key.tenant, member),), (score, member))])
        if len(self._seen) >= _SEEN:
            self._seen.clear()
        self._seen.add(self._address(guard))

    def _call(
        self, script: str, guard: Guard, entry: Entry, closed: bytes, words: Sequence[Any]
    ) -> Op[list[Any] | None]:
        """A guarded script, registered anew as often as it asks for it; None if refused."""
        address = self._address(guard)
        tries, waited = 0, 0.0
        create, rev = guard.thread is None, guard.thread.rev if guard.thread else b""
        goes = self._goes(guard)
        keys = (address, self.keys.leads(address)) if goes else (address,)
        while tries < _TRIES:
            args = (
                int(create), guard.uid, rev, guard.rev, guard.extents, identity(guard.key) if create else b"",
                entry.score, entry.fence if create else guard.holder, entry.run, entry.run_score, closed,
                b"" if goes is None else goes, *words,
            )  # fmt: skip
            try:
                (reply,) = yield Batch([Script(script, keys, args)], durable=guard.durable)
            except StorageUnavailableError as exc:
                if not exc.parted or len(keys) == 1:
                    raise
                yield Batch([Script("unlist", (address,))], retry=True)
                keys, tries = (address,), tries + 1
                continue
            header_of(address, reply if reply[0] == b"FORMAT" else ())
            if reply[0] in (b"OK", b"DONE"):
                return reply  # type: ignore[no-any-return]
            if reply[0] == b"REFUSED":
                return None
            if reply[0] == b"HELD" and waited < PATIENCE:
                waited += (pause := min(_POLL, int(reply[1]) / 1000))
                yield sleeping(pause)
                continue
            tries += 1
            if reply[0] == b"LISTED":
                keys = (address, self.keys.leads(address))
                continue
            if reply[0] == b"FENCED":
                entry.fence = reply[1]
                entry.score = yield from self._register(guard.key)
            entry.run_score = yield from self._register_run(guard.key, entry.run)
        raise ConflictError("A thread is held or swept without pause; repeat later.")

    def _goes(self, guard: Guard) -> int | None:
        """When a thread goes by itself, see `State.goes_of`; None also where nothing does."""
        return None if self._grace is None else State.goes_of(guard.extents, self._grace)

    def _upload(self, guard: Guard, rows: list[ChunkRow], entry: Entry) -> Op[Guard | None]:
        """Take the numbers of these rows, upload them where nothing refers to them yet; None if refused.

        A crash leaves rows that no reader asks for: the thread's next write clears them away, a thread that does
        not exist yet expires.
        """
        revision = _derived(guard.rev, 0)
        pages = pack_numbers(sorted({page_of(row.no) for row in rows}))
        reserve = replace(guard, rev=revision)
        if (yield from self._call("reserve", reserve, replace(entry, run=b""), b"", (pages, _UPLOAD_MS))) is None:
            return None
        address = self._address(guard)
        for part in _portions(rows):
            args = (guard.uid, revision, _UPLOAD_MS, *pack_rows(part))
            (alive,) = yield Batch([Script("stage", (address,), args)], retry=True)
            if not alive:
                return None
        return replace(guard, thread=ThreadRow(address, guard.uid, revision, b""))

    def _take_back(self, guard: Guard, rows: list[ChunkRow]) -> Op[None]:
        """Free the memory of an upload that found it full: no later write could clear it away before."""
        pages = sorted({page_of(row.no) for row in rows})
        for start in range(0, len(pages), _CALL_PAGES):
            args = (guard.uid, _derived(guard.rev, 0), pack_numbers(pages[start : start + _CALL_PAGES]))
            yield Batch([Script("take_back", (self._address(guard),), args)], retry=True)

    # -- removing and copying

    def delete(self, key: ThreadKey, rev: bytes | None = None) -> Op[Deleted | None]:
        address = self.keys.thread(member_of(key))
        ((reply,),) = yield Batch([Script("delete", (address,), (rev or b"",), each=True)])
        if not reply:
            return Deleted() if rev is None else None
        yield from self._left(key.tenant, [address], [reply])
        return _deleted(reply)

    def delete_all(self, threads: Sequence[tuple[ThreadKey, ThreadRow]]) -> Op[list[Deleted | None]]:
        """Each by itself, but sent together."""
        if not threads:
            return []
        addresses = [row.no for _, row in threads]
        replies = yield from self._each("delete", addresses, [row.rev for _, row in threads])
        yield from self._left(threads[0][0].tenant, addresses, replies)
        return [_deleted(reply) if reply else None for reply in replies]

    def delete_of(
        self, keys: Sequence[ThreadKey], person: bytes, beside: Collection[bytes] | None
    ) -> Op[list[Deleted | ThreadRow | None]]:
        """Each by itself, but sent together."""
        if not keys:
            return []
        addresses = [self.keys.thread(member_of(key)) for key in keys]
        people = person if beside is None else person + b"".join({person, *beside})
        replies = yield from self._each("delete_of", addresses, [people] * len(keys))
        yield from self._left(keys[0].tenant, addresses, replies)
        return [
            _deleted(reply) if len(reply) > _HEADER else ThreadRow(address, *reply) if reply else None
            for address, reply in zip(addresses, replies, strict=True)
        ]

    def _each(self, name: str, addresses: Sequence[bytes], args: Sequence[bytes]) -> Op[list[Any]]:
        """What a script says of each of these threads."""
        parts = [slice(at, at + _CALL_THREADS) for at in range(0, len(addresses), _CALL_THREADS)]
        found = yield Batch([Script(name, tuple(addresses[part]), tuple(args[part]), each=True) for part in parts])
        return [reply for part in found for reply in part]

    def _left(self, tenant: bytes, addresses: Sequence[bytes], replies: Sequence[Any]) -> Op[None]:
        """After threads were deleted: take out their entries and their lists, unless those are of another by now."""
        gone = [(at, reply) for at, reply in zip(addresses, replies, strict=True) if len(reply) > _HEADER]
        yield from self._leave(tenant, [(self.keys.member_of(at), reply[1], reply[5:]) for at, reply in gone])
        lists = {self.keys.leads(at): reply[2] for at, reply in gone if reply[4]}
        if lists:
            yield from self._each("delete", [*lists], [*lists.values()])

    def remove(self, guard: Guard, removal: Removal) -> Op[bool]:
        """In bounded calls, each of which leaves a whole thread; an interrupted removal is finished by the next."""
        assert guard.thread is not None
        final = guard.rev
        checkpoints = sorted((id_, ns) for ns, id_ in removal.checkpoints)
        gone = set(removal.checkpoints)
        writes = [write for write in removal.writes if write[:2] not in gone]
        parts = (
            *({"checkpoints": piece} for piece in _pieces(checkpoints)),
            *({"writes": piece} for piece in _pieces(writes)),
            *_chunk_steps(removal),
        )
        for number, part in enumerate(parts, 1):
            step = replace(guard, rev=final if number == len(parts) else _derived(final, number))
            if (yield from self._call("remove", step, Entry(), b"", _removed(**part))) is None:
                return False
            guard = replace(guard, thread=ThreadRow(guard.thread and guard.thread.no, guard.uid, step.rev, b""))
        return True


def _deleted(reply: Sequence[Any]) -> Deleted:
    """What delete.lua says of a thread."""
    notes = reply[3]
    return Deleted(int(reply[0]), reply[2] or None, sorted(map(Note, notes[::2], notes[1::2])))


def _derived(rev: bytes, number: int) -> bytes:
    """The revision of one step of a write."""
    return hashlib.blake2b(rev + number.to_bytes(4, "big"), digest_size=8).digest()


def _time(created_at: int | None) -> Any:
    return "" if created_at is None else created_at


def _notes(notes: Sequence[Note]) -> list[Any]:
    words: list[Any] = [len(notes)]
    for note in notes:
        words += (note.key, int(note.body is not None), note.body or b"")
    return words


def _divide(elements: Elements) -> tuple[Sequence[ChunkRow], list[ChunkRow]]:
    """Rows that go with the write, and rows to upload before it: whole new pages of a write that is too large."""
    if len(elements.rows) <= _CALL_ROWS and sum(len(row.body) for row in elements.rows) <= _CALL_BYTES:
        return elements.rows, []
    opened = {page_of(row.no) for row in elements.rows if row.no == first_of(page_of(row.no))}
    fresh = opened.difference(elements.closed).union(elements.fresh)
    staged = [row for row in elements.rows if page_of(row.no) in fresh]
    return [row for row in elements.rows if page_of(row.no) not in fresh], staged


def _portions(rows: Sequence[ChunkRow], *, whole_pages: bool = False) -> list[list[ChunkRow]]:
    """Rows in portions of what one call carries."""
    portions: list[list[ChunkRow]] = []
    size = _CALL_BYTES
    for row in rows:
        full = size + len(row.body) > _CALL_BYTES or len(portions[-1]) >= _CALL_ROWS
        if not portions or (full and not (whole_pages and page_of(portions[-1][-1].no) == page_of(row.no))):
            portions.append([])
            size = 0
        portions[-1].append(row)
        size += len(row.body)
    return portions


def _pieces(items: Sequence[Any]) -> list[Sequence[Any]]:
    return [items[start : start + _CALL_KEYS] for start in range(0, len(items), _CALL_KEYS)]


def _chunk_steps(removal: Removal) -> list[dict[str, Any]]:
    """What is kept of mixed rows first, page by page: readers find each living element after every step."""
    steps: list[dict[str, Any]] = [{"rewritten": part} for part in _portions(removal.rewritten, whole_pages=True)]
    kept = {row.no for row in removal.rewritten}
    rest = [number for number in removal.chunks if number not in kept]
    return steps + [{"chunks": piece} for piece in _pieces(rest)]


def _removed(
    checkpoints: Sequence[tuple[bytes, bytes]] = (),
    writes: Sequence[tuple[bytes, bytes, bytes, int]] = (),
    chunks: Sequence[int] = (),
    rewritten: Sequence[ChunkRow] = (),
) -> list[Any]:
    """The words of remove.lua."""
    words: list[Any] = [len(checkpoints)]
    for id_, ns in checkpoints:
        words += (id_, ns, bucket(ns))
    words.append(len(writes))
    for write in writes:
        words += write
    return [*words, len(chunks), *chunks, *pack_rows(rewritten)]
