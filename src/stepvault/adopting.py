"""Taking over what LangGraph's own saver and store keep in an SQLite or Postgres database; nothing is changed there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from stepvault._drivers.sqlite import path_of
from stepvault.checkpointers._ops import people
from stepvault.checkpointers._ops import traces as saver_traces
from stepvault.copying import copy_all
from stepvault.errors import ConfigurationError, MissingDependencyError
from stepvault.stores._ops import traces as store_traces

if TYPE_CHECKING:
    from stepvault.vault import Vault

_POSTGRES = ("postgresql://", "postgres://")
_TABLES = {  # asked first: the SQLite ones make their tables when they are used
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
    "postgres": "SELECT name FROM unnest(ARRAY['checkpoints', 'store']) AS name WHERE to_regclass(name) IS NOT NULL",
}


@dataclass(frozen=True, slots=True)
class Adopted:
    """How many threads and items were copied."""

    threads: int
    items: int


def _quiet(what: str) -> Callable[[int], None]:
    return lambda done: None


def adopt(vault: Vault, source: str, progress: Callable[[str], Callable[[int], None]] = _quiet) -> Adopted:
    """Copy the threads and items of LangGraph's own tables in a database into a vault, as often as you like.

    Args:
        vault: Where to; what has gone on there stays.
        source: URL of the database.
        progress: Given "threads" or "items", returns what is called with how many of them there are so far.

    Raises:
        ConfigurationError: There is no such database, or it is of another kind.
        MissingDependencyError: The package that can read what it wrote is not installed.
    """
    with _official(source) as (saver, store):
        threads = copy_all(saver, vault.checkpointer, progress=progress("threads")) if saver is not None else 0
        items = copy_all(store, vault.store, progress=progress("items")) if store is not None else 0
    vault.checkpointer._scope.tell("adopted", numbers={"threads": threads, "items": items})
    return Adopted(threads, items)


def adopt_once(vault: Vault, source: str) -> None:
    """Adopt, unless that has been done: what was deleted here since must not come back.

    Threads are attributed to the people whom the vault's `subject_key=` names in their metadata.
    """
    saver, store = vault.checkpointer, vault.store
    trace = saver._core.wired.unadopted
    if trace is None:
        return
    saver._core.wired.unadopted = store._scope.core.wired.unadopted = None
    try:
        if not saver._run(saver_traces.is_there(saver._core.dialect, trace)):
            adopt(vault, source)
            for key in saver._core.subject_keys:
                saver._run(people.assign(saver._scope, key, dry_run=False))
            store._run(store_traces.leave(store._scope.core.dialect, trace))
            saver._run(saver_traces.leave(saver._core.dialect, trace))
    except BaseException:
        saver._core.wired.unadopted = store._scope.core.wired.unadopted = trace
        raise


@contextmanager
def _official(url: str) -> Iterator[tuple[BaseCheckpointSaver[Any] | None, BaseStore | None]]:
    """LangGraph's saver and store of a database; None for one that has no tables there."""
    backend = "postgres" if url.startswith(_POSTGRES) else "sqlite"
    if backend == "sqlite" and "://" in url and not url.startswith("sqlite:///"):
        raise ConfigurationError("`adopt` reads SQLite and Postgres; elsewhere, give `copy_all` the open savers.")
    where = path_of(url) if backend == "sqlite" else url
    if backend == "sqlite" and not Path(where).exists():
        raise ConfigurationError(f"There is no database at {where}.")
    if backend == "sqlite" and not _begins_as_sqlite(where):
        raise ConfigurationError(f"{where} is no SQLite database.")
    of_savers, of_stores = _classes(backend)
    with of_savers.from_conn_string(where) as saver, of_stores.from_conn_string(where) as store:
        rows = saver.conn.execute(_TABLES[backend]).fetchall()
        tables = {row["name"] if backend == "postgres" else row[0] for row in rows}
        yield saver if "checkpoints" in tables else None, store if "store" in tables else None


def _begins_as_sqlite(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(16) in (b"", b"SQLite format 3\0")


def _classes(backend: str) -> tuple[Any, Any]:
    try:
        if backend == "postgres":
            from langgraph.checkpoint.postgres import PostgresSaver
            from langgraph.store.postgres import PostgresStore

            return PostgresSaver, PostgresStore
        from langgraph.checkpoint.sqlite import SqliteSaver
        from langgraph.store.sqlite import SqliteStore
    except ImportError as exc:
        raise MissingDependencyError(f"Install langgraph-checkpoint-{backend}, which can read what it wrote.") from exc
    return SqliteSaver, SqliteStore
