"""Databases that are put back to the same beginning again and again."""

from __future__ import annotations

import sqlite3
from itertools import count
from typing import Any

from stepvault.checkpointers._ops import remove
from stepvault.checkpointers.sqlite import SqliteSaver
from tests.contract.building import checkpoint, config

LONG = [f"{letter * 700}" for letter in "abcdef"]
CHILDREN = ("chunk", "checkpoint", "write", "meta")
IDS = [f"00000000-0000-6000-8000-0000000000{n:02}" for n in range(60)]


def put(saver: Any, number: int, items: Any, *, parent: int | None = None, thread: str = "t", **metadata: Any) -> Any:
    """Store checkpoint `number` below `parent`."""
    at = config(thread, "", None if parent is None else IDS[parent])
    made = checkpoint({"items": items, "n": number}, id=IDS[number])
    return saver.put(at, made, {"source": "loop", "step": number, **metadata}, made["channel_versions"])


def write(saver: Any, number: int, task: str, *values: Any, thread: str = "t") -> Any:
    """Store writes of a task at checkpoint `number`."""
    return saver.put_writes(config(thread, "", IDS[number]), [("items", value) for value in values], task)


def begin(saver: Any) -> None:
    """The beginning: a thread of three checkpoints and their writes, of two runs, and another thread."""
    for number in range(3):
        parent = number - 1 if number else None
        put(saver, number, LONG[: number + 1], parent=parent, run_id="old" if number < 2 else "new")
        write(saver, number, "task", LONG[number])
    put(saver, 0, LONG[:2], thread="other")


def everything(saver: Any) -> dict[str, list[Any]]:
    """All that a saver sees; reading it shows that every value can be read."""
    threads = sorted(thread.thread_id for thread in saver.threads(limit=1000))
    state = {thread: list(saver.list({"configurable": {"thread_id": thread}})) for thread in threads}
    assert sum(map(len, state.values())) == len(list(saver.list(None)))
    return state


def dangling(connection: sqlite3.Connection) -> list[str]:
    """Tables with rows of threads that do not exist."""
    query = "SELECT count(*) FROM stepvault_{} WHERE t NOT IN (SELECT no FROM stepvault_thread)"
    return [name for name in CHILDREN if connection.execute(query.format(name)).fetchone()[0]]


def garbage(saver: Any, thread: str = "t") -> list[int]:
    """Element rows of a thread that hold nothing alive."""
    skeleton = saver._driver.run(saver._core.dialect.skeleton(saver._scope.key(thread)))
    if skeleton is None:
        return []
    live = remove.live(skeleton, remove.Removal())
    return [first for first, count, _ in skeleton.chunks if not live & set(range(first, first + count))]


class SqliteWorld:
    """An SQLite database in memory, shared by the savers of several processes."""

    def __init__(self) -> None:
        self._beginning = self._connect()
        begin(SqliteSaver(self._beginning))
        self._connection = self._connect()

    def restart(self) -> None:
        """Back to the beginning."""
        self._beginning.backup(self._connection)

    def saver(self, *, warm: bool = True) -> SqliteSaver:
        """The saver of another process; a warm one has read the thread."""
        saver = SqliteSaver(self._connection)
        saver.setup()
        if warm:
            saver.get_tuple(config("t"))
        return saver

    def state(self) -> Any:
        """Everything that is stored."""
        assert not dangling(self._connection)
        return everything(self.saver(warm=False))

    def garbage(self) -> list[int]:
        """Element rows that hold nothing alive."""
        return garbage(self.saver(warm=False))

    def close(self) -> None:
        self._connection.close()
        self._beginning.close()

    @staticmethod
    def _connect() -> sqlite3.Connection:
        return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)


class TenantWorld:
    """Any database: each beginning is another tenant's, and each process has a saver of its own."""

    def __init__(self, savers: list[Any]) -> None:
        self._savers = savers
        self._next = 0
        self._tenants = count()

    def restart(self) -> None:
        self._tenant = f"world {next(self._tenants)}"
        begin(self._savers[0].for_tenant(self._tenant))
        self._next = 0

    def saver(self, *, warm: bool = True) -> Any:
        self._next = self._next % (len(self._savers) - 1) + 1
        saver = self._savers[self._next].for_tenant(self._tenant)
        saver.get_tuple(config("t" if warm else "another"))  # now it has looked at its tables, too
        return saver

    def state(self) -> Any:
        return everything(self._savers[0].for_tenant(self._tenant))

    def garbage(self) -> list[int]:
        return garbage(self._savers[0].for_tenant(self._tenant))
