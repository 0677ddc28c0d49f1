"""The primitives of sealing, and the only place that imports `cryptography`.

AES-256-GCM seals, HMAC-SHA256 derives keys and makes tokens. Nothing here shows a key: not in a repr, not in a pickle.
"""

from __future__ import annotations

import hmac
import struct
from hashlib import sha256
from typing import NoReturn

from stepvault.errors import MissingDependencyError

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16

_INNER, _OUTER = (bytes(byte ^ pad for byte in range(256)) for pad in (0x36, 0x5C))
_LENGTHS = [struct.Struct(f">{1 + n}I") for n in range(16)]


class Secret:
    """Key bytes that do not show themselves."""

    __slots__ = ("value",)

    def __init__(self, value: bytes) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "Secret(...)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A key cannot be pickled or copied.")


class Aead:
    """AES-256-GCM under a key derived from a secret for one purpose; may be shared by threads."""

    __slots__ = ("_cipher", "_refused", "seal")

    def __init__(self, secret: Secret, label: bytes) -> None:
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as exc:
            raise MissingDependencyError('Encryption needs cryptography: pip install "stepvault[crypto]".') from exc
        self._cipher = AESGCM(expand(secret, label))
        self._refused = InvalidTag
        self.seal = self._cipher.encrypt  # (nonce, payload, associated) -> ciphertext and tag

    def open(self, nonce: bytes, sealed: bytes, associated: bytes) -> bytes | None:
        """The payload, or None if key, ciphertext or associated data are not those it was sealed with."""
        try:
            return self._cipher.decrypt(nonce, sealed, associated)
        except self._refused:
            return None


def expand(secret: Secret, label: bytes, size: int = KEY_BYTES) -> bytes:
    """A key for one purpose: one block of HKDF-Expand, which suffices as our secrets are uniformly random."""
    return hmac.digest(secret.value, label + b"\x01", "sha256")[:size]


class Mac:
    """HMAC-SHA256 under one key; the key's two blocks are hashed once, which makes a tag three times as fast."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: Secret) -> None:
        block = key.value.ljust(64, b"\0")
        self._inner = sha256(block.translate(_INNER))
        self._outer = sha256(block.translate(_OUTER))

    def tag(self, data: bytes, size: int) -> bytes:
        """The first bytes of the tag."""
        inner = self._inner.copy()
        inner.update(data)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.digest()[:size]


def frame(parts: tuple[bytes, ...]) -> bytes:
    """Parts as one string, count and lengths first: other parts never give the same string."""
    return _LENGTHS[len(parts)].pack(len(parts), *map(len, parts)) + b"".join(parts)
