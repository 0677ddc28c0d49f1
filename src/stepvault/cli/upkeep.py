"""`sweep`, `verify`, `repair`, `rebuild`, `doctor`, `schema` and `copy`."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Annotated, Any

import typer

from stepvault._upkeep import copy_over
from stepvault.cli import context as cli
from stepvault.cli.wording import explained
from stepvault.errors import ConfigurationError, StepvaultError

_PACKAGES = ("langgraph", "langgraph-checkpoint", "langchain-core", "psycopg", "redis", "cryptography", "zstandard")


def sweep(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only count")] = False,
    apply_ttl: Annotated[
        float | None,
        typer.Option(help="first give threads without a deadline one: so many minutes after their last write"),
    ] = None,
    all_tenants: Annotated[
        bool, typer.Option("--all-tenants", help="--apply-ttl and shorter histories for every tenant, not only one")
    ] = False,
    limit: Annotated[int | None, typer.Option(help="at most this many expired threads")] = None,
    seconds: Annotated[float | None, typer.Option(help="stop after so long")] = None,
    keep_last: Annotated[int | None, typer.Option(help="shorten histories to so many checkpoints")] = None,
    max_age: Annotated[float | None, typer.Option(help="take out checkpoints older than so many minutes")] = None,
    max_bytes: Annotated[int | None, typer.Option(help="shorten histories to so many bytes")] = None,
) -> None:
    """Remove what has expired (of every tenant, unless --tenant names one), and shorten histories if told how far."""
    given = {"keep_last": keep_last, "max_age": max_age, "max_bytes": max_bytes}
    retention = {name: value for name, value in given.items() if value is not None}
    options: dict[str, Any] = {"retention": retention} if retention else {}
    if apply_ttl is not None:
        options["ttl"] = {"default_ttl": apply_ttl}
    vault = cli.open_vault(context, **options)
    if apply_ttl is not None and not dry_run:
        with cli.aside.status("giving deadlines") as status:
            count = vault.checkpointer.apply_ttl(
                all_tenants=all_tenants, progress=lambda count: status.update(f"{count} threads")
            )
        cli.aside.print(f"{count} threads got a deadline.")
    with cli.working("sweeping"):
        report = vault.sweep(limit=limit, seconds=seconds, all_tenants=all_tenants, dry_run=dry_run)
    cli.show_one(context, report)


def verify(
    context: typer.Context,
    thread_id: Annotated[str | None, typer.Option("--thread", help="only this thread")] = None,
) -> None:
    """Read every checkpoint and say what cannot be used; exit status 1 if there is something."""
    vault = cli.open_vault(context)
    with cli.working("reading") as told:
        report = vault.verify(thread_id, progress=lambda far: told(f"{far.threads} threads"))
    cli.show_one(context, {"threads": report.threads, "checkpoints": report.checkpoints, "problems": report.problems})
    if not report.ok:
        raise typer.Exit(1)


def repair(
    context: typer.Context,
    thread_id: str,
    to: Annotated[str, typer.Option(help="the checkpoint to go back to, as `verify` names it")],
    yes: Annotated[bool, typer.Option("--yes", help="do it")] = False,
) -> None:
    """Put a checkpoint that can be read at the head of a thread; everything else stays where it is."""
    vault = cli.open_vault(context)
    if yes:
        cli.show_one(context, {"thread": thread_id, "head": vault.repair(thread_id, to)})
        return
    report = vault.verify(thread_id)
    chosen = {"thread_id": thread_id, "checkpoint_ns": "", "checkpoint_id": to}
    if vault.checkpointer.get_tuple({"configurable": chosen}) is None:  # one that cannot be read raises
        raise ConfigurationError(f"Thread {thread_id!r} has no checkpoint {to!r} to go back to.")
    cli.show_one(context, {"thread": thread_id, "to": to, "problems": report.problems})
    cli.dry_run("Nothing was changed.")


def rebuild(context: typer.Context) -> None:
    """Write the indexes anew from what the threads hold: after a restore, or a failover that lost entries."""
    vault = cli.open_vault(context)
    lost = getattr(vault.checkpointer, "rebuild_indexes", None)  # Redis: what is found by it comes first
    counts = {"entries put back": lost()} if lost else {}
    counts["deadlines"] = vault.checkpointer.rebuild_deadlines()
    cli.show_one(context, {**counts, "subjects": vault.subjects.rebuild(), "interrupts": vault.inbox.rebuild()})


def doctor(context: typer.Context) -> None:
    """Say what is installed and whether the database answers."""
    report: dict[str, object] = {"stepvault": metadata.version("stepvault"), "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            report[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            report[name] = "not installed"
    try:
        vault = cli.open_vault(context)
        report["threads on the first page"] = len(vault.threads(limit=50))
        report["warnings"] = list(vault.health().warnings)
        report["database"] = "answers"
    except StepvaultError as exc:
        report["database"] = f"{type(exc).__name__}: {explained(exc)}"
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
        from stepvault.checkpointers.sqlite.schema import MIGRATIONS

        typer.echo("\n".join(migration.sql for migration in MIGRATIONS))
    else:
        raise typer.BadParameter("sqlite or postgres")


def copy(context: typer.Context, target: Annotated[str, typer.Argument(help="URL to copy to")]) -> None:
    """Copy every thread and item of the tenant to another database, under the same keys."""
    source, into = cli.open_vault(context), cli.open_at(context, target)
    with cli.working("copying"):
        threads, items = copy_over(source, into)
    cli.show_one(context, {"threads": threads, "items": items})


def backup(context: typer.Context, target: Annotated[str, typer.Argument(help="URL of an empty database")]) -> None:
    """Copy everything to an empty database; from SQLite to sqlite:///FILE as one exact copy."""
    vault = cli.open_vault(context)
    with cli.working("copying"):
        report = vault.backup(target)
    cli.show_one(context, report)


def stats(
    context: typer.Context,
    by: Annotated[str, typer.Option(help="tenant, subject, thread or status")] = "tenant",
) -> None:
    """Show how many threads, checkpoints and bytes each has."""
    vault = cli.open_vault(context)
    cli.show(context, vault.stats(by), ("name", "threads", "checkpoints", "bytes"))  # type: ignore[arg-type]


def health(context: typer.Context) -> None:
    """Say whether the database answers and what waits to be done; exit status 1 if it does not answer."""
    found = cli.open_vault(context).health()
    cli.show_one(context, found)
    if not found.reachable:
        raise typer.Exit(1)
