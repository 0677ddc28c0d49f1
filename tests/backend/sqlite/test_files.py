"""One file, many processes: restores under a live writer, forks, first opens at once, what stays on disk."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from stepvault.checkpointers.sqlite import SqliteSaver
from stepvault.errors import StorageError, StorageUnavailableError, ThreadGoneError
from tests.contract.building import config
from tests.faults.worlds import IDS, LONG, begin, dangling, everything, put, write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stepvault.db"


def items(saver: SqliteSaver, number: int, thread: str = "t") -> Any:
    return saver.get_tuple(config(thread, "", IDS[number])).checkpoint["channel_values"]["items"]


# -- an older copy under a live writer


def take_copy(path: Path, copy: Path) -> None:
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)


def restore_by_backup(path: Path, copy: Path) -> None:
    with closing(sqlite3.connect(copy)) as source, closing(sqlite3.connect(path)) as target:
        source.backup(target)


def restore_by_replacing(path: Path, copy: Path) -> None:
    """As SQLite asks for it: the log of the old file goes with it."""
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    os.replace(copy, path)


def restore_by_renaming(path: Path, copy: Path) -> None:
    """The whole set of files, moved away together."""
    for suffix in ("", "-wal", "-shm"):
        old = path.with_name(path.name + suffix)
        if old.exists():
            old.rename(path.with_name("old" + suffix))
    shutil.copy(copy, path)


RESTORES = pytest.mark.parametrize("restore", [restore_by_backup, restore_by_replacing, restore_by_renaming])


@RESTORES
def test_a_live_writer_goes_on_over_an_older_copy(path: Path, tmp_path: Path, restore: Any) -> None:
    with SqliteSaver(str(path)) as saver:
        begin(saver)
        take_copy(path, tmp_path / "copy.db")
        old = everything(saver)
        new = [f"stored after the copy {n} " * 60 for n in range(3)]
        put(saver, 3, [*LONG[:3], *new], parent=2)
        write(saver, 3, "task", new)

        restore(path, tmp_path / "copy.db")

        put(saver, 4, [*LONG[:3], *new, "more"], parent=3)
        write(saver, 4, "task", new)
        with SqliteSaver(str(path)) as other:
            assert items(other, 4) == [*LONG[:3], *new, "more"]
            assert other.get_tuple(config("t", "", IDS[4])).pending_writes == [("task", "items", new)]
            assert other.get_tuple(config("t", "", IDS[3])) is None
            assert [entry for entry in everything(other)["t"] if entry.checkpoint["id"] != IDS[4]] == old["t"]
            assert everything(saver) == everything(other)
    with closing(sqlite3.connect(path)) as connection:
        assert not dangling(connection)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@RESTORES
def test_values_of_a_parent_that_a_restore_took_away(path: Path, tmp_path: Path, restore: Any) -> None:
    """A child that says a channel is unchanged must not point into nothing."""
    with SqliteSaver(str(path)) as saver:
        begin(saver)
        take_copy(path, tmp_path / "copy.db")
        put(saver, 3, [*LONG[:3], "lost" * 200], parent=2)
        restore(path, tmp_path / "copy.db")
        made = saver.get_tuple(config("t", "", IDS[2])).checkpoint
        values = {"items": [*LONG[:3], "lost" * 200], "n": 4}
        child = {**made, "id": IDS[4], "channel_values": values, "channel_versions": {"items": "3", "n": "4"}}

        saver.put(config("t", "", IDS[3]), child, {}, {"n": "4"})

        with SqliteSaver(str(path)) as other:
            assert items(other, 4) == [*LONG[:3], "lost" * 200]


class State(TypedDict, total=False):
    items: list[str]


@RESTORES
@pytest.mark.parametrize("known", [True, False], ids=["a thread of the copy", "a thread made after it"])
def test_a_run_over_a_restore(path: Path, tmp_path: Path, restore: Any, known: bool) -> None:
    with SqliteSaver(str(path)) as saver:
        saver.setup()

        def build(node: Any) -> Any:
            builder = StateGraph(State)
            builder.add_node("node", node)
            builder.add_edge(START, "node")
            return builder.compile(checkpointer=saver)

        def restoring(state: State) -> Any:
            restore(path, tmp_path / "copy.db")
            return {"items": [*state["items"], *LONG]}

        if known:
            build(lambda state: {"items": LONG}).invoke({"items": LONG[:1]}, config())
        take_copy(path, tmp_path / "copy.db")
        build(lambda state: {"items": LONG[::-1]}).invoke({"items": LONG[:2]}, config())
        run = build(restoring)
        if not known:
            with pytest.raises(ThreadGoneError):
                run.invoke({"items": LONG[3:]}, config(), durability="sync")
            assert everything(saver) == {}
            return
        run.invoke({"items": LONG[3:]}, config(), durability="sync")
        with SqliteSaver(str(path)) as other:
            assert other.get_tuple(config()).checkpoint["channel_values"]["items"] == [*LONG[3:], *LONG]
            assert everything(other) == everything(saver)


# -- forks and first opens


def in_child(work: Any) -> int:
    """Run something in a fork of this process; its exit code."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


FORKING = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")


@FORKING
def test_a_saver_opened_before_a_fork_works_on_both_sides(path: Path) -> None:
    with SqliteSaver(str(path)) as saver:
        begin(saver)

        def child() -> None:
            put(saver, 3, [*LONG, "of the child" * 100], parent=2)
            saver.close()

        def second() -> None:
            asyncio.run(saver.aget_tuple(config()))
            asyncio.run(saver.adelete_thread("other"))

        assert in_child(child) == 0
        put(saver, 4, [*LONG, "of the parent" * 100], parent=2)
        assert in_child(second) == 0
        assert in_child(lambda: None) == 0, "a child that leaves the saver alone"
        put(saver, 5, [*LONG, "of the parent again" * 100], parent=4)

        assert items(saver, 3) == [*LONG, "of the child" * 100]
        assert items(saver, 5) == [*LONG, "of the parent again" * 100]
        assert everything(saver).keys() == {"t"}
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@FORKING
def test_a_fork_while_async_calls_are_under_way(path: Path) -> None:
    async def main() -> None:
        async with SqliteSaver(str(path)) as saver:
            await asyncio.to_thread(begin, saver)
            busy = [asyncio.ensure_future(saver.aget_tuple(config())) for _ in range(20)]
            await asyncio.sleep(0)
            assert await asyncio.to_thread(in_child, lambda: put(saver, 3, LONG, parent=2)) == 0
            await asyncio.gather(*busy)
            assert len([entry async for entry in saver.alist(config())]) == 4

    asyncio.run(main())


@FORKING
@pytest.mark.parametrize("given", [True, False])
def test_what_cannot_survive_a_fork_says_so(path: Path, given: bool) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    saver = SqliteSaver(connection if given else ":memory:")
    begin(saver)

    def child() -> None:
        with pytest.raises(StorageUnavailableError, match="open one per process"):
            saver.get_tuple(config())

    assert in_child(child) == 0
    assert len(list(saver.list(config()))) == 3
    saver.close()
    connection.close()


def open_and_put(path: str, number: int, barrier: Any) -> None:
    barrier.wait(60)
    with SqliteSaver(path) as saver:
        put(saver, number, LONG, thread="shared")
        put(saver, number, LONG, thread=f"mine {number}")


@pytest.mark.parametrize("attempt", range(3))
def test_many_processes_open_a_new_file_at_once(path: Path, attempt: int) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    barrier = context.Barrier(8)
    children = [context.Process(target=open_and_put, args=(str(path), n, barrier)) for n in range(8)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0] * 8
    with SqliteSaver(str(path)) as saver:
        assert len(list(saver.list(config("shared")))) == 8
        assert len(everything(saver)) == 9


# -- what stays


def test_deleted_content_leaves_the_file(path: Path) -> None:
    marker = "marker of a secret"
    with SqliteSaver(str(path), compression=None) as saver:
        put(saver, 0, [marker * 50], thread=marker)
        put(saver, 0, LONG, thread="kept")
        saver.delete_thread(marker)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for file in path.parent.iterdir():
        assert marker.encode() not in file.read_bytes(), file.name


BEGINNING = """
import os, sys
from stepvault.checkpointers.sqlite import SqliteSaver
from tests.faults.worlds import begin
begin(SqliteSaver(sys.argv[1]))
os._exit(0)
"""


def test_acknowledged_writes_are_in_the_files_of_a_process_that_never_closes(path: Path) -> None:
    subprocess.run([sys.executable, "-c", BEGINNING, path], check=True)
    with SqliteSaver(str(path)) as saver:
        assert len(list(saver.list(config()))) == 3


def test_an_open_transaction_of_the_owner_of_the_connection_is_committed(path: Path) -> None:
    """As the official saver does."""
    with closing(sqlite3.connect(path)) as connection:
        saver = SqliteSaver(connection)
        connection.execute("CREATE TABLE theirs (a)")
        connection.execute("INSERT INTO theirs VALUES (1)")
        assert connection.in_transaction
        begin(saver)
        connection.rollback()
        assert connection.execute("SELECT a FROM theirs").fetchall() == [(1,)]
        assert len(everything(SqliteSaver(connection))["t"]) == 3


def test_a_failed_write_leaves_the_open_transaction_of_the_owner(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        saver = SqliteSaver(connection)
        begin(saver)
        good = everything(saver)
        connection.execute("CREATE TABLE theirs (a)")
        trigger = "CREATE TRIGGER no BEFORE INSERT ON stepvault_checkpoint BEGIN SELECT RAISE(ABORT, 'no'); END"
        connection.execute(trigger)
        connection.execute("INSERT INTO theirs VALUES (1)")
        with pytest.raises(StorageError, match="SQLite refused the operation: no"):
            put(saver, 3, [*LONG, "new" * 300], parent=2)
        assert connection.in_transaction
        connection.commit()
        assert connection.execute("SELECT a FROM theirs").fetchall() == [(1,)]
        assert everything(saver) == good
