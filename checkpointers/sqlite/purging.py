"""Having deleted data leave the file and its log."""

from __future__ import annotations

from typing_extensions import LiteralString

from stepvault._core.plan import Batch, Op, Stmt
from stepvault.erasure import PurgeStep
from stepvault.errors import StorageError

# SQLite moves rows between pages, and does not clear the space that they leave behind.
_OVERWRITTEN = "content is overwritten in the file as it is deleted, but not where it stood before SQLite moved it"
_NOT_ASKED = "not asked for: vacuum=True (--vacuum) rewrites the file, locked, and with it what SQLite left behind"
_INCREMENTAL = 2  # of PRAGMA auto_vacuum
_VACUUM_SLICE: LiteralString = "PRAGMA incremental_vacuum(2000)"  # pages: a short write lock each
_SLICES = 500


class Purging:
    """See `Dialect`."""

    def purge(self, *, rewrite: bool = False) -> Op[list[PurgeStep]]:
        steps = [PurgeStep("sqlite secure_delete", True, _OVERWRITTEN)]
        steps.append((yield from self._vacuum()) if rewrite else PurgeStep("sqlite VACUUM", False, _NOT_ASKED))
        yield from self.reclaim()
        (rows,) = yield Batch([Stmt("PRAGMA wal_checkpoint(TRUNCATE)")], outside=True)
        emptied = bool(rows) and rows[0][0] == 0
        detail = "the log was emptied" if emptied else "a reader holds the log: end it and resume the erasure"
        return [
            *steps,
            PurgeStep("sqlite wal_checkpoint(TRUNCATE)", emptied, detail, retryable=True),
            PurgeStep("backups, snapshots, replicas and free blocks of the disk", False, "the operator's to clear"),
        ]

    def _vacuum(self) -> Op[PurgeStep]:
        """Rewrite the file, for what programs deleted that do not overwrite, and for where rows stood before."""
        try:
            yield Batch([Stmt("VACUUM")], outside=True)
        except StorageError as exc:
            return PurgeStep("sqlite VACUUM", False, type(exc).__name__, retryable=True)
        return PurgeStep("sqlite VACUUM", True, "the file was rewritten", retryable=True)

    def reclaim(self) -> Op[None]:
        for _ in range(_SLICES):
            free, mode = yield Batch([Stmt("PRAGMA freelist_count"), Stmt("PRAGMA auto_vacuum")], outside=True)
            if not free or not mode or free[0][0] == 0 or mode[0][0] != _INCREMENTAL:
                return
            yield Batch([Stmt(_VACUUM_SLICE, many=True)], outside=True)
