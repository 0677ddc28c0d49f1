"""Filters of the inbox: each reads the list of what it names, however much else there is."""

from __future__ import annotations

import asyncio
from datetime import datetime, timezone
from typing import Any

import pytest

from stepvault import Vault
from stepvault.errors import ConfigurationError
from tests.contract.hitl.building import App, asks, chain, note, parallel
from tests.contract.hitl.counting import batches
from tests.contract.matrix import Database


@pytest.fixture
async def app(database: Database) -> App:
    return await App.on(database)


def whose(thread: Any, person: str) -> Any:
    return {"configurable": {"thread_id": thread, "user_id": person}}


async def all_of(app: App, limit: int = 2, **filters: Any) -> list[Any]:
    found: list[Any] = []
    cursor = None
    while True:
        page = await app.inbox("list", limit=limit, cursor=cursor, **filters)
        found += page
        cursor = page.cursor
        if cursor is None:
            return found


async def test_a_page_of_few_among_many_is_read_in_two_round_trips(app: App) -> None:
    graph = parallel(app.saver)
    rare = chain(app.saver, ("rare", asks("rare?")))
    await app.invoke(rare, {"log": []}, config=whose("rare", "ann"))
    decided = chain(app.saver, ("ask", asks("decided?")))
    (question,) = (await app.invoke(decided, {"log": []}, config=whose("decided", "bob")))["__interrupt__"]
    await app.inbox("decide", question.id, "yes")
    await asyncio.gather(*(app.invoke(graph, {"log": []}, config=whose(n, f"%{n % 2}_\0")) for n in range(12)))
    for filters, value in (
        ({"subject": "ann"}, "rare?"),
        ({"node": "rare"}, "rare?"),
        ({"status": "decided"}, "decided?"),
    ):
        with batches(app.saver) as seen:
            assert [i.value for i in await app.inbox("list", **filters)] == [value]
        assert len(seen) == 2
    left = await all_of(app, node="left", subject="%0_\0")
    assert {i.thread_id for i in left} == {str(n) for n in range(0, 12, 2)}
    assert {i.value for i in left} == {"left?"}
    assert len(await all_of(app, subject="%1_\0")) == 12
    assert not await all_of(app, subject="%")


async def test_every_status_has_its_list(app: App) -> None:
    graph = chain(app.saver, ("ask", asks("ok?")), ("after", note))
    for number in range(5):
        await app.invoke(graph, {"log": []}, config=whose(number, "ann"))
    for thread, status in ((1, "superseded"), (2, "answered"), (3, "expired"), (4, "decided")):
        await bring(app, graph, thread, status)
    for status, threads in {
        "pending": {"0", "1"},
        "superseded": {"1"},
        "answered": {"2"},
        "expired": {"3"},
        "decided": {"4"},
    }.items():
        for filters in ({}, {"subject": "ann"}, {"node": "ask"}, {"node": "ask", "subject": "ann"}):
            found = await all_of(app, limit=1, status=status, **filters)
            assert {i.thread_id for i in found} == threads
            assert {i.status for i in found} == {status}
    for filters in ({}, {"subject": "ann"}, {"node": "ask"}):
        assert len(await all_of(app, limit=1, status=None, **filters)) == 6
        assert len({i.id for i in await all_of(app, status=None, **filters)}) == 6


async def bring(app: App, graph: Any, thread: Any, status: str) -> None:
    (question,) = await app.inbox("list", thread_id=thread)
    if status == "superseded":
        await app.invoke(graph, {"log": ["instead"]}, config=whose(thread, "ann"))
    elif status == "expired":
        await app.inbox("amend", question.id, deadline=datetime(2020, 1, 1, tzinfo=timezone.utc))
        await app.inbox("expire", question.id)
    else:
        decision = await app.inbox("decide", question.id, "yes")
        if status == "answered":
            await app.invoke(graph, decision.command, config=decision.config)


async def test_a_reference_that_many_carry_is_paged(app: App) -> None:
    graph = chain(app.saver, ("ask", asks("ok?")))
    for number in range(5):
        (question,) = (await app.invoke(graph, {"log": []}, number))["__interrupt__"]
        await app.inbox("amend", question.id, external_ref="ticket")
    found = await all_of(app, external_ref="ticket")
    assert sorted(i.thread_id for i in found) == [str(n) for n in range(5)]


async def test_cursors_of_another_list_are_refused(app: App) -> None:
    for cursor in ("nonsense", "ff" * 25):
        with pytest.raises(ConfigurationError, match="cursor"):
            await app.inbox("list", cursor=cursor)


def test_a_person_who_leaves_a_shared_thread_leaves_its_questions() -> None:
    with Vault.open("memory://") as vault:
        graph = parallel(vault.checkpointer)
        graph.invoke({"log": []}, {"configurable": {"thread_id": "t", "user_id": ["ann", "bob"]}})
        vault.erasure.erase("ann", shared="keep")
        assert {i.subjects for i in vault.inbox.list()} == {("bob",)}
        assert not list(vault.inbox.list(subject="ann", status=None))
        assert len(vault.inbox.list(subject="bob")) == 2
