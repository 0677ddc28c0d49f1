"""`erase plan|run|status|resume|reconcile|verify-receipt|verify-receipts|public-key`, `export`, `hold`, `release`."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import ormsgpack
import typer

from stepvault.cli import context as cli
from stepvault.erasure import verify_receipt
from stepvault.errors import StepvaultError, VerifyFailedError

app = typer.Typer(no_args_is_help=True, help="Forget a person, with proof.")

Journal = Annotated[str | None, typer.Option(help="file outside the database that tombstones are written to")]
From = Annotated[str | None, typer.Option("--from", help="file with one person per line; - is standard input")]


def _people(subject: str | None, source: str | None) -> list[str]:
    people = list(cli.lines_of(source)) if source else [subject] if subject else []
    if not people:
        raise typer.BadParameter("name a person, or give --from FILE")
    return people


@app.command()
def plan(context: typer.Context, subject: Annotated[str | None, typer.Argument()] = None, source: From = None) -> None:
    """Show what an erasure would touch; changes nothing."""
    erasure = cli.open_vault(context).erasure
    for person in _people(subject, source):
        cli.show_one(context, erasure.plan(person))


@app.command()
def run(
    context: typer.Context,
    subject: Annotated[str | None, typer.Argument()] = None,
    source: From = None,
    shared: Annotated[str, typer.Option(help="keep or erase threads that belong to others too")] = "keep",
    reason: Annotated[str | None, typer.Option(help="for your records")] = None,
    receipts: Annotated[str | None, typer.Option(help="folder to write receipts to")] = None,
    journal: Journal = None,
    yes: Annotated[bool, typer.Option("--yes", help="do it")] = False,
) -> None:
    """Erase people; without --yes only the plan is shown."""
    erasure = cli.open_vault(context, journal=journal).erasure
    failed = 0
    for person in _people(subject, source):
        if not yes:
            cli.show_one(context, erasure.plan(person))
            continue
        try:
            request = erasure.erase(person, shared=shared, reason=reason)
        except StepvaultError as exc:
            failed += 1
            print(f"{type(exc).__name__}: {exc}", file=sys.stderr)  # noqa: T201
            continue
        if receipts and request.receipt:
            folder = Path(receipts)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{request.id}.json").write_text(json.dumps(request.receipt["receipt"], indent=2))
        cli.show_one(context, {"request": request.id, "state": request.state, "removed": request.counts})
    if not cli.confirmed(yes, "Nothing was erased."):
        return
    if failed:
        raise typer.Exit(1)


@app.command()
def status(context: typer.Context, request_id: str) -> None:
    """Show how far an erasure is."""
    cli.show_one(context, cli.open_vault(context).erasure.status(request_id))


@app.command()
def resume(context: typer.Context, journal: Journal = None) -> None:
    """Bring every unfinished erasure to its end."""
    cli.show(context, cli.open_vault(context, journal=journal).erasure.resume(), ("id", "state", "counts"))


@app.command()
def reconcile(context: typer.Context, journal: Annotated[str, typer.Option(help="the journal")]) -> None:
    """After a restore: erase again whom the journal says to be erased."""
    cli.show(context, cli.open_vault(context, journal=journal).erasure.reconcile(), ("id", "state", "counts"))


@app.command("public-key")
def public_key(context: typer.Context) -> None:
    """Print the key that receipts are checked with."""
    typer.echo(cli.open_vault(context).erasure.public_key())


@app.command("verify-receipt")
def verify_one(file: str, public_key: Annotated[str, typer.Option(help="64 hexadecimal digits")]) -> None:
    """Check a receipt offline: its signature and that it was not changed."""
    content = verify_receipt(Path(file).read_text(encoding="utf-8"), public_key)
    typer.echo(f"genuine: request {content['request']}, verified {content['verified_at']}")


@app.command("verify-receipts")
def verify_all(folder: str, public_key: Annotated[str, typer.Option(help="64 hexadecimal digits")]) -> None:
    """Check every receipt of a folder: signatures, and the chain that shows gaps."""
    by_previous: dict[str | None, dict[str, Any]] = {}
    for path in sorted(Path(folder).glob("*.json")):
        receipt = json.loads(path.read_text(encoding="utf-8"))
        verify_receipt(receipt, public_key)
        by_previous[receipt["previous"]] = receipt
    at: str | None = None
    for count in range(len(by_previous)):
        if at not in by_previous:
            raise VerifyFailedError(f"A receipt is missing after number {count} of the chain.")
        packed = ormsgpack.packb(by_previous[at], option=ormsgpack.OPT_SORT_KEYS)
        at = hashlib.sha256(packed).hexdigest()
    typer.echo(f"{len(by_previous)} receipts, all genuine, none missing")


def export(
    context: typer.Context,
    subject: str,
    file: Annotated[str, typer.Option(help="where to write; - is standard output")] = "-",
) -> None:
    """Write everything of a person as JSON Lines."""
    erasure = cli.open_vault(context).erasure
    if file == "-":
        erasure.export(subject, sys.stdout)
        return
    with open(file, "w", encoding="utf-8") as out:
        count = erasure.export(subject, out)
    cli.console.print(f"{count} lines written to {file}")


def hold(context: typer.Context, subject: str, reason: str) -> None:
    """Hold a person's data against erasure."""
    cli.open_vault(context).erasure.hold(subject, reason)


def release(context: typer.Context, subject: str) -> None:
    """Lift a hold."""
    cli.open_vault(context).erasure.release(subject)
