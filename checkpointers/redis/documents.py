"""Docs outside any thread: members of one sorted set per space, so that changes of several are one step."""

from __future__ import annotations

from collections.abc import Sequence

from stepvault._core.plan import Batch, Command, Op, Script
from stepvault._core.rows import Doc, DocChange, beyond
from stepvault.checkpointers._dialect import LISTED
from stepvault.checkpointers.redis.keys import Keys
from stepvault.erasure import PurgeStep
from stepvault.errors import ConfigurationError, StorageError

_PAGE = 500
_END = b"\0"
_GONE = b"\0\xff"  # a NUL inside a key, and where the doc of a key ends


class Documents:
    """See `Dialect`."""

    keys: Keys

    def docs(self, space: bytes, prefix: bytes, after: bytes, limit: int, *, oldest: bool = False) -> Op[list[Doc]]:
        low = b"[" + (_escaped(after) + _GONE if after >= prefix and after else _escaped(prefix))
        high = b"(" + beyond(_escaped(prefix)) if prefix else b"+"
        words = ("ZRANGEBYLEX", self.keys.space(space), low, high, "LIMIT", 0, limit)
        (members,) = yield Batch([Command(words)], retry=True)
        return [_doc(member) for member in members]

    def get_docs(self, space: bytes, keys: Sequence[bytes]) -> Op[list[Doc]]:
        if not keys:
            return []
        address = self.keys.space(space)
        commands = [
            Command(("ZRANGEBYLEX", address, b"[" + low, b"(" + high, "LIMIT", 0, 1)) for low, high in map(_span, keys)
        ]
        replies = yield Batch(commands, retry=True)
        return [_doc(member) for members in replies for member in members]

    def write_docs(self, space: bytes, changes: Sequence[DocChange], *, durable: bool = False) -> Op[bool]:
        if not changes:
            return True
        script = _changing(self.keys.space(space), changes)
        listing = self._listing(space) if any(change.body is not None for change in changes) else []
        # Listed again after it: a sweep may have just found the space empty.
        replies = yield Batch([*listing, script, *listing], durable=durable)
        return bool(replies[len(listing)])

    def _listing(self, space: bytes) -> list[Command]:
        """What lets a sweep find the tenant of a space."""
        name, _, tenant = space.partition(b"\0")
        return [Command(("ZADD", self.keys.tenants(name), 0, tenant))] if name in LISTED else []

    def tenants_with(self, name: bytes) -> Op[list[bytes]]:
        address, low = self.keys.tenants(name), b"-"
        found: list[bytes] = []
        while True:
            (page,) = yield Batch([Command(("ZRANGEBYLEX", address, low, b"+", "LIMIT", 0, _PAGE))])
            standing = yield from self._with_space(name, page)
            found += standing
            gone = sorted(set(page).difference(standing))
            if gone:
                yield Batch([Command(("ZREM", address, *gone))])
                for tenant in (yield from self._with_space(name, gone)):
                    yield Batch([Command(("ZADD", address, 0, tenant))])
            if len(page) < _PAGE:
                return found
            low = b"(" + page[-1]

    def _with_space(self, name: bytes, tenants: Sequence[bytes]) -> Op[list[bytes]]:
        if not tenants:
            return []
        replies = yield Batch([Command(("EXISTS", self.keys.space(name + b"\0" + tenant))) for tenant in tenants])
        return [tenant for tenant, exists in zip(tenants, replies, strict=True) if exists]

    def purge(self, *, rewrite: bool = False) -> Op[list[PurgeStep]]:
        steps = []
        for command in (("BGREWRITEAOF",), ("BGSAVE", "SCHEDULE")):
            if rewrite:
                steps.append((yield from _started(*command)))
            else:
                detail = "not asked for: vacuum=True (--vacuum) begins it, if allowed"
                steps.append(PurgeStep(f"redis {command[0]}", False, detail))
        detail = "each node has its own files; memory is reused, not cleared; SLOWLOG RESET, backups: the operator's"
        return [*steps, PurgeStep("redis other nodes, memory, slow log and backups", False, detail)]

    def reclaim(self) -> Op[None]:
        return  # memory is reused as it is
        yield

    def now(self) -> Op[int]:
        ((seconds, micros),) = yield Batch([Command(("TIME",))], retry=True)
        return int(seconds) * 1000 + int(micros) // 1000


def _changing(address: bytes, changes: Sequence[DocChange]) -> Script:
    if all(change.body is None and change.expected == b"" for change in changes):
        return Script("drop_docs", (address,), tuple(_escaped(change.key) for change in changes))
    words: list[bytes] = []
    for change in changes:
        low, high = _span(change.key)
        expected = b"-" if change.expected is None else b"=" if change.expected else b"*"
        member = b"" if change.body is None else low + _framed(change.version) + change.body
        words += (low, high, expected, change.expected or b"", member)
    return Script("write_docs", (address,), tuple(words))


def _started(*command: str) -> Op[PurgeStep]:
    name = f"redis {command[0]}"
    try:
        yield Batch([Command(command)])
    except (StorageError, ConfigurationError) as exc:
        return PurgeStep(name, False, f"{type(exc).__name__}: busy, or not allowed to this role", retryable=True)
    return PurgeStep(name, True, "begun on the node this process is connected to", retryable=True)


def _escaped(key: bytes) -> bytes:
    """A key in an order in which none is the beginning of another's member."""
    return key.replace(b"\0", _GONE)


def _span(key: bytes) -> tuple[bytes, bytes]:
    """What the member of a key begins with, and what it is smaller than."""
    escaped = _escaped(key)
    return escaped + _END, escaped + _GONE


def _framed(version: bytes) -> bytes:
    return len(version).to_bytes(2, "big") + version


def _doc(member: bytes) -> Doc:
    at = member.index(b"\0")
    while member[at + 1] == 0xFF:
        at = member.index(b"\0", at + 2)
    size = int.from_bytes(member[at + 1 : at + 3], "big")
    return Doc(member[:at].replace(_GONE, b"\0"), member[at + 3 : at + 3 + size], member[at + 3 + size :])
