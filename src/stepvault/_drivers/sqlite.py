"""SQLite: one connection behind one lock, used by threads directly and by tasks through one worker thread."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import weakref
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from types import TracebackType
from typing import Any, TypeVar

from stepvault._core.numbers import check_seconds
from stepvault._core.plan import Batch, Mode, Op, Stmt, run
from stepvault._drivers.gate import renew_after_fork
from stepvault._drivers.sqlite_errors import THEIRS, ours, translated
from stepvault._drivers.worker import CLOSED, Worker
from stepvault.errors import ConfigurationError, StorageUnavailableError

T = TypeVar("T")

_shared: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()  # locks of given connections, by id
_SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")


class SqliteDriver:
    """Runs batches and operations on one SQLite database.

    Args:
        path: File to open on first use; `":memory:"` for a private database. A `file:` URI works too.
        connection: An open connection to use instead; it stays its owner's to close.
        busy_timeout: Seconds to wait for another process's write.
        synchronous: SQLite's durability setting; None leaves a given connection as it is.
    """

    def __init__(
        self,
        path: str | None = None,
        *,
        connection: sqlite3.Connection | None = None,
        busy_timeout: float = 30.0,
        synchronous: str | None = None,
    ) -> None:
        if synchronous is not None and synchronous.upper() not in _SYNCHRONOUS:
            raise ConfigurationError(f"synchronous must be one of {', '.join(_SYNCHRONOUS)}, not {synchronous!r}.")
        check_seconds("busy_timeout", busy_timeout)
        self.path = path
        self.lock = _lock_of(connection)
        self._given = connection
        self._connection: sqlite3.Connection | None = None
        self.cursor: Any = None  # one for all: no statement is left half read
        self._busy_timeout = busy_timeout
        self._synchronous = synchronous
        self._closed = False
        self._file: tuple[int, int] | None = None
        self._pid = os.getpid()
        self._close_later: weakref.finalize[Any, Any] | None = None
        self._worker: Worker | None = None
        renew_after_fork(self)

    # -- connection

    def connection(self) -> sqlite3.Connection:
        """The open connection; opens it on first use and anew after a fork."""
        if self._pid != os.getpid():
            self._after_fork()
        if self._connection is not None:
            if self._file is None or self._file == _identity(self.path):
                return self._connection
            self._reopen()
        if self._connection is None:
            if self._closed:
                raise StorageUnavailableError(CLOSED)
            with translated(self.path):
                self._connect()
        assert self._connection is not None
        return self._connection

    def _connect(self) -> None:
        """Open and prepare a connection; one that cannot be prepared is not kept."""
        connection = self._given or self._open()
        try:
            self._prepare(connection)
        except BaseException:
            if self._close_later is not None:
                self._close_later()
            raise
        self._connection, self.cursor = connection, _cursor(connection)
        self._file = _identity(self.path) if self._given is None else None

    def _reopen(self) -> None:
        """Another file stands at our path (a restored copy): let go of the one that was there."""
        if self._close_later is not None:
            self._close_later()
        self._connection = self._file = None

    def _open(self) -> sqlite3.Connection:
        assert self.path is not None
        connection = sqlite3.connect(
            self.path,
            timeout=self._busy_timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            uri=self.path.startswith("file:"),
        )
        self._close_later = weakref.finalize(self, _close_quietly, connection)
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Settings that live in the connection: erased content is overwritten, readers do not block the writer."""
        cursor = _cursor(connection)
        cursor.execute("PRAGMA secure_delete = ON").fetchall()
        if connection.in_transaction:
            return
        owned = self._given is None
        if owned and cursor.execute("PRAGMA page_count").fetchone()[0] == 0:
            cursor.execute("PRAGMA auto_vacuum = INCREMENTAL")
        try:
            cursor.execute("PRAGMA journal_mode = WAL").fetchall()
        except sqlite3.OperationalError as exc:
            if "readonly" not in str(exc):
                raise
        if self._synchronous or owned:
            cursor.execute(f"PRAGMA synchronous = {(self._synchronous or 'NORMAL').upper()}")

    def _after_fork(self) -> None:
        """A connection does not survive a fork: leave the parent's alone and open our own."""
        if self._given is not None or self.path == ":memory:":
            raise StorageUnavailableError(
                "A given or in-memory SQLite connection was carried over a fork; open one per process."
            )
        if self._close_later is not None:
            self._close_later.detach()
            _forked.append(self._connection)  # closing it here would drop the parent's locks
        self._connection, self._worker = None, None
        self._pid = os.getpid()

    def renew(self) -> None:
        """In a forked child: a lock that another thread held has nobody to release it."""
        self.lock = threading.RLock()

    def close(self) -> None:
        """Close what this driver opened; a given connection stays open."""
        self._closed = True
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()
        with self.lock:
            if self._close_later is not None:
                self._close_later()
            self._connection = None

    def _outside(self, batch: Batch) -> list[Any]:
        """Run statements by themselves; `executescript` steps one to its end (an incremental vacuum needs that).

        Inside a transaction of the connection's owner nothing is run: the replies are empty.
        """
        replies: list[Any] = []
        with self.lock, translated(self.path):
            connection = self.connection()
            if connection.in_transaction:
                return [[] for _ in batch.statements]
            for statement in batch.statements:
                assert isinstance(statement, Stmt)
                if statement.many:
                    connection.executescript(statement.sql)
                    replies.append([])
                else:
                    replies.append(_cursor(connection).execute(statement.sql, statement.args).fetchall())
        return replies

    async def aclose(self) -> None:
        """Async version of `close`."""
        await asyncio.get_running_loop().run_in_executor(None, self.close)

    # -- sync

    def run(self, op: Op[T]) -> T:
        """Drive an operation."""
        return run(op, self)

    def execute(self, batch: Batch) -> list[Any]:
        """Run a batch in one transaction; one that only reads waits for no writer, a query alone needs none."""
        if batch.outside:
            return self._outside(batch)
        with _Session(self, mode_of(batch), batch.durable) as session:
            return session.execute(batch)

    def session(self, mode: Mode) -> _Session:
        """Hold the connection and one transaction; a refused or failed batch takes back what came before it."""
        return _Session(self, mode)

    # -- async

    async def arun(self, op: Op[T]) -> T:
        """Drive an operation on the worker thread, in one hop; a cancelled caller still waits for its end."""
        if self._pid != os.getpid():
            self._after_fork()
        if self._worker is None:
            self._worker = Worker("stepvault-sqlite")
        return await self._worker.arun(op, self)

    def joins(self, batch: Batch) -> bool:
        """Whether a batch may share a transaction with others."""
        return not batch.durable and not batch.outside and mode_of(batch) == "write"

    def execute_together(self, batches: Sequence[Batch]) -> list[list[Any]]:
        """Run batches in one transaction, each of them whole or not at all; if that fails, none of them."""
        with _Session(self, "write") as session:
            return [session.execute_apart(batch) for batch in batches]


class _Session:
    """One transaction, from entering it to leaving it; `mode` None: none but the one every statement has by itself."""

    __slots__ = ("_driver", "_durable", "_ending", "_level", "_lock", "_mode", "_nested", "cursor", "refused")

    def __init__(self, driver: SqliteDriver, mode: Mode | None, durable: bool = False) -> None:
        self._driver = driver
        self._lock = driver.lock  # a fork renews that of the driver
        self._mode = mode
        self._durable = durable
        self._level: int | None = None  # `PRAGMA synchronous` to go back to
        self._nested = False
        self._ending = True
        self.cursor: Any = None
        self.refused = False

    def __enter__(self) -> _Session:
        driver = self._driver
        self._lock.acquire()
        try:
            connection = driver.connection()
            self.cursor = driver.cursor
            if connection.in_transaction:  # its owner's: theirs to keep, ours to commit
                self._nested = True
                self.cursor.execute("SAVEPOINT stepvault")
            elif self._mode is None:
                self._ending = False
            else:
                if self._durable:
                    self._level = self.cursor.execute("PRAGMA synchronous").fetchone()[0]
                    self.cursor.execute("PRAGMA synchronous = FULL")
                self.cursor.execute("BEGIN IMMEDIATE" if self._mode == "write" else "BEGIN")
        except BaseException as exc:
            self._leave()
            if isinstance(exc, THEIRS):
                raise ours(exc, driver.path) from exc
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if not self._ending:
                pass
            elif exc is not None or self.refused:
                _roll_back(self.cursor, self._nested)
            else:
                try:
                    self.cursor.execute("COMMIT")
                except BaseException as failed:
                    _roll_back(self.cursor, self._nested)
                    exc = failed
                    if not isinstance(failed, THEIRS):
                        raise
        finally:
            self._leave()
        if isinstance(exc, THEIRS):
            raise ours(exc, self._driver.path) from exc

    def _leave(self) -> None:
        try:
            if self._level is not None:
                self.cursor.execute(f"PRAGMA synchronous = {self._level}")
        finally:
            self._lock.release()

    def run(self, op: Op[T]) -> T:
        return run(op, self)

    def execute(self, batch: Batch) -> list[Any]:
        replies: list[Any] = []
        cursor = self.cursor
        for statement in batch.statements:
            assert type(statement) is Stmt
            if statement.many:
                cursor.executemany(statement.sql, statement.args)
                replies.append([])
                continue
            cursor.execute(statement.sql, statement.args)
            rows = cursor.fetchall() if cursor.description is not None else [()] * (cursor.rowcount > 0)
            replies.append(rows)
            if statement.guard and not rows:
                self.refused = True
                break
        return replies

    def execute_apart(self, batch: Batch) -> list[Any]:
        """Run a batch that, if it is refused, leaves the rest of the transaction alone."""
        doubtful = any(statement.guard for statement in batch.statements[1:] if type(statement) is Stmt)
        if doubtful:  # a first statement that is refused has changed nothing
            self.cursor.execute("SAVEPOINT stepvault_batch")
        replies = self.execute(batch)
        if doubtful and self.refused:
            self.cursor.execute("ROLLBACK TO stepvault_batch")
        if doubtful:
            self.cursor.execute("RELEASE stepvault_batch")
        self.refused = False
        return replies

    def session(self, mode: Mode) -> nullcontext[_Session]:
        return nullcontext(self)


def path_of(conn_string: str | os.PathLike[str]) -> str:
    """The file of a connection string: `sqlite:///relative`, `sqlite:////absolute`, or the path itself.

    Raises:
        ConfigurationError: It is neither.
    """
    path = os.fspath(conn_string) if isinstance(conn_string, os.PathLike) else conn_string
    if not isinstance(path, str):
        raise ConfigurationError(f"An SQLite database is named by a path or a URL, not by {type(path).__name__}.")
    if path.startswith("sqlite:///"):
        return path.removeprefix("sqlite:///") or ":memory:"
    return path


def _lock_of(connection: sqlite3.Connection | None) -> Any:
    """A lock for a driver, that of the others on the same connection: it has one transaction, whoever shares it."""
    lock = threading.RLock()
    return lock if connection is None else _shared.setdefault(id(connection), lock)


def mode_of(batch: Batch) -> Mode | None:
    """The transaction that a batch needs; None: none, it is one query."""
    for statement in batch.statements:
        assert isinstance(statement, Stmt)
        if not statement.sql.startswith("SELECT"):
            return "write"
    return None if len(batch.statements) == 1 else "read"


def _cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor


def _roll_back(cursor: sqlite3.Cursor, nested: bool) -> None:
    try:
        if nested:
            cursor.execute("ROLLBACK TO stepvault")
            cursor.execute("RELEASE stepvault")
        elif cursor.connection.in_transaction:
            cursor.execute("ROLLBACK")
    except sqlite3.Error:
        pass  # the connection is broken or closed: there is nothing left to roll back


def _identity(path: str | None) -> tuple[int, int] | None:
    """Device and inode of the database file; None for what is no plain file."""
    if path is None or path == ":memory:" or path.startswith("file:"):
        return None
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0)
    return found.st_dev, found.st_ino


def _close_quietly(connection: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):
        connection.close()


_forked: list[Any] = []  # connections of a parent process, kept so that nothing closes them
