"""Schema migrations: numbered SQL files, applied once, each recorded with its checksum.

Append-only after a release. A migration expands first and contracts in a later release: `oldest` in its record is
the lowest schema that older code must know to keep working on the new tables; only code below it is turned away.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from stepvault.errors import SchemaError, SchemaTooNewError

_FILE = re.compile(r"^(\d{4})_(\w+)\.sql$")
_OLDEST = re.compile(r"^-- oldest: (\d+)$", re.MULTILINE)


class Folder(Protocol):
    """What is needed of `importlib.resources`' Traversable, which moved between Python versions."""

    @property
    def name(self) -> str: ...
    def iterdir(self) -> Iterator[Folder]: ...
    def read_text(self, encoding: str | None = None) -> str: ...


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file."""

    number: int
    name: str
    sql: str
    oldest: int

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def migrations_in(folder: Folder) -> list[Migration]:
    """The migrations of a package folder in order."""
    found = []
    for entry in folder.iterdir():
        if match := _FILE.match(entry.name):
            sql = entry.read_text(encoding="utf-8")
            number = int(match[1])
            oldest = _OLDEST.search(sql)
            found.append(Migration(number, match[2], sql, int(oldest[1]) if oldest else number))
    return sorted(found, key=lambda migration: migration.number)


def pending(known: Sequence[Migration], applied: Iterable[tuple[int, str, int]]) -> list[Migration]:
    """The migrations still to apply, given the recorded `(number, checksum, oldest)`.

    Raises:
        SchemaTooNewError: A newer version changed the tables beyond what this code can work with.
        SchemaError: A recorded migration differs from the file of that number.
    """
    records = {number: (checksum, oldest) for number, checksum, oldest in applied}
    newest = known[-1].number
    for number, (_, oldest) in records.items():
        if number > newest and oldest > newest:
            raise SchemaTooNewError(
                f"The tables were made by a newer Stepvault (schema {number}, this code knows {newest}); "
                "upgrade this process, nothing was changed."
            )
    for migration in known:
        if migration.number in records and records[migration.number][0] != migration.checksum:
            raise SchemaError(
                f"Migration {migration.number:04d}_{migration.name} was applied from another text than this version "
                "ships; the tables were not touched. Use the version that made them, or a fresh database."
            )
    return [migration for migration in known if migration.number not in records]


def statements(sql: str) -> list[str]:
    """The statements of a migration file; `;` ends one at the end of a line."""
    lines = [re.sub(r"\s*--.*$", "", line) for line in sql.splitlines()]
    return [part.strip() for part in re.split(r";\s*(?:\n|$)", "\n".join(lines)) if part.strip()]
