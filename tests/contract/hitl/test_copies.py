"""Copies, deletions and lost indexes: every interrupt has one id, is found, and leaves nothing behind."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from langgraph.types import Command

from stepvault._core.rows import DocChange
from stepvault.checkpointers._ops.inbox import index
from stepvault.checkpointers._ops.spaces import space
from stepvault.errors import InterruptNotFoundError
from tests.contract.hitl.building import App, nested, one, parallel
from tests.contract.hitl.counting import batches
from tests.contract.matrix import Database


@pytest.fixture
async def app(database: Database) -> App:
    return await App.on(database)


async def hints(app: App) -> list[Any]:
    """Every doc of the inbox but the counter."""

    def read() -> Any:
        return (yield from app.saver._core.dialect.docs(space(app.saver._scope, "inbox"), b"", b"\x00", 10_000))

    return list(await app.saver._arun(read()))


async def lose_index(app: App) -> None:
    def lose() -> Any:
        where = space(app.saver._scope, "inbox")
        found = yield from app.saver._core.dialect.docs(where, b"", b"", 10_000)
        yield from app.saver._core.dialect.write_docs(where, [DocChange(doc.key, None, b"") for doc in found])

    await app.saver._arun(lose())


async def test_a_copied_thread_asks_under_ids_of_its_own(app: App) -> None:
    graph = parallel(app.saver)
    await app.invoke(graph, {"log": []})
    await app.call(app.saver, "copy_thread", "t", "copy")
    await app.call(app.saver, "copy_thread", "copy", "copy of the copy")
    everything = await app.everything()
    assert len(everything) == len({i.id for i in everything}) == 6
    for interrupt in everything:
        assert await app.inbox("get", interrupt.id) == interrupt
    (left,) = [i for i in await app.inbox("list", thread_id="copy") if i.value == "left?"]
    decision = await app.inbox("decide", left.id, "for the copy", by="ann")
    await app.invoke(graph, decision.command, config=decision.config)
    for thread in ("t", "copy", "copy of the copy"):
        await app.agrees(graph, thread)
    assert {i.status for i in await app.inbox("list", thread_id="t", status=None)} == {"pending"}
    assert [kind for kind, _ in await app.changes()] == ["created"] * 6 + ["decided", "answered"]


async def test_a_deleted_thread_leaves_nothing(app: App) -> None:
    graph = nested(1)(app.saver)
    await app.invoke(graph, {"log": []})
    await app.inbox("amend", (await app.open())[0].id, external_ref="ticket", deadline=None)
    await app.invoke(graph, Command(resume="yes"))
    (question,) = await app.open()
    assert await hints(app)
    await app.call(app.saver, "delete_thread", "t")
    assert await hints(app) == []
    assert await app.everything() == []
    assert await app.changes() == []
    with pytest.raises(InterruptNotFoundError):
        await app.inbox("get", question.id)


async def test_a_deleted_run_takes_its_questions_and_gives_back_what_it_answered(app: App) -> None:
    """The inbox goes on agreeing with LangGraph; where the run stored before stays as it was."""
    graph, runs = one(app.saver), [str(uuid4()) for _ in range(3)]
    await app.invoke(graph, {"log": []}, config=_of_run(runs[0]))
    (first,) = await app.open()
    decision = await app.inbox("decide", first.id, "yes", by="ann")
    await app.invoke(graph, decision.command, config=_of_run(runs[1]))
    await app.invoke(graph, {"log": ["more"]}, config=_of_run(runs[2]))
    await app.call(app.saver, "delete_for_runs", [runs[2]])
    assert [(i.id, i.status) for i in await app.everything()] == [(first.id, "answered")]
    assert (await app.call(app.saver, "threads")).threads[0].status == "idle"
    await app.call(app.saver, "delete_for_runs", [runs[1]])
    assert [(i.id, i.status) for i in await app.everything()] == [(first.id, "decided")]
    assert (await app.call(app.saver, "threads")).threads[0].status == "interrupted"
    await app.invoke(graph, decision.command, config=_of_run(runs[1]))
    assert await app.open() == []
    await app.call(app.saver, "delete_for_runs", runs)
    assert await hints(app) == []


def _of_run(run_id: str) -> Any:
    return {"configurable": {"thread_id": "t"}, "metadata": {"run_id": run_id}}


async def test_a_pruned_thread_keeps_its_questions(app: App) -> None:
    graph = nested(1)(app.saver)
    await app.invoke(graph, {"log": []})
    await app.call(app.saver, "prune", ["t"])
    await app.agrees(graph)
    (question,) = await app.open()
    decision = await app.inbox("decide", question.id, "yes")
    await app.invoke(graph, decision.command, config=decision.config)
    assert await app.agrees(graph) == {"'sure?'"}


async def test_a_lost_index_is_made_anew(app: App) -> None:
    graph = parallel(app.saver)
    for thread in ("a", "b"):
        await app.invoke(graph, {"log": []}, thread)
    await app.inbox("decide", (await app.open("a"))[0].id, "yes")
    await app.invoke(graph, {"log": ["instead"]}, "b")
    before, told = await app.everything(), await app.changes()
    await lose_index(app)
    assert await app.everything() == []
    assert await app.inbox("rebuild") == len(before)
    assert await app.everything() == before
    assert await app.changes() == told
    await app.invoke(graph, {"log": []}, "c")
    assert [kind for kind, _ in await app.changes()] == [*(kind for kind, _ in told), "created", "created"]


async def test_false_hints_are_dropped_when_they_are_read(app: App) -> None:
    graph = parallel(app.saver)
    await app.invoke(graph, {"log": []})
    (question, *_) = await app.open()

    def lie() -> Any:
        scope = app.saver._scope
        body = index._body(b"0", question.interrupt_id, b"u" * 16, b"r" * 8)
        kinds = (index.LISTS + index.OPEN["pending"], index.LISTS + index.CLOSED["expired"], index.DUE)
        lies = [DocChange(kind + b"\xff" * 24, body, b"v" * 8) for kind in kinds]
        yield from scope.core.dialect.write_docs(space(scope, "inbox"), lies)

    before = await hints(app)
    await app.saver._arun(lie())
    assert len(await hints(app)) == len(before) + 3
    await app.agrees(graph)
    assert len(await hints(app)) == len(before) + 1  # a deadline in the far future, which nobody has looked at


async def test_a_page_is_read_in_two_round_trips_however_many_wait(app: App) -> None:
    graph = parallel(app.saver)
    for number in range(6):
        await app.invoke(graph, {"log": []}, number)
    for limit in (3, 12):
        with batches(app.saver) as seen:
            assert len(await app.inbox("list", limit=limit)) == limit
        assert len(seen) == 2
