"""The bytes of a sealed payload: 44 of header, the ciphertext, 16 of tag. Frozen by `tests/golden/envelope.json`.

    0      magic 0xC1: no codec id, and no msgpack or JSON starts with it
    1      version
    2      algorithm: 1 = AES-256-GCM
    3      flags: none yet
    4-7    length of the ciphertext without tag
    8-23   id of the data key, which commits to that key
    24-35  nonce
    36-43  tag of the row's identity: tells a moved row from a changed one

The ciphertext authenticates the whole header and the whole identity. Numbers are big-endian.
"""

from __future__ import annotations

import struct

from stepvault._core.crypto import TAG_BYTES, frame
from stepvault._core.identity import Identity
from stepvault._core.keys import SealingKey
from stepvault.errors import (
    PayloadError,
    PlaintextRejectedError,
    RowMismatchError,
    TamperedError,
    TruncatedError,
    UnsupportedFormatError,
)

MAGIC = 0xC1
MAX_PAYLOAD = 2**31 - 64

_VERSION, _AES_256_GCM, _FLAGS = 1, 1, 0
_HEADER = struct.Struct(">BBBBI16s12s8s")
BEGINS = bytes((MAGIC, _VERSION, _AES_256_GCM, _FLAGS))
OVERHEAD = _HEADER.size + TAG_BYTES
_LABEL = b"stepvault/aad/1"


def is_sealed(stored: bytes) -> bool:
    """Whether stored bytes are an envelope, by their first byte."""
    return stored[:1] == b"\xc1"


def key_id_of(stored: bytes) -> bytes:
    """The id of the data key an envelope names, which nothing vouches for yet."""
    return bytes(stored[8:24])


def seal(key: SealingKey, scope: bytes, identity: Identity, nonce: bytes, payload: bytes) -> bytes:
    """Seal a payload into its row. A nonce is used once per key.

    Raises:
        PayloadError: The payload is larger than 2 GB.
    """
    size = len(payload)
    if size > MAX_PAYLOAD:
        raise PayloadError("A payload of more than 2 GB cannot be sealed; split it.")
    row = scope + frame(identity)
    header = _HEADER.pack(MAGIC, _VERSION, _AES_256_GCM, _FLAGS, size, key.id, nonce, key.tag(row))
    return header + key.aead.seal(nonce, payload, _LABEL + header + row)


def check(stored: bytes) -> None:
    """Whether this is a whole envelope that this version can open.

    Raises:
        PlaintextRejectedError: It is no envelope.
        TruncatedError: Bytes are missing or were added.
        UnsupportedFormatError: A version, algorithm or flag this version does not know.
    """
    if stored[:4] == BEGINS and len(stored) == OVERHEAD + int.from_bytes(stored[4:8], "big"):
        return
    if not stored or stored[0] != MAGIC:
        raise PlaintextRejectedError
    if len(stored) < OVERHEAD:
        raise TruncatedError("A sealed payload is cut short; restore the row from a backup.")
    _, version, algorithm, flags, size, *_ = _HEADER.unpack_from(stored)
    if (version, algorithm, flags) != (_VERSION, _AES_256_GCM, _FLAGS):
        raise UnsupportedFormatError(
            f"A sealed payload has format {version}.{algorithm}.{flags}, unknown to this version; upgrade Stepvault."
        )
    if size != len(stored) - OVERHEAD:
        raise TruncatedError("A sealed payload is not as long as it says; restore the row from a backup.")


def unseal(key: SealingKey, scope: bytes, identity: Identity, stored: bytes) -> bytes:
    """Open a checked envelope with the key it names.

    Raises:
        RowMismatchError: It was sealed for another row.
        TamperedError: It was changed.
    """
    row = frame(identity)
    payload = key.aead.open(stored[24:36], stored[44:], b"".join((_LABEL, stored[:44], scope, row)))
    if payload is None:  # which the row's tag, authenticated too, can only explain
        raise TamperedError if stored[36:44] == key.tag(scope + row) else RowMismatchError
    return payload
