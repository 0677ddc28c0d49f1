"""Items into their sealed form and back, while the app runs: the store's part of `vault.seal` and `vault.unseal`.

Page by page, each item in place of the version that was read, with its times and its place in the order. Words and
vectors move into the envelope, or out of it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from stepvault._core.blind_index import BlindIndex
from stepvault._core.envelope import is_sealed
from stepvault._core.plan import Call, Op
from stepvault._keystore import marker
from stepvault._keystore.marker import Marker
from stepvault.errors import ConfigurationError, KeyShreddedError, PayloadError
from stepvault.stores import _marker
from stepvault.stores._dialect import NewItem, Whole, is_keyed
from stepvault.stores._ops.context import Scope
from stepvault.stores._ops.filters import tokens_of
from stepvault.stores._ops.values import decode_value
from stepvault.stores._sealed import SealedDialect
from stepvault.stores._store import StoreShell

_PAGE = 100
_SWEEP = 1000


class ItemConversion:
    """One run in one direction.

    Args:
        store: A store with keys, over the database to convert; all tenants of it.
        leaving: Whether to unseal.
    """

    def __init__(self, store: StoreShell, *, leaving: bool) -> None:
        self._store = store
        self._leaving = leaving
        self._open = False
        self._known = False

    def renew(self, *, known: bool) -> Op[bool]:
        """Open the window or keep it open; False if there is nothing to do.

        Args:
            known: Whether every process must know that it is open.
        """
        self._known = known
        dialect = self._store._scope.core.dialect
        if isinstance(dialect, SealedDialect):
            self._open = yield from self._there(self._renew(dialect))
        return self._open

    def once(self) -> Op[int]:
        """Convert what is not yet; how many there were."""
        return (yield from self._there(self._once())) if self._open else 0

    def close(self) -> Op[None]:
        """Close the window."""
        if self._open:
            yield from self._there(self._close())

    def _there(self, op: Op[Any]) -> Op[Any]:
        driver = self._store._driver
        return (yield Call(lambda: driver.run(op), lambda: driver.arun(op)))

    @property
    def _sealed(self) -> SealedDialect:
        dialect = self._store._scope.core.dialect
        assert isinstance(dialect, SealedDialect)
        return dialect

    def _renew(self, dialect: SealedDialect) -> Op[bool]:
        yield from dialect.setup()
        index = yield from dialect.keys.index()
        found = yield from _marker.read(dialect.inner)
        if found is not None:
            yield from dialect.keys.expect(found.deployment)
        if not self._wanted(found):
            return False
        until = (yield from dialect.inner.now()) + marker.WINDOW
        wanted = self._marker(found)(index, until)
        yield from _marker.write(dialect.inner, wanted)
        dialect.mixed, dialect.leaving, dialect.grows_plain = True, self._leaving, wanted.grows_plain
        return True

    def _marker(self, found: Marker | None) -> Callable[[BlindIndex, int], Marker]:
        if self._leaving:
            return marker.unsealing
        before = found is None or found.is_preparing or found.is_unsealed
        return marker.preparing if before and not self._known else marker.sealing

    def _wanted(self, found: Marker | None) -> bool:
        if self._leaving:
            if found is not None and not (found.is_sealed or found.is_leaving or found.is_unsealed):
                raise ConfigurationError("This store is being sealed; let vault.seal() end before.")
            return found is not None and not found.is_unsealed
        if found is not None and found.is_leaving:
            raise ConfigurationError("This store is being unsealed; let vault.unseal() end before.")
        return found is None or not found.is_sealed

    def _close(self) -> Op[None]:
        sealed = self._sealed
        yield from self._sweep()  # what has expired is not converted
        index = yield from sealed.keys.index()
        yield from _marker.write(sealed.inner, (marker.unsealed if self._leaving else marker.sealed)(index))
        sealed.mixed = self._leaving  # whoever is in between ends in the form that he began
        self._store._scope.core.seen.admitted = float("-inf")

    def _sweep(self) -> Op[None]:
        while (yield from self._sealed.inner.sweep(_SWEEP)) >= _SWEEP:
            pass

    def _once(self) -> Op[int]:
        inner, found, after = self._sealed.inner, 0, None
        yield from self._sweep()
        if not self._leaving:
            yield from self._key_marks()
        record = yield from inner.index()
        while True:
            rows, after = yield from inner.page(after, _PAGE)
            names = [name for name, _, body in rows if is_sealed(body) == self._leaving]
            present = (yield from inner.whole(names)) if names else []
            changes = []
            for old in present:
                if is_sealed(old.item.body) != self._leaving:
                    continue  # another one that converts was faster
                changes.append((old, (yield from self._turned(old, record.dims if record else 0))))
            if changes:
                yield from inner.exchange(changes)
                yield from self._renew(self._sealed)
            found += len(changes)
            if after is None:
                return found

    def _key_marks(self) -> Op[None]:
        """Who was erased, under marks made with the key; those of an unsealed store that was sealed before are."""
        for tenant, mark in (yield from self._sealed.inner.erased()):
            if not is_keyed(mark):
                yield from self._sealed.set_erased(tenant, [self._sealed.keys.mark(tenant, mark)], erased=True)
                yield from self._sealed.inner.set_erased(tenant, [mark], erased=False)

    def _turned(self, old: Whole, dims: int) -> Op[NewItem | None]:
        if not self._leaving:
            return (yield from self._sealed.sealed_item(old.tenant, old.item))
        try:
            item = yield from self._sealed.opened_item(old.tenant, old.item)
        except KeyShreddedError:
            return None
        tokens = _tokens(replace(self._store._scope, tenant=old.tenant), item.body)
        return item._replace(tokens=tokens, vectors=_each(item.vectors, 4 * dims))


def _tokens(scope: Scope, body: bytes) -> bytes | None:
    """The tokens of a value; None, which is to look inside, of one that this process has not the class for."""
    try:
        return tokens_of(decode_value(scope, body))
    except PayloadError:
        return None


def _each(vectors: Sequence[bytes], size: int) -> list[bytes]:
    joined = b"".join(vectors)
    return [joined[at : at + size] for at in range(0, len(joined), size)] if size else []
