"""Reading threads: one call where it fits, bounded calls that see one state of the thread where it does not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from stepvault._core.chunks import ChunkRow
from stepvault._core.knowledge import ThreadKey
from stepvault._core.manifest import unpack_pages
from stepvault._core.plan import Batch, Command, Op, Script
from stepvault._core.rows import CheckpointRow, Held, Loaded, Note, Query, Skeleton, ThreadRow, WriteRow
from stepvault.checkpointers.redis.holding import Holds
from stepvault.checkpointers.redis.keys import Keys, member_of
from stepvault.checkpointers.redis.packing import (
    bucket,
    marks,
    pack_numbers,
    unpack_checkpoint,
    unpack_numbers,
    unpack_rows,
    unpack_writes,
)
from stepvault.errors import SchemaTooNewError

_Found: TypeAlias = "tuple[Loaded, tuple[bytes, set[int]]]"  # with the last removal, and the pages that came along

_PAGES = 64  # per call, as in _elements.lua
_ROWS = 64
_THREADS = 128


def header_of(address: bytes, reply: Sequence[Any]) -> tuple[ThreadRow, bytes] | None:
    """The thread that a reply begins with, and the revision of its last removal; None: there is none.

    Raises:
        SchemaTooNewError: A newer version wrote it.
    """
    if not reply:
        return None
    if reply[0] == b"FORMAT":
        raise SchemaTooNewError(
            f"{address.decode(errors='replace')} has format {reply[1].decode(errors='replace')}, unknown to this "
            "version; upgrade."
        )
    return ThreadRow(address, reply[1], reply[2], reply[4]), reply[3]


class Reading(Holds):
    """See `Dialect`."""

    keys: Keys

    def load(self, key: ThreadKey, ns: bytes, checkpoint: bytes | None, held: Held | None) -> Op[Loaded]:
        address = self.keys.thread(member_of(key))
        return self._steady(address, lambda: self._load(address, ns, checkpoint, held))

    def _load(self, address: bytes, ns: bytes, checkpoint: bytes | None, held: Held | None) -> Op[Loaded | None]:
        known = (held.rev, _ranges(held.pages)) if held else (b"", b"")
        (reply,) = yield Batch([Script("get", (address,), (ns, bucket(ns), checkpoint or b"", *known))], retry=True)
        if reply and reply[0] == b"SEEK":
            newest = yield from self._find(address, Query(b"", ns=ns, limit=1), "k")
            if newest is None:
                return Loaded()
            found, _ = newest
            if not found.checkpoints:
                return Loaded(found.thread)
            return (yield from self._load(address, ns, found.checkpoints[0].id, held))
        header = header_of(address, reply)
        if header is None:
            return Loaded()
        thread, removed = header
        id_, record, writes, covered, rows = reply[5:]
        loaded = Loaded(thread, [unpack_checkpoint(ns, id_, record)] if record else [])
        loaded.writes = unpack_writes(ns, id_, writes)
        have = held.pages if held and held.rev == thread.rev else frozenset[int]()
        loaded.chunks = unpack_rows(rows)
        whole = yield from self._complete(loaded, removed, set(unpack_numbers(covered)) | have)
        return loaded if whole else None

    def _complete(self, loaded: Loaded, removed: bytes, covered: set[int]) -> Op[bool]:
        """Fetch the pages that a read left out; False if they may be gone."""
        assert loaded.thread is not None
        left = [page for page in _pages((*loaded.checkpoints, *loaded.writes)) if page not in covered]
        while left:
            args = (loaded.thread.uid, removed, pack_numbers(left[:_PAGES]))
            (reply,) = yield Batch([Script("pages", (loaded.thread.no,), args)], retry=True)
            if not reply:
                return False
            got = set(unpack_numbers(reply[0]))
            left = [page for page in left if page not in got]
            loaded.chunks += unpack_rows(reply[1])
        return True

    def _find(self, address: bytes, query: Query, what: str, floor: bytes = b"") -> Op[_Found | None]:
        """The checkpoints of a thread that a query asks for; None: there is no thread. See find.lua for `what`."""
        return (yield from self._steady(address, lambda: self._find_once(address, query, what, floor)))[0]

    def _find_once(self, address: bytes, query: Query, what: str, floor: bytes) -> Op[tuple[_Found | None] | None]:
        """The same; None if something was removed from the thread meanwhile."""
        below, below_ns = _below(query)
        if query.checkpoint is not None:
            floor = query.checkpoint
            if not below or below > query.checkpoint + b"\0":
                below, below_ns = query.checkpoint + b"\0", b""
        ns = b"" if query.ns is None else b"*" + query.ns
        wanted = marks(query.source, query.step, query.run, query.tokens)
        loaded, covered, removed = Loaded(), set[int](), b""
        while True:
            limit = query.limit - len(loaded.checkpoints)
            args = (ns, below, below_ns, floor, limit, wanted, what)
            (reply,) = yield Batch([Script("find", (address,), args)], retry=True)
            header = header_of(address, reply)
            if header is None:
                return (None,)
            if loaded.thread is not None and (loaded.thread.uid, removed) != (header[0].uid, header[1]):
                return None
            loaded.thread, removed = header if loaded.thread is None else (loaded.thread, removed)
            below, below_ns, found, pages, rows = reply[5:]
            _take(loaded, found, what)
            loaded.chunks += unpack_rows(rows)
            covered |= set(unpack_numbers(pages))
            if not below or len(loaded.checkpoints) >= query.limit:
                return ((loaded, (removed, covered)),)

    def _page_of_thread(self, address: bytes, query: Query) -> Op[Loaded | None]:
        result = yield from self._find(address, query, "p")
        if result is None:
            return Loaded()
        loaded, (removed, covered) = result
        return loaded if (yield from self._complete(loaded, removed, covered)) else None

    def skeleton(self, key: ThreadKey) -> Op[Skeleton | None]:
        address = self.keys.thread(member_of(key))
        return (yield from self._steady(address, lambda: self._skeleton(address)))[0]

    def _skeleton(self, address: bytes) -> Op[tuple[Skeleton | None] | None]:
        """In bounded calls; None if the thread was written meanwhile."""
        (reply,) = yield Batch([Script("names", (address,))], retry=True)
        header = header_of(address, reply)
        if header is None:
            return (None,)
        thread = header[0]
        result = yield from self._find(address, Query(b"", limit=2**31), "r")
        if result is None or result[0].thread is None or result[0].thread.rev != thread.rev:
            return None
        found = result[0]
        known = {(row.ns, row.id) for row in found.checkpoints}
        loose = [pair for pair in map(_pair, reply[6]) if pair not in known]
        for start in range(0, len(loose), _ROWS):
            part = loose[start : start + _ROWS]
            names = [b"w" + len(ns).to_bytes(2, "big") + ns + id_ for ns, id_ in part]
            (values,) = yield Batch([Command(("HMGET", address, *names))], retry=True)
            for (ns, id_), packed in zip(part, values, strict=True):
                found.writes += unpack_writes(ns, id_, packed or b"")
        counts: list[tuple[int, int, int]] = []
        numbers = sorted(reply[5])
        for start in range(0, max(1, len(numbers)), _ROWS):
            group = numbers[start : start + _ROWS]
            (sizes,) = yield Batch([Script("counts", (address,), (thread.uid, thread.rev, *group))], retry=True)
            if not sizes:
                return None
            counts += zip(group, sizes[1::2], sizes[2::2], strict=True)
        return (Skeleton(thread, found.checkpoints, found.writes, counts),)

    def chunks(self, thread: ThreadRow, numbers: Sequence[int]) -> Op[Loaded]:
        loaded = Loaded(thread)
        for start in range(0, len(numbers), _ROWS):
            part = numbers[start : start + _ROWS]
            (values,) = yield Batch([Command(("HMGET", thread.no, *(f"b{no}" for no in part)))], retry=True)
            loaded.chunks += [
                ChunkRow(no, packed[0], packed[1:]) for no, packed in zip(part, values, strict=True) if packed
            ]
        return loaded

    def born(self, thread: ThreadRow) -> Op[int | None]:
        """See `Dialect`."""
        (created,) = yield Batch([Command(("HGET", thread.no, "t"))], retry=True)
        return None if created is None else int(created)

    def notes(self, thread: ThreadRow, prefix: bytes) -> Op[list[Note]]:
        (flat,) = yield Batch([Script("notes", (thread.no,), (thread.uid, prefix))], retry=True)
        return sorted(Note(key, body) for key, body in zip(flat[::2], flat[1::2], strict=True))

    def remains(self, keys: Sequence[ThreadKey]) -> Op[list[ThreadRow | None]]:
        """See `Dialect`; the lists are read first: a generation that is gone by then does not come back."""
        threads = [self.keys.thread(member_of(key)) for key in keys]
        found = yield from self._headers([self.keys.leads(address) for address in threads])
        listed = [at for at, row in enumerate(found) if row is not None]
        standing = yield from self._headers([threads[at] for at in listed])
        for at, thread in zip(listed, standing, strict=True):
            found[at] = found[at] if thread is None else None
        return found

    def _headers(self, addresses: Sequence[bytes]) -> Op[list[ThreadRow | None]]:
        found = yield from self._noted([(address, b"") for address in addresses])
        return [thread for thread, _ in found]

    def notes_at(self, places: Sequence[tuple[ThreadKey, bytes]]) -> Op[list[tuple[ThreadRow | None, bytes | None]]]:
        return (yield from self._noted([(self.keys.thread(member_of(key)), note) for key, note in places]))

    def _noted(self, places: Sequence[tuple[bytes, bytes]]) -> Op[list[tuple[ThreadRow | None, bytes | None]]]:
        if not places:
            return []
        addresses = [address for address, _ in places]
        notes = [b"N" + len(note).to_bytes(2, "big") + note for _, note in places]
        calls = [
            Script("headers", tuple(addresses[at : at + _THREADS]), tuple(notes[at : at + _THREADS]), each=True)
            for at in range(0, len(places), _THREADS)
        ]
        replies = [reply for part in (yield Batch(calls, retry=True)) for reply in part]
        return [
            (None, None) if uid is None or provisional else (ThreadRow(address, uid, rev, state), body)
            for address, (uid, rev, state, provisional, body) in zip(addresses, replies, strict=True)
        ]


def _below(query: Query) -> tuple[bytes, bytes]:
    """Where a list goes on: before this id and namespace."""
    below, below_ns = query.after[:2] if query.after else (b"", b"")
    if query.before is not None and (not below or query.before <= below):
        return query.before, b""
    return below, below_ns


def _take(loaded: Loaded, found: Sequence[bytes], what: str) -> None:
    if what == "k":
        for id_, ns in zip(found[::2], found[1::2], strict=True):
            loaded.checkpoints.append(CheckpointRow(ns, id_, None, None, None, None, None, None, b""))
        return
    for id_, ns, record, writes in zip(found[::4], found[1::4], found[2::4], found[3::4], strict=True):
        loaded.checkpoints.append(unpack_checkpoint(ns, id_, record))
        loaded.writes += unpack_writes(ns, id_, writes)


def _pair(name: bytes) -> tuple[bytes, bytes]:
    """Namespace and checkpoint of a field name without its first letter."""
    size = int.from_bytes(name[:2], "big")
    return name[2 : 2 + size], name[2 + size :]


def _pages(rows: Iterable[CheckpointRow | WriteRow]) -> list[int]:
    pages: dict[int, None] = {}
    for row in rows:
        for low, high in unpack_pages(row.refs):
            pages.update(dict.fromkeys(range(low, high + 1)))
    return list(pages)


def _ranges(pages: Iterable[int]) -> bytes:
    """Pages as packed ranges."""
    out: list[int] = []
    for page in sorted(pages):
        if out and out[-1] == page - 1:
            out[-1] = page
        else:
            out += [page, page]
    return pack_numbers(out)
