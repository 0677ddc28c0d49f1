"""Two or three operations at once, in every order of their batches, leave what they would one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, product
from typing import Any

import pytest

from tests.contract.matrix import Database, matrix
from tests.faults.scheduler import Running, Step, captured, schedules, serial
from tests.faults.worlds import IDS, LONG, SqliteWorld, TenantWorld, put, write

World = SqliteWorld | TenantWorld

OPS: dict[str, Step] = {
    "put": lambda saver: put(saver, 3, [*LONG[:3], "new" * 300], parent=2),
    "fork": lambda saver: put(saver, 4, [*LONG[:2], "fork" * 300], parent=1, run_id="old"),
    "put anew": lambda saver: put(saver, 2, LONG[2:5], parent=1),
    "create": lambda saver: put(saver, 5, LONG[:2], thread="created"),
    "create too": lambda saver: put(saver, 6, LONG[1:3], thread="created"),
    "write": lambda saver: write(saver, 2, "new task", LONG[4], "x" * 2000),
    "write same": lambda saver: write(saver, 2, "new task", LONG[5]),
    "write more": lambda saver: write(saver, 2, "task", LONG[3], LONG[4]),
    "prune": lambda saver: saver.prune(["t"]),
    "delete": lambda saver: saver.delete_thread("t"),
    "delete run": lambda saver: saver.delete_for_runs(["old"]),
    "copy": lambda saver: saver.copy_thread("t", "copy"),
}

PAIRS = list(combinations_with_replacement(OPS, 2))
# A killed deletion of runs may have done one thread of several; done again, it does the rest.
KILLED = [pair for pair in product(OPS, OPS) if pair != ("delete run", "copy")]
TRIPLES = [
    ("put", "fork", "prune"),
    ("put", "prune", "delete"),
    ("put", "write", "delete"),
    ("put", "write", "prune"),
    ("write", "write same", "prune"),
    ("write", "write same", "write more"),
    ("put", "copy", "prune"),
    ("copy", "copy", "delete"),
    ("put", "delete", "fork"),
    ("put", "delete run", "prune"),
    ("create", "create too", "create"),
    ("put anew", "put", "prune"),
    ("put anew", "write more", "delete run"),
]


@pytest.fixture(scope="module")
def world() -> Iterator[SqliteWorld]:
    world = SqliteWorld()
    yield world
    world.close()


def begins(world: World, names: Sequence[str], *, warm: bool, processes: int) -> Any:
    """Starts the operations at the beginning, each in one of so many processes."""

    def start() -> list[Running]:
        world.restart()
        savers = [world.saver(warm=warm) for _ in range(processes)]
        return [
            Running(captured(savers[number % processes], OPS[name]), savers[number % processes]._driver)
            for number, name in enumerate(names)
        ]

    return start


def check(world: World, names: Sequence[str], *, crash: int | None = None, limit: int | None = None, **how: Any) -> int:
    """Try every order, up to a limit; returns how many were tried."""
    start = begins(world, names, **how)
    allowed = serial(start, world.state, crash=crash)
    count = 0
    for running in schedules(start, crash=crash, limit=limit):
        count += 1
        outcomes = tuple(None if number == crash else one.outcome for number, one in enumerate(running))
        state = world.state()
        assert any(ending.state == state and ending.outcomes == outcomes for ending in allowed), (
            f"{names} as {[one.log for one in running]}, {outcomes}: no serial order leaves this"
        )
        if crash is None and "put anew" not in names:
            assert not world.garbage()
    return count


@pytest.mark.parametrize("names", PAIRS, ids="+".join)
def test_pairs_of_two_processes(world: SqliteWorld, names: tuple[str, str]) -> None:
    assert check(world, names, warm=True, processes=2, limit=60) > 1


@pytest.mark.parametrize("names", PAIRS, ids="+".join)
def test_pairs_of_two_processes_that_know_nothing(world: SqliteWorld, names: tuple[str, str]) -> None:
    assert check(world, names, warm=False, processes=2, limit=15) > 1


@pytest.mark.parametrize("names", PAIRS, ids="+".join)
def test_pairs_in_one_process(world: SqliteWorld, names: tuple[str, str]) -> None:
    assert check(world, names, warm=True, processes=1) >= 1


@pytest.mark.parametrize("names", KILLED, ids="+".join)
def test_pairs_of_which_the_first_is_killed(world: SqliteWorld, names: tuple[str, str]) -> None:
    assert check(world, names, warm=True, processes=2, crash=0, limit=15) > 2


@pytest.mark.parametrize("names", TRIPLES, ids="+".join)
def test_triples_of_three_processes(world: SqliteWorld, names: tuple[str, ...]) -> None:
    assert check(world, names, warm=True, processes=3, limit=60) > 5


@pytest.mark.parametrize("names", TRIPLES, ids="+".join)
def test_triples_of_which_the_first_is_killed(world: SqliteWorld, names: tuple[str, ...]) -> None:
    assert check(world, names, warm=True, processes=3, crash=0, limit=25) > 10


@pytest.mark.parametrize("database", matrix(("sync",)), indirect=True)
@pytest.mark.parametrize("how", ["warm", "cold", "killed"])
async def test_pairs_and_triples_on_every_backend(database: Database, how: str) -> None:
    savers = [await database.raw() for _ in range(4)]
    everywhere = TenantWorld(savers)
    for names in (KILLED if how == "killed" else PAIRS)[:: 7 if how == "warm" else 11] + TRIPLES[::3]:
        crash = 0 if how == "killed" else None
        check(everywhere, names, warm=how != "cold", processes=len(names), crash=crash, limit=6)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("database", matrix(("sync",)), indirect=True)
async def test_many_orders_on_every_backend(database: Database) -> None:
    everywhere = TenantWorld([await database.raw() for _ in range(4)])
    for names in [*KILLED, *TRIPLES]:
        for crash in (None, 0):
            check(everywhere, names, warm=True, processes=len(names), crash=crash, limit=60)
            check(everywhere, names, warm=False, processes=len(names), crash=crash, limit=60)


@pytest.mark.soak
@pytest.mark.parametrize("names", [*KILLED, *TRIPLES], ids="+".join)
def test_every_order_there_is(world: SqliteWorld, names: tuple[str, ...]) -> None:
    limit = None if len(names) == 2 else 10_000
    for warm in (True, False):
        check(world, names, warm=warm, processes=len(names), limit=limit)
        check(world, names, warm=warm, processes=len(names), crash=0, limit=limit)


def test_the_oracle_notices_a_lost_write(world: SqliteWorld) -> None:
    """What this file relies on: a state that no serial order leaves is found."""
    start = begins(world, ("put", "write"), warm=True, processes=2)
    allowed = serial(start, world.state)
    world.restart()
    saver = world.saver()
    OPS["put"](saver)

    assert all(ending.state != world.state() for ending in allowed)
    assert IDS[3] in str(world.state())
