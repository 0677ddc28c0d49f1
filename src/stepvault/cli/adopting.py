"""`adopt`: taking over what LangGraph's own saver and store keep in a database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from stepvault._drivers.sqlite import path_of
from stepvault.cli import context as cli
from stepvault.copying import copy_all
from stepvault.errors import ConfigurationError, MissingDependencyError

_POSTGRES = ("postgresql://", "postgres://")
_TABLES = {  # asked first: the SQLite ones make their tables when they are used
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
    "postgres": "SELECT name FROM unnest(ARRAY['checkpoints', 'store']) AS name WHERE to_regclass(name) IS NOT NULL",
}


def adopt(
    context: typer.Context,
    source: Annotated[str | None, typer.Argument(help="URL of the other database; without it, the same one")] = None,
    from_metadata: Annotated[
        str | None, typer.Option(help="then attribute threads by this key of their metadata")
    ] = None,
) -> None:
    """Copy the threads and items of LangGraph's own saver and store into this database; nothing is changed there."""
    url = cli.settings_of(context).url
    if (source := source or url) is None:
        raise ConfigurationError("Name a database: --url sqlite:///file.db or postgresql://...")
    with cli.working("adopting") as told, _official(source) as (saver, store):
        vault = cli.open_vault(context, new=True)
        vault.setup()

        def so_far(what: str) -> Any:
            return lambda done: told(f"{done} {what}")

        threads = copy_all(saver, vault.checkpointer, progress=so_far("threads")) if saver is not None else 0
        items = copy_all(store, vault.store, progress=so_far("items")) if store is not None else 0
    assigned = vault.subjects.assign(from_metadata).threads if from_metadata is not None else 0
    cli.show_one(context, {"threads": threads, "items": items, "assigned": assigned})


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
