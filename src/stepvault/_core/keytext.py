"""Key-encryption keys as text: `id:base64`, separated by commas or lines; `*` marks the primary, else it is the first.

Errors say which entry is wrong, never what it says: a misplaced colon would show a key.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Iterable, Mapping

from stepvault._core.crypto import KEY_BYTES, Secret
from stepvault.errors import ConfigurationError

_ID = re.compile(r"[A-Za-z0-9._/-]{1,32}", re.ASCII)  # too short to be a key in base64 or hex


def parse(text: str) -> tuple[dict[str, Secret], str]:
    """The keys of a text by id, and which is primary.

    Raises:
        ConfigurationError: No key, a key of another length, no base64, an id that stands twice.
    """
    keys: dict[str, Secret] = {}
    primary = ""
    for number, entry in enumerate(_entries(text), 1):
        name, colon, encoded = entry.removeprefix("*").partition(":")
        if not colon:
            raise ConfigurationError(f"Key entry {number} is not of the form id:base64.")
        name = checked_id(name.strip(), f"The id of key entry {number}")
        if name in keys:
            raise ConfigurationError(f"Key id {name!r} stands twice; give each key an id of its own.")
        if entry.startswith("*"):
            if primary:
                raise ConfigurationError("Two keys are marked as primary with *; mark one.")
            primary = name
        keys[name] = key_of(encoded, name)
    if not keys:
        raise ConfigurationError("There is no key; make one with Keyring.generate() or `stepvault keys generate`.")
    return keys, primary or next(iter(keys))


def render(keys: Mapping[str, Secret], primary: str) -> str:
    """The text of keys, primary first, one a line."""
    names = sorted(keys, key=lambda name: name != primary)
    return "".join(f"{name}:{base64.b64encode(keys[name].value).decode()}\n" for name in names)


def checked_id(name: object, what: str = "A key id") -> str:
    """A key id.

    Raises:
        ConfigurationError: It is something else.
    """
    if not isinstance(name, str) or not _ID.fullmatch(name):
        raise ConfigurationError(f"{what} must be 1 to 32 letters, digits or . _ / - characters.")
    return name


def key_of(value: object, name: str) -> Secret:
    """A key from bytes or base64.

    Raises:
        ConfigurationError: It is no base64 or not 32 bytes long.
    """
    decoded = _decoded(value) if isinstance(value, str) else value
    if not isinstance(decoded, (bytes, bytearray)):
        raise ConfigurationError(f"Key {name!r} is neither base64 text nor bytes; make one with Keyring.generate().")
    if len(decoded) != KEY_BYTES:
        raise ConfigurationError(
            f"Key {name!r} has {len(decoded)} bytes instead of {KEY_BYTES}; make one with Keyring.generate()."
        )
    return Secret(bytes(decoded))


def fresh_id(key: Secret) -> str:
    """An id that follows from the key and says nothing of it."""
    return "k" + hmac.digest(key.value, b"stepvault/kek-id/1\x01", "sha256").hex()[:12]


def _entries(text: str) -> Iterable[str]:
    for line in text.splitlines():
        if not line.lstrip().startswith("#"):
            yield from (entry.strip() for entry in line.split(",") if entry.strip())


def _decoded(text: str) -> bytes | None:
    """Base64, plain or for URLs, padded or not; None if it is none. No exception carries the text along."""
    plain = text.strip().rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except ValueError:
        return None
