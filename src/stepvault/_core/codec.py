"""Serialized bytes to stored bytes and back: one codec byte, then the compressed payload.

A row says how it was written, so settings can change at any time. Codec ids are append-only; ids from 0xC0 on
are left to sealed envelopes.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

import zstandard

from stepvault.errors import TruncatedError, UnsupportedFormatError

RAW, ZSTD, ZSTD_RECORD = 0, 1, 2
MAX_PAYLOAD = 2**31  # a frame header that claims more is damaged or forged; SQLite and Postgres stop at 1-2 GB anyway
_SMALL = 48  # below this, a frame header costs more than it can save


def _record_dictionary() -> zstandard.ZstdCompressionDict:
    data = files("stepvault._core").joinpath("record.dict").read_bytes()
    return zstandard.ZstdCompressionDict(data, dict_type=zstandard.DICT_TYPE_RAWCONTENT)


class _Zstd(threading.local):
    """zstandard contexts are not thread safe: one set per thread."""

    def __init__(self) -> None:
        dictionary = _record_dictionary()
        self.compress = {
            ZSTD: zstandard.ZstdCompressor(level=3, write_checksum=False, write_dict_id=False),
            ZSTD_RECORD: zstandard.ZstdCompressor(
                level=3, dict_data=dictionary, write_checksum=False, write_dict_id=False
            ),
        }
        self.decompress = {
            ZSTD: zstandard.ZstdDecompressor(),
            ZSTD_RECORD: zstandard.ZstdDecompressor(dict_data=dictionary),
        }


_zstd = _Zstd()


@dataclass(frozen=True, slots=True)
class Codec:
    """How payloads are written; reading needs no settings."""

    compression: Literal["auto"] | None = "auto"

    def pack(self, payload: bytes, *, record: bool = False) -> bytes:
        """Compress a payload if that makes it smaller; `record` payloads use the shipped dictionary."""
        if self.compression is not None and (record or len(payload) >= _SMALL):
            codec = ZSTD_RECORD if record else ZSTD
            packed = _zstd.compress[codec].compress(payload)
            if len(packed) < len(payload):
                return bytes((codec,)) + packed
        return bytes((RAW,)) + payload


def unpack(stored: bytes) -> bytes:
    """Undo `Codec.pack`.

    Raises:
        TruncatedError: The bytes are cut short or damaged.
        UnsupportedFormatError: A codec this version does not know.
    """
    if not stored:
        raise TruncatedError
    codec = stored[0]
    if codec == RAW:
        return bytes(stored[1:])
    context = _zstd.decompress.get(codec)
    if context is None:
        raise UnsupportedFormatError(f"A stored payload has codec {codec}, unknown to this version; upgrade Stepvault.")
    body = memoryview(stored)[1:]
    try:
        if zstandard.frame_content_size(body) > MAX_PAYLOAD:
            raise TruncatedError("A stored payload claims an impossible size; restore the row from a backup.")
        return context.decompress(body)
    except zstandard.ZstdError as exc:
        raise TruncatedError("A stored payload is damaged or cut short; restore the row from a backup.") from exc
