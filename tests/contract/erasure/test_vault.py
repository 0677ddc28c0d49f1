"""A person in the threads and the memory of one vault, over each backend's own store."""

from __future__ import annotations

import gc
import io
import json
import tracemalloc
from typing import Any

import pytest
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import BaseStore, PutOp

from stepvault import Memories, Vault
from stepvault.checkpointers._ops.erasing import items
from stepvault.errors import MigrationRequiredError
from tests.contract.building import checkpoint, config
from tests.contract.matrix import Database, RedisClusterDatabase, SqliteDatabase, matrix

SETTINGS = [param for param in matrix(("sync", "async")) if param.values[0][0] is not RedisClusterDatabase]


def remember(state: MessagesState, *, store: BaseStore) -> Any:
    store.put(("teams", "blue"), "news", {"text": "somebody wrote"})
    return {"messages": [("ai", "x")]}


@pytest.mark.parametrize("database", SETTINGS, indirect=True)
async def test_threads_memory_and_what_came_of_them(database: Database) -> None:
    prefix = "sqlite:///" if isinstance(database, SqliteDatabase) else ""
    with Vault.open(f"{prefix}{database.url}", **database.options) as vault:
        vault.setup()
        graph = StateGraph(MessagesState).add_node("n", remember).add_edge(START, "n")
        graph.compile(checkpointer=vault.checkpointer, store=vault.store).invoke(
            {"messages": []}, config("hers", user_id="ann")
        )
        vault.store.put(("users", "ann"), "k", {"likes": "tea"})
        vault.store.put(("users", "ann-2"), "k", {"likes": "rain"})
        vault.store.put((*vault.store.thread_scope("hers"), "notes"), "k", {"of": "the thread"})
        plan = vault.erasure.plan("ann", derived=True)
        assert plan.namespaces == {("users", "ann"): 1}
        assert plan.derived is not None
        assert plan.derived[("teams", "blue")] == 1
        out = io.StringIO()
        vault.erasure.export("ann", out)
        values = [line.get("value") for line in map(json.loads, out.getvalue().splitlines())]
        assert {"likes": "tea"} in values
        assert {"of": "the thread"} in values

        request = vault.erasure.erase("ann", plan=plan)
        assert request.counts["threads"] == 1
        assert request.counts["items"] == 2
        assert {tuple(item.namespace) for item in vault.store.search(())} == {("users", "ann-2"), ("teams", "blue")}
        assert vault.erasure.plan("ann", derived=True).derived == {}


@pytest.mark.parametrize("database", SETTINGS, indirect=True)
async def test_an_export_takes_no_more_memory_for_more_items(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items, "_PAGE", 50)
    prefix = "sqlite:///" if isinstance(database, SqliteDatabase) else ""
    with Vault.open(f"{prefix}{database.url}", **database.options) as vault:
        vault.setup()
        text, kinds = "x" * 10_000, {"the thread's": (*vault.store.thread_scope("hers"), "n"), "hers": ("users", "ann")}
        made = checkpoint({"a": 1})
        vault.checkpointer.put(config("hers", user_id="ann"), made, {"source": "loop"}, made["channel_versions"])
        vault.erasure.export("ann", io.StringIO())  # loads what it needs
        peaks: dict[int, int] = {}
        for count in (100, 600):
            for namespace in kinds.values():
                for at in range(0, count, 100):
                    vault.store.batch([PutOp(namespace, f"{n}", {"text": text}) for n in range(at, at + 100)])
            out = _Counting()
            gc.collect()
            tracemalloc.start()
            if database.mode == "sync":
                lines = vault.erasure.export("ann", out)
            else:
                async with Vault.open(f"{prefix}{database.url}", **database.options) as other:
                    lines = await other.erasure.aexport("ann", out)
            peaks[count] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert (lines, out.items) == (2 * count + 2, 2 * count), "beside a checkpoint and its step"
        assert peaks[600] < 1.5 * peaks[100], peaks


class _Counting(io.StringIO):
    items = 0

    def write(self, line: str) -> int:
        self.items += '"kind": "item"' in line
        return len(line)


@pytest.mark.parametrize("patterns", [None, [("people", "{subject}")]])
@pytest.mark.parametrize("database", SETTINGS, indirect=True)
async def test_memories_are_their_users(database: Database, patterns: Any) -> None:
    prefix = "sqlite:///" if isinstance(database, SqliteDatabase) else ""
    with Vault.open(f"{prefix}{database.url}", **database.options, subject_patterns=patterns) as vault:
        vault.setup()
        memories = Memories(vault.store)
        for user in ("ann@example.com", "ann@example%2Ecom", "ann", None):
            memories.upsert("likes tea", user=user, scope=("office",))
        assert sum(vault.erasure.plan("ann@example.com").namespaces.values()) == 1
        assert vault.erasure.erase("ann@example.com").counts["items"] == 1
        assert sum(vault.erasure.plan("ann@example%2Ecom").namespaces.values()) == 1
        left = [memory.user for user in ("ann@example.com", "ann@example%2Ecom", "ann", None)
                for memory in memories.list(user=user)]  # fmt: skip
        assert left == ["ann@example%2Ecom", "ann", None]


@pytest.mark.parametrize("database", SETTINGS, indirect=True)
async def test_tables_are_made_by_whoever_is_told_to(database: Database) -> None:
    prefix = "sqlite:///" if isinstance(database, SqliteDatabase) else ""
    with Vault.open(f"{prefix}{database.url}", automatic_setup=False, **database.options) as vault:
        if "redis" not in database.name:  # where there is nothing to make
            for early in (vault.threads, lambda: vault.store.get(("a",), "k"), vault.for_tenant("a").threads):
                with pytest.raises(MigrationRequiredError, match=r"setup\(\) once"):
                    early()
        vault.setup()
        vault.store.put(("a",), "k", {"n": 1})
        assert len(vault.threads()) == 0
    with Vault.open(f"{prefix}{database.url}", automatic_setup=False, **database.options) as vault:
        assert vault.store.get(("a",), "k") is not None
        assert len(vault.threads()) == 0
