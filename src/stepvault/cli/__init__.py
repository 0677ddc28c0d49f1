"""The `stepvault` command."""

from __future__ import annotations

import sys

from stepvault.cli.wording import explained
from stepvault.errors import MissingDependencyError, StepvaultError

__all__ = ["main"]


def main() -> None:
    """Run the command line; exit status 1 says that something is not as it should be, 2 that the call was wrong."""
    try:
        _run()
    except StepvaultError as exc:
        print(f"{type(exc).__name__}: {explained(exc)}", file=sys.stderr)  # noqa: T201
        raise SystemExit(1) from exc
    except OSError as exc:  # a file that was named, or the disk
        print(exc, file=sys.stderr)  # noqa: T201
        raise SystemExit(1) from exc


def _run() -> None:
    try:
        from stepvault.cli.app import app
    except ModuleNotFoundError as exc:
        raise MissingDependencyError('The command line needs an extra: pip install "stepvault[cli]".') from exc
    app()
