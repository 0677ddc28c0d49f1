"""Copying a thread, maybe to another node: as a provisional thread that counts as absent until it is complete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepvault._core.plan import Batch, Command, Op, Script
from stepvault._core.rows import Guard, Hold, ThreadRow
from stepvault.checkpointers._ops.waiting import STOPPED
from stepvault.checkpointers.redis.holding import HOLD_MS, Holds
from stepvault.checkpointers.redis.keys import member_of
from stepvault.checkpointers.redis.packing import pack_runs, unpack_runs
from stepvault.checkpointers.redis.writing import Entry, Writing
from stepvault.errors import ConflictError, StorageUnavailableError

_TRIES, _HOLD_AFTER = 16, 4  # to copy a thread that others write, and without having them wait
_LIVE_MS = 600_000
_SCAN = 100
_CALL_BYTES = 524_288
# Fields that are the copy's own, and those of a write that is under way.
_OWN = frozenset((b"v", b"u", b"r", b"e", b"x", b"id", b"i", b"t", b"m", b"y", b"f", b"g", b"G", b"z", b"k"))


class Copying(Holds, Writing):
    """See `Dialect`."""

    def copy(self, source: ThreadRow, guard: Guard) -> Op[bool]:
        entry = Entry(score=(yield from self._register(guard.key)))
        for tries in range(_TRIES):
            if (yield from self._call("open_copy", guard, entry, b"", (_LIVE_MS,))) is None:
                return False
            held = tries >= _HOLD_AFTER and (yield from self._hold(source.no, guard.uid, HOLD_MS))
            try:
                filled = yield from self._fill(source, guard)
            except STOPPED:
                yield from self._let_go(source.no, guard.uid)
                raise
            if held:
                yield from self._let_go(source.no, guard.uid)
            if filled and (yield from self._commit(guard)):
                return True
        raise ConflictError("The thread to copy is written without pause; repeat later.")

    def begin_copy(self, guard: Guard) -> Op[ThreadRow | None]:
        entry = Entry(score=(yield from self._register(guard.key)))
        if (yield from self._call("open_copy", guard, entry, b"", (_LIVE_MS,))) is None:
            return None
        return ThreadRow(self._address(guard), guard.uid, guard.rev, b"")

    def finish_copy(self, guard: Guard, hold: Hold | None = None) -> Op[bool]:
        """See `Dialect`; a copy does not live longer than the hold of its source, so it begins to count within it."""
        if hold is not None:
            words = (guard.uid, int(hold.seconds * 500))
            (alive,) = yield Batch([Script("fill_copy", (self._address(guard),), words)], retry=True)
            if not alive or not (yield from self.hold(hold, again=True)):
                return False
        return (yield from self._commit(guard))

    def _commit(self, guard: Guard) -> Op[bool]:
        address, goes = self._address(guard), self._goes(guard)
        keys = (address, self.keys.leads(address)) if goes else (address,)
        try:
            (done,) = yield Batch([Script("commit_copy", keys, (guard.uid, goes or 0))], retry=True)
        except StorageUnavailableError as exc:
            if not exc.parted or not goes:
                raise
            (done,) = yield Batch([Script("commit_copy", (address,), (guard.uid, 0))], retry=True)
        return bool(done)

    def hold(self, hold: Hold, *, again: bool = False) -> Op[bool]:
        address = self.keys.thread(member_of(hold.key))
        return (yield from self._hold(address, hold.holder, int(hold.seconds * 1000), again=again))

    def let_go(self, hold: Hold) -> Op[None]:
        yield from self._let_go(self.keys.thread(member_of(hold.key)), hold.holder)

    def _fill(self, source: ThreadRow, guard: Guard) -> Op[bool]:
        """Copy raw fields; False if the source changed meanwhile."""
        before = yield from self._revision(source)
        cursor = 0
        while True:
            ((cursor, fields),) = yield Batch([Command(("HSCAN", source.no, cursor, "COUNT", _SCAN))], retry=True)
            for part in _portions(fields):
                yield from self._registered(part, guard)
                words = [word for pair in part.items() for word in pair]
                args = (guard.uid, _LIVE_MS, *words)
                (alive,) = yield Batch([Script("fill_copy", (self._address(guard),), args)], retry=True)
                if not alive:
                    return False
            if not cursor:
                return before[0] is not None and before == (yield from self._revision(source))

    def _revision(self, source: ThreadRow) -> Op[list[bytes | None]]:
        (found,) = yield Batch([Command(("HMGET", source.no, "u", "r"))], retry=True)
        return found  # type: ignore[no-any-return]

    def _registered(self, fields: dict[bytes, bytes], guard: Guard) -> Op[None]:
        """Enter the copy under the runs it holds, before it can be seen."""
        for name, value in fields.items():
            if name[:1] == b"R" and len(name) > 1:
                runs = []
                for run, _ in unpack_runs(value):
                    runs.append((run, int((yield from self._register_run(guard.key, run)))))
                fields[name] = pack_runs(runs)


def _portions(fields: Mapping[bytes, Any]) -> list[dict[bytes, bytes]]:
    portions: list[dict[bytes, bytes]] = []
    size = _CALL_BYTES
    for name, value in fields.items():
        if name in _OWN:
            continue
        if size + len(value) > _CALL_BYTES:
            portions.append({})
            size = 0
        portions[-1][name] = value
        size += len(value)
    return portions
