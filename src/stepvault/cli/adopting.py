"""`adopt`: taking over what LangGraph's own saver and store keep in a database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from stepvault.cli import context as cli
from stepvault.errors import ConfigurationError


def adopt(
    context: typer.Context,
    source: Annotated[str | None, typer.Argument(help="URL of the other database; without it, the same one")] = None,
    from_metadata: Annotated[
        str | None, typer.Option(help="then attribute threads by this key of their metadata")
    ] = None,
) -> None:
    """Copy the threads and items of LangGraph's own saver and store into this database; nothing is changed there."""
    from stepvault.adopting import adopt as take_over

    if (source := source or cli.settings_of(context).url) is None:
        raise ConfigurationError("Name a database: --url sqlite:///file.db or postgresql://...")
    with cli.working("adopting") as told:

        def so_far(what: str) -> Callable[[int], None]:
            return lambda done: told(f"{done} {what}")

        vault = cli.open_vault(context, new=True, start_empty=True)
        vault.setup()
        found = take_over(vault, source, so_far)
    assigned = vault.subjects.assign(from_metadata).threads if from_metadata is not None else 0
    cli.show_one(context, {"threads": found.threads, "items": found.items, "assigned": assigned})
