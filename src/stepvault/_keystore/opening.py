"""A key store in a database of its own, by its URL. Backends are only known here by their names."""

from __future__ import annotations

import importlib
import os
import time
from typing import Any

from stepvault._core.key_cache import KeyCache
from stepvault._keystore.keys import Keys
from stepvault._keystore.store import Docs, KeyStore
from stepvault.encryption import Keyring
from stepvault.errors import ConfigurationError

_SQLITE = ("stepvault.checkpointers.sqlite", "SqliteSaver")
_POSTGRES = ("stepvault.checkpointers.postgres", "PostgresSaver")
_REDIS = ("stepvault.checkpointers.redis", "RedisSaver")
_BACKENDS = {"sqlite": _SQLITE, "memory": _SQLITE, "postgresql": _POSTGRES, "postgres": _POSTGRES}
_BACKENDS |= dict.fromkeys(("redis", "rediss", "unix", "valkey", "valkeys"), _REDIS)


def checked(keyring: Any) -> Keyring:
    """A `keyring=` option.

    Raises:
        ConfigurationError: It is none.
    """
    if not isinstance(keyring, Keyring):
        raise ConfigurationError(f"keyring must be a stepvault.encryption.Keyring, not {type(keyring).__name__}.")
    return keyring


def keys_beside(docs: Docs, keyring: Keyring) -> Keys:
    """Keys in the database that operations run on."""
    return Keys(KeyStore(docs, os.urandom), keyring.wrapper(), KeyCache(time.monotonic), os.urandom)


def keys_at(url: str, keyring: Keyring) -> Keys:
    """Keys in the database of a URL, which is opened on first use.

    Raises:
        ConfigurationError: It names no backend.
    """
    scheme = url.partition("://")[0].split("+")[0]
    if scheme not in _BACKENDS:
        raise ConfigurationError(f"keys_url begins with none of {', '.join(f'{name}://' for name in _BACKENDS)}.")
    module, name = _BACKENDS[scheme]
    saver = getattr(importlib.import_module(module), name).from_conn_string(url)
    store = KeyStore(saver._core.dialect, os.urandom, durable=True)
    return Keys(store, keyring.wrapper(), KeyCache(time.monotonic), os.urandom, elsewhere=saver._driver)
