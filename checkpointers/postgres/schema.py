"""Tables: created and migrated under a lock, or printed for those who create them otherwise."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from stepvault._core.migrate import Migration, migrations_in, pending, statements
from stepvault._core.plan import Atomic, Batch, Op, Row, Stmt
from stepvault._core.sqltext import named
from stepvault.checkpointers.postgres.names import HASHED, Names
from stepvault.errors import ConfigurationError, SchemaError, StorageError

_HERE = files("stepvault.checkpointers.postgres")
_OLDEST_SERVER = 140000
_MOST_PARTITIONS = 1024

QUERIES = named(_HERE.joinpath("queries.sql").read_text(encoding="utf-8"))
MIGRATIONS = migrations_in(_HERE.joinpath("migrations"))

logger = logging.getLogger("stepvault")


class Schema:
    """The tables of one saver.

    Args:
        names: Their names.
        partitions: How many hash partitions each big table is created with; 0: none.

    Raises:
        ConfigurationError: A number of partitions that makes no sense.
    """

    def __init__(self, names: Names, partitions: int = 0) -> None:
        if not isinstance(partitions, int) or not 0 <= partitions <= _MOST_PARTITIONS or partitions == 1:
            raise ConfigurationError(f"partitions must be 0 or 2 to {_MOST_PARTITIONS}, not {partitions!r}.")
        self._names = names
        self._partitions = partitions

    def setup(self) -> Op[None]:
        """Apply what is pending, each migration in a transaction of its own; idempotent."""
        while (yield from self._pending()):
            yield Atomic(self._migrate(), "write")

    def _pending(self) -> Op[list[Migration]]:
        (row,) = yield from self._one("survey", self._survey())
        version, recorded, *_ = row
        if version < _OLDEST_SERVER:
            raise SchemaError(
                f"Postgres {version // 10000} is too old, Stepvault needs 14 or newer; nothing was created."
            )
        applied = (yield from self._one("applied", {})) if recorded else []
        return pending(MIGRATIONS, applied)

    def _migrate(self) -> Op[None]:
        """Apply the next pending migration; the lock makes N callers at once one after the other."""
        yield from self._one("lock_migrations", {})
        (row,) = yield from self._one("survey", self._survey())
        _, recorded, has_schema, _ = row
        if not has_schema:
            yield from self._one("create_schema", {})
        if not recorded:
            yield from self._one("create_migration", {})
        for migration in (yield from self._pending())[:1]:
            yield Batch([Stmt(self._names.fill(text)) for text in self._texts(migration)])
            yield from self._one("record_migration", _record(migration))

    def _texts(self, migration: Migration) -> Iterator[str]:
        """The statements of a migration, with a table's partitions after it."""
        by_hash = "PARTITION BY HASH (t)" if self._partitions else ""
        for text in statements(migration.sql):
            yield self._names.fill(text, {"by_hash": by_hash}).rstrip()
            if self._partitions:
                for table in HASHED:
                    if text.startswith(f"CREATE TABLE {{{table}}} "):
                        yield from self._parts(table)

    def _parts(self, table: str) -> Iterator[str]:
        for index in range(self._partitions):
            part = self._names.table(f"{table}_p{index}")
            numbers = {"count": str(self._partitions), "index": str(index)}
            yield self._names.fill(QUERIES["partition"], {"part": part, "whole": self._names.table(table), **numbers})

    def only_theirs(self) -> Op[bool]:
        """Whether the official saver has threads here, while there are none of ours."""
        (row,) = yield from self._one("survey", self._survey())
        try:
            return bool(row[3] and (yield from self._one("only_theirs", {})))
        except StorageError:
            return False  # not ours to read

    def _survey(self) -> dict[str, str | None]:
        names = self._names
        schema = None if names.schema is None else names.fill("{schema}")
        return {"migration": names.table("migration"), "schema": schema, "theirs": names.fill("{theirs}")}

    def _one(self, name: str, args: Mapping[str, Any]) -> Op[list[Row]]:
        (rows,) = yield Batch([Stmt(self._names.fill(QUERIES[name]), args)])
        return rows  # type: ignore[no-any-return]

    def ddl(self) -> str:
        """Everything `setup` would run on an empty database, for migration tools and reviews."""
        fill = self._names.fill
        parts = [fill(QUERIES["create_schema"])] if self._names.schema is not None else []
        parts.append(fill(QUERIES["create_migration"]))
        for migration in MIGRATIONS:
            parts += self._texts(migration)
            values = {f"%({name})s": _literal(value) for name, value in _record(migration).items()}
            record = fill(QUERIES["record_migration"])
            for place, value in values.items():
                record = record.replace(place, value)
            parts.append(record)
        return "".join(f"{part};\n\n" for part in parts)


def _record(migration: Migration) -> dict[str, object]:
    return {
        "number": migration.number,
        "name": migration.name,
        "checksum": migration.checksum,
        "oldest": migration.oldest,
    }


def _literal(value: object) -> str:
    return str(value) if isinstance(value, int) else f"'{value}'"
