"""The command tree: options before the command, and where each command lives."""

from __future__ import annotations

from typing import Annotated

import typer

from stepvault.cli import adopting, compacting, erasing, inbox, keys, subjects, threads, upkeep
from stepvault.cli.context import Settings, pattern_of

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Look after a Stepvault database: threads, questions to humans, erasure, upkeep.",
)


@app.callback()
def options(
    context: typer.Context,
    url: Annotated[
        str | None, typer.Option(envvar="STEPVAULT_URL", help="sqlite:///file.db, postgresql://..., redis://...")
    ] = None,
    app_module: Annotated[
        str | None, typer.Option("--app", help="module[:register] that defines the app's classes")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON for other programs")] = False,
    tenant: Annotated[str, typer.Option(help="whose data")] = "",
    keyfile: Annotated[
        str | None, typer.Option(help="file with the keys of a sealed database; else STEPVAULT_KEYS holds them")
    ] = None,
    keys_url: Annotated[
        str | None, typer.Option(envvar="STEPVAULT_KEYS_URL", help="the keys_url= of the app, if it has one")
    ] = None,
    subject_pattern: Annotated[
        list[str] | None,
        typer.Option(
            envvar="STEPVAULT_SUBJECT_PATTERNS",
            help="a subject_patterns= of the app: users/u-{subject}, or the labels as a JSON array",
        ),
    ] = None,
) -> None:
    """Options before the command."""
    patterns = [pattern_of(text) for text in subject_pattern] if subject_pattern else None
    context.obj = Settings(url, app_module, as_json, tenant, keyfile, keys_url, patterns)


app.command()(threads.threads)
app.command()(threads.show)
app.command("inbox")(inbox.questions)
app.command()(inbox.decide)
app.add_typer(erasing.app, name="erase")
app.command()(erasing.export)
app.command()(erasing.hold)
app.command()(erasing.release)
app.command()(erasing.readmit)
app.add_typer(subjects.app, name="subjects")
app.add_typer(keys.app, name="keys")
app.command()(keys.seal)
app.command()(keys.unseal)
app.command()(upkeep.sweep)
app.command()(compacting.compact)
app.command()(upkeep.verify)
app.command()(upkeep.repair)
app.command()(upkeep.rebuild)
app.command()(upkeep.doctor)
app.command()(upkeep.schema)
app.command()(adopting.adopt)
app.command()(upkeep.copy)
app.command()(upkeep.backup)
app.command()(upkeep.stats)
app.command()(upkeep.health)
