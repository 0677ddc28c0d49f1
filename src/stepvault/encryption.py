"""Keys: where they come from, who may use them. See `docs/encryption.md`.

A `Keyring` holds key-encryption keys by id. They wrap the data keys that seal payloads, so a keyring can be rotated
without touching a payload. Keys that must not enter the process stay with a `KeyService`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn, Protocol

from typing_extensions import Self

from stepvault._core.crypto import KEY_BYTES, Aead, Secret
from stepvault._core.keytext import checked_id, fresh_id, key_of, parse, render
from stepvault._core.wrapping import Wrapper, kek_aead
from stepvault._keyfile import read_keyfile, write_keyfile
from stepvault._keyservice import service_call
from stepvault.errors import ConfigurationError

__all__ = ["AsyncKeyService", "KeyService", "Keyring"]


class KeyService(Protocol):
    """A key-management service, seen from here: wraps and unwraps 32-byte data keys.

    `context` says which data key this is; it must be authenticated with the wrapped form and be the same to unwrap
    (AWS: an encryption context of its hex form; Google Cloud: additional authenticated data; Vault: associated data).
    Raise `stepvault.errors.KeyNotFoundError` for a key id the service does not know and `WrongKeyError` for bytes it
    refuses to open; everything else becomes `KeyUnavailableError`, which callers may retry. Set timeouts: calls are
    made outside the event loop, but whoever asked waits.
    """

    def wrap(self, key_id: str, plaintext: bytes, context: bytes) -> bytes:
        """Encrypt a data key under a key-encryption key."""
        ...

    def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        """Decrypt what `wrap` returned."""
        ...


class AsyncKeyService(Protocol):
    """The async half; a service may have both. Without it, the sync half runs in a thread."""

    async def awrap(self, key_id: str, plaintext: bytes, context: bytes) -> bytes:
        """Async version of `wrap`."""
        ...

    async def aunwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        """Async version of `unwrap`."""
        ...


class Keyring:
    """Key-encryption keys by id; the primary wraps new data keys, the others still unwrap theirs.

    Never shows a key: not in `repr`, not in errors; it cannot be pickled. Immutable.

    Args:
        keys: 32 random bytes each, as bytes or base64. The first is primary unless `primary` says otherwise.
        primary: Id of the primary key; one of `keys`, or a key of the service.
        service: Whom to ask for every other key id.

    Raises:
        ConfigurationError: A key of another length, no base64, two ids for one key, or no primary key.
        MissingDependencyError: `cryptography` is not installed.
    """

    __slots__ = ("_aeads", "_primary", "_secrets", "_service")

    def __init__(
        self,
        keys: Mapping[str, str | bytes] | None = None,
        *,
        primary: str | None = None,
        service: KeyService | AsyncKeyService | None = None,
    ) -> None:
        secrets = {checked_id(name): key_of(value, name) for name, value in (keys or {}).items()}
        self._fill(secrets, primary or next(iter(secrets), None), service)

    def _fill(self, secrets: dict[str, Secret], primary: str | None, service: Any) -> None:
        if primary is None:
            raise ConfigurationError("A keyring needs a key; make one with Keyring.generate().")
        if primary not in secrets and service is None:
            raise ConfigurationError(f"The primary key {primary!r} is not among the keys.")
        if len({secret.value for secret in secrets.values()}) < len(secrets):
            raise ConfigurationError("Two ids stand for the same key; each needs a key of its own.")
        self._secrets = secrets
        self._aeads: dict[str, Aead] = {name: kek_aead(secret) for name, secret in secrets.items()}
        self._primary = primary
        self._service = service

    @classmethod
    def _of(cls, secrets: dict[str, Secret], primary: str | None, service: Any = None) -> Self:
        keyring = cls.__new__(cls)
        keyring._fill(secrets, primary, service)
        return keyring

    @classmethod
    def generate(cls, key_id: str | None = None) -> Self:
        """A keyring with one fresh key. Keep it: without its keys, nothing sealed under it can ever be read."""
        key = Secret(os.urandom(KEY_BYTES))
        name = fresh_id(key) if key_id is None else checked_id(key_id)
        return cls._of({name: key}, name)

    @classmethod
    def from_env(cls, name: str = "STEPVAULT_KEYS") -> Self:
        """Read `id:base64,id2:base64` from an environment variable; the first, or the one marked `*`, is primary.

        Raises:
            ConfigurationError: It is not set, or its text is wrong.
        """
        text = os.environ.get(name)
        if not text:
            raise ConfigurationError(
                f"The environment variable {name} holds no keys; its form is id:base64,id2:base64."
            )
        return cls._of(*parse(text))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file with one `id:base64` a line, primary first; lines that begin with # are comments.

        Raises:
            ConfigurationError: It cannot be read, its text is wrong, or others than its owner may read it.
        """
        return cls._of(*parse(read_keyfile(path)))

    def to_file(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the keys, readable for the owner alone. The file is complete or not there, even after a crash.

        Raises:
            ConfigurationError: The file exists and `overwrite` is not set, or cannot be written.
        """
        write_keyfile(path, self.to_text(), overwrite=overwrite)

    def to_text(self) -> str:
        """The keys themselves, for a secret store: one `id:base64` a line. Keys of a service are not in it."""
        return render(self._secrets, self._primary)

    @property
    def primary(self) -> str:
        """Id of the key that wraps new data keys."""
        return self._primary

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the keys at hand, primary first. Keys of a service are not among them."""
        return tuple(sorted(self._secrets, key=lambda name: name != self._primary))

    def rotated(self, key_id: str | None = None) -> Self:
        """A keyring with a fresh primary key beside the old ones: the first step of a rotation."""
        fresh = type(self).generate(key_id)
        if fresh.primary in self._secrets:
            raise ConfigurationError(f"Key id {fresh.primary!r} is taken; choose another.")
        return self._of({**fresh._secrets, **self._secrets}, fresh.primary, self._service)

    def with_primary(self, key_id: str) -> Self:
        """A keyring with the same keys and another primary."""
        return self._of(self._secrets, key_id, self._service)

    def without(self, *key_ids: str) -> Self:
        """A keyring without these keys: the last step of a rotation.

        Raises:
            ConfigurationError: One of them is the primary key.
        """
        if self._primary in key_ids:
            raise ConfigurationError(f"{self._primary!r} is the primary key; make another one primary first.")
        kept = {name: secret for name, secret in self._secrets.items() if name not in key_ids}
        return self._of(kept, self._primary, self._service)

    def wrapper(self, random: Callable[[int], bytes] = os.urandom) -> Wrapper:
        """This keyring as storage operations use it."""
        service = partial(service_call, self._service) if self._service is not None else None
        return Wrapper(self._primary, self._aeads, service, random)

    def __repr__(self) -> str:
        service = f", service={type(self._service).__name__}" if self._service is not None else ""
        return f"Keyring(ids={list(self.ids)}, primary={self._primary!r}{service})"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("A Keyring cannot be pickled: it would carry the keys along. Make it anew where it is needed.")
