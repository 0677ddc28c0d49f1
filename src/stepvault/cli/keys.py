"""`keys list|generate|rotate`, `seal` and `unseal`."""

from __future__ import annotations

from typing import Annotated

import typer

from stepvault.checkpointers._conversion import SETTLE, SealProgress
from stepvault.cli import context as cli
from stepvault.cli.erasing import Vacuum
from stepvault.encryption import Keyring

_HIDDEN = typer.Option("--pseudonymise-ids", help="as the app opens the vault: names of the store are tokens")

app = typer.Typer(no_args_is_help=True, help="The keys of a sealed database.")


@app.command("list")
def list_(
    context: typer.Context,
    subject: Annotated[str | None, typer.Option(help="the data keys that are linked to this person instead")] = None,
) -> None:
    """List key-encryption keys by their ids, and how many data keys each wraps."""
    if subject is not None:
        linked = cli.open_vault(context).keys.of(subject)
        cli.show(context, linked, ("owner", "kind", "subjects", "generations", "wrapped_by"))
        return
    found = cli.open_vault(context).keys.list()
    cli.show(context, found, ("id", "primary", "available", "retired", "wraps"))


@app.command()
def generate(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="key file to write; a new primary key is added to one that exists")],
    key_id: Annotated[str | None, typer.Option("--id", help="id of the key")] = None,
    add: Annotated[bool, typer.Option("--add", help="the file exists: add a key to it")] = False,
) -> None:
    """Make a key and write it to a file that its owner alone may read; no key is ever printed."""
    ring = Keyring.from_file(file).rotated(key_id) if add else Keyring.generate(key_id)
    ring.to_file(file, overwrite=add)
    cli.show_one(context, {"file": file, "primary": ring.primary, "ids": list(ring.ids)})


@app.command()
def rotate(
    context: typer.Context,
    destroy_old: Annotated[bool, typer.Option("--destroy-old", help="retire every other key for good")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do it")] = False,
) -> None:
    """Wrap every data key anew under the primary key; payloads are not touched."""
    keys = cli.open_vault(context).keys
    if yes:
        with cli.working("wrapping keys"):
            done = keys.rotate(destroy_old=destroy_old)
        cli.show_one(context, done)
        return
    cli.show(context, keys.list(), ("id", "primary", "available", "retired", "wraps"))
    cli.dry_run("Nothing was rotated.")


def seal(
    context: typer.Context,
    settle: Annotated[
        float | None, typer.Option(help="seconds to wait for other processes, twice; 0 only if there are none")
    ] = None,
    pseudonymise_ids: Annotated[bool, _HIDDEN] = False,
    vacuum: Vacuum = False,
    yes: Annotated[bool, typer.Option("--yes", help="do it")] = False,
) -> None:
    """Seal a database that is not sealed yet, with the keys of --keyfile or STEPVAULT_KEYS, while the app runs."""
    if not yes:
        cli.dry_run("Nothing was sealed. Back up the keys first: without them, nothing sealed can ever be read.")
        return
    hidden = {"pseudonymise_ids": True} if pseudonymise_ids else {}
    vault = cli.open_vault(context, vacuum=vacuum, **hidden)
    with cli.working("sealing") as told:
        done = vault.seal(settle=_settle(settle), report=lambda far: told(_far(far)))
    cli.show_one(context, done)


def unseal(
    context: typer.Context,
    settle: Annotated[
        float | None, typer.Option(help="seconds to wait for processes with keys; 0 only if there are none")
    ] = None,
    pseudonymise_ids: Annotated[bool, _HIDDEN] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do it")] = False,
) -> None:
    """Undo `seal`, while the app runs: everything becomes readable to whoever can read the database."""
    if not yes:
        cli.dry_run("Nothing was unsealed. Afterwards, everything can be read by whoever can read the database.")
        return
    vault = cli.open_vault(context, **({"pseudonymise_ids": True} if pseudonymise_ids else {}))
    with cli.working("unsealing") as told:
        done = vault.unseal(
            settle=_settle(settle), report=lambda far: told(f"{far.threads} threads, {far.items} items")
        )
    cli.show_one(context, done)


def _far(progress: SealProgress) -> str:
    return f"{progress.threads} threads, {progress.items} items"


def _settle(given: float | None) -> float:
    return SETTLE if given is None else given
