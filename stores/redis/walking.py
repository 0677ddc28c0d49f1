"""Reading below a prefix: group by group, in calls that look at a bounded number of items."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from typing import Any

from stepvault._core.plan import Batch, Command, Op, Script
from stepvault.stores._dialect import Find, Found, ItemRow, Match, Near
from stepvault.stores._ops.ranking import VectorCache, by_words, nearest
from stepvault.stores.redis.layout import Group, Keys, group_of, is_within_group, item_id, unpack

_LOOK = 2000  # items one call looks at: some milliseconds of the server
_ABREAST = 100  # calls in one round trip
_IDS = 500  # ids in one call
_DOUBLE = struct.Struct(">d")


class Walking:
    """Searches and listings."""

    def __init__(self, keys: Keys, cache_bytes: int) -> None:
        self.keys = keys
        self.cache = VectorCache(cache_bytes)

    def groups(self, tenant: bytes, prefix: bytes) -> Op[list[Group]]:
        """The groups that can have items below a prefix."""
        if is_within_group(prefix):
            return [group_of(tenant, prefix)]
        low, high = (b"[" + prefix, b"(" + prefix + b"\xff") if prefix else (b"-", b"+")
        (members,) = yield Batch([Command(("ZRANGEBYLEX", self.keys.registry(tenant), low, high))], retry=True)
        return [Group(tenant, labels) for labels in members]

    def _walk(self, name: str, tenant: bytes, find: Find, wanted: int, words: Sequence[str] = ()) -> Op[list[Any]]:
        """Every reply of a walking script over the groups of a prefix, each with its group."""
        replies: list[Any] = []
        left = [(group, f"={find.before}" if find.before is not None else "") for group in
                (yield from self.groups(tenant, find.prefix))]  # fmt: skip
        missing = dict.fromkeys((group for group, _ in left), wanted)
        while left:
            now, left = left[:_ABREAST], left[_ABREAST:]
            age = -1 if find.max_age is None else find.max_age
            calls = []
            for group, before in now:
                args = (find.prefix, before, age, _LOOK, missing[group], len(find.tokens), *find.tokens, *words)
                calls.append(Script(name, self.keys.group(group), args))
            answers = yield Batch(calls, retry=True)
            for (group, _), (*rows, cursor) in zip(now, answers, strict=True):
                replies.append((group, rows))
                missing[group] -= len(rows) // 2
                if cursor and missing[group] > 0:
                    left.append((group, cursor.decode()))
        return replies

    def find(self, tenant: bytes, find: Find) -> Op[list[Found]]:
        """Rows of a search."""
        if isinstance(find, Near):
            return (yield from self._near(tenant, find))
        if isinstance(find, Match):
            return (yield from self._match(tenant, find))
        wanted = find.limit + find.offset
        if not find.limit:
            return []
        rows: list[ItemRow] = []
        for _, flat in (yield from self._walk("find", tenant, find, wanted)):
            rows += [unpack(id_, value).row for id_, value in zip(flat[::2], flat[1::2], strict=True)]
        rows.sort(key=lambda row: (-row.no, row.ns, row.key))
        return [Found(row) for row in rows[find.offset : wanted]]

    # -- ranked

    def _near(self, tenant: bytes, find: Near) -> Op[list[Found]]:
        versions = []
        for group, flat in (yield from self._walk("versions", tenant, find, 2**53)):
            versions += [(group, id_, no) for id_, no in zip(flat[::2], flat[1::2], strict=True)]
        missing = self.cache.missing(versions)
        if missing:
            self.cache.add(len(find.vector) // 4, (yield from self._vectors(missing)))
        ranked = self.cache.nearest(versions, find.vector, find.distance, find.limit)
        if ranked is None:
            found = yield from self._vectors(versions)
            ranked = nearest(found, find.vector, find.distance, find.limit)
        return (yield from self._rows([(versions[place], score) for place, score in ranked]))

    def _vectors(self, versions: Sequence[Any]) -> Op[list[tuple[Any, bytes]]]:
        found: list[tuple[Any, bytes]] = []
        calls, asked = [], []
        for group, mine in _by_group(versions).items():
            for start in range(0, len(mine), _IDS):
                part = mine[start : start + _IDS]
                args = [word for _, id_, no in part for word in (id_, no)]
                calls.append(Script("vectors", self.keys.group(group), tuple(args)))
                asked.append(part)
        for start in range(0, len(calls), _ABREAST):
            replies = yield Batch(calls[start : start + _ABREAST], retry=True)
            for part, vectors in zip(asked[start:], replies, strict=False):
                found += zip(part, vectors, strict=True)
        return found

    def _match(self, tenant: bytes, find: Match) -> Op[list[Found]]:
        if not find.words:
            return []
        held, items, length = [], 0, 0
        for group, flat in (yield from self._walk("match", tenant, find, 2**53, find.words)):
            *triples, seen, words = flat
            items, length = items + seen, length + words
            for id_, no, text in zip(triples[::3], triples[1::3], triples[2::3], strict=True):
                held.append(((group, id_, no), Counter(text.decode().split())))
        held.sort(key=lambda one: one[0][2], reverse=True)
        return (yield from self._rows(by_words(find.words, held, items, length)[: find.limit]))

    def _rows(self, ranked: Sequence[tuple[Any, float]]) -> Op[list[Found]]:
        """The rows of versions with their scores; what was written or removed meanwhile is left out."""
        rows = yield from self._get([(version[0], version[1]) for version, _ in ranked])
        return [
            Found(row, score)
            for (version, score), row in zip(ranked, rows, strict=True)
            if row is not None and _no(version) == row.no
        ]

    def _get(self, names: Sequence[tuple[Group, bytes]]) -> Op[list[ItemRow | None]]:
        """Rows by group and id."""
        calls, asked = self.get_calls(names)
        replies: list[Any] = []
        for start in range(0, len(calls), _ABREAST):
            replies += yield Batch(calls[start : start + _ABREAST], retry=True)
        return got(asked, replies, len(names))

    def get_calls(self, names: Sequence[tuple[Group, bytes]]) -> tuple[list[Script], list[list[tuple[int, bytes]]]]:
        """The calls that read ids, and which places of the list each is for."""
        places: dict[Group, list[tuple[int, bytes]]] = {}
        for place, (group, id_) in enumerate(names):
            places.setdefault(group, []).append((place, id_))
        calls, asked = [], []
        for group, mine in places.items():
            for start in range(0, len(mine), _IDS):
                part = mine[start : start + _IDS]
                calls.append(Script("get", self.keys.group(group), tuple(id_ for _, id_ in part)))
                asked.append(part)
        return calls, asked

    def namespaces(self, tenant: bytes, prefix: bytes) -> Op[list[bytes]]:
        """Namespaces below a prefix, in order."""
        found: set[bytes] = set()
        left = [(group, 0) for group in (yield from self.groups(tenant, prefix))]
        while left:
            now, left = left[:_ABREAST], left[_ABREAST:]
            calls = [Script("namespaces", self.keys.group(group), (prefix, rank, 5 * _LOOK)) for group, rank in now]
            answers = yield Batch(calls, retry=True)
            for (group, _), (*names, rank) in zip(now, answers, strict=True):
                found.update(names)
                if rank >= 0:
                    left.append((group, rank))
        return sorted(found)


def _by_group(versions: Sequence[Any]) -> dict[Group, list[Any]]:
    groups: dict[Group, list[Any]] = {}
    for version in versions:
        groups.setdefault(version[0], []).append(version)
    return groups


def _no(version: Any) -> int:
    return int(_DOUBLE.unpack(version[2])[0])


def got(asked: Sequence[list[tuple[int, bytes]]], replies: Sequence[Any], count: int) -> list[ItemRow | None]:
    """The replies of `get` calls, in the order of the names."""
    rows: list[ItemRow | None] = [None] * count
    for part, values in zip(asked, replies, strict=True):
        for (place, id_), value in zip(part, values, strict=True):
            rows[place] = unpack(id_, value).row if value else None
    return rows


def name_of(tenant: bytes, ns: bytes, key: bytes) -> tuple[Group, bytes]:
    """The group and id of an item."""
    return group_of(tenant, ns), item_id(ns, key)
