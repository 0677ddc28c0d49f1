"""Wrapping data keys: under local key-encryption keys at once, under a key service by calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from stepvault._core.crypto import NONCE_BYTES, Aead, Secret
from stepvault._core.keys import DataKey, Draft, id_of, wrap_context, wrong_key
from stepvault._core.plan import Call, Op
from stepvault.errors import KeyNotFoundError


class Ask(NamedTuple):
    """One question to a key service: `data` is a `Secret` to wrap, or bytes to unwrap."""

    kek: str
    data: Any
    context: bytes


def kek_aead(key: Secret) -> Aead:
    """A local key-encryption key ready for use."""
    return Aead(key, b"stepvault/kek/1")


class Wrapper:
    """What a keyring is to the operations.

    Args:
        primary: Id of the key-encryption key for new wraps.
        local: The keys at hand.
        service: Makes one call out of questions for every other key; its reply is one `Secret` (to an unwrap) or
            bytes (to a wrap) per question.
        random: Source of nonces.
    """

    def __init__(
        self,
        primary: str,
        local: Mapping[str, Aead],
        service: Callable[[Sequence[Ask]], Call] | None,
        random: Callable[[int], bytes],
    ) -> None:
        self.primary = primary
        self._local = local
        self._service = service
        self._random = random

    def can_open(self, kek: str) -> bool:
        """Whether there is anyone to ask for this key."""
        return kek in self._local or self._service is not None

    def old(self) -> list[str]:
        """The local keys that are not primary."""
        return [kek for kek in self._local if kek != self.primary]

    def wrap(self, drafts: Sequence[Draft]) -> Op[list[DataKey]]:
        """Wrap fresh keys under the primary key.

        Raises:
            KeyUnavailableError: The key service did not answer.
        """
        kek = self.primary
        ids = [id_of(draft.secret) for draft in drafts]
        contexts = [wrap_context(kek, draft.owner, draft.gen, id) for draft, id in zip(drafts, ids, strict=True)]
        asks = [Ask(kek, draft.secret, context) for draft, context in zip(drafts, contexts, strict=True)]
        aead = self._local.get(kek)
        if aead is not None:
            wrapped = [self._wrap(aead, ask) for ask in asks]
        else:
            wrapped = yield from self._ask(asks)
        return [
            DataKey(draft.owner, draft.gen, id, kek, sealed)
            for draft, id, sealed in zip(drafts, ids, wrapped, strict=True)
        ]

    def unwrap(self, rows: Sequence[DataKey]) -> Op[dict[bytes, Secret]]:
        """The secrets of rows by key id.

        Raises:
            KeyNotFoundError: A row names a key-encryption key that nobody has.
            WrongKeyError: The key of that id is another one, or the row was changed.
            KeyUnavailableError: The key service did not answer.
        """
        found: dict[bytes, Secret] = {}
        far: list[DataKey] = []
        for row in rows:
            aead = self._local.get(row.kek)
            if aead is None:
                far.append(row)
                continue
            secret = _unwrap(aead, row)
            if secret is None:
                raise wrong_key(row)
            found[row.id] = secret
        if far:
            secrets = yield from self._ask([Ask(row.kek, row.wrapped, _context(row)) for row in far])
            found.update(_checked(row, secret) for row, secret in zip(far, secrets, strict=True))
        return found

    def _ask(self, asks: Sequence[Ask]) -> Op[list[Any]]:
        if self._service is None:
            unknown = sorted({ask.kek for ask in asks})
            raise KeyNotFoundError(f"Key-encryption key {unknown[0]!r} is not in the keyring; add it.")
        return (yield self._service(asks))  # type: ignore[no-any-return]

    def _wrap(self, aead: Aead, ask: Ask) -> bytes:
        nonce = self._random(NONCE_BYTES)
        return nonce + aead.seal(nonce, ask.data.value, ask.context)


def _unwrap(aead: Aead, row: DataKey) -> Secret | None:
    wrapped = row.wrapped or b""
    opened = aead.open(wrapped[:NONCE_BYTES].ljust(NONCE_BYTES, b"\0"), wrapped[NONCE_BYTES:], _context(row))
    return Secret(opened) if opened is not None else None


def _checked(row: DataKey, secret: Secret) -> tuple[bytes, Secret]:
    """Locally the context vouches for the id; a service is not trusted to bind it."""
    if id_of(secret) != row.id:
        raise wrong_key(row)
    return row.id, secret


def _context(row: DataKey) -> bytes:
    return wrap_context(row.kek, row.owner, row.gen, row.id)
