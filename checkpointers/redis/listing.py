"""Lists and overviews: of one thread from its own index, of all threads through the thread index."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Batch, Op, Script
from stepvault._core.rows import Loaded, Query, ThreadSummary, WriteRow
from stepvault.checkpointers.redis.indexes import Indexes
from stepvault.checkpointers.redis.keys import member_of
from stepvault.checkpointers.redis.packing import bucket, thread_key, unpack_writes
from stepvault.checkpointers.redis.reading import Reading
from stepvault.errors import ConflictError, StorageCorruptError

_INTERRUPT = -3  # `k` of an interrupt, as LangGraph numbers it
_ATTEMPTS = 8  # each with four times as many to spare
_SHIFT = 128  # a cursor is the score of an entry, then its member
_TOP = "+inf"

Place = tuple[bytes, bytes, bytes]  # checkpoint id, namespace, thread: the order of a list


class Listing(Reading, Indexes):
    """See `Dialect`."""

    def page(self, query: Query) -> Op[list[tuple[ThreadKey, Loaded]]]:
        if query.thread is None:
            for tries in range(_ATTEMPTS):
                found = yield from self._everywhere(query, spare=4**tries - 1)
                if found is not None:
                    return found
            raise ConflictError("Threads are removed without pause; repeat later.")
        key = ThreadKey(query.tenant, query.thread)
        address = self.keys.thread(member_of(key))
        loaded = yield from self._steady(address, lambda: self._page_of_thread(address, query))
        return [(key, loaded)] if loaded.checkpoints else []

    def _everywhere(self, query: Query, spare: int) -> Op[list[tuple[ThreadKey, Loaded]] | None]:
        """The newest over all threads; None if more than so many to spare were removed before they could be read."""
        best: list[Place] = []  # a heap of the newest so far
        most, count = query.limit + spare, 0
        for index in self.keys.indexes(query.tenant):
            entries = yield from self._members(index)
            gone = []
            for entry in entries:
                floor = best[0][0] if len(best) >= most else b""
                found = yield from self._places(entry[0], replace(query, limit=most), floor)
                if found is None:
                    gone.append(entry)
                    continue
                for place in found:
                    if len(best) < most:
                        heapq.heappush(best, place)
                    else:
                        heapq.heappushpop(best, place)
            yield from self._sweep(index, gone)
        groups: list[tuple[ThreadKey, Loaded]] = []
        for id_, ns, thread in sorted(best, reverse=True):
            key = ThreadKey(query.tenant, thread)
            loaded = yield from self.load(key, ns, id_, None)
            if not loaded.checkpoints:
                continue
            if count == query.limit:
                break
            count += 1
            if groups and groups[-1][0] == key:
                _merge(groups[-1][1], loaded)
            else:
                groups.append((key, loaded))
        return groups if count == query.limit or len(best) < most else None

    def _places(self, member: bytes, query: Query, floor: bytes) -> Op[list[Place] | None]:
        """The checkpoints of one thread that a list may show; None: there is no such thread."""
        address = self.keys.thread(member)
        (reply,) = yield Batch([Script("identity", (address,))], retry=True)
        if not reply:
            return None
        thread = thread_key(reply[0]).thread
        found = yield from self._find(address, replace(query, after=_after(query, thread)), "k", floor)
        rows = found[0].checkpoints if found else []
        return [(row.id, row.ns, thread) for row in rows]

    # -- overview

    def threads(self, tenant: bytes, limit: int, after: Any) -> Op[list[ThreadSummary]]:
        found: list[ThreadSummary] = []
        while len(found) < limit:
            entries = yield from self._latest(tenant, limit - len(found), after)
            if not entries:
                break
            scripts = [Script("summary", (self.keys.thread(member),), (bucket(b""),)) for _, member, _ in entries]
            replies = yield Batch(scripts, retry=True)
            for (index, member, score), reply in zip(entries, replies, strict=True):
                after = score << _SHIFT | int.from_bytes(member, "big")
                if not reply:
                    yield from self._sweep(index, [(member, score)])
                elif reply[0]:
                    found.append(_sound(self.keys.thread(member), after, reply))
        return found

    def _latest(self, tenant: bytes, limit: int, after: int | None) -> Op[list[tuple[bytes, bytes, int]]]:
        """Entries of the whole thread index, newest first, beyond a cursor."""
        score: Any = _TOP if after is None else after >> _SHIFT
        found: list[tuple[int, bytes, bytes]] = []
        for index in self.keys.indexes(tenant):
            extra = 0
            while True:
                entries = yield from self._newest(index, score, limit + extra)
                left = [e for e in entries if after is None or (e[1] << _SHIFT | int.from_bytes(e[0], "big")) < after]
                if len(left) >= limit or len(entries) < limit + extra:
                    break
                extra += limit  # entries of one microsecond
            found += [(at, member, index) for member, at in left]
        return [(index, member, at) for at, member, index in heapq.nlargest(limit, found)]


def _after(query: Query, thread: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Where a list over all threads goes on within one of them: at its cursor only if the thread comes later."""
    if query.after is None:
        return None
    id_, ns, last = query.after
    return (id_, ns + b"\0" if thread < last else ns, b"")


def _merge(into: Loaded, loaded: Loaded) -> None:
    into.checkpoints += loaded.checkpoints
    into.writes += loaded.writes
    numbers = {chunk.no for chunk in into.chunks}
    into.chunks += [chunk for chunk in loaded.chunks if chunk.no not in numbers]


def _sound(address: bytes, no: int, reply: Sequence[Any]) -> ThreadSummary:
    try:
        return _summary(no, reply)
    except (ValueError, struct.error) as exc:
        raise StorageCorruptError(
            f"The header of the thread at {address.decode(errors='replace')} is damaged; restore it from a backup, or "
            "remove it."
        ) from exc


def _summary(no: int, reply: Sequence[Any]) -> ThreadSummary:
    packed, created, updated, count, head, writes, size, state = reply
    waits = _interrupted(unpack_writes(b"", head, writes))
    return ThreadSummary(
        no,
        thread_key(packed).thread,
        int(created),
        int(updated),
        None,
        None,
        head or None,
        int(count),
        size,
        waits,
        state,
    )


def _interrupted(writes: Iterable[WriteRow]) -> bool:
    """Whether a task waits for a human: it has an interrupt and nothing else."""
    rows = list(writes)
    done = {row.task for row in rows if row.k >= 0}
    return any(row.k == _INTERRUPT and row.task not in done for row in rows)
