"""Removing threads whole: a lock on each first, see `queries.sql`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from psycopg.types.numeric import Int8

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Atomic, Batch, Op, Stmt
from stepvault._core.rows import Deleted, Note, ThreadRow
from stepvault.checkpointers._locking import Locking
from stepvault.checkpointers._removal import is_theirs
from stepvault.errors import StorageUnavailableError

_TOGETHER = 20_000  # checkpoints that one transaction removes with their threads


class Removing(Locking):
    """See `Dialect`."""

    def delete(self, key: ThreadKey, rev: bytes | None = None) -> Op[Deleted | None]:
        names = {"tenant": key.tenant, "thread": key.thread}
        lock = self._stmt("lock_thread", **names) if rev is None else self._stmt("lock_thread_at", rev=rev, **names)
        batch = [Stmt(lock.sql, lock.args, guard=True), self._stmt("delete_thread", **names)]
        replies = yield Batch(batch, retry=True)
        if len(replies) < 2:
            return Deleted() if rev is None else None
        rows = replies[1]
        count, uid, *_ = rows[0]
        return Deleted(count, uid, [Note(*row[2:]) for row in rows if row[2] is not None])

    def delete_all(self, threads: Sequence[tuple[ThreadKey, ThreadRow]]) -> Op[list[Deleted | None]]:
        """In transactions of bounded size: a statement that takes long ends by its timeout, and never comes further."""
        if not threads:
            return []
        sizes = dict((yield from self._ask("sizes", numbers=[Int8(row.no) for _, row in threads])))
        found: list[Deleted | None] = []
        while len(found) < len(threads):
            end = first = len(found)
            total = 0
            while end < len(threads) and (end == first or total + sizes[threads[end][1].no] <= _TOGETHER):
                total += sizes[threads[end][1].no]
                end += 1
            found += yield from self._delete_together([row for _, row in threads[first:end]])
        return found

    def _delete_together(self, threads: Sequence[ThreadRow]) -> Op[list[Deleted | None]]:
        args = {"numbers": [Int8(row.no) for row in threads], "revs": [row.rev for row in threads]}
        lock = self._stmt("lock_threads_at", **args)
        replies = yield Batch([Stmt(lock.sql, lock.args, guard=True), self._stmt("delete_threads", **args)], retry=True)
        gone = _gone(replies[1]) if len(replies) > 1 else {}
        return [gone.get(row.no) for row in threads]

    def delete_of(
        self, keys: Sequence[ThreadKey], person: bytes, beside: Collection[bytes] | None
    ) -> Op[list[Deleted | ThreadRow | None]]:
        """In one transaction, if it is not too large and nobody disturbs it."""
        if not keys:
            return []
        try:
            found = yield Atomic(self._delete_of(keys, person, beside), "write")
        except StorageUnavailableError as exc:
            if not exc.repeat:
                raise
            found = None
        return (yield from super().delete_of(keys, person, beside)) if found is None else found

    def _delete_of(
        self, keys: Sequence[ThreadKey], person: bytes, beside: Collection[bytes] | None
    ) -> Op[list[Deleted | ThreadRow | None] | None]:
        """See `delete_of`; None if it is too large."""
        found: list[Deleted | ThreadRow | None] = [None] * len(keys)
        places: dict[int, int] = {}
        rows = yield from self._ask("lock_threads", tenant=keys[0].tenant, threads=[key.thread for key in keys])
        for i, *row in rows:
            thread = found[i - 1] = ThreadRow(*row)
            if is_theirs(thread, person, beside):
                places[thread.no] = i - 1
        if places:
            numbers = [Int8(no) for no in places]
            rows = yield from self._ask("delete_locked", numbers=numbers, limit=Int8(_TOGETHER))
            if not rows:
                return None
            for no, gone in _gone(rows).items():
                found[places[no]] = gone
        return found

    def _stmt(self, query: str, /, **args: Any) -> Stmt:
        raise NotImplementedError

    def _ask(self, query: str, /, **args: Any) -> Op[list[Any]]:
        raise NotImplementedError


def _gone(rows: Sequence[Any]) -> dict[int, Deleted]:
    """What threads were, by their numbers."""
    notes: dict[int, list[Note]] = {}
    gone: dict[int, Deleted] = {}
    for no, count, uid, key, body in rows:
        if no not in gone:
            gone[no] = Deleted(count, uid, notes.setdefault(no, []))
        if key is not None:
            notes[no].append(Note(key, body))
    return gone
