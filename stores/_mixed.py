"""Items while a database is being sealed or unsealed: some are plain, and with hidden names stand elsewhere.

Everything is looked for in both places: first where it comes from, for it is where it goes to before it is gone there.
Rankings read all below their prefix, whatever the index says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from stepvault._core.envelope import is_sealed
from stepvault._core.plan import Op
from stepvault.stores._dialect import Dialect, Find, Found, ItemRow, Match, Near, NewItem, Reply, Work
from stepvault.stores._sealed_items import Names, Open, in_order

T = TypeVar("T")

_PAGE = 1000


class Mixed:
    """The part of `SealedDialect` for this while."""

    inner: Dialect
    leaving: bool
    grows_plain: bool

    def _mixed(self, names: Names, work: Work) -> Op[Reply]:
        reply = Reply()
        for name in work.gets:
            reply.gets.append((yield from self._mixed_get(names, name)))
        for find in work.finds:
            reply.finds.append((yield from self._mixed_find(names, find)))
        for prefix in work.namespaces:
            reply.namespaces.append((yield from self._mixed_namespaces(names, prefix)))
        if work.puts or work.deletes:
            asked = yield from self._mixed_writes(names, work)
            yield from self.inner.work(names.tenant, asked)
            if asked.puts:
                yield from self._confirm(names, work, asked)
        return reply

    def _mixed_writes(self, names: Names, work: Work) -> Op[Work]:
        """New items in the form that will stay; the other one goes."""
        deletes = [*work.deletes, *map(names.name, work.deletes)]
        puts = work.puts if self.grows_plain else (yield from self._sealed(names, work.puts, work.people))
        if names.hidden:
            written = [(put.ns, put.key) for put in work.puts]
            deletes += map(names.name, written) if self.grows_plain else written
        return Work(puts=puts, deletes=list(dict.fromkeys(deletes)), people=self._marks(names, work.people))

    def _places(self, sealed: T, plain: T) -> list[T]:
        """Both places in the order to look at them."""
        return list(dict.fromkeys((sealed, plain) if self.leaving else (plain, sealed)))

    def _mixed_get(self, names: Names, name: tuple[bytes, bytes]) -> Op[ItemRow | None]:
        rows: list[ItemRow] = []
        for place in self._places(names.name(name), name):
            found = (yield from self.inner.work(names.tenant, Work(gets=[place]))).gets
            opened = yield from self._opened(names, [row for row in found if row])
            rows += [entry.row for entry in opened if entry]
        return max(rows, key=lambda row: row.no, default=None)

    def _mixed_find(self, names: Names, find: Find) -> Op[list[Found]]:
        if isinstance(find, (Near, Match)):
            base = Find(find.prefix, _PAGE, max_age=find.max_age)
            rows = yield from self._mixed_rows(names, base, None)
            return in_order(find, (yield from self._with_parts(names, rows)))
        until = find.offset + find.limit
        rows = yield from self._mixed_rows(names, replace(find, tokens=(), offset=0, limit=until), until)
        rows.sort(key=lambda entry: -entry.row.no)
        return [Found(entry.row) for entry in rows[find.offset : until]]

    def _mixed_rows(self, names: Names, find: Find, wanted: int | None) -> Op[list[Open]]:
        """What is below a prefix in both places, each item once; of each place as many as are wanted, or all."""
        found: dict[tuple[bytes, bytes], Open] = {}
        for prefix in self._places(names.ns(find.prefix), find.prefix):
            for entry in (yield from self._below(names, replace(find, prefix=prefix), wanted)):
                name = (entry.row.ns, entry.row.key)
                if name not in found or found[name].row.no < entry.row.no:
                    found[name] = entry
        return [entry for entry in found.values() if entry.row.ns.startswith(find.prefix)]

    def _with_parts(self, names: Names, rows: Sequence[Open]) -> Op[list[Open]]:
        """With the words and vectors of those that have them outside of their envelope, or have none."""
        outside = [entry.row for entry in rows if not entry.vectors]
        both = [
            (row, place) for row in outside for place in self._places(names.name((row.ns, row.key)), (row.ns, row.key))
        ]
        stored = [row._replace(ns=ns, key=key) for row, (ns, key) in both]
        parts: dict[int, NewItem] = {}
        for at in range(0, len(stored), _PAGE):
            for whole in (yield from self.inner.whole(self.inner.names(names.tenant, stored[at : at + _PAGE]))):
                item = whole.item
                if is_sealed(item.body):  # meanwhile, or with its vectors outside
                    item = yield from self.opened_item(names.tenant, item)
                parts[whole.no] = item
        return [_completed(entry, parts.get(entry.row.no)) for entry in rows]

    def _mixed_namespaces(self, names: Names, prefix: bytes) -> Op[list[bytes]]:
        found: set[bytes] = set()
        for place in self._places(names.ns(prefix), prefix):
            (stored,) = (yield from self.inner.work(names.tenant, Work(namespaces=[place]))).namespaces
            found.update((yield from self._listed(names, stored)))
        return sorted(ns for ns in found if ns.startswith(prefix))

    def _marks(self, names: Names, people: Sequence[bytes]) -> list[bytes]:
        raise NotImplementedError

    def _confirm(self, names: Names, work: Work, asked: Work) -> Op[None]:
        raise NotImplementedError

    def _sealed(self, names: Names, puts: Sequence[NewItem], people: Sequence[bytes] = ()) -> Op[list[NewItem]]:
        raise NotImplementedError

    def opened_item(self, tenant: bytes, item: NewItem) -> Op[NewItem]:
        raise NotImplementedError

    def _opened(self, names: Names, rows: Sequence[ItemRow]) -> Op[list[Open | None]]:
        raise NotImplementedError

    def _below(self, names: Names, find: Find, wanted: int | None) -> Op[list[Open]]:
        raise NotImplementedError

    def _listed(self, names: Names, stored: list[bytes]) -> Op[list[bytes]]:
        raise NotImplementedError


def _completed(entry: Open, item: NewItem | None) -> Open:
    if item is None:
        return entry
    return entry._replace(words=entry.words or item.words, vectors=entry.vectors or item.vectors)
