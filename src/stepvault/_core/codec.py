"""Serialized bytes to stored bytes and back: one codec byte, then the compressed payload.

A row says how it was written, so settings can change at any time. Codec ids are append-only; ids from 0xC0 on
are left to sealed envelopes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import zstandard

from stepvault.errors import KeyNotFoundError, TruncatedError, UnsupportedFormatError

RAW, ZSTD, ZSTD_RECORD = 0, 1, 2
_ENVELOPE = 0xC1  # see `envelope`, which comes off before
MAX_PAYLOAD = 2**31  # a frame header that claims more is damaged or forged; SQLite and Postgres stop at 1-2 GB anyway
_PREFIXES = (b"\x00", b"\x01", b"\x02")
_SMALL = 48  # below this, a frame header costs more than it can save


class _Free:
    """Contexts of one kind that are free. Each serves one call at a time; making one costs more than a call.

    They are not kept per thread: LangGraph makes new threads for each run.
    """

    __slots__ = ("_contexts", "_make", "give_back")

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._contexts: list[Any] = []
        self.give_back = self._contexts.append

    def take(self) -> Any:
        try:
            return self._contexts.pop()
        except IndexError:
            return self._make()


@cache
def _dictionary() -> zstandard.ZstdCompressionDict:
    data = files("stepvault._core").joinpath("record.dict").read_bytes()
    return zstandard.ZstdCompressionDict(data, dict_type=zstandard.DICT_TYPE_RAWCONTENT)


def _compressor(**options: Any) -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(level=3, write_checksum=False, write_dict_id=False, **options)


_COMPRESSORS = {ZSTD: _Free(_compressor), ZSTD_RECORD: _Free(lambda: _compressor(dict_data=_dictionary()))}
_DECOMPRESSORS = {
    ZSTD: _Free(zstandard.ZstdDecompressor),
    ZSTD_RECORD: _Free(lambda: zstandard.ZstdDecompressor(dict_data=_dictionary())),
}


@dataclass(frozen=True, slots=True)
class Codec:
    """How payloads are written; reading needs no settings."""

    compression: Literal["auto"] | None = "auto"

    def pack(self, payload: bytes, *, record: bool = False) -> bytes:
        """Compress a payload if that makes it smaller; `record` payloads use the shipped dictionary."""
        if self.compression is not None and (record or len(payload) >= _SMALL):
            codec = ZSTD_RECORD if record else ZSTD
            free = _COMPRESSORS[codec]
            context = free.take()
            packed: bytes = context.compress(payload)
            free.give_back(context)
            if len(packed) < len(payload):
                return _PREFIXES[codec] + packed
        return _PREFIXES[RAW] + payload


def unpack(stored: bytes) -> bytes:
    """Undo `Codec.pack`.

    Raises:
        TruncatedError: The bytes are cut short or damaged.
        UnsupportedFormatError: A codec this version does not know.
        KeyNotFoundError: The payload is sealed, and nobody opened it.
    """
    if not stored:
        raise TruncatedError
    codec = stored[0]
    if codec == RAW:
        return bytes(stored[1:])
    free = _DECOMPRESSORS.get(codec)
    if codec == _ENVELOPE:
        raise KeyNotFoundError("This payload is sealed and no keyring is set; pass keyring=.")
    if free is None:
        raise UnsupportedFormatError(f"A stored payload has codec {codec}, unknown to this version; upgrade Stepvault.")
    body = memoryview(stored)[1:]
    try:
        if zstandard.frame_content_size(body) > MAX_PAYLOAD:
            raise TruncatedError("A stored payload claims an impossible size; restore the row from a backup.")
        context = free.take()
        payload: bytes = context.decompress(body)
    except zstandard.ZstdError as exc:
        raise TruncatedError("A stored payload is damaged or cut short; restore the row from a backup.") from exc
    free.give_back(context)
    return payload
