"""Indexes of threads and runs: registered before the data, removed only where nobody can be about to rely on them.

Each registration of a member has another score, and a thread names the scores of its own entries. An entry is taken
out by its score, so a registration that came meanwhile stays. An entry that points nowhere is taken out behind a
fence: whoever creates the thread meanwhile finds the fence and registers again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Batch, Command, Op, Script
from stepvault.checkpointers._dialect import LISTED
from stepvault.checkpointers.redis.keys import Keys, member_of
from stepvault.checkpointers.redis.packing import thread_key, unpack_runs

_FENCE_MS = 3_600_000
_STEP = 200  # entries per batch


class Indexes:
    """The thread index and the run index of a prefix."""

    keys: Keys

    def _register(self, key: ThreadKey) -> Op[bytes]:
        member = member_of(key)
        return (yield from self._enter(self.keys.index(key.tenant, member), member))

    def _register_run(self, key: ThreadKey, run: bytes | None) -> Op[bytes]:
        if not run:
            return b""
        return (yield from self._enter(self.keys.run(key.tenant, run), member_of(key)))

    def _register_both(self, key: ThreadKey, run: bytes | None) -> Op[tuple[bytes, bytes]]:
        """A thread, and its run if it has one."""
        member = member_of(key)
        indexes = [self.keys.index(key.tenant, member), *([self.keys.run(key.tenant, run)] if run else ())]
        score, *run_score = yield Batch([Script("register", (index,), (member,)) for index in indexes])
        return score, run_score[0] if run_score else b""

    def _enter(self, index: bytes, member: bytes) -> Op[bytes]:
        (score,) = yield Batch([Script("register", (index,), (member,))])
        return score  # type: ignore[no-any-return]

    def _leave(self, tenant: bytes, gone: Iterable[tuple[bytes, bytes | None, Iterable[bytes]]]) -> Op[None]:
        """Take out the entries that deleted threads named: each one's member, its score, and its groups of runs."""
        scores: dict[bytes, list[Any]] = {}
        members: dict[bytes, list[bytes]] = {}
        for member, score, groups in gone:
            entries: list[tuple[bytes, Any]] = [(self.keys.index(tenant, member), score or 0)]
            for group in groups:
                entries += [(self.keys.run(tenant, run), at) for run, at in unpack_runs(group)]
            for index, at in entries:
                if index not in members:
                    scores[index], members[index] = [], []
                scores[index].append(at)
                members[index].append(member)
        scripts = [Script("unregister", (index,), (*scores[index], *named)) for index, named in members.items()]
        for start in range(0, len(scripts), _STEP):
            yield Batch(scripts[start : start + _STEP])

    def _sweep(self, index: bytes, entries: Sequence[tuple[bytes, int]]) -> Op[None]:
        """Take out entries that were seen to point nowhere."""
        for member, score in entries:
            address, nonce = self.keys.thread(member), os.urandom(8)
            (fenced,) = yield Batch([Script("fence", (address,), (nonce, _FENCE_MS))])
            if fenced:
                yield Batch([Script("unregister", (index,), (score, member))])
                yield Batch([Script("unfence", (address,), (nonce,))])

    def _newest(self, index: bytes, score: Any, limit: int) -> Op[list[tuple[bytes, int]]]:
        """Entries of an index, newest first, from a score on."""
        (flat,) = yield Batch([Script("newest", (index,), (score, limit))])
        return [(member, int(at)) for member, at in zip(flat[::2], flat[1::2], strict=True)]

    def _members(self, index: bytes) -> Op[list[tuple[bytes, int]]]:
        """Every entry of an index."""
        seen: dict[bytes, int] = {}
        score: Any = "+inf"
        while True:
            entries = yield from self._newest(index, score, 1000)
            fresh = [entry for entry in entries if entry[0] not in seen]
            seen.update(fresh)
            if len(entries) < 1000 or not fresh:
                return list(seen.items())
            score = entries[-1][1]

    def threads_of_runs(self, tenant: bytes, runs: Sequence[bytes]) -> Op[list[ThreadKey]]:
        found: dict[ThreadKey, None] = {}
        for run in runs:
            index = self.keys.run(tenant, run)
            entries = yield from self._members(index)
            gone = []
            for start in range(0, len(entries), _STEP):
                part = entries[start : start + _STEP]
                replies = yield Batch([Command(("HMGET", self.keys.thread(member), "id", "u")) for member, _ in part])
                for entry, (packed, uid) in zip(part, replies, strict=True):
                    if uid is None:
                        gone.append(entry)
                    else:
                        found[thread_key(packed)] = None
            yield from self._sweep(index, gone)
        return list(found)

    def tenants(self) -> Op[list[bytes]]:
        found: set[bytes] = set()
        cursor = 0
        while True:
            ((cursor, addresses),) = yield Batch(
                [Command(("SCAN", cursor, "MATCH", self.keys.thread_pattern(leads=True), "COUNT", 500))]
            )
            if addresses:
                replies = yield Batch([Command(("HMGET", address, "id", "y")) for address in addresses])
                found |= {thread_key(packed).tenant for packed, provisional in replies if packed and not provisional}
            if not cursor:
                return sorted(found)

    def spaces(self) -> Op[list[bytes]]:
        return []  # only their hashes stand in keys
        yield

    def rebuild(self) -> Op[int]:
        """Put back every missing entry by what the threads say of themselves; how many there were."""
        cursor, added = 0, 0
        tenants: set[bytes] = set()
        while True:
            ((cursor, addresses),) = yield Batch(
                [Command(("SCAN", cursor, "MATCH", self.keys.thread_pattern(), "COUNT", 500))]
            )
            for address in addresses:
                added += yield from self._rebuild_one(address, tenants)
            if not cursor:
                return added

    def _rebuild_one(self, address: bytes, tenants: set[bytes]) -> Op[int]:
        ((packed, uid, score, groups),) = yield Batch([Command(("HMGET", address, "id", "u", "i", "R"))])
        if uid is None:
            return 0
        key, member = thread_key(packed), self.keys.member_of(address)
        if key.tenant not in tenants:
            tenants.add(key.tenant)
            spaces = [self.keys.space(name + b"\0" + key.tenant) for name in LISTED]
            standing = yield Batch([Command(("EXISTS", space)) for space in spaces])
            for name in (name for name, exists in zip(LISTED, standing, strict=True) if exists):
                yield Batch([Command(("ZADD", self.keys.tenants(name), 0, key.tenant))])
        scripts = [Script("restore", (self.keys.index(key.tenant, member),), (score, member))]
        names = [f"R{k}" for k in range(1, int(groups or 0) + 1)]
        if names:
            (values,) = yield Batch([Command(("HMGET", address, *names))])
            scripts += [
                Script("restore", (self.keys.run(key.tenant, run),), (run_score, member))
                for group in values
                if group
                for run, run_score in unpack_runs(group)
            ]
        added = 0
        for start in range(0, len(scripts), _STEP):
            added += sum((yield Batch(scripts[start : start + _STEP])))
        return added
