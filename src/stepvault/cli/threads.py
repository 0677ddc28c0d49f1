"""`threads` and `show`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from stepvault.cli import context as cli
from stepvault.errors import ConfigurationError


def threads(
    context: typer.Context,
    subject: Annotated[str | None, typer.Option(help="only threads of this person")] = None,
    limit: Annotated[int, typer.Option(help="at most this many")] = 50,
    cursor: Annotated[str | None, typer.Option(help="where the page before ended")] = None,
) -> None:
    """List threads, newest first."""
    page = cli.open_vault(context).threads(subject=subject, limit=limit, cursor=cursor)
    columns = ("thread_id", "status", "updated_at", "expires_at", "subjects", "checkpoints", "bytes")
    cli.show(context, page.threads, columns)
    cli.more(context, page.cursor)


@dataclass(frozen=True, slots=True)
class _Line:
    checkpoint_id: str
    step: Any
    source: Any
    ts: str
    channels: list[str]
    writes: int


def show(
    context: typer.Context,
    thread_id: str,
    values: Annotated[bool, typer.Option(help="the channel values of the newest checkpoint too")] = False,
    limit: Annotated[int, typer.Option(help="at most this many checkpoints")] = 20,
) -> None:
    """Show the newest checkpoints of a thread."""
    saver = cli.open_vault(context).checkpointer
    found = list(saver.list({"configurable": {"thread_id": thread_id}}, limit=limit))
    if not found:
        raise ConfigurationError(f"There is no thread {thread_id!r}.")
    lines = [
        _Line(
            entry.checkpoint["id"],
            entry.metadata.get("step"),
            entry.metadata.get("source"),
            entry.checkpoint["ts"],
            sorted(entry.checkpoint["channel_values"]),
            len(entry.pending_writes or ()),
        )
        for entry in found
    ]
    columns = ("checkpoint_id", "step", "source", "ts", "channels", "writes")
    newest = found[0].checkpoint["channel_values"]
    if values and cli.settings_of(context).as_json:
        rows = [{name: getattr(line, name) for name in columns} for line in lines]
        cli.print_json({"checkpoints": rows, "values": newest})
        return
    cli.show(context, lines, columns, thread_id)
    if values:
        cli.print_json(newest)
