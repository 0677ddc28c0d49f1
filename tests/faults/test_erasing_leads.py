"""Whatever happens to who erases, and to the replies they wait for: nothing leads to a thread that is gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from stepvault import Vault
from stepvault._core.knowledge import ThreadKey
from stepvault._core.state import State
from stepvault.checkpointers._ops import expiry, remains
from stepvault.checkpointers._ops.inbox import index
from stepvault.checkpointers._ops.spaces import space
from stepvault.errors import StorageUnavailableError
from tests.contract.building import config
from tests.contract.matrix import Database, PostgresDatabase, RedisDatabase, SqliteDatabase, everywhere, matrix
from tests.faults.cutting import Cutting
from tests.faults.test_erasing_moments import erase

SOAK = pytest.param(range(1, 400), id="soak", marks=pytest.mark.soak)
SERVERS = [param for param in matrix(("sync", "async")) if param.values[0][0] in (PostgresDatabase, RedisDatabase)]
OTHERS = ("subjects", "inbox", "effects", "deciders", "expiry")


def opened(database: Database, url: str | None = None) -> Vault:
    prefix = "sqlite:///" if isinstance(database, SqliteDatabase) else ""
    return Vault.open(f"{prefix}{url or database.url}", **database.options)


def fill(vault: Vault, moment: int) -> None:
    """Two threads of hers, one of them with others: each has paid something, and was asked. Some have a deadline."""
    for thread, people in (("hers", ["ann"]), ("both", ["ann", "bob"]), ("his", ["bob"])):
        question = ask(vault, thread, people, stepvault_ttl=60 if moment % 2 else None)
        vault.inbox.decide(question, "yes", by="carol")
        vault.store.put((*vault.store.thread_scope(thread), "notes"), "k", {"text": thread})


def ask(vault: Vault, thread: str, people: list[str], **more: Any) -> str:
    def pay(state: MessagesState) -> Any:
        with contextlib.suppress(ZeroDivisionError):
            vault.effects.once("pay", lambda: 1 / 0)
        return {"messages": [("ai", interrupt("pay?"))]}

    graph = StateGraph(MessagesState).add_node("pay", pay).add_edge(START, "pay")
    done = graph.compile(checkpointer=vault.checkpointer).invoke(
        {"messages": []}, config(thread, user_id=people, **more)
    )
    return str(done["__interrupt__"][0].id)


def leads(vault: Vault) -> dict[str, set[bytes]]:
    """The threads that something leads to, by where that stands."""
    scope, found = vault.checkpointer._scope, dict[str, set[bytes]]()
    for name in OTHERS:
        docs = vault.checkpointer._run(scope.core.dialect.docs(space(scope, name), b"", b"", 1000))
        body = (lambda doc: doc.body) if name == expiry.SPACE else partial(remains._thread_of, place=_place(name))
        found[name] = {body(doc) for doc in docs if doc.key != index.COUNTER}
    return found


def _place(name: str) -> int:
    return remains._LEADING.get(name, 0)


def astray(vault: Vault) -> dict[str, set[bytes]]:
    """Those of them that are gone, or stand empty in the place of one that is."""
    scope, found = vault.checkpointer._scope, dict[str, set[bytes]]()
    for name, threads in leads(vault).items():
        keys = [ThreadKey(scope.tenant, thread) for thread in threads]
        rows = vault.checkpointer._run(scope.core.dialect.notes_at([(key, b"") for key in keys]))
        for key, (row, _) in zip(keys, rows, strict=True):
            if row is None or (name != expiry.SPACE and State.unpack(row.extents).fenced):
                found.setdefault(name, set()).add(key.thread)
    return found


def check(vault: Vault, moment: int) -> None:
    assert [(row.thread_id, row.subjects) for row in vault.threads()] == [("his", ("bob",))], moment
    assert astray(vault) == {}, moment
    assert all(threads for name, threads in leads(vault).items() if name != expiry.SPACE or moment % 2), "his is found"
    assert {item.value["text"] for item in vault.store.search(())} == {"his"}, moment


@pytest.mark.parametrize("moments", [pytest.param(range(8, 12), id="few"), SOAK])
@pytest.mark.parametrize("database", everywhere(cluster=[pytest.mark.soak]), indirect=True)
async def test_who_is_killed_leaves_nothing_astray(database: Database, moments: range) -> None:
    with opened(database) as one, opened(database) as other:
        one.setup()
        for moment in moments:
            dying, living = (vault.for_tenant(f"{moment}") for vault in (one, other))
            fill(living, moment)
            died = erase(dying, "erase", moment, None, shared="erase")
            living.erasure.resume()
            check(living, moment)
            if not died:
                return


@pytest.mark.parametrize("moments", [pytest.param(range(8, 12), id="few"), SOAK])
@pytest.mark.parametrize("database", SERVERS, indirect=True)
async def test_a_reply_that_is_lost_leaves_nothing_astray(database: Database, cut: Cutting, moments: range) -> None:
    async with opened(database) as near, opened(database, cut.url) as far:
        await near.asetup()
        for moment in moments:
            working, living = far.for_tenant(f"{moment}"), near.for_tenant(f"{moment}")
            fill(living, moment)
            await (asyncio.to_thread(working.threads) if database.mode == "sync" else working.athreads())  # connected

            cut.lost, states = False, list[str]()

            def told(request: Any, moment: int = moment, states: list[str] = states) -> None:
                states.append(request.state)
                if states == ["received", "tombstoned"] or request.state == "deleted":
                    cut.cut(moment if request.state == "tombstoned" else 0)

            with contextlib.suppress(StorageUnavailableError):
                if database.mode == "sync":
                    working.erasure.erase("ann", shared="erase", progress=told)
                else:
                    await working.erasure.aerase("ann", shared="erase", progress=told)
            living.erasure.resume()
            check(living, moment)
            if not cut.lost:
                return
        assert len(moments) < 100, "there is an end"


@pytest.fixture
def cut(database: Database) -> Iterator[Cutting]:
    cutting = Cutting(database.url)
    yield cutting
    cutting.close()
