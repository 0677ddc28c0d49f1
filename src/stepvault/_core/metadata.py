"""Checkpoint metadata: what is kept of a config, how it is indexed, how it is filtered.

Each top-level scalar is indexed by equality through a token; every hit is compared again with the decoded
metadata, so a filter means the same on every backend: Python equality of top-level values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import ormsgpack
from langgraph.checkpoint.base import EXCLUDED_METADATA_KEYS

from stepvault._core.credentials import Credentials
from stepvault.errors import ConfigurationError

_ROUTED = ("source", "step", "run_id")  # columns of their own


def collect(config: Mapping[str, Any], metadata: Mapping[str, Any], denied: Credentials) -> dict[str, Any]:
    """Metadata of a checkpoint: its own, then the scalars of `config["metadata"]` and `config["configurable"]`.

    The same rule as LangGraph's helper, but text keeps its NULs, and credentials and keys that are no text are left
    out.
    """
    kept = dict(metadata)
    for source in (config.get("metadata"), config.get("configurable")):
        for key, value in (source or {}).items():
            if key in kept or not isinstance(value, (str, int, float)) or not isinstance(key, str):
                continue
            if key in EXCLUDED_METADATA_KEYS or key.startswith("__") or key in denied:
                continue
            kept[key] = value
    return kept


def tokens(metadata: Mapping[str, Any]) -> list[bytes]:
    """Index tokens of the scalars that have no column of their own; filters name keys that are text."""
    return [
        token(key, value)
        for key, value in metadata.items()
        if key not in _ROUTED and _indexable(value) and isinstance(key, str)
    ]


def token(key: str, value: Any) -> bytes:
    """Equal for Python-equal scalars (`1 == 1.0 == True`), on every backend."""
    if isinstance(value, str):
        canonical: Any = value.encode("utf-8", "surrogatepass")
    elif isinstance(value, float) and not value.is_integer():
        canonical = repr(value).encode()
    else:
        canonical = str(int(value))
    name = key.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(ormsgpack.packb([name, canonical]), digest_size=16).digest()


def _indexable(value: Any) -> bool:
    if isinstance(value, float):
        return value == value and value not in (float("inf"), float("-inf"))
    return isinstance(value, (str, int))


def check_filter(wanted: Mapping[str, Any] | None, denied: Credentials) -> dict[str, Any]:
    """A filter as a plain dict.

    Raises:
        ConfigurationError: It is no mapping, or names a key that is never stored, so it could match nothing.
    """
    if wanted is None:
        return {}
    if not isinstance(wanted, Mapping):
        raise ConfigurationError(f"filter must be a mapping, not {type(wanted).__name__}.")
    for key in wanted:
        if not isinstance(key, str):
            raise ConfigurationError(f"filter keys must be str, not {type(key).__name__}.")
        if key in denied:
            raise ConfigurationError(f"filter key {key!r} names a credential, which is never stored.")
    return dict(wanted)


def filter_tokens(wanted: Mapping[str, Any]) -> list[bytes]:
    """Tokens a checkpoint must have to match; what has none is compared after loading."""
    return [token(key, value) for key, value in wanted.items() if key not in _ROUTED and _indexable(value)]


def fully_indexed(wanted: Mapping[str, Any]) -> bool:
    """Whether the columns and tokens alone decide, up to a hash collision."""
    return all(key in _ROUTED or _indexable(value) for key, value in wanted.items())


def matches(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether decoded metadata has every wanted top-level value."""
    return all(metadata.get(key) == value for key, value in wanted.items())
