"""Having deleted data leave the files of the tables, as far as this role may."""

from __future__ import annotations

from typing_extensions import LiteralString

from stepvault._core.plan import Batch, Op, Stmt
from stepvault._core.sqltext import literal
from stepvault.checkpointers.postgres.names import Names
from stepvault.checkpointers.postgres.schema import QUERIES
from stepvault.erasure import PurgeStep
from stepvault.errors import StorageError

_TABLES = "the tables of threads, memory and indexes"


def purge(names: Names, *, rewrite: bool) -> Op[list[PurgeStep]]:
    """VACUUM, and with `rewrite` VACUUM FULL and a checkpoint; says what could not be done."""
    # VACUUM passes over tables of others with no more than a warning, so whose they are is asked first.
    (found,) = yield Batch([Stmt(names.fill(QUERIES["purge_tables"]), {"prefix": names.prefix})])
    mine = ", ".join(name for name, owned in found if owned)
    others = sum(not owned for _, owned in found)
    steps = [(yield from _try("postgres VACUUM", literal(f"VACUUM {mine}"), mine, others, "can be used again"))]
    if rewrite:
        full = literal(f"VACUUM (FULL) {mine}")
        steps.append((yield from _try("postgres VACUUM FULL", full, mine, others, "went back to the disk")))
        steps.append((yield from _try("postgres CHECKPOINT", "CHECKPOINT", "all", 0, "of old pages was written over")))
    else:
        steps.append(
            PurgeStep(
                "postgres VACUUM FULL", False, f"not asked for: vacuum=True (--vacuum) rewrites {_TABLES}, locked"
            )
        )
    detail = "pg_wal turns over with traffic; ANALYZE renews pg_statistic; logs, backups and replicas are their own"
    return [*steps, PurgeStep("postgres pg_wal, pg_statistic, server logs, replicas and backups", False, detail)]


def _try(name: str, sql: LiteralString, mine: str, others: int, what: str) -> Op[PurgeStep]:
    if mine:
        try:
            yield Batch([Stmt(sql)], outside=True)
        except StorageError as exc:
            return PurgeStep(name, False, f"{type(exc).__name__}: not in time, or not allowed to this role", True)
    if others or not mine:
        return PurgeStep(name, False, f"this role does not own {others} of the tables; their owner must do it", True)
    return PurgeStep(name, True, f"the space of deleted rows {what}", True)
