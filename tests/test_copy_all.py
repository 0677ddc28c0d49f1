"""`copy_all` moves an app between the official savers and stores and ours, there and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.postgres import PostgresSaver as OfficialPostgres
from langgraph.checkpoint.sqlite import SqliteSaver as OfficialSqlite
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.postgres import PostgresStore as OfficialPostgresStore
from langgraph.store.sqlite import SqliteStore as OfficialSqliteStore
from langgraph.types import interrupt

from stepvault import Vault
from stepvault.copying import copy_all
from tests.contract.building import config


def ask(state: MessagesState) -> Any:
    return {"messages": [("ai", interrupt("go on?"))]}


GRAPH = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask")


@pytest.fixture(params=["sqlite", "postgres"])
def official(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The official saver and store of one database."""
    if request.param == "sqlite":
        where, saver, store = f"{tmp_path}/theirs.db", OfficialSqlite, OfficialSqliteStore
    else:
        where, saver, store = request.getfixturevalue("postgres_url"), OfficialPostgres, OfficialPostgresStore
    with saver.from_conn_string(where) as opened, store.from_conn_string(where) as memory:
        opened.setup()
        memory.setup()
        yield opened, memory


def history(saver: Any) -> list[Any]:
    states = GRAPH.compile(checkpointer=saver).get_state_history(config("t"))
    return [(state.config, state.values, state.next, state.interrupts, state.metadata["step"]) for state in states]


def test_from_the_official_saver_and_back(official: Any, tmp_path: Path) -> None:
    saver, memory = official
    GRAPH.compile(checkpointer=saver).invoke({"messages": [("user", "hi")]}, config("t", user_id="ann"))
    memory.put(("ann",), "drink", {"likes": "tea"})
    with Vault.open(f"sqlite:///{tmp_path}/ours.db") as vault:
        assert copy_all(saver, vault.checkpointer) == copy_all(saver, vault.checkpointer) == 1
        assert copy_all(memory, vault.store) == 1
        assert history(vault.checkpointer) == history(saver)
        assert vault.store.get(("ann",), "drink").value == {"likes": "tea"}
        assert vault.subjects.assign("user_id").threads == 1

        (question,) = vault.inbox.list()
        decision = vault.inbox.decide(question.id, "yes")
        done = GRAPH.compile(checkpointer=vault.checkpointer).invoke(decision.command, decision.config)
        assert [message.content for message in done["messages"]] == ["hi", "yes"]
        assert copy_all(saver, vault.checkpointer) == 1  # once more: what has gone on since stays
        assert GRAPH.compile(checkpointer=vault.checkpointer).get_state(config("t")).values == done

        saver.delete_thread("t")
        assert copy_all(vault.checkpointer, saver) == 1
        assert copy_all(vault.store, memory) == 1
        assert history(saver) == history(vault.checkpointer)
