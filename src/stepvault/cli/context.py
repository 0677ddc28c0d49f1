"""What every command shares: the vault it works on, the app's classes, and how it prints."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from stepvault._core.people import HOLE
from stepvault.encryption import Keyring
from stepvault.errors import ConfigurationError
from stepvault.vault import Vault

console = Console()
aside = Console(stderr=True)  # what a person watches; standard output is the answer alone
_KEYS = "STEPVAULT_KEYS"
_LONG = 120  # letters of a cell; what must be read whole is no cell
_SHORT = 12  # letters of a cell that is never folded
_ID = 36  # letters of an id that is never folded: a UUID's
_ENDLESS = 10_000  # letters of a line in a file


@dataclass(slots=True)
class Settings:
    """The options before the command."""

    url: str | None
    app: str | None
    as_json: bool
    tenant: str
    keyfile: str | None = None
    keys_url: str | None = None
    subject_patterns: Sequence[Sequence[str]] | None = None


def pattern_of(text: str) -> tuple[str, ...]:
    """The labels of a pattern: `users/u-{subject}`, or a JSON array where a label has a slash or a space."""
    try:
        labels = json.loads(text) if text.startswith("[") else text.split("/")
    except ValueError as exc:
        raise typer.BadParameter(f"this is no JSON array of labels: {text}") from exc
    if HOLE not in "".join(map(str, labels)) or not all(isinstance(label, str) and label for label in labels):
        raise typer.BadParameter(f"a subject pattern is labels with {HOLE} in one of them, such as users/u-{HOLE}")
    return tuple(labels)


def settings_of(context: typer.Context) -> Settings:
    """The options before the command."""
    found = context.find_object(Settings)
    assert found is not None
    return found


def open_vault(context: typer.Context, *, new: bool = False, **options: Any) -> Vault:
    """The vault to work on, with the app's classes registered if `--app` names it; `new`: it need not be there yet."""
    settings = settings_of(context)
    if settings.keys_url is not None:
        options["keys_url"] = settings.keys_url
    if settings.subject_patterns is not None:
        options["subject_patterns"] = settings.subject_patterns
    if not new:
        _check_is_there(settings.url or os.environ.get("STEPVAULT_URL", ""))
    return open_at(context, settings.url, **options)


def _check_is_there(url: str) -> None:
    """Refuse a mistyped path: SQLite would make an empty database of it, in which nothing is wrong."""
    path = url.removeprefix("sqlite:///")
    if path not in (url, "", ":memory:") and not Path(path).exists():
        raise ConfigurationError(f"There is no database at {path}. An app makes one when it first opens it.")


def open_at(context: typer.Context, url: str | None, **options: Any) -> Vault:
    """A vault at another URL, with the same classes, keys and tenant."""
    settings = settings_of(context)
    if settings.app is not None:
        _register(settings.app)
    else:
        options.setdefault("unknown_types", "raw")  # a tool that does not run the app never needs its classes
    if settings.keyfile is not None or os.environ.get(_KEYS):
        options["keyring"] = Keyring.from_file(settings.keyfile) if settings.keyfile else Keyring.from_env(_KEYS)
    vault = Vault.open(url, **options)
    context.call_on_close(vault.close)
    return vault.for_tenant(settings.tenant) if settings.tenant else vault


def _register(app: str) -> None:
    """Import `module`, and call `module:register` if that is what was named."""
    found = named(app)
    if ":" in app:
        found()


def named(name: str) -> Any:
    """The module that `module` names, or the function that `module:function` does.

    Raises:
        ConfigurationError: There is none. What goes wrong inside the module is raised as it is.
    """
    module, colon, function = name.partition(":")
    sys.path.insert(0, "")
    try:
        found = importlib.import_module(module)
    except (ModuleNotFoundError, ValueError, TypeError) as exc:
        if isinstance(exc, ModuleNotFoundError) and not f"{module}.".startswith(f"{exc.name}."):
            raise
        raise ConfigurationError(f"There is no module {module!r} here.") from exc
    if colon and not callable(getattr(found, function, None)):
        raise ConfigurationError(f"The module {module!r} has no function {function!r}.")
    return getattr(found, function) if colon else found


def show(context: typer.Context, rows: Sequence[Any], columns: Sequence[str], title: str = "") -> None:
    """Print rows as a table, or as one JSON array."""
    if settings_of(context).as_json:
        print_json([{name: plain(getattr(row, name)) for name in columns} for row in rows])
        return
    table = Table(title=escape(title) or None, header_style="bold")
    columns_of_cells = []
    for name in columns:
        cells = [_cell(getattr(row, name)) for row in rows]
        # A narrow terminal folds long cells; a word like a status stays whole, to be read and searched for, and so
        # does an id that is to be copied into the next command.
        longest = max(map(len, cells), default=0)
        is_id = name.endswith("id") and longest <= _ID
        table.add_column(
            name.replace("_", " "),
            no_wrap=is_id or longest <= _SHORT,
            min_width=longest if is_id else None,
            overflow="fold",
        )
        columns_of_cells.append(cells)
    for line in zip(*columns_of_cells, strict=True):
        table.add_row(*map(escape, line))
    with _as_wide_as_needed():
        console.print(table)


def show_one(context: typer.Context, value: Any) -> None:
    """Print one thing with its fields."""
    fields = plain(value)
    if settings_of(context).as_json:
        print_json(fields)
        return
    for name, item in fields.items():
        console.print(f"[bold]{name.replace('_', ' ')}[/]  {escape(_text(item))}", soft_wrap=True)


@contextmanager
def _as_wide_as_needed() -> Iterator[None]:
    """Where no terminal sets a width, a line of a table is one line of text, for `grep` and for files."""
    if console.is_terminal or os.environ.get("COLUMNS"):
        yield
        return
    before, console.width = console.width, _ENDLESS
    try:
        yield
    finally:
        console.width = before


def more(context: typer.Context, cursor: str | None) -> None:
    """Say where the next page begins; beside JSON on standard error."""
    if cursor:
        (aside if settings_of(context).as_json else console).print(f"more: --cursor {escape(cursor)}", soft_wrap=True)


def print_json(value: Any) -> None:
    """Print JSON that other programs read."""
    typer.echo(json.dumps(plain(value), ensure_ascii=False, indent=2))


def plain(value: Any) -> Any:
    """A value as JSON knows it; classes that are not loaded show their data."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    dump = getattr(value, "model_dump", None)
    return plain(dump(mode="json")) if dump else repr(value)


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def _cell(value: Any) -> str:
    text = _text(value)
    return text[: _LONG - 3] + "..." if isinstance(value, str) and len(text) > _LONG else text


@contextmanager
def working(what: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """A progress bar on standard error; gives what moves it on: `told("12 threads", advance=1)`."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=aside, transient=True) as bars:
        task = bars.add_task(what, total=total)

        def told(done: str = "", *, advance: int = 0) -> None:
            bars.update(task, description=escape(f"{what}: {done}") if done else what, advance=advance)

        yield told


def dry_run(what: str) -> None:
    """Say that this was a dry run; on standard error, so that JSON stays JSON."""
    aside.print(f"[yellow]Dry run.[/] {what} Repeat with --yes to do it.")


def person(subject: str) -> str:
    """An id as the command line names it: `-` is the first line of standard input, which no process list shows."""
    found = next(iter(lines_of("-")), "") if subject == "-" else subject
    if not found:
        raise typer.BadParameter("name a person, or give - and their id on standard input")
    return found


def text_of(path: str | Path) -> str:
    """The text of a file; `-` is standard input.

    Raises:
        ConfigurationError: It is no text.
    """
    try:
        read = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return read.decode("utf-8-sig")  # Windows marks files as text
    except UnicodeDecodeError as exc:
        source = "Standard input" if path == "-" else path
        raise ConfigurationError(f"{source} is no UTF-8 text.") from exc


def lines_of(path: str) -> Iterable[str]:
    """The non-empty lines of a file; `-` is standard input. Nothing else ends a line: an id is not cut in two."""
    return [line.strip() for line in re.split("\r\n|\r|\n", text_of(path)) if line.strip()]
