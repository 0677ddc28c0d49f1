"""Whether this process may use the database: sealed ones only with their keys, unsealed ones only without any.

A doc says what the database is. It is looked at before the first operation, and again every ten seconds: somebody may
have begun to seal it, or ended.
"""

from __future__ import annotations

from stepvault._core.plan import Op
from stepvault._core.rows import DocChange
from stepvault._keystore import marker
from stepvault._keystore.keys import Keys
from stepvault._keystore.marker import MARKER_KEY, MARKER_SPACE, Marker
from stepvault.checkpointers._ops.context import Core
from stepvault.checkpointers._ops.spaces import is_of_tenant
from stepvault.errors import ConfigurationError


def is_due(core: Core) -> bool:
    """Whether to look (again)."""
    return core.monotonic() - core.tables.admitted > marker.RECHECK


def check(core: Core) -> Op[None]:
    """Look at the marker of the database.

    Raises:
        ConfigurationError: It is sealed and there is no keyring; or the keyring is there and it is not sealed, or
            by the keys of another key store; or its sealing or unsealing was given up halfway.
        WrongKeyError, KeyNotFoundError, KeyUnavailableError: The keyring does not open the key store.
    """
    since = core.monotonic()
    found = yield from read(core)
    if core.keys is None:
        if found is not None and not found.is_unsealed:
            raise ConfigurationError("This database is sealed; pass keyring=. Nothing was read or changed.")
        core.tables.marks = found.opened_marks() if found is not None else None
    else:
        yield from _check_sealed(core, core.keys, found)
    core.tables.admitted = since


def read(core: Core) -> Op[Marker | None]:
    """The marker of the database; None: it is not sealed."""
    docs = yield from core.dialect.get_docs(MARKER_SPACE, [MARKER_KEY])
    return Marker.of(docs[0]) if docs else None


def _check_sealed(core: Core, keys: Keys, found: Marker | None) -> Op[None]:
    if keys.elsewhere is not None and not core.tables.ready:
        yield from keys.at(keys.store.setup())
    if found is None:
        if (yield from core.dialect.tenants()) or any(map(is_of_tenant, (yield from core.dialect.spaces()))):
            raise ConfigurationError(
                "This database holds unsealed threads and a keyring was given; seal it first, see vault.seal()."
            )
        index = yield from keys.index()
        change = DocChange(MARKER_KEY, marker.sealed(index).body(), core.random(8), None)
        yield from core.dialect.write_docs(MARKER_SPACE, [change], durable=True)
        found = yield from read(core)
        assert found is not None
    yield from keys.expect(found.deployment)
    if found.is_unsealed:
        raise ConfigurationError("This database was unsealed; open it without keyring=, or seal it, see vault.seal().")
    index = yield from keys.index()
    passes = found.window is not None and found.plain_passes(index, (yield from core.dialect.now()))
    if found.is_leaving and not passes:
        raise ConfigurationError("This database is half unsealed and nobody goes on with it; run vault.unseal().")
    if found.window is not None and not passes:
        raise ConfigurationError("This database is half sealed and nobody goes on with it; run vault.seal().")
    keys.accept_plain, keys.leaving, keys.grows_plain = passes, found.is_leaving, found.grows_plain
