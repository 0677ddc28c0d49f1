"""`compact`: shorten the messages of a thread that lives on."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from stepvault.cli import context as cli


def compact(
    context: typer.Context,
    thread_id: str,
    keep: Annotated[int, typer.Option(help="so many of the newest messages stay")],
    keep_types: Annotated[list[str], typer.Option("--keep-type", help="messages of this type stay too")] = ["system"],  # noqa: B006
    summarise: Annotated[
        str | None, typer.Option(help="module:function that makes a summary of the messages that go")
    ] = None,
    messages_key: Annotated[str, typer.Option(help="the channel that holds the messages")] = "messages",
    yes: Annotated[bool, typer.Option("--yes", help="do it")] = False,
) -> None:
    """Shorten the messages of a thread by a new checkpoint; what came before stays in its history."""
    function = _named(summarise) if summarise is not None else None
    report = cli.open_vault(context).compact_thread(
        thread_id,
        keep_messages=keep,
        summarise=function,
        keep_types=keep_types,
        messages_key=messages_key,
        dry_run=not yes,
    )
    cli.show_one(context, report)
    if not yes:
        cli.dry_run("Nothing was changed.")


def _named(name: str) -> Any:
    """The function that `module:function` names."""
    if ":" not in name:
        raise typer.BadParameter("--summarise takes module:function")
    return cli.named(name)
