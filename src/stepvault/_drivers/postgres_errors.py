"""Postgres's errors as ours, each with what to do. DETAIL lines are left out: they can hold keys and values."""

from __future__ import annotations

from psycopg import Error, InterfaceError, OperationalError
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from stepvault.errors import (
    ConflictError,
    MigrationRequiredError,
    SchemaError,
    StepvaultError,
    StorageCorruptError,
    StorageError,
    StorageFullError,
    StorageReadOnlyError,
    StorageUnavailableError,
)

# https://www.postgresql.org/docs/current/errcodes-appendix.html
ROLLED_BACK = ("40001", "40P01")  # serialization failure, deadlock: surely nothing happened, repeat
UNPREPARED = ("26000", "42P05")  # a pooler has given us another session: prepared statements are not ours
_LOST = ("57P01", "57P02", "57P03", "57P04", "57P05", "25P03", "25P04")  # the server ended this session
_READ_ONLY = "25006"
_UNKNOWN_NAME = ("42P01", "42703")
_NO_SCHEMA = "3F000"
_PRIVILEGE = "42501"
_FULL = ("53100", "53200")
_TOO_LARGE = "54000"
_OF_THE_POOL = (PoolTimeout, PoolClosed, TooManyRequests)
_BUSY = {
    "53300": "Postgres has no connection left (max_connections); make pools smaller or put a pooler in front.",
    "55P03": "A row or table was locked by another session for longer than lock_timeout; retry.",
    "57014": "Postgres ended the statement after its statement_timeout; retry, or raise it.",
    "25P02": "The transaction of the given connection has failed before; roll it back and repeat.",
    "40001": "Other transactions were always first (serialization failure); nothing was stored, repeat.",
    "40P01": "Postgres ended a deadlock by refusing this operation; nothing was stored, repeat.",
}


def was_lost(exc: Error) -> bool:
    """Whether the connection is gone, and with it the answer."""
    state = exc.sqlstate
    if state is None:
        return isinstance(exc, OperationalError | InterfaceError) and not isinstance(exc, _OF_THE_POOL)
    return state in _LOST or state.startswith("08")


def error_of(exc: Error, where: str) -> StepvaultError:
    """Ours for psycopg's error."""
    state, said = exc.sqlstate, _said(exc)
    if was_lost(exc):
        error = StorageUnavailableError(f"The connection to {where} was lost ({said}); repeating is safe.")
        error.repeat = True
        return error
    if isinstance(exc, PoolClosed):
        return StorageUnavailableError(
            "The pool is not open: this saver or store was closed, or a given pool was not opened."
        )
    if isinstance(exc, PoolTimeout | TooManyRequests):
        return StorageUnavailableError(
            f"No connection to {where} became free in time; raise the pool's max_size or timeout, or load it less."
        )
    if state in _BUSY:
        busy = StorageUnavailableError(_BUSY[state])
        busy.repeat = state in ROLLED_BACK
        return busy
    return _refusal(state, said, where)


def _refusal(state: str | None, said: str, where: str) -> StepvaultError:
    if state in _UNKNOWN_NAME:
        return MigrationRequiredError(
            f"{where} lacks tables of this version ({said}); call setup() once. If that was done, this role lacks "
            "USAGE on their schema, or schema= or table_prefix= differ."
        )
    if state == _NO_SCHEMA:
        return SchemaError(
            f"{where}: this role may use no schema that is there ({said}). Grant it USAGE, and CREATE for setup(), or "
            "name another with schema=."
        )
    if state == _PRIVILEGE:
        return StorageError(
            f"The role of this connection lacks a privilege ({said}); see docs/postgres.md for the list."
        )
    if state == _READ_ONLY:
        return StorageReadOnlyError(f"{where} is read only ({said}); connect to the primary.")
    if state in _FULL:
        return StorageFullError(
            f"{where} has no disk or memory left; nothing of this write was stored. Free space and retry."
        )
    if state == _TOO_LARGE:
        return StorageError("A value is larger than Postgres stores in one row (1 GB); nothing was stored. Split it.")
    if state in UNPREPARED:
        return StorageUnavailableError(
            "A pooler moved this connection to another session; pass prepare_threshold=None."
        )
    if state is not None and state.startswith("XX00"):
        return StorageCorruptError(f"{where} reports damaged data ({said}); restore it from a backup.")
    if state in ("42P07", "42710", "42P06"):
        return SchemaError(f"setup() met tables that it did not make ({said}); choose another table_prefix or schema.")
    if state == "23505":
        return ConflictError(f"Another writer was first ({said}); repeat.")
    return StorageError(f"Postgres refused the operation: {said}.")


def _said(exc: Error) -> str:
    """The primary message alone, without DETAIL, CONTEXT or HINT."""
    primary = exc.diag.message_primary
    return primary or str(exc).strip().split("\n")[0].rstrip(".")
