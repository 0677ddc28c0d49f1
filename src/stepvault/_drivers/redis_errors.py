"""redis-py's errors as ours, each with what to do. Messages name the key, never a value."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions

from stepvault.errors import (
    ConfigurationError,
    StorageCorruptError,
    StorageError,
    StorageFullError,
    StorageReadOnlyError,
    StorageUnavailableError,
)

# redis-py makes classes of some codes and takes those out of the text; Redis 6.2 wraps errors of scripts in a
# sentence. So either the class or the code anywhere in the text decides.
_UNAVAILABLE: dict[tuple[type | str, ...], str] = {
    (exceptions.BusyLoadingError, "LOADING"): "is still loading its data; retry shortly",
    (exceptions.MasterDownError, "MASTERDOWN"): "is a replica that lost its primary; retry, or connect to the primary",
    (exceptions.ClusterDownError, "CLUSTERDOWN"): "reports the cluster as down; retry when every slot is served",
    ("BUSY ",): "is busy with a script of somebody else; retry",
    ("NOREPLICAS",): "has too few replicas in reach for min-replicas-to-write; nothing was stored, retry",
    ("max number of clients",): "has no connection left (maxclients); raise it, or use fewer (max_connections)",
    ("MISCONF",): "refuses writes because its last snapshot failed; see its log",
}
_PARTED = (exceptions.TryAgainError, "TRYAGAIN", "TTL exhausted")  # the last is redis-py's after some attempts
_REFUSED: dict[tuple[type | str, ...], str] = {
    (exceptions.NoPermissionError, "NOPERM"): "does not permit a command this saver needs; docs/redis.md has the list",
    ("DB index",): "has no database of this number; change the one at the end of the URL",
    (exceptions.AuthenticationError, exceptions.AuthorizationError, "NOAUTH", "WRONGPASS"): (
        "did not accept the user or password; put them into the URL or connection_args"
    ),
}


@contextmanager
def translated(where: str, key: bytes | None = None) -> Iterator[None]:
    """Raise ours for redis-py's errors."""
    try:
        yield
    except (exceptions.RedisError, exceptions.RedisClusterException, OSError, EOFError) as exc:
        raise _error(exc, where, key) from exc


def _is(exc: Exception, text: str, *kinds: type | str) -> bool:
    return any(kind in text if isinstance(kind, str) else isinstance(exc, kind) for kind in kinds)


def _error(exc: Exception, where: str, key: bytes | None) -> Exception:
    text = str(exc)
    for kinds, meaning in _REFUSED.items():
        if _is(exc, text, *kinds):
            return ConfigurationError(f"{where} {meaning}.")
    for kinds, meaning in _UNAVAILABLE.items():
        if _is(exc, text, *kinds):
            return StorageUnavailableError(f"{where} {meaning}.")
    if _is(exc, text, *_PARTED):
        error = StorageUnavailableError(f"{where} is moving this slot to another node; retry.")
        error.parted = True
        return error
    if isinstance(exc, exceptions.TimeoutError | TimeoutError):
        return StorageUnavailableError(f"{where} did not answer in time; retry, or raise socket_timeout.")
    if isinstance(exc, exceptions.ConnectionError | OSError | EOFError | exceptions.RedisClusterException):
        return lost(where, exc)
    return _answer(exc, text, where, key)


def lost(where: str, exc: Exception) -> StorageUnavailableError:
    """A connection that failed and will be replaced: what was asked may be repeated."""
    reason = (str(exc).strip().splitlines() or [type(exc).__name__])[0][:200].rstrip(".")
    error = StorageUnavailableError(f"{where} cannot be reached ({reason}); retry.")
    error.repeat = True
    return error


def _answer(exc: Exception, text: str, where: str, key: bytes | None) -> Exception:
    """What the server answered, apart from refusals and outages."""
    name = repr(key.decode("utf-8", "replace")) if key else "a key"
    if _is(exc, text, exceptions.OutOfMemoryError, "OOM"):
        return StorageFullError(
            f"{where} has reached maxmemory; nothing of this write was stored. Free memory and retry."
        )
    if "WRONGTYPE" in text:
        return StorageCorruptError(
            f"{name} in {where} is not of our making (WRONGTYPE); nothing was changed. Use another prefix."
        )
    if _is(exc, text, exceptions.ReadOnlyError, "READONLY"):
        return StorageReadOnlyError(f"{where} is a read-only replica; connect to the primary.")
    if isinstance(exc, exceptions.MovedError | exceptions.AskError):
        return ConfigurationError(f"{where} is part of a cluster; pass cluster_mode=True or a redis+cluster:// URL.")
    if "unknown command" in text.lower():
        return ConfigurationError(f"{where} lacks a command this saver needs: Redis 6.2 or Valkey is required.")
    if "user_script" in text:  # a script of ours that met what none of ours has written
        return StorageCorruptError(f"{name} in {where} is damaged; nothing was changed. Restore it from a backup.")
    code = text.partition(" ")[0]
    return StorageError(f"{where} refused the operation on {name}: {type(exc).__name__}, {code}.")
