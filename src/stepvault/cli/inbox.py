"""`inbox` and `decide`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from stepvault.cli import context as cli


def questions(
    context: typer.Context,
    status: Annotated[str, typer.Option(help="pending, decided, answered, superseded, expired")] = "pending",
    thread_id: Annotated[str | None, typer.Option("--thread", help="only questions of this thread")] = None,
    node: Annotated[str | None, typer.Option(help="only questions of this node")] = None,
    limit: Annotated[int, typer.Option(help="at most this many")] = 50,
    cursor: Annotated[str | None, typer.Option(help="where the page before ended")] = None,
) -> None:
    """List questions to humans, oldest first."""
    inbox = cli.open_vault(context).inbox
    page = inbox.list(status=status, thread_id=thread_id, node=node, limit=limit, cursor=cursor)
    cli.show(context, page.interrupts, ("id", "kind", "thread_id", "node", "created_at", "deadline", "status", "value"))
    cli.more(context, page.cursor)


def decide(
    context: typer.Context,
    interrupt_id: str,
    answer: Annotated[str, typer.Argument(help="JSON, or plain text")],
    by: Annotated[str | None, typer.Option(help="who decides")] = None,
    note: Annotated[str | None, typer.Option(help="a remark")] = None,
) -> None:
    """Record the answer to a question, once; the app resumes with it."""
    try:
        value = json.loads(answer)
    except ValueError:
        value = answer
    decision = cli.open_vault(context).inbox.decide(interrupt_id, value, by=by, note=note)
    cli.show_one(context, {"recorded": interrupt_id, "answer": decision.answer, "by": decision.by, "at": decision.at})
