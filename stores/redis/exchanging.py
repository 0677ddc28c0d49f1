"""Items in another form, with other names perhaps: moved from group to group, from slot to slot."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from stepvault._core.plan import Batch, Command, Op, Script
from stepvault.stores._dialect import ItemRow, NewItem, Whole
from stepvault.stores.redis.layout import (
    HEADER_BYTES,
    Group,
    Keys,
    group_of,
    item_id,
    pack_body,
    unpack_item,
    version_of,
)


class Version(NamedTuple):
    """One version of an item: its header is all that its writer did not say, and begins with the version's number."""

    group: Group
    id: bytes
    header: bytes


class Exchanging:
    """See `Dialect`. Names are (group, id, version), as everywhere; those of a `Whole` hold the header whole."""

    keys: Keys

    def names(self, tenant: bytes, rows: Sequence[ItemRow]) -> list[Any]:
        return [(group_of(tenant, row.ns), item_id(row.ns, row.key), version_of(row)) for row in rows]

    def whole(self, names: Sequence[Any]) -> Op[list[Whole]]:
        found = []
        for group, mine in _grouped((name[0], name[1:3]) for name in names).items():
            args = tuple(word for id_, version in mine for word in (id_, version[:8]))
            (reply,) = yield Batch([Script("whole", self.keys.group(group), args)], retry=True)
            for place, (id_, _) in enumerate(mine):
                value, vectors, words = reply[3 * place : 3 * place + 3]
                if value:
                    no, item = unpack_item(id_, value, vectors, words.decode())
                    found.append(Whole(Version(group, id_, value[:HEADER_BYTES]), no, group.tenant, item))
        return found

    def exchange(self, changes: Sequence[tuple[Whole, NewItem | None]]) -> Op[None]:
        """See `Dialect`; one that gets another name is there twice for a moment, and stays so if this is killed.

        Several may do the same at once: each says that it moves an item, and a copy goes again only when none of them
        has found it where it was.
        """
        mover = secrets.token_bytes(8)
        new = [(group_of(old.tenant, item.ns), (old.name, item)) for old, item in changes if item]
        for group, mine in _grouped(new).items():
            words: list[Any] = []
            for version, item in mine:
                id_, vectors = item_id(item.ns, item.key), b"".join(item.vectors)
                fresh = int(id_ != version.id)
                words += (id_, version.header, fresh, pack_body(item), vectors, item.words.encode())
            mortal = {group} if any(item.ttl is not None for _, item in mine) else set()
            registering = self._registering(group.tenant, [group], mortal)
            yield Batch([*registering, Script("exchange", self.keys.group(group), (mover, *words)), *registering])
        yield from self._leave(mover, changes)

    def _leave(self, mover: bytes, changes: Sequence[tuple[Whole, NewItem | None]]) -> Op[None]:
        """Remove the old ones; a copy of one that is not as it was goes instead."""
        gone: list[Version] = []
        moved: dict[Version, Version] = {}
        for old, item in changes:
            id_ = item and item_id(item.ns, item.key)
            if id_ != old.name.id:
                gone.append(old.name)
            if item and id_ != old.name.id:
                moved[old.name] = Version(group_of(old.tenant, item.ns), id_ or b"", old.name.header)
        stale = set((yield from self._drop(gone)))
        for group, mine in _grouped((there.group, (old, there)) for old, there in moved.items()).items():
            args = [word for old, there in mine for word in (there.id, there.header[:8], int(old not in stale))]
            (left,) = yield Batch([Script("settle", self.keys.group(group), (mover, *args))])
            if not left:
                yield from self._sweep_group(group, 0)

    def drop(self, tenant: bytes, rows: Sequence[ItemRow]) -> Op[None]:
        names = [Version(*name) for name in self.names(tenant, rows)]
        yield from self._drop(names)

    def _drop(self, versions: Sequence[Version]) -> Op[list[Version]]:
        """Remove versions that still are; those that are not any more."""
        left: list[Version] = []
        for group, mine in _grouped((version.group, version) for version in versions).items():
            args = tuple(word for version in mine for word in (version.id, version.header))
            (done,) = yield Batch([Script("drop", self.keys.group(group), args)])
            left += [version for version, was in zip(mine, done, strict=True) if not was]
            yield from self._sweep_group(group, 0)
        return left

    def now(self) -> Op[int]:
        ((seconds, microseconds),) = yield Batch([Command(("TIME",))], retry=True)
        return int(seconds) * 1000 + int(microseconds) // 1000

    def _registering(self, tenant: bytes, groups: Any, mortal: Any) -> list[Command | Script]:
        raise NotImplementedError

    def _sweep_group(self, group: Group, limit: int) -> Op[int]:
        raise NotImplementedError


def _grouped(pairs: Iterable[tuple[Group, Any]]) -> dict[Group, list[Any]]:
    groups: dict[Group, list[Any]] = {}
    for group, value in pairs:
        groups.setdefault(group, []).append(value)
    return groups
