"""SQLite's errors as ours, each with what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from stepvault.errors import (
    MigrationRequiredError,
    StorageCorruptError,
    StorageError,
    StorageFullError,
    StorageReadOnlyError,
    StorageUnavailableError,
)

# https://www.sqlite.org/rescode.html; the message decides where Python < 3.11 gives no code
_BUSY, _LOCKED, _READONLY, _IOERR, _CORRUPT, _FULL, _CANTOPEN, _TOOBIG, _NOTADB = (
    5,
    6,
    8,
    10,
    11,
    13,
    14,
    18,
    26,
)
_BY_MESSAGE = (
    ("is locked", _BUSY),
    ("readonly database", _READONLY),
    ("disk I/O error", _IOERR),
    ("malformed", _CORRUPT),
    ("is full", _FULL),
    ("unable to open", _CANTOPEN),
    ("too big", _TOOBIG),
    ("not a database", _NOTADB),
)


THEIRS = (sqlite3.Error, sqlite3.Warning, OverflowError)


@contextmanager
def translated(path: str | None) -> Iterator[None]:
    """Raise ours for sqlite3's errors."""
    try:
        yield
    except THEIRS as exc:
        raise ours(exc, path) from exc


def ours(exc: Exception, path: str | None) -> Exception:
    """Our error for one of `THEIRS`."""
    where = path or "the given connection"
    code = (getattr(exc, "sqlite_errorcode", None) or 0) & 0xFF
    text = str(exc)
    code = code if code > 1 else next((known for part, known in _BY_MESSAGE if part in text), 0)
    if code in (_BUSY, _LOCKED):
        return StorageUnavailableError(
            f"{where} is locked by another process for longer than busy_timeout; retry, or raise busy_timeout."
        )
    if code == _READONLY:
        return StorageReadOnlyError(f"{where} cannot be written; check the permissions of the file and of its folder.")
    if code == _FULL:
        return StorageFullError(f"The disk of {where} is full; nothing of this write was stored. Free space and retry.")
    if code in (_CORRUPT, _NOTADB):
        return StorageCorruptError(f"{where} is damaged or not an SQLite database ({text}); restore it from a backup.")
    if code == _CANTOPEN:
        return StorageUnavailableError(f"{where} cannot be opened; check that its folder exists and can be written.")
    if code == _TOOBIG:
        return StorageError("A value is larger than SQLite stores in one row (1 GB); nothing was stored. Split it.")
    if code == _IOERR:
        return StorageUnavailableError(f"The disk of {where} failed ({text}); nothing of this operation was stored.")
    if "no such table" in text or "no such column" in text:
        return MigrationRequiredError(f"{where} lacks tables of this version ({text}); call setup() once.")
    if "closed database" in text:
        return StorageUnavailableError("The SQLite connection was closed; open a new saver or store.")
    return StorageError(f"SQLite refused the operation: {text}.")
