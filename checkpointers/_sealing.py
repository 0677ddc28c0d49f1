"""Rows of a thread, sealed and opened: each payload under the name of its row."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace

from stepvault._core import identity
from stepvault._core.chunks import ChunkRow
from stepvault._core.rows import SUBJECT, CheckpointRow, Elements, Loaded, Note, WriteRow
from stepvault._core.sealing import Seal
from stepvault.errors import KeyShreddedError, TamperedError

REAL_ID = b"\0id"  # key of the note that holds the real id of a thread, whose row has a token of it

_SIZE = struct.Struct(">H")


def sealed_checkpoint(seal: Seal, row: CheckpointRow) -> CheckpointRow:
    return row._replace(body=seal.seal(identity.checkpoint_body(row.ns, row.id), row.body))


def sealed_writes(seal: Seal, rows: Iterable[WriteRow]) -> list[WriteRow]:
    return [
        row._replace(body=seal.seal(identity.write_body(row.ns, row.checkpoint, row.task, row.k), row.body))
        for row in rows
    ]


def sealed_chunks(seal: Seal, rows: Iterable[ChunkRow]) -> list[ChunkRow]:
    return [ChunkRow(no, n, seal.seal(identity.chunk(no, n), body)) for no, n, body in rows]


def sealed_elements(seal: Seal, elements: Elements) -> Elements:
    return replace(elements, rows=sealed_chunks(seal, elements.rows)) if elements.rows else elements


def sealed_note(seal: Seal, place: bytes, note: Note) -> Note:
    """A note under the token of its key; the key goes inside."""
    if note.body is None:
        return Note(place, None)
    return Note(place, seal.seal(identity.note(place), _SIZE.pack(len(note.key)) + note.key + note.body))


def subjects_in(notes: Iterable[Note]) -> list[bytes]:
    """The tokens of the people whom notes name."""
    return [note.key[1:] for note in notes if note.key[:1] == SUBJECT and note.body is not None]


def sealed_id(seal: Seal, thread: bytes) -> Note:
    return Note(REAL_ID, seal.seal(identity.thread_id(), thread))


def bodies_of(loaded: Loaded) -> list[bytes]:
    return [row.body for rows in (loaded.checkpoints, loaded.writes, loaded.chunks) for row in rows]


def opened(seal: Seal, loaded: Loaded) -> Loaded:
    """What was loaded, in clear; its thread as it is."""
    return Loaded(
        loaded.thread,
        opened_checkpoints(seal, loaded.checkpoints),
        opened_writes(seal, loaded.writes),
        [ChunkRow(no, n, seal.open(identity.chunk(no, n), body)) for no, n, body in loaded.chunks],
    )


def opened_checkpoints(seal: Seal, rows: Sequence[CheckpointRow]) -> list[CheckpointRow]:
    return [row._replace(body=seal.open(identity.checkpoint_body(row.ns, row.id), row.body)) for row in rows]


def opened_writes(seal: Seal, rows: Sequence[WriteRow]) -> list[WriteRow]:
    return [
        row._replace(body=seal.open(identity.write_body(row.ns, row.checkpoint, row.task, row.k), row.body))
        for row in rows
    ]


def opened_note(seal: Seal, place: bytes, body: bytes) -> Note:
    payload = seal.open(identity.note(place), body)
    (size,) = _SIZE.unpack_from(payload)
    if len(payload) < _SIZE.size + size:
        raise TamperedError
    return Note(payload[_SIZE.size : _SIZE.size + size], payload[_SIZE.size + size :])


def opened_notes(seal: Seal, sealed: Iterable[tuple[bytes, bytes]]) -> list[Note]:
    """Notes in order; none if their key is destroyed: the thread can still be deleted."""
    try:
        return sorted(opened_note(seal, place, body) for place, body in sealed)
    except KeyShreddedError:
        return []


def opened_id(seal: Seal, body: bytes) -> bytes:
    return seal.open(identity.thread_id(), body)
