"""The keys of a saver: beside its rows, or in a database of their own."""

from __future__ import annotations

from stepvault._keystore.keys import Keys
from stepvault._keystore.opening import checked, keys_at, keys_beside
from stepvault.checkpointers._dialect import Dialect
from stepvault.encryption import Keyring
from stepvault.errors import ConfigurationError


def keys_of(dialect: Dialect, keyring: Keyring | None, url: str | None) -> Keys | None:
    """The keys that a saver seals with; None without a keyring.

    Raises:
        ConfigurationError: A `keys_url` without a keyring, or one that names no backend.
    """
    if keyring is not None:
        return keys_beside(dialect, checked(keyring)) if url is None else keys_at(url, checked(keyring))
    if url is not None:
        raise ConfigurationError("keys_url needs a keyring=.")
    return None
