"""Key rows in SQLite: plain statements, several in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from typing_extensions import LiteralString

from stepvault._core.keys import DataKey
from stepvault._core.migrate import migrations_in, pending, statements
from stepvault._core.plan import Atomic, Batch, Op, Stmt
from stepvault._core.sqltext import literal, named
from stepvault._keystore.dialect import KekUse, Linked, Place

_HERE = files("stepvault._keystore")
_NOW = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
_QUERIES = named(_HERE.joinpath("queries.sql").read_text(encoding="utf-8"))
SQL: Mapping[str, LiteralString] = {name: literal(text.replace("{now}", _NOW)) for name, text in _QUERIES.items()}
MIGRATIONS = migrations_in(_HERE.joinpath("migrations"))


class SqliteKeyStore:
    """See `KeyStore`."""

    def setup(self) -> Op[None]:
        recorded = yield Atomic(_recorded(), "read")
        if recorded is None or pending(MIGRATIONS, recorded):
            yield Atomic(_migrate(), "write")

    def load(self, owners: Sequence[bytes]) -> Op[list[DataKey]]:
        replies = yield Atomic(_batch([Stmt(SQL["load"], (owner,)) for owner in owners]), "read")
        return [DataKey(*row) for rows in replies for row in rows]

    def insertion(self, key: DataKey, shredded: int = 0) -> Sequence[Stmt]:
        return [Stmt(SQL["insert"], (*key, shredded), guard=True)]

    def linking(self, subject: bytes, owners: Sequence[bytes]) -> Sequence[Stmt]:
        return [Stmt(SQL["link"], [(subject, owner) for owner in owners], many=True)]

    def linked(self, subject: bytes) -> Op[list[Linked]]:
        return [Linked(*row) for row in (yield from _read("linked", subject))]

    def page(self, kek: str, after: Place, limit: int) -> Op[list[DataKey]]:
        return [DataKey(*row) for row in (yield from _read("page", kek, *after, limit))]

    def rewrap(self, changes: Sequence[tuple[DataKey, DataKey]]) -> Op[int]:
        return (
            yield from _write("rewrap", [(*_place(old), old.wrapped, new.kek, new.wrapped) for old, new in changes])
        )

    def shred(self, owners: Sequence[bytes]) -> Op[int]:
        replies = yield Batch([Stmt(SQL[name], (owner,)) for owner in owners for name in ("shred", "bury")])
        return sum(map(len, replies))

    def forget(self, before: int, limit: int) -> Op[int]:
        owners = yield from _read("forgettable", before, limit)
        yield Batch([Stmt(SQL[name], owners, many=True) for name in ("forget", "unlink")])
        return len(owners)

    def retire(self, keks: Sequence[str]) -> Op[None]:
        yield Batch([Stmt(SQL["retire"], [(kek,) for kek in keks], many=True)])

    def retired(self) -> Op[list[str]]:
        return [row[0] for row in (yield from _read("retired"))]

    def uses(self) -> Op[list[KekUse]]:
        return [KekUse(*row) for row in (yield from _read("uses"))]


def _place(key: DataKey) -> Place:
    return key.owner, key.gen


def _batch(batch: list[Stmt]) -> Op[list[Any]]:
    return (yield Batch(batch))  # type: ignore[no-any-return]


def _read(name: str, *args: Any) -> Op[list[Any]]:
    (rows,) = yield Atomic(_batch([Stmt(SQL[name], args)]), "read")
    return rows  # type: ignore[no-any-return]


def _write(name: str, rows: list[tuple[Any, ...]]) -> Op[int]:
    """Run a statement per row, in one transaction; how many changed something."""
    replies = yield Batch([Stmt(SQL[name], row) for row in rows])
    return sum(map(len, replies))


def _recorded() -> Op[list[Any] | None]:
    """The applied migrations; None without the table that records them."""
    (table,) = yield Batch(
        [Stmt("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'stepvault_key_migration'")]
    )
    if not table:
        return None
    (rows,) = yield Batch([Stmt("SELECT number, checksum, oldest FROM stepvault_key_migration")])
    return rows  # type: ignore[no-any-return]


def _migrate() -> Op[None]:
    yield Batch(
        [
            Stmt(
                "CREATE TABLE IF NOT EXISTS stepvault_key_migration (number INTEGER PRIMARY KEY, name TEXT NOT NULL, "
                "checksum TEXT NOT NULL, oldest INTEGER NOT NULL, applied_at INTEGER NOT NULL)"
            )
        ]
    )
    recorded = yield from _recorded()
    for step in pending(MIGRATIONS, recorded or []):
        yield Batch([Stmt(literal(sql)) for sql in statements(step.sql)])
        record = literal(f"INSERT INTO stepvault_key_migration VALUES (?, ?, ?, ?, {_NOW})")
        yield Batch([Stmt(record, (step.number, step.name, step.checksum, step.oldest))])
