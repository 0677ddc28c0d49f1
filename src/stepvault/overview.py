"""How much there is, how the database does, and what a backup took."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

StatsBy: TypeAlias = Literal["tenant", "subject", "thread", "status"]


@dataclass(frozen=True, slots=True)
class Stats:
    """How much one tenant, person, thread or status has.

    Attributes:
        name: Whose; None: of threads that name nobody.
        threads: How many threads. One that belongs to several people counts for each.
        checkpoints: How many checkpoints they have.
        bytes: Size of their stored payloads.
    """

    name: str | None
    threads: int
    checkpoints: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Health:
    """How the database does.

    Attributes:
        reachable: Whether it answered.
        error: The kind of error if it did not, or not as it should.
        reason: Its message; names the server, so it is for operators.
        clock: The database's clock.
        free_disk: Free bytes where an SQLite file lies; None where that is not known.
        overdue: Threads whose time to live is over and which no sweep has removed yet, of every tenant unless the
            view is of one; counted up to 1,000.
        erasures: Erasures that are not finished, of every tenant unless the view is of one; `erasure.resume()` of each
            tenant's vault, or `stepvault erase resume`, brings them to their end.
        unpurged: Finished erasures with purge steps to be tried again, of the same tenants.
        sealed: Whether payloads are sealed.
        warnings: What is wrong although it answers: settings with which data may be lost, or it takes no writes.
    """

    reachable: bool
    error: str | None = None
    reason: str | None = None
    clock: datetime | None = None
    free_disk: int | None = None
    overdue: int = 0
    erasures: int = 0
    unpurged: int = 0
    sealed: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What a backup took.

    Attributes:
        kind: `file`: an exact copy of the SQLite file, everything in it; `copied`: threads and items, one by one.
        threads: How many threads it has.
        items: How many items, of a copy one by one.
    """

    kind: Literal["file", "copied"]
    threads: int
    items: int | None = None
