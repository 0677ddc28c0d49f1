"""`sweep`, `doctor`, `schema` and `copy`."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Annotated

import typer

from stepvault import __version__
from stepvault.cli import context as cli
from stepvault.copying import copy_all
from stepvault.errors import StepvaultError

_PACKAGES = ("langgraph", "langgraph-checkpoint", "langchain-core", "psycopg", "redis", "cryptography", "zstandard")


def sweep(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only count")] = False,
    limit: Annotated[int | None, typer.Option(help="at most this many threads")] = None,
) -> None:
    """Remove what has expired."""
    cli.show_one(context, cli.open_vault(context).sweep(limit=limit, dry_run=dry_run))


def doctor(context: typer.Context) -> None:
    """Say what is installed and whether the database answers."""
    report: dict[str, object] = {"stepvault": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            report[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            report[name] = "not installed"
    try:
        report["threads on the first page"] = len(cli.open_vault(context).threads(limit=50))
        report["database"] = "answers"
    except StepvaultError as exc:
        report["database"] = f"{type(exc).__name__}: {exc}"
    cli.show_one(context, report)
    if report["database"] != "answers":
        raise typer.Exit(1)


def schema(
    backend: Annotated[str, typer.Argument(help="sqlite or postgres")],
    pg_schema: Annotated[str | None, typer.Option("--schema", help="Postgres schema")] = None,
    table_prefix: Annotated[str, typer.Option(help="Postgres table prefix")] = "stepvault_",
) -> None:
    """Print the tables as DDL, for those who run migrations themselves."""
    if backend == "postgres":
        from stepvault.checkpointers.postgres import PostgresSaver

        typer.echo(PostgresSaver.ddl(schema=pg_schema, table_prefix=table_prefix))
    elif backend == "sqlite":
        from stepvault.checkpointers.sqlite.dialect import MIGRATIONS

        typer.echo("\n".join(migration.sql for migration in MIGRATIONS))
    else:
        raise typer.BadParameter("sqlite or postgres")


def copy(context: typer.Context, target: Annotated[str, typer.Argument(help="URL to copy to")]) -> None:
    """Copy every thread and store item to another database."""
    from stepvault import Vault

    source = cli.open_vault(context)
    with Vault.open(target) as into, cli.console.status("copying"):
        threads = copy_all(source.checkpointer, into.checkpointer)
        items = copy_all(source.store, into.store)
    cli.show_one(context, {"threads": threads, "items": items})
