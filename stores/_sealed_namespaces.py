"""Namespaces of a sealed store: what they are called where their names are hidden, and whose their keys are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from stepvault._core.envelope import is_sealed, key_id_of
from stepvault._core.plan import Op
from stepvault._keystore.keys import Keys
from stepvault.stores._dialect import Dialect, Find, ItemRow, Work
from stepvault.stores._sealed_items import Names, Open

_PAGE = 1000
_ABREAST = 100  # namespaces that are asked for their names at once


class Namespaces:
    """The part of `SealedDialect` for them."""

    inner: Dialect
    keys: Keys

    def _listed(self, names: Names, stored: list[bytes]) -> Op[list[bytes]]:
        """Real namespaces; where they are hidden, an item of each says what it is called."""
        if not names.hidden:
            return stored
        found: list[bytes] = []
        for at in range(0, len(stored), _ABREAST):
            found += yield from self._called(names, stored[at : at + _ABREAST])
        return sorted(found)

    def _called(self, names: Names, stored: Sequence[bytes]) -> Op[list[bytes]]:
        """What these are called. One all of whose items were sealed with destroyed keys is not there."""
        reply = yield from self.inner.work(names.tenant, Work(finds=[Find(ns, 1) for ns in stored]))
        newest = {ns: hits[0].row for ns, hits in zip(stored, reply.finds, strict=True) if hits}
        opened = yield from self._opened(names, list(newest.values()))
        whole = yield from self._unbroken(names, [ns for ns, row in newest.items() if row.ns != ns])
        found = []
        for (ns, row), entry in zip(newest.items(), opened, strict=True):
            if entry is None or (row.ns != ns and ns not in whole):
                entry = yield from self._one_in(names, ns)
            if entry is not None:
                labels = entry.row.ns.split(b"\0")[: ns.count(b"\0")]
                found.append(b"".join(label + b"\0" for label in labels))
        return found

    def _unbroken(self, names: Names, stored: Sequence[bytes]) -> Op[set[bytes]]:
        """Those of these namespaces none of whose keys was destroyed."""
        owners = {names.owner(ns): ns for ns in stored}
        sealers = (yield from self.keys.sealers(names.tenant, dict.fromkeys(owners, ()))) if owners else {}
        return {ns for owner, ns in owners.items() if not sealers[owner].keys.shredded}

    def _one_in(self, names: Names, ns: bytes) -> Op[Open | None]:
        """An item in a namespace itself that can be opened."""
        find: Find | None = Find(ns, _PAGE)
        while find is not None:
            (hits,) = (yield from self.inner.work(names.tenant, Work(finds=[find]))).finds
            opened = yield from self._opened(names, [hit.row for hit in hits if hit.row.ns == ns])
            for entry in filter(None, opened):
                return entry
            more = len(hits) == find.limit and hits[-1].row.no != find.before
            find = replace(find, before=hits[-1].row.no) if more else None
        return None

    # -- keys of namespaces

    def link(self, tenant: bytes, namespaces: Sequence[bytes], subjects: Sequence[bytes]) -> Op[None]:
        """Say whose data the keys of namespaces seal. Most are linked since their first item."""
        names = yield from self._names(tenant)
        owners = [names.owner(names.ns(ns)) for ns in namespaces]
        for subject in subjects:
            yield from self.keys.link(subject, *owners, whole=True)

    def shred_below(self, tenant: bytes, prefixes: Sequence[bytes]) -> Op[None]:
        """Destroy the keys of all namespaces below prefixes, before their items are deleted."""
        owners = yield from self.owners_below(tenant, prefixes)
        if owners:
            yield from self.keys.shred(owners)

    def owners_below(self, tenant: bytes, prefixes: Sequence[bytes]) -> Op[list[bytes]]:
        """Whose keys seal what is in namespaces below prefixes."""
        names = yield from self._names(tenant)
        stored: dict[bytes, None] = {}
        for at in range(0, len(prefixes), _ABREAST):
            asked = [names.ns(prefix) for prefix in prefixes[at : at + _ABREAST]]
            for listed in (yield from self.inner.work(tenant, Work(namespaces=asked))).namespaces:
                stored.update(dict.fromkeys(listed))
        return [names.owner(ns) for ns in stored]

    def drop_shut(self, tenant: bytes) -> Op[int]:
        """Remove rows whose key was destroyed, which nobody can read or name any more; how many there were.

        Looks at the keys of every namespace. Nothing is opened: a row says which key sealed it.
        """
        names = yield from self._names(tenant)
        (stored,) = (yield from self.inner.work(tenant, Work(namespaces=[b""]))).namespaces
        dropped = 0
        for at in range(0, len(stored), _ABREAST):
            owners = {names.owner(ns): ns for ns in stored[at : at + _ABREAST]}
            for owner, sealer in (yield from self.keys.sealers(tenant, dict.fromkeys(owners, ()))).items():
                if sealer.keys.shredded:
                    dropped += yield from self._drop_sealed_by(tenant, owners[owner], sealer.keys.shredded)
        return dropped

    def _drop_sealed_by(self, tenant: bytes, ns: bytes, keys: Collection[bytes]) -> Op[int]:
        """Remove what is in a stored namespace itself and was sealed with one of these keys."""
        find: Find | None = Find(ns, _PAGE)
        dropped = 0
        while find is not None:
            (hits,) = (yield from self.inner.work(tenant, Work(finds=[find]))).finds
            own = (hit.row for hit in hits if hit.row.ns == ns and is_sealed(hit.row.body))
            rows = [row for row in own if key_id_of(row.body) in keys]
            if rows:  # what is put meanwhile is another version, and stays
                yield from self.inner.drop(tenant, rows)
            dropped += len(rows)
            more = len(hits) == find.limit and hits[-1].row.no != find.before
            find = replace(find, before=hits[-1].row.no) if more else None
        return dropped

    def _names(self, tenant: bytes) -> Op[Names]:
        raise NotImplementedError

    def _opened(self, names: Names, rows: Sequence[ItemRow]) -> Op[list[Open | None]]:
        raise NotImplementedError
