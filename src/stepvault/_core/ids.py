"""Ids as bytes: one order-preserving form on every engine, where any text is data.

Thread ids, namespaces, task and checkpoint ids are stored as bytes, so NUL, quotes, `%` or a lone surrogate mean
the same everywhere. Lengths are bounded so that every engine can index them (a Postgres index row holds 2.7 KB).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from stepvault.errors import IdentifierError

LIMITS = {
    "tenant": 255,
    "thread_id": 2000,
    "subject": 2000,
    "checkpoint_ns": 2000,
    "checkpoint_id": 255,
    "task_id": 255,
}

_UUID = b"\x01"
_TEXT = b"\x00"


def text_key(kind: str, value: str) -> bytes:
    """Encode a text id (a thread id, a namespace, a tenant) as bytes in code point order."""
    if type(value) is not str:
        raise IdentifierError(f"{kind} must be a str, not {type(value).__name__}.")
    key = value.encode("utf-8", "surrogatepass")
    if len(key) > LIMITS[kind]:
        raise IdentifierError(
            f"{kind} is {len(key):,} bytes long; every backend indexes at most {LIMITS[kind]:,}. Use a shorter id."
        )
    return key


def text_of(key: bytes) -> str:
    """Decode `text_key`."""
    return bytes(key).decode("utf-8", "surrogatepass")


def thread_text(value: Any) -> str:
    """The `str` a thread id stands for, as LangGraph's runs make it; None, bytes and containers are refused."""
    if type(value) is str:
        return value
    if value is None or isinstance(value, (bytes, bytearray, list, tuple, dict, set, frozenset)):
        raise IdentifierError(f"thread_id must be a str, not {type(value).__name__}. Pass str(your_id).")
    return str(value)


def id_key(kind: str, value: str) -> bytes:
    """Encode a checkpoint or task id: 17 bytes for a canonical UUID, else its text. Order is kept in each form."""
    if type(value) is not str:
        raise IdentifierError(f"{kind} must be a str, not {type(value).__name__}.")
    return _id_key(kind, value)


@lru_cache(4096)
def _id_key(kind: str, value: str) -> bytes:
    if len(value) == 36 and value[8] == value[13] == value[18] == value[23] == "-":
        digits = value.replace("-", "")
        try:
            raw = bytes.fromhex(digits)
        except ValueError:
            raw = b""
        if len(raw) == 16 and raw.hex() == digits:
            return _UUID + raw
    return _TEXT + text_key(kind, value)


def id_of(key: bytes) -> str:
    """Decode `id_key`."""
    return _id_of(bytes(key))


@lru_cache(4096)
def _id_of(key: bytes) -> str:
    return _canonical(key[1:]) if key[:1] == _UUID else text_of(key[1:])


def _canonical(raw: bytes) -> str:
    h = raw.hex()
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def check_names(kind: str, names: Iterable[Any]) -> None:
    """Refuse names (of channels, of nodes) that are no text: a record would mistake them for something else."""
    names = list(names)
    try:
        "".join(names)  # looks at each many times faster than a loop
    except TypeError:
        wrong = next(name for name in names if not isinstance(name, str))
        raise IdentifierError(f"{kind} must be a str, not {type(wrong).__name__}.") from None


def check_text(name: str, value: Any) -> None:
    """Refuse an id that is no text.

    Raises:
        IdentifierError: It is none.
    """
    if not isinstance(value, str):
        raise IdentifierError(f"{name} must be a str, not {type(value).__name__}.")


def check_list(name: str, value: Any) -> None:
    """Refuse one id where several are asked for: a text is a sequence too, of letters.

    Raises:
        IdentifierError: It is no list of ids.
    """
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise IdentifierError(f"{name} must be a list of ids, not {type(value).__name__}.")


def new_uid() -> bytes:
    """Sixteen random bytes that name one generation of a thread."""
    return uuid.uuid4().bytes
