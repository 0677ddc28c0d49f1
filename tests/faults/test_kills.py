"""A process killed between any two batches, or in the middle of one, loses nothing that it was told is stored."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest

from stepvault.checkpointers.sqlite import SqliteSaver
from stepvault.errors import ConflictError
from tests.contract.matrix import Database, SqliteDatabase, everywhere
from tests.faults.workload import KINDS, work
from tests.faults.worlds import dangling, everything

SETTINGS = [
    pytest.param(param.values[0], kind, id=f"{param.id}-{kind}", marks=param.marks)
    for param in everywhere(cluster=[pytest.mark.soak])
    for kind in (KINDS if param.values[0][0] is SqliteDatabase else ("before", "after"))
]


@pytest.fixture(scope="module")
def states() -> list[Any]:
    """What is stored after so many steps."""
    with SqliteSaver(":memory:") as saver:
        found = [everything(saver)]
        for step in work():
            step(saver)
            found.append(everything(saver))
    return found


@pytest.mark.parametrize(("database", "kind"), SETTINGS, indirect=["database"])
async def test_a_process_killed_at_any_point(database: Database, kind: str, states: list[Any]) -> None:
    raw = await database.raw()
    done = applied = 0
    for tenant, told in killed(database, kind):
        saver = raw.for_tenant(tenant)
        found = everything(saver)
        assert found in states[told : told + 2], f"killed {tenant}, {told} steps were stored"
        done += 1
        applied += found != states[told]
        go_on(saver, told)
        assert everything(saver) == states[-1], f"killed {tenant}, then done to its end"

    stopped = applied if kind == "after" else done - applied
    assert stopped >= 20, "so many times the step under way was stored just before, or not yet"
    if isinstance(database, SqliteDatabase):
        assert not dangling(raw._driver.connection())


def killed(database: Database, kind: str) -> list[tuple[str, int]]:
    """Do the work in process after process; which tenants, and how many steps each was told are stored."""
    words = [sys.executable, "-m", "tests.faults.workload", database.name, database.url, kind]
    lines = subprocess.run(words, check=True, capture_output=True, text=True, timeout=300).stdout.splitlines()
    *dead, (_, steps) = [tuple(json.loads(line)) for line in lines]
    assert steps == len(work())
    return dead  # type: ignore[return-value]


def go_on(saver: Any, told: int) -> None:
    """What the next process does: the rest, beginning with the step whose end nobody heard of."""
    for step in work()[told:]:
        with suppress(ConflictError):  # a copy that was made already
            step(saver)
