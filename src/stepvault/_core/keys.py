"""Data keys: one per owner and generation, stored wrapped, used as subkeys.

An owner is a thread (its uid), a subject (a token) or the deployment itself (`ROOT`). Losing the wrapped form of an
owner's keys is losing what they sealed: that is what shredding does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stepvault._core.crypto import KEY_BYTES, Aead, Mac, Secret, expand, frame
from stepvault.errors import KeyNotFoundError, KeyShreddedError, WrongKeyError

ROOT = bytes(16)  # owner of the key that tokens and the deployment's id are derived from
ERASED = "The data key of this owner was destroyed by an erasure; nothing new is sealed."
MESSAGES = 2**28  # a generation is rolled over before random nonces of one key could meet


class DataKey(NamedTuple):
    """A row of the key store. `wrapped` None: shredded, the row is its tombstone."""

    owner: bytes
    gen: int
    id: bytes
    kek: str
    wrapped: bytes | None

    def __repr__(self) -> str:
        state = "shredded" if self.wrapped is None else f"under {self.kek!r}"
        return f"DataKey({self.owner.hex()}, generation {self.gen}, {state})"


class Draft(NamedTuple):
    """A data key that is not wrapped yet."""

    owner: bytes
    gen: int
    secret: Secret


def draft(owner: bytes, gen: int, random: Callable[[int], bytes]) -> Draft:
    """A fresh data key."""
    return Draft(owner, gen, Secret(random(KEY_BYTES)))


def id_of(secret: Secret) -> bytes:
    """The id of a data key; it commits to the key, so a wrong one is found before anything is opened."""
    return expand(secret, b"stepvault/id/1", 16)


def wrap_context(kek: str, owner: bytes, gen: int, key_id: bytes) -> bytes:
    """What the wrapped form of a data key is bound to."""
    return frame((b"stepvault/wrap/1", kek.encode(), owner, gen.to_bytes(8, "big"), key_id))


class SealingKey:
    """A data key ready for use."""

    __slots__ = ("_row", "aead", "id")

    def __init__(self, secret: Secret) -> None:
        self.id = id_of(secret)
        self.aead = Aead(secret, b"stepvault/seal/1")
        self._row = Mac(Secret(expand(secret, b"stepvault/row/1")))

    def tag(self, row: bytes) -> bytes:
        """Eight bytes that tell this row from any other under this key."""
        return self._row.tag(row, 8)

    def __repr__(self) -> str:
        return f"SealingKey({self.id.hex()})"


@dataclass(frozen=True, slots=True)
class KeyChain:
    """The keys of one owner: the newest seals, any opens what it has sealed."""

    owner: bytes
    keys: Mapping[bytes, SealingKey]
    newest: SealingKey | None
    shredded: frozenset[bytes]

    def to_seal(self) -> SealingKey:
        """The key for new payloads.

        Raises:
            KeyShreddedError: The owner was shredded.
            KeyNotFoundError: It never had a key.
        """
        if self.newest is not None:
            return self.newest
        if self.shredded:
            raise KeyShreddedError(ERASED)
        raise KeyNotFoundError(f"Owner {self.owner.hex()} has no data key in the key store; check keys_url.")

    def to_open(self, key_id: bytes) -> SealingKey:
        """The key that a payload names.

        Raises:
            KeyShreddedError: It was destroyed.
            KeyNotFoundError: This owner has no such key.
        """
        key = self.keys.get(key_id)
        if key is not None:
            return key
        if key_id in self.shredded or (self.shredded and not self.keys):
            raise KeyShreddedError
        raise KeyNotFoundError(
            f"A payload names data key {key_id.hex()}, which its owner does not have in the key store; check keys_url."
        )


def chain(owner: bytes, rows: Iterable[DataKey], secrets: Mapping[bytes, Secret]) -> KeyChain:
    """The keys of an owner from its rows and the unwrapped secrets by key id.

    Raises:
        WrongKeyError: A secret is not the key its row was made for.
    """
    keys: dict[bytes, SealingKey] = {}
    shredded = set()
    newest = None
    for row in sorted(rows, key=lambda row: row.gen):
        if row.wrapped is None:
            shredded.add(row.id)
            newest = None
        else:
            newest = keys[row.id] = sealing_key(row, secrets[row.id])
    return KeyChain(owner, keys, newest, frozenset(shredded))


def sealing_key(row: DataKey, secret: Secret) -> SealingKey:
    """The unwrapped key of a row, made sure of."""
    key = SealingKey(secret)
    if key.id != row.id:
        raise wrong_key(row)
    return key


def wrong_key(row: DataKey) -> WrongKeyError:
    """The error of a row that does not open with the key it names."""
    return WrongKeyError(
        f"Key-encryption key {row.kek!r} does not open the data key of owner {row.owner.hex()} (generation {row.gen}): "
        "it is another key of the same id, or the row was changed. Check the keyring."
    )


def living(rows: Sequence[DataKey]) -> list[DataKey]:
    """The rows that still hold a key."""
    return [row for row in rows if row.wrapped is not None]
