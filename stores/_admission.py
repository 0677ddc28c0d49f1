"""Whether this store may use the database: sealed ones only with their keys, unsealed ones only without any.

Looked at before the first operation, and again every ten seconds: somebody may have begun to seal it, or ended.
"""

from __future__ import annotations

from typing import TypeVar

from stepvault._core.envelope import is_sealed
from stepvault._core.plan import Op
from stepvault._keystore import marker
from stepvault._keystore.marker import Marker
from stepvault.errors import ConfigurationError
from stepvault.stores import _marker
from stepvault.stores._ops.context import Core
from stepvault.stores._sealed import SealedDialect

T = TypeVar("T")


def is_due(core: Core) -> bool:
    """Whether to look (again)."""
    return core.monotonic() - core.seen.admitted > marker.RECHECK


def admitted(core: Core, op: Op[T]) -> Op[T]:
    """The operation, after a look."""
    yield from check(core)
    return (yield from op)


def check(core: Core) -> Op[None]:
    """Look at the marker of the items.

    Raises:
        ConfigurationError: They are sealed and there is no keyring; or the keyring is there and they are not sealed,
            or by the keys of another key store; or their sealing or unsealing was given up halfway.
    """
    since = core.monotonic()
    if isinstance(core.dialect, SealedDialect):
        yield from _check_sealed(core.dialect)
    else:
        found = yield from _marker.read(core.dialect)
        if found is not None and not found.is_unsealed:
            raise ConfigurationError("This store is sealed; pass keyring=. Nothing was read or changed.")
        core.seen.marks = found.opened_marks() if found is not None else None
    core.seen.admitted = since


def _check_sealed(dialect: SealedDialect) -> Op[None]:
    index = yield from dialect.keys.index()
    found = yield from _marker.read(dialect.inner)
    if found is None:
        found = yield from _first(dialect)
    yield from dialect.keys.expect(found.deployment)
    if found.is_unsealed:
        raise ConfigurationError("This store was unsealed; open it without keyring=, or seal it, see vault.seal().")
    passes = found.plain_passes(index, (yield from dialect.inner.now()))
    if found.is_leaving and not passes:
        raise ConfigurationError("This store is half unsealed and nobody goes on with it; run vault.unseal().")
    if not found.is_sealed and not passes:
        raise ConfigurationError("This store is half sealed and nobody goes on with it; run vault.seal().")
    if passes:
        yield from dialect.inner.index()  # a put has to remove vectors, which a sealed store does not have
    dialect.mixed, dialect.leaving, dialect.grows_plain = passes, found.is_leaving, found.grows_plain


def _first(dialect: SealedDialect) -> Op[Marker]:
    """Mark a database that has no items yet, or none that are not sealed."""
    rows, after = yield from dialect.inner.page(None, 1)
    while not rows and after is not None:
        rows, after = yield from dialect.inner.page(after, 1)
    if any(not is_sealed(body) for _, _, body in rows):
        raise ConfigurationError(
            "This database holds unsealed items and a keyring was given; seal it first, see vault.seal()."
        )
    found = marker.sealed((yield from dialect.keys.index()))
    yield from _marker.write(dialect.inner, found)
    return found
