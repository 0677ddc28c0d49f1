"""Rows as the values of hash fields, with what scripts must read of them in front."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import ormsgpack
import xxhash

from stepvault._core.chunks import ChunkRow
from stepvault._core.envelope import BEGINS
from stepvault._core.knowledge import ThreadKey
from stepvault._core.rows import CheckpointRow, WriteRow
from stepvault.errors import TruncatedError

_DAMAGE = (struct.error, ValueError, TypeError, OverflowError, TruncatedError)
_BUCKETS = 256
_MARK = 4  # bytes of a filter token that scripts compare; every hit is compared in full


def bucket(ns: bytes) -> int:
    """The field that names the newest checkpoint of a namespace."""
    return xxhash.xxh32_intdigest(ns) % _BUCKETS


def identity(key: ThreadKey) -> bytes:
    """Tenant and thread as the thread's own field holds them."""
    return struct.pack(">H", len(key.tenant)) + key.tenant + key.thread


def thread_key(packed: bytes) -> ThreadKey:
    """Read `identity`."""
    (size,) = struct.unpack_from(">H", packed)
    return ThreadKey(packed[2 : 2 + size], packed[2 + size :])


def marks(source: bytes | None, step: int | None, run: bytes | None, tokens: Iterable[bytes]) -> bytes:
    """What a filter compares: the clear columns and the metadata tokens."""
    columns = ((b"source", source), (b"step", None if step is None else b"%d" % step), (b"run", run))
    found = [_column(name, value) for name, value in columns if value is not None]
    return b"".join((*found, *(token[:_MARK] for token in tokens)))


def _column(name: bytes, value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=_MARK, person=name).digest()


def pack_checkpoint(row: CheckpointRow, tokens: Sequence[bytes]) -> bytes:
    """A checkpoint without the time, which the server puts in front."""
    found = marks(row.source, row.step, row.run, tokens)
    rest = ormsgpack.packb([row.parent, row.run, row.source, row.step, row.body])
    return _refs(row.refs) + struct.pack(">H", len(found) // _MARK) + found + rest


def unpack_checkpoint(ns: bytes, id_: bytes, packed: bytes) -> CheckpointRow:
    """Read `pack_checkpoint`.

    A damaged one comes without a whole body: whoever decodes it says which checkpoint of which thread that is, and
    all others can be read.
    """
    try:
        created_at, refs, at = _clear(packed, 0)
        (count,) = struct.unpack_from(">H", packed, at)
        parent, run, source, step, body = ormsgpack.unpackb(packed[at + 2 + count * _MARK :])
        _check_bytes(parent, run, source, body)
    except _DAMAGE:
        return CheckpointRow(ns, id_, None, None, None, None, 0, None, _no_body(packed))
    return CheckpointRow(ns, id_, parent, run, source, step, created_at, refs, body)


def pack_write(row: WriteRow) -> bytes:
    """A write without what the script puts in front."""
    return _refs(row.refs) + ormsgpack.packb([row.run, row.body])


def unpack_writes(ns: bytes, checkpoint: bytes, packed: bytes) -> list[WriteRow]:
    """The writes of one checkpoint; the first damaged one comes without a whole body and ends them."""
    rows, at = [], 0
    try:
        while at < len(packed):
            size, length = struct.unpack_from(">IH", packed, at)
            if not size:
                raise TruncatedError
            task = packed[at + 6 : at + 6 + length]
            (k,) = struct.unpack_from(">h", packed, at + 6 + length)
            created_at, refs, rest = _clear(packed, at + 8 + length)
            run, body = ormsgpack.unpackb(packed[rest : at + size])
            _check_bytes(run, body)
            rows.append(WriteRow(ns, checkpoint, task, k, run, created_at, refs, body))
            at += size
    except _DAMAGE:
        rows.append(WriteRow(ns, checkpoint, b"", 0, None, 0, None, _no_body(packed)))
    return rows


def _no_body(packed: bytes) -> bytes:
    """What stands for the body of a damaged record: cut short, and sealed if that was."""
    return BEGINS if BEGINS in packed else b""


def _check_bytes(*parts: Any) -> None:
    if not all(part is None or type(part) is bytes for part in parts):
        raise TruncatedError


def _refs(refs: bytes | None) -> bytes:
    refs = refs or b""
    return struct.pack(">H", len(refs) // 8) + refs


def _clear(packed: bytes, at: int) -> tuple[int, bytes | None, int]:
    """Time, refs, and where the rest begins."""
    created, count = struct.unpack_from(">dH", packed, at)
    finish = at + 10 + 8 * count
    return int(created), packed[at + 10 : finish] or None, finish


def pack_rows(rows: Iterable[ChunkRow]) -> list[Any]:
    """Element rows as alternating numbers and values."""
    return [part for row in rows for part in (row.no, bytes((row.n,)) + row.body)]


def unpack_rows(reply: Sequence[Any]) -> list[ChunkRow]:
    """Read `pack_rows`."""
    return [ChunkRow(int(no), packed[0], packed[1:]) for no, packed in _pairs(reply)]


def pack_numbers(numbers: Iterable[int]) -> bytes:
    """Page numbers as scripts read them."""
    return b"".join(number.to_bytes(4, "big") for number in numbers)


def unpack_numbers(packed: bytes) -> list[int]:
    """Read `pack_numbers`."""
    return [int.from_bytes(packed[i : i + 4], "big") for i in range(0, len(packed), 4)]


def unpack_runs(group: bytes) -> Iterator[tuple[bytes, int]]:
    """Runs of a thread and the scores of their index entries."""
    at = 2
    while at < len(group):
        size, score = struct.unpack_from(">Hd", group, at)
        yield group[at + 10 : at + 10 + size], int(score)
        at += 10 + size


def pack_runs(runs: Sequence[tuple[bytes, int]]) -> bytes:
    """Read by `unpack_runs`."""
    return struct.pack(">H", len(runs)) + b"".join(struct.pack(">Hd", len(run), score) + run for run, score in runs)


def _pairs(flat: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    return zip(flat[::2], flat[1::2], strict=True)
