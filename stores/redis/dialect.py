"""The storage primitives on Redis: Lua for each write, groups of items in one slot each."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from stepvault._core.plan import Batch, Command, Op, Script
from stepvault.errors import ConfigurationError, StorageError, SubjectErasedError
from stepvault.stores._dialect import NOBODY, Find, IndexRecord, ItemRow, NewItem, Removed, Reply, Work
from stepvault.stores.redis.exchanging import Exchanging
from stepvault.stores.redis.layout import (
    Group,
    Keys,
    group_of,
    item_id,
    pack_body,
    pack_member,
    unpack,
    unpack_member,
    version_of,
)
from stepvault.stores.redis.walking import Walking, got, name_of

_PAGE = 1000
_ABREAST = 250  # groups in one batch
_REFUSED = b"ERASED"

logger = logging.getLogger("stepvault")


class RedisDialect(Exchanging, Walking):
    """See `Dialect`.

    The writes of a batch are atomic within one group, not across groups: they can lie on different servers.
    """

    automatic_setup = True

    # -- settings

    def setup(self) -> Op[None]:
        """Look at the server's settings; there is nothing to create.

        Raises:
            ConfigurationError: The server may evict items when its memory is full.
        """
        try:
            (replies,) = yield Batch([Command(("CONFIG GET", "maxmemory*"))])
        except (ConfigurationError, StorageError) as exc:
            yield Batch([Command(("PING",))])  # raises where more is wrong than that settings may not be read
            logger.warning("CONFIG cannot be read (%s); make sure that maxmemory-policy is noeviction.", exc)
            return
        for reply in [replies] if isinstance(replies, dict) else replies:
            policy, bound = reply.get("maxmemory-policy", "noeviction"), reply.get("maxmemory", "0")
            advice = f"maxmemory-policy is {policy}: Redis may evict memories. Set it to noeviction."
            if policy.startswith("allkeys") and bound != "0" and not self.allow_eviction:
                raise ConfigurationError(f"{advice} allow_eviction=True accepts the loss.")
            if policy != "noeviction":
                logger.warning("%s", advice)

    def __init__(self, prefix: str, cache_bytes: int, *, allow_eviction: bool = False) -> None:
        super().__init__(Keys(prefix), cache_bytes)
        self.allow_eviction = allow_eviction

    def snapshot(self, op: Op[Any]) -> Op[Any]:
        return (yield from op)

    def transaction(self, op: Op[Any]) -> Op[Any]:
        return (yield from op)

    # -- one batch

    def work(self, tenant: bytes, work: Work) -> Op[Reply]:
        reply = Reply()
        for find in work.finds:
            reply.finds.append((yield from self.find(tenant, find)))
        for prefix in work.namespaces:
            reply.namespaces.append((yield from self.namespaces(tenant, prefix)))
        if work.people and not work.puts:
            members = [_member(tenant, mark) for mark in work.people]
            (found,) = yield Batch([Command(("SMISMEMBER", self.keys.erased()[0], *members))], retry=True)
            if any(found):
                raise SubjectErasedError
        calls, asked = self.get_calls([name_of(tenant, *name) for name in work.gets])
        batch = [*calls, *self._writes(tenant, work.puts, work.deletes, work.people)]
        if batch:
            replies = yield Batch(batch, retry=not (work.puts or work.deletes))
            reply.gets = got(asked, replies[: len(calls)], len(work.gets))
            if _REFUSED in replies[len(calls) :]:
                for group in {group_of(tenant, put.ns) for put in work.puts}:
                    yield from self._sweep_group(group, 0)  # it was registered, and may be empty
                raise SubjectErasedError
        return reply

    def _writes(
        self,
        tenant: bytes,
        puts: Sequence[NewItem],
        deletes: Sequence[tuple[bytes, bytes]],
        people: Sequence[bytes],
    ) -> list[Command | Script]:
        """One script per group, between two registrations.

        Whoever takes an empty group out of the registry meanwhile takes out the first one, or sees the items. Each
        script looks for the people of all: so none of them writes, unless they are erased in just this moment.
        """
        marks = [_member(tenant, mark) for mark in people]
        gone: dict[Group, list[bytes]] = {}
        for ns, key in deletes:
            gone.setdefault(group_of(tenant, ns), []).append(item_id(ns, key))
        new: dict[Group, list[Any]] = {}
        for put in puts:
            words = (
                item_id(put.ns, put.key), -1 if put.ttl is None else repr(put.ttl), pack_body(put),
                b"".join(put.vectors), put.words.encode(),
            )  # fmt: skip
            new.setdefault(group_of(tenant, put.ns), []).extend(words)
        mortal = {group_of(tenant, put.ns) for put in puts if put.ttl is not None}
        registering = self._registering(tenant, new, mortal)
        scripts = []
        for group in dict.fromkeys([*gone, *new]):
            ids = gone.get(group, [])
            args = (len(marks), *marks, len(ids), *ids, *new.get(group, ()))
            scripts.append(Script("write", self.keys.written(group), args))
        return [*registering, *scripts, *registering]

    def _registering(self, tenant: bytes, groups: Any, mortal: Any) -> list[Command | Script]:
        commands: list[Command | Script] = []
        if groups:
            members = [word for group in groups for word in (0, group.labels)]
            commands.append(Command(("ZADD", self.keys.registry(tenant), *members)))
        if mortal:
            commands.append(Command(("SADD", self.keys.mortal, *sorted(map(pack_member, mortal)))))
        return commands

    def set_erased(self, tenant: bytes, marks: Sequence[bytes], *, erased: bool) -> Op[None]:
        members = [_member(tenant, mark) for mark in marks]
        name = "SADD" if erased else "SREM"
        yield Batch([Command((name, key, *members)) for key in self.keys.erased()], retry=True)

    def erased(self) -> Op[list[tuple[bytes, bytes]]]:
        found: dict[bytes, None] = {}
        for members in (yield Batch([Command(("SMEMBERS", key)) for key in self.keys.erased()], retry=True)):
            found.update(dict.fromkeys(members))
        return [_parted(member) for member in found]

    # -- lifetime

    def touch(self, tenant: bytes, rows: Sequence[ItemRow]) -> Op[None]:
        pairs: dict[Group, list[bytes]] = {}
        for row in rows:
            pairs.setdefault(group_of(tenant, row.ns), []).extend((item_id(row.ns, row.key), version_of(row)))
        yield Batch([Script("touch", self.keys.group(group), tuple(flat)) for group, flat in pairs.items()])

    def pin(self, tenant: bytes, names: Sequence[tuple[bytes, bytes]], *, pinned: bool) -> Op[None]:
        ids: dict[Group, list[bytes]] = {}
        for ns, key in names:
            ids.setdefault(group_of(tenant, ns), []).append(item_id(ns, key))
        mortal = [] if pinned else [Command(("SADD", self.keys.mortal, *sorted(map(pack_member, ids))))]
        scripts = [Script("pin", self.keys.group(group), (int(pinned), *found)) for group, found in ids.items()]
        yield Batch([*mortal, *scripts, *mortal])

    def delete_below(self, tenant: bytes, prefixes: Sequence[bytes]) -> Op[Removed]:
        places: list[tuple[bytes, Group, int]] = []
        for prefix in prefixes:
            places += [(prefix, group, 0) for group in (yield from self.groups(tenant, prefix))]
        items = vectors = 0
        while places:
            now, places = places[:_ABREAST], places[_ABREAST:]
            calls = [Script("remove", self.keys.group(group), (prefix, rank, _PAGE)) for prefix, group, rank in now]
            empty: list[Group] = []
            for (prefix, group, _), (live, embedded, rank, left) in zip(now, (yield Batch(calls)), strict=True):
                items, vectors = items + live, vectors + embedded
                if rank >= 0:
                    places.append((prefix, group, rank))
                elif not left:
                    empty.append(group)
            yield from self._deregister(tenant, empty)
        self.cache.clear()
        return Removed(items, vectors)

    def _deregister(self, tenant: bytes, groups: Sequence[Group]) -> Op[None]:
        """Take empty groups out of the registry; those back in that have items after all."""
        if not groups:
            return
        registry = self.keys.registry(tenant)
        (known,) = yield Batch([Command(("ZREM", registry, *(group.labels for group in groups)))])
        if not known:
            return
        counts = yield Batch([Command(("ZCARD", self.keys.group(group)[1])) for group in groups])
        back = [word for group, count in zip(groups, counts, strict=True) if count for word in (0, group.labels)]
        if back:
            yield Batch([Command(("ZADD", registry, *back))])

    def sweep(self, limit: int) -> Op[int]:
        total = 0
        cursor: bytes | None = b"0"
        while cursor is not None:
            groups, cursor = yield from self._mortal(cursor)
            total += yield from self._sweep_groups(groups, limit)
        return total

    def _sweep_group(self, group: Group, limit: int) -> Op[int]:
        return (yield from self._sweep_groups([group], limit))

    def _sweep_groups(self, groups: Sequence[Group], limit: int) -> Op[int]:
        replies = yield from self._in_each(groups, "sweep", limit)
        yield from self._rest([group for group, reply in zip(groups, replies, strict=True) if not reply[1]])
        empty: dict[bytes, list[Group]] = {}
        for group, (_, _, left) in zip(groups, replies, strict=True):
            if not left:
                empty.setdefault(group.tenant, []).append(group)
        for tenant, found in empty.items():
            yield from self._deregister(tenant, found)
        return sum(removed for removed, _, _ in replies)

    def overdue(self) -> Op[int]:
        total = 0
        cursor: bytes | None = b"0"
        while cursor is not None:
            groups, cursor = yield from self._mortal(cursor)
            total += sum((yield from self._in_each(groups, "overdue")))
        return total

    def _mortal(self, cursor: bytes) -> Op[tuple[list[Group], bytes | None]]:
        """Some of the groups that have deadlines, and where to go on."""
        ((following, members),) = yield Batch([Command(("SSCAN", self.keys.mortal, cursor, "COUNT", _PAGE))])
        return list(map(unpack_member, members)), following if int(following) else None

    def _in_each(self, groups: Sequence[Group], script: str, *args: Any) -> Op[list[Any]]:
        return (yield Batch([Script(script, self.keys.group(group), args) for group in groups])) if groups else []

    def _rest(self, groups: Sequence[Group]) -> Op[None]:
        """Take groups without deadlines out of those that have some; back in if they have one after all."""
        if groups:
            yield Batch([Command(("SREM", self.keys.mortal, *map(pack_member, groups)))])
            counts = yield Batch([Command(("ZCARD", self.keys.group(group)[2])) for group in groups])
            again = [pack_member(group) for group, count in zip(groups, counts, strict=True) if count]
            if again:
                yield Batch([Command(("SADD", self.keys.mortal, *again))])

    # -- vector index

    def index(self) -> Op[IndexRecord | None]:
        (values,) = yield Batch([Command(("HMGET", self.keys.index, "dims", "distance", "model", "ready"))], retry=True)
        if values[0] is None:
            return None
        dims, distance, model, ready = values
        return IndexRecord(int(dims), distance.decode(), model.decode(), ready == b"1")

    def make_index(self, record: IndexRecord) -> Op[None]:
        yield from self.finish_index(record)

    def finish_index(self, record: IndexRecord) -> Op[None]:
        values = ("dims", record.dims, "distance", record.distance, "model", record.model, "ready", int(record.ready))
        yield Batch([Command(("HSET", self.keys.index, *values))])
        self.cache.clear()

    def page(self, after: Any, limit: int) -> Op[tuple[list[tuple[Any, str | None, bytes]], Any]]:
        groups, before = after or ((yield from self._all_groups()), None)
        if not groups:
            return [], None
        find = Find(prefix=groups[0].labels, limit=limit, before=before)
        call = Script("find", self.keys.group(groups[0]), (
            b"", "" if find.before is None else str(find.before), -1, _PAGE, limit, 0,
        ))  # fmt: skip
        ((*flat, cursor),) = yield Batch([call], retry=True)
        rows = []
        for id_, value in zip(flat[::2], flat[1::2], strict=True):
            stored = unpack(id_, value)
            rows.append(((groups[0], id_, version_of(stored.row)), stored.fields, stored.row.body))
        following = (groups, int(cursor)) if cursor else (groups[1:], None)
        return rows, following if following[0] else None

    def _all_groups(self) -> Op[list[Group]]:
        found, cursor = [], 0
        while True:
            command = Command(("SCAN", cursor, "MATCH", self.keys.registries(), "COUNT", _PAGE))
            (reply,) = yield Batch([command])
            cursor, registries = int(reply[0]), reply[1]
            for tenant in map(self.keys.tenant_of, registries):
                found += (yield from self.groups(tenant, b"")) if tenant != NOBODY else []
            if not cursor:
                return list(dict.fromkeys(found))

    def set_vectors(self, vectors: Sequence[tuple[Any, Sequence[bytes]]]) -> Op[None]:
        triples: dict[Group, list[bytes]] = {}
        for (group, id_, version), found in vectors:
            triples.setdefault(group, []).extend((id_, version, b"".join(found)))
        if triples:
            yield Batch([Script("set_vectors", self.keys.group(g), tuple(flat)) for g, flat in triples.items()])
        self.cache.clear()


def _member(tenant: bytes, mark: bytes) -> bytes:
    return len(mark).to_bytes(1, "big") + mark + tenant


def _parted(member: bytes) -> tuple[bytes, bytes]:
    end = 1 + member[0]
    return member[end:], member[1:end]
