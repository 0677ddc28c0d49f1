"""`erase plan|run|status|resume|reconcile|keys|verify-receipt|verify-receipts`, `export`, `hold`, `release`, `readmit`.

Ids of people need not stand on the command line, where other users of the machine see them: `--from FILE`, or `-` for
the one on standard input.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from stepvault._core.ids import text_of
from stepvault.checkpointers._journal import Journal as LastingJournal
from stepvault.checkpointers._ops.erasing import requests
from stepvault.cli import context as cli
from stepvault.cli.wording import explained
from stepvault.erasure import ErasureRequest, verify_receipt
from stepvault.errors import ConfigurationError, StepvaultError
from stepvault.receipts import verify_receipts
from stepvault.vault import Vault

app = typer.Typer(no_args_is_help=True, help="Forget a person, with proof.")

Journal = Annotated[str | None, typer.Option(help="file outside the database that tombstones are written to")]
From = Annotated[str | None, typer.Option("--from", help="file with one person per line; - is standard input")]
Vacuum = Annotated[bool, typer.Option("--vacuum", help="have the purge rewrite files too, which holds others up")]
Receipts = Annotated[str | None, typer.Option(help="folder to keep all receipts in, those of earlier runs too")]
Personal = Annotated[
    list[str] | None,
    typer.Option("--personal-field", help="a field to blank in threads that are anonymised, or NAME=TEXT to put there"),
]
Keys = Annotated[list[str], typer.Option("--public-key", help="64 hexadecimal digits; give all after a rotation")]


def _people(subject: str | None, source: str | None) -> list[str]:
    if subject and source:
        raise typer.BadParameter("name a person or give --from FILE, not both")
    source = "-" if subject == "-" else source
    people = list(cli.lines_of(source)) if source else [subject] if subject else []
    if not people:
        raise typer.BadParameter("name a person, or give --from FILE")
    return people


@app.command()
def plan(context: typer.Context, subject: Annotated[str | None, typer.Argument()] = None, source: From = None) -> None:
    """Show what an erasure would touch; changes nothing."""
    _show_plans(context, _people(subject, source), None)


def _show_plans(context: typer.Context, people: Sequence[str], journal: str | None) -> None:
    erasure = cli.open_vault(context, journal=journal).erasure
    plans = [erasure.plan(person) for person in people]
    if cli.settings_of(context).as_json:
        cli.print_json(plans)
        return
    for found in plans:
        cli.show_one(context, found)


@dataclass(frozen=True, slots=True)
class _Row:
    row: int
    request: str | None
    state: str
    removed: str


@app.command()
def run(
    context: typer.Context,
    subject: Annotated[str | None, typer.Argument()] = None,
    source: From = None,
    shared: Annotated[
        str | None, typer.Option(help="keep (the default), anonymise or erase threads that belong to others too")
    ] = None,
    own: Annotated[str, typer.Option(help="erase or anonymise threads that are theirs alone")] = "erase",
    personal: Personal = None,
    reason: Annotated[str | None, typer.Option(help="for your records")] = None,
    receipts: Receipts = None,
    journal: Journal = None,
    vacuum: Vacuum = False,
    yes: Annotated[bool, typer.Option("--yes", help="do it")] = False,
) -> None:
    """Erase people, with one purge for all; without --yes only the plans are shown.

    With --own anonymise, shared threads are anonymised too unless --shared says something else.
    """
    people = _people(subject, source)
    if not yes:
        _show_plans(context, people, journal)
        cli.dry_run("Nothing was erased.")
        return
    chosen = shared or ("anonymise" if own == "anonymise" else "keep")
    vault = cli.open_vault(context, journal=journal, personal_fields=_fields(personal), vacuum=vacuum)
    _make(receipts)
    with cli.working("erasing", len(people)) as told:

        def progress(request: ErasureRequest) -> None:
            told(f"{request.state}, {_removed(request)}", advance=request.state == "receipted")

        outcomes = vault.erasure.erase_many(people, shared=chosen, own=own, reason=reason, progress=progress)
    cli.show(
        context, [_row(n, outcome) for n, outcome in enumerate(outcomes, 1)], ("row", "request", "state", "removed")
    )
    _keep([vault], receipts)
    failed = [outcome for outcome in outcomes if isinstance(outcome, StepvaultError)]
    for said in dict.fromkeys(explained(exc) for exc in failed if explained(exc) != str(exc)):
        cli.aside.print(escape(said))
    if failed:
        raise typer.Exit(1)


def _fields(personal: Sequence[str] | None) -> dict[str, str | None]:
    """Declared fields, each with what takes its place."""
    named = [text.partition("=") for text in personal or ()]
    if not all(name for name, _, _ in named):
        raise typer.BadParameter("--personal-field takes NAME or NAME=TEXT")
    return {name: value if equals else None for name, equals, value in named}


def _row(number: int, outcome: ErasureRequest | StepvaultError) -> _Row:
    if isinstance(outcome, StepvaultError):
        return _Row(number, None, type(outcome).__name__, str(outcome))
    return _Row(number, outcome.id, outcome.state, _removed(outcome))


def _removed(request: ErasureRequest) -> str:
    return ", ".join(f"{count} {name}" for name, count in request.counts.items()) or "nothing"


def _make(folder: str | None) -> None:
    """Make the folder of receipts, before anything is erased that they are to prove."""
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)


def _keep(views: Sequence[Vault], folder: str | None) -> None:
    """Write the receipts to a folder that are not there; those of a run that was killed are not."""
    for view in views if folder is not None else ():
        for receipt in view.erasure.receipts():
            path = Path(str(folder), f"{receipt['number']:08}-{receipt['receipt']}.json")
            if not path.exists():
                unfinished = path.with_suffix(".part")
                unfinished.write_text(json.dumps(receipt, indent=2) + "\n", encoding="utf-8")
                unfinished.replace(path)


@app.command()
def status(context: typer.Context, request_id: str) -> None:
    """Show how far an erasure is."""
    cli.show_one(context, cli.open_vault(context).erasure.status(request_id))


def _views(context: typer.Context, vault: Vault, journal: str | None) -> list[Vault]:
    """The vault, and every tenant's that has threads, erasures or lines in the journal, unless one tenant is named."""
    if cli.settings_of(context).tenant:
        return [vault]
    saver = vault.checkpointer
    dialect = saver._core.dialect
    # Of a tenant whose last threads an erasure has removed, only the erasure is left.
    stored = saver._run(dialect.tenants()) + saver._run(dialect.tenants_with(requests.SPACE.encode()))
    names = {*map(text_of, stored), *(LastingJournal(journal).tenants() if journal else ())}
    return [vault, *(vault.for_tenant(name) for name in sorted(names - {""}))]


@app.command()
def resume(
    context: typer.Context,
    journal: Journal = None,
    receipts: Receipts = None,
    personal: Personal = None,
    vacuum: Vacuum = False,
) -> None:
    """Bring every unfinished erasure to its end, and retry purge steps (of every tenant, unless --tenant names one)."""
    vault = cli.open_vault(context, journal=journal, personal_fields=_fields(personal), vacuum=vacuum)
    _make(receipts)
    with cli.working("erasing"):
        views = _views(context, vault, journal)
        done = [one for view in views for one in view.erasure.resume()]
    cli.show(context, done, ("id", "state", "counts"))
    _keep(views, receipts)


@app.command()
def reconcile(
    context: typer.Context,
    journal: Annotated[str, typer.Option(help="the journal")],
    receipts: Receipts = None,
    personal: Personal = None,
) -> None:
    """After a restore: erase again whom the journal says to be erased (of every tenant, unless --tenant names one)."""
    if not Path(journal).exists():
        raise ConfigurationError("There is no such journal; without it, who was erased is not known.")
    vault = cli.open_vault(context, journal=journal, personal_fields=_fields(personal))
    _make(receipts)
    views = _views(context, vault, journal)
    done = [one for view in views for one in view.erasure.reconcile()]
    cli.show(context, done, ("id", "state", "counts"))
    _keep(views, receipts)


@app.command()
def keys(
    context: typer.Context,
    rotate: Annotated[bool, typer.Option("--rotate", help="sign with a new key from now on")] = False,
) -> None:
    """Print the public keys that receipts are checked with, oldest first. Publish them all."""
    erasure = cli.open_vault(context).erasure
    found = erasure.rotate_signing_key() if rotate else erasure.signing_keys()
    cli.show(context, found, ("public_key", "since", "current"))


@app.command("verify-receipt")
def verify_one(context: typer.Context, file: str, public_key: Keys) -> None:
    """Check a receipt offline: its signature and that it was not changed."""
    content = verify_receipt(cli.text_of(file), public_key)
    cli.show_one(context, {"genuine": True, **content})


@app.command("verify-receipts")
def verify_all(context: typer.Context, folder: str, public_key: Keys) -> None:
    """Check every receipt of a folder offline: signatures, gaps, order; exit status 1 if something is wrong."""
    texts = {path.name: path.read_bytes().decode("utf-8", "replace") for path in sorted(Path(folder).glob("*.json"))}
    if not texts:
        raise ConfigurationError(f"There are no receipts (*.json) in {folder}.")
    report = verify_receipts(texts, public_key)
    cli.show_one(context, {"complete": report.complete, **cli.plain(report)})
    if not report.complete:
        raise typer.Exit(1)


def export(
    context: typer.Context,
    subject: str,
    file: Annotated[str, typer.Option(help="where to write; - is standard output")] = "-",
) -> None:
    """Write everything of a person as JSON Lines."""
    erasure, subject = cli.open_vault(context).erasure, cli.person(subject)
    if file == "-":
        erasure.export(subject, sys.stdout)
        return
    with open(file, "w", encoding="utf-8") as out:
        count = erasure.export(subject, out)
    cli.show_one(context, {"lines": count, "file": file})


def hold(context: typer.Context, subject: str, reason: str) -> None:
    """Hold a person's data against erasure."""
    cli.open_vault(context).erasure.hold(cli.person(subject), reason)
    cli.show_one(context, {"held": True})


def release(context: typer.Context, subject: str) -> None:
    """Lift a hold."""
    cli.open_vault(context).erasure.release(cli.person(subject))
    cli.show_one(context, {"held": False})


def readmit(context: typer.Context, subject: str, journal: Journal = None) -> None:
    """Let an erased person come back: what they write from now on is stored."""
    cli.open_vault(context, journal=journal).erasure.readmit(cli.person(subject))
    cli.show_one(context, {"readmitted": True})
