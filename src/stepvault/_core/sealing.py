"""The seam between storage and encryption: `seal` after compression, `open` before decompression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from stepvault._core.crypto import NONCE_BYTES
from stepvault._core.envelope import check, is_sealed, key_id_of, seal, unseal
from stepvault._core.identity import Identity
from stepvault._core.keys import KeyChain
from stepvault.errors import KeyNotFoundError


class Seal(Protocol):
    """What storage code calls for every payload it stores or reads."""

    def seal(self, identity: Identity, payload: bytes, /) -> bytes: ...
    def open(self, identity: Identity, stored: bytes, /) -> bytes: ...


class Plain:
    """No encryption: payloads pass through, envelopes are refused."""

    __slots__ = ()

    def seal(self, identity: Identity, payload: bytes, /) -> bytes:
        return payload

    def open(self, identity: Identity, stored: bytes, /) -> bytes:
        """Pass an unsealed payload on.

        Raises:
            KeyNotFoundError: It is sealed.
        """
        if is_sealed(stored):
            raise KeyNotFoundError("This payload is sealed and no keyring is set; pass keyring=.")
        return stored


class Sealer:
    """Seals and opens the payloads of one owner; may be shared by threads.

    Args:
        keys: The owner's keys.
        scope: Deployment, tenant and owner, see `identity.scope`.
        random: Source of nonces.
        accept_plain: Pass unsealed payloads on: only while a database is being sealed.
    """

    __slots__ = ("_accept_plain", "_random", "_scope", "keys")

    def __init__(
        self, keys: KeyChain, scope: bytes, random: Callable[[int], bytes], *, accept_plain: bool = False
    ) -> None:
        self.keys = keys
        self._scope = scope
        self._random = random
        self._accept_plain = accept_plain

    def seal(self, identity: Identity, payload: bytes, /) -> bytes:
        """Seal a payload for its row.

        Raises:
            KeyShreddedError: The owner was erased.
            PayloadError: The payload is larger than 2 GB.
        """
        key = self.keys.newest or self.keys.to_seal()
        return seal(key, self._scope, identity, self._random(NONCE_BYTES), payload)

    def open(self, identity: Identity, stored: bytes, /) -> bytes:
        """Open what stands in a row.

        Raises:
            PlaintextRejectedError, TruncatedError, UnsupportedFormatError: It is no whole envelope of a known format.
            KeyNotFoundError, KeyShreddedError: The key it names is not there, or no more.
            RowMismatchError: It was sealed for another row.
            TamperedError: It was changed.
        """
        if self._accept_plain and stored and not is_sealed(stored):
            return stored
        stored = bytes(stored)
        check(stored)
        key = self.keys.keys.get(stored[8:24]) or self.keys.to_open(key_id_of(stored))
        return unseal(key, self._scope, identity, stored)
