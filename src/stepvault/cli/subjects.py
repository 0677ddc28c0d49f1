"""`subjects list|link|assign|rebuild`."""

from __future__ import annotations

from typing import Annotated

import typer

from stepvault.cli import context as cli

app = typer.Typer(no_args_is_help=True, help="The people whose data there is.")


@app.command("list")
def list_(
    context: typer.Context,
    limit: Annotated[int, typer.Option(help="at most this many")] = 50,
    cursor: Annotated[str | None, typer.Option(help="where the page before ended")] = None,
) -> None:
    """List the people with threads."""
    page = cli.open_vault(context).subjects.list(limit=limit, cursor=cursor)
    cli.show(context, page.subjects, ("subject", "threads"))
    cli.more(context, page.cursor)


@app.command()
def link(context: typer.Context, subjects: Annotated[list[str], typer.Argument(help="two ids or more")]) -> None:
    """Make several ids those of one person, and show all ids of theirs; `-` takes them from standard input."""
    if subjects == ["-"]:
        subjects = list(cli.lines_of("-"))
    if len(subjects) < 2:
        raise typer.BadParameter("name two ids or more")
    ids = cli.open_vault(context).subjects.link(*subjects)
    cli.show_one(context, {"ids": list(ids)})


@app.command()
def assign(
    context: typer.Context,
    metadata_key: Annotated[str, typer.Option("--from-metadata", help="the key of the metadata that names people")],
    yes: Annotated[bool, typer.Option("--yes", help="do it")] = False,
) -> None:
    """Attribute threads that name nobody by a key of their metadata."""
    cli.show_one(context, cli.open_vault(context).subjects.assign(metadata_key, dry_run=not yes))
    if not yes:
        cli.dry_run("Nothing was attributed.")


@app.command()
def rebuild(context: typer.Context) -> None:
    """Write the index of people anew from the threads."""
    cli.show_one(context, {"entries": cli.open_vault(context).subjects.rebuild()})
