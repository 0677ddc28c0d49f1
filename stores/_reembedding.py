"""New vectors for sealed items: each is opened, and sealed again with other vectors in it, in place of its version.

A sealed item keeps all the rest, its times and its place in the order too, and the data key it has: whoever was erased
meanwhile gets no new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepvault._core import identity
from stepvault._core.plan import Op
from stepvault._keystore.keys import Keys
from stepvault.errors import ConfigurationError, KeyShreddedError
from stepvault.stores._dialect import Dialect, NewItem, Whole
from stepvault.stores._sealed_items import Names, packed, unpacked


class Reembedding:
    """The part of `SealedDialect` that a reindex asks."""

    inner: Dialect
    keys: Keys
    mixed: bool
    _plain_vectors: bool

    def page(self, after: Any, limit: int) -> Op[tuple[list[tuple[Any, str | None, bytes]], Any]]:
        """See `Dialect`; opened. What was sealed with a key that was destroyed is left out."""
        self._check_whole()
        rows, following = yield from self.inner.page(after, limit)
        found = []
        for whole in (yield from self.inner.whole([name for name, _, _ in rows])):
            try:
                item = yield from self.opened_item(whole.tenant, whole.item)
            except KeyShreddedError:
                continue
            found.append(((whole.name, _place(whole)), item.fields, item.body))
        return found, following

    def set_vectors(self, vectors: Sequence[tuple[Any, Sequence[bytes]]]) -> Op[None]:
        """See `Dialect`."""
        self._check_whole()
        new = {place: found for (_, place), found in vectors}
        changes = []
        for whole in (yield from self.inner.whole([name for (name, _), _ in vectors])):
            item = yield from self._with(whole, new[_place(whole)])
            if item is not None:
                changes.append((whole, item))
        if changes:
            yield from self.inner.exchange(changes)

    def _with(self, whole: Whole, vectors: Sequence[bytes]) -> Op[NewItem | None]:
        """An item with other vectors; None if its key was destroyed."""
        item = whole.item
        if self._plain_vectors:
            return item._replace(vectors=vectors)
        names = yield from self._names(whole.tenant)
        sealer = yield from self.keys.sealer(whole.tenant, names.owner(item.ns), [item.body])
        name = identity.item(b"value", item.ns, item.key)
        try:
            inside, body = unpacked(sealer.open(name, item.body))
            sealed = sealer.seal(name, packed(inside._replace(vectors=vectors), body))
        except KeyShreddedError:
            return None
        return item._replace(vectors=(), body=sealed)

    def _check_whole(self) -> None:
        if self.mixed:
            raise ConfigurationError("This store is being sealed or unsealed; reindex it when that has ended.")

    def _names(self, tenant: bytes) -> Op[Names]:
        raise NotImplementedError

    def opened_item(self, tenant: bytes, item: NewItem) -> Op[NewItem]:
        raise NotImplementedError


def _place(whole: Whole) -> tuple[bytes, bytes, bytes]:
    """Where a version is, whose name may hold what moves, as a deadline does."""
    return whole.tenant, whole.item.ns, whole.item.key
