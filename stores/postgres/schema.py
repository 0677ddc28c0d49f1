"""Tables: created and migrated under a lock, or printed for those who create them otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from psycopg.sql import Literal

from stepvault._core.migrate import Migration, migrations_in, pending, statements
from stepvault._core.plan import Atomic, Batch, Op, Row, Stmt
from stepvault._core.sqltext import named
from stepvault.errors import SchemaError
from stepvault.stores.postgres.naming import Names

_HERE = files("stepvault.stores.postgres")
_OLDEST_SERVER = 140000

QUERIES = named(_HERE.joinpath("queries.sql").read_text(encoding="utf-8"))
MIGRATIONS = migrations_in(_HERE.joinpath("migrations"))


class Schema:
    """The tables of one store."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def setup(self) -> Op[None]:
        """Apply what is pending, each migration in a transaction of its own; idempotent."""
        while (yield from self._pending()):
            yield Atomic(self._migrate(), "write")

    def _pending(self) -> Op[list[Migration]]:
        ((version, recorded, _),) = yield from self._one("survey", self._survey())
        if version < _OLDEST_SERVER:
            raise SchemaError(
                f"Postgres {version // 10000} is too old, Stepvault needs 14 or newer; nothing was created."
            )
        applied = (yield from self._one("applied", {})) if recorded else []
        return pending(MIGRATIONS, applied)

    def _migrate(self) -> Op[None]:
        """Apply the next pending migration; the lock makes N callers at once one after the other."""
        yield from self._one("lock_migrations", {})
        ((_, recorded, has_schema),) = yield from self._one("survey", self._survey())
        if not has_schema:
            yield from self._one("create_schema", {})
        if not recorded:
            yield from self._one("create_migration", {})
        for migration in (yield from self._pending())[:1]:
            yield Batch([Stmt(self._names.fill(text)) for text in statements(migration.sql)])
            yield from self._one("record_migration", _record(migration))

    def _survey(self) -> dict[str, str | None]:
        schema = None if self._names.schema is None else self._names.fill("{schema}")
        return {"migration": self._names.table("store_migration"), "schema": schema}

    def _one(self, name: str, args: Mapping[str, Any]) -> Op[list[Row]]:
        (rows,) = yield Batch([Stmt(self._names.fill(QUERIES[name]), args)])
        return rows  # type: ignore[no-any-return]

    def ddl(self) -> str:
        """Everything `setup` would run on an empty database, for migration tools and reviews."""
        fill = self._names.fill
        parts: list[str] = [fill(QUERIES["create_schema"])] if self._names.schema is not None else []
        parts.append(fill(QUERIES["create_migration"]))
        for migration in MIGRATIONS:
            parts += [fill(text) for text in statements(migration.sql)]
            record: str = fill(QUERIES["record_migration"])
            for name, value in _record(migration).items():
                record = record.replace(f"%({name})s", Literal(value).as_string(None))
            parts.append(record)
        return "".join(f"{part};\n\n" for part in parts)


def _record(migration: Migration) -> dict[str, Any]:
    return {
        "number": migration.number,
        "name": migration.name,
        "checksum": migration.checksum,
        "oldest": migration.oldest,
    }
