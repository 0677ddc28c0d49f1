"""Creating and migrating the tables."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from stepvault._core.migrate import migrations_in, pending, statements
from stepvault._core.plan import Atomic, Batch, Op, Stmt
from stepvault._core.sqltext import literal

NOW = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
MIGRATIONS = migrations_in(files("stepvault.checkpointers.sqlite").joinpath("migrations"))


class Schema:
    """See `Dialect`."""

    def setup(self) -> Op[None]:
        recorded = yield from _recorded()
        if recorded is None or pending(MIGRATIONS, recorded):
            yield Atomic(_migrate(), "write")

    def only_theirs(self) -> Op[bool]:
        if not (yield from _exists("checkpoints")):
            return False
        theirs = Stmt("SELECT 1 FROM checkpoints WHERE NOT EXISTS (SELECT 1 FROM stepvault_thread) LIMIT 1")
        return bool((yield Atomic(_one(theirs), "read")))


def _recorded() -> Op[list[tuple[int, str, int]] | None]:
    """The applied migrations; None without the table that records them."""
    if not (yield from _exists("stepvault_migration")):
        return None
    return (yield Atomic(_one(Stmt("SELECT number, checksum, oldest FROM stepvault_migration")), "read"))  # type: ignore[no-any-return]


def _exists(table: str) -> Op[bool]:
    found = Stmt("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,))
    return bool((yield Atomic(_one(found), "read")))


def _migrate() -> Op[None]:
    yield Batch(
        [
            Stmt(
                "CREATE TABLE IF NOT EXISTS stepvault_migration (number INTEGER PRIMARY KEY, name TEXT NOT NULL, "
                "checksum TEXT NOT NULL, oldest INTEGER NOT NULL, applied_at INTEGER NOT NULL)"
            )
        ]
    )
    recorded = yield from _recorded()
    for step in pending(MIGRATIONS, recorded or []):
        yield Batch([Stmt(literal(sql)) for sql in statements(step.sql)])
        record = literal(f"INSERT INTO stepvault_migration VALUES (?, ?, ?, ?, {NOW})")
        yield Batch([Stmt(record, (step.number, step.name, step.checksum, step.oldest))])


def _one(statement: Stmt) -> Op[list[Any]]:
    (rows,) = yield Batch([statement])
    return rows  # type: ignore[no-any-return]
