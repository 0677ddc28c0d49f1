"""The keys of a saver: beside its rows, or in a database of their own."""

from __future__ import annotations

import importlib
import os
import time
from typing import Any

from stepvault._core.key_cache import KeyCache
from stepvault._keystore.keys import Keys
from stepvault._keystore.store import KeyStore
from stepvault.checkpointers._dialect import Dialect
from stepvault.encryption import Keyring
from stepvault.errors import ConfigurationError

_BACKENDS = {
    "sqlite": ("stepvault.checkpointers.sqlite", "SqliteSaver"),
    "memory": ("stepvault.checkpointers.sqlite", "SqliteSaver"),
    "postgresql": ("stepvault.checkpointers.postgres", "PostgresSaver"),
    "postgres": ("stepvault.checkpointers.postgres", "PostgresSaver"),
    **dict.fromkeys(("redis", "rediss", "unix", "valkey", "valkeys"), ("stepvault.checkpointers.redis", "RedisSaver")),
}


def keys_of(dialect: Dialect, keyring: Keyring | None, url: str | None) -> Keys | None:
    """The keys that a saver seals with; None without a keyring.

    Raises:
        ConfigurationError: A `keys_url` without a keyring, or one that names no backend.
    """
    if keyring is None:
        if url is not None:
            raise ConfigurationError("keys_url needs a keyring=.")
        return None
    if not isinstance(keyring, Keyring):
        raise ConfigurationError(f"keyring must be a stepvault.encryption.Keyring, not {type(keyring).__name__}.")
    cache = KeyCache(time.monotonic)
    if url is None:
        return Keys(KeyStore(dialect, os.urandom), keyring.wrapper(), cache, os.urandom)
    saver = _saver(url)
    store = KeyStore(saver._core.dialect, os.urandom, durable=True)
    return Keys(store, keyring.wrapper(), cache, os.urandom, elsewhere=saver._driver)


def _saver(url: str) -> Any:
    """A saver of the backend that a URL names; backends are only known here by their names."""
    scheme = url.partition("://")[0].split("+")[0]
    if scheme not in _BACKENDS:
        raise ConfigurationError(
            f"keys_url begins with none of {', '.join(f'{name}://' for name in sorted(_BACKENDS))}."
        )
    module, name = _BACKENDS[scheme]
    return getattr(importlib.import_module(module), name).from_conn_string(url)
