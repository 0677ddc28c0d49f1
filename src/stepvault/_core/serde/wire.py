"""The numbers and limits of the `sv1` payload format. Append only: stored rows depend on every line.

A payload is one msgpack value. Plain values (None, bool, 64-bit int, float, str, bytes, list, dict) are plain
msgpack; everything else is an extension type, whose data is a msgpack array again. User values never become
an extension type by themselves, so no user value can spell a marker.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import ormsgpack

TAG: Final = "sv1"
"""Type tag of a whole payload, as `dumps_typed` returns it."""

MAX_DEPTH: Final = 200
"""Containers and objects inside one another; more is refused, when writing and when reading."""

# Nothing is left to ormsgpack's own idea of a type: what it does not do exactly comes to our hook.
PACK: Final = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
UNPACK: Final = ormsgpack.OPT_NON_STR_KEYS

MESSAGE: Final = 1  # [shape, fields-set mask, *field values]
RECORD: Final = 2  # [name, version, kind, fields, *state]
TUPLE: Final = 3
SET: Final = 4
FROZENSET: Final = 5
PAIRS: Final = 6  # a dict with keys that are not plain: [key, value, key, value, ...]
TEXT: Final = 7  # a str with lone surrogates, as bytes
BIGINT: Final = 8
BYTEARRAY: Final = 9
DEQUE: Final = 10
DEFAULTDICT: Final = 11
ORDEREDDICT: Final = 12
COUNTER: Final = 13
CHAINMAP: Final = 14
DECIMAL: Final = 16
FRACTION: Final = 17
COMPLEX: Final = 18
RANGE: Final = 19
SLICE: Final = 20
ELLIPSIS: Final = 21
DATETIME: Final = 22
DATE: Final = 23
TIME: Final = 24
TIMEDELTA: Final = 25
TIMEZONE: Final = 26
ZONEINFO: Final = 27
PYDANTIC_TZ: Final = 28
UUID: Final = 29
PATH: Final = 30
IP: Final = 31
PATTERN: Final = 32
SECRET: Final = 33
MAPPINGPROXY: Final = 34
FOREIGN: Final = "j"  # the kind of a record that holds what LangGraph's serializer stored of an object
RAW: Final = 99  # never written: a RawValue, whose record is copied
NUMPY_ARRAY: Final = 40
NUMPY_SCALAR: Final = 41

Labels: TypeAlias = "tuple[str, ...] | None"
"""How the items of an extension's array are named in error paths.

One label per item: `""` the object itself, `".x"` an attribute, `"{}"` a dict of fields, `"?{}"` a dict whose
unstorable fields are left out unless fidelity is strict. None: the items are the user's own, by index.
"""

Reduced: TypeAlias = "tuple[int, list[Any], Labels]"


class Refused(Exception):
    """A value cannot be stored; the encoder turns this into the public error and adds the path."""


class SecretRefused(Refused):
    """A secret would be stored in clear."""


class NeedsExactError(Exception):
    """The fast encoder met a value that ormsgpack alone would change; the exact one takes over."""


def array_header(size: int) -> bytes:
    """Return the msgpack header of an array of `size` items."""
    if size < 16:
        return bytes((0x90 | size,))
    if size < 1 << 16:
        return b"\xdc" + size.to_bytes(2, "big")
    return b"\xdd" + size.to_bytes(4, "big")


def map_header(size: int) -> bytes:
    """Return the msgpack header of a map of `size` pairs."""
    if size < 16:
        return bytes((0x80 | size,))
    if size < 1 << 16:
        return b"\xde" + size.to_bytes(2, "big")
    return b"\xdf" + size.to_bytes(4, "big")


def qualified(cls: type) -> str:
    """Return `module.QualName`, the way messages name a class."""
    return f"{cls.__module__}.{cls.__qualname__}"
