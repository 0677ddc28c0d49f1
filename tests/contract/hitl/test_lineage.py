"""Lineage: what each run began from, forks, duplicates, who decided, and a tree to read."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.types import Command

from tests.contract.hitl.building import App, functional, nested, on_thread, one
from tests.contract.matrix import Database


@pytest.fixture
async def app(database: Database) -> App:
    return await App.on(database)


async def lineage(app: App, thread: str = "t") -> Any:
    return await app.call(app.saver, "lineage", thread)


def kinds(found: Any) -> list[str]:
    return [run.kind for run in found]


@pytest.mark.parametrize("durability", ["sync", "exit"])
async def test_turns_and_answers(app: App, durability: str) -> None:
    graph = one(app.saver)
    await app.invoke(graph, {"log": []}, durability=durability)
    (question,) = await app.open()
    decision = await app.inbox("decide", question.id, "yes", by="ann", note="fine")
    await app.invoke(graph, decision.command, config=decision.config, durability=durability)
    await app.invoke(graph, {"log": []}, durability=durability)
    await app.invoke(graph, Command(resume="unrecorded"), durability=durability)
    found = await lineage(app)
    assert kinds(found) == ["input", "resume", "input", "resume"] if durability == "sync" else kinds(found)
    answered = [run for run in found if run.decisions]
    assert [(d.node, d.by, d.note, d.at is None) for run in answered for d in run.decisions] == [
        ("ask", "ann", "fine", False),
        ("ask", None, None, True),
    ]
    assert answered[0].began_at == question.checkpoint_id
    assert [run.is_head for run in found] == [*[False] * (len(found) - 1), True]
    every = [checkpoint for run in found for checkpoint in run.checkpoints]
    assert len(every) == len(set(every)) == (await app.call(app.saver, "threads")).threads[0].checkpoints


async def test_forks_updates_and_duplicates(app: App) -> None:
    graph = one(app.saver)
    await app.invoke(graph, {"log": []})
    asking = (await app.state(graph)).config
    await app.invoke(graph, Command(resume="first"))
    await app.invoke(graph, None, config=asking)
    await app.invoke(graph, Command(resume="again"), config=asking)
    await app.call(graph, "update_state", on_thread("t"), {"topic": "x"})
    found = await lineage(app)
    assert kinds(found) == ["input", "resume", "fork", "resume", "update"]
    assert [run.forks for run in found] == [False, False, True, True, False]
    assert [run.duplicates for run in found] == [None, None, None, found.runs[1].checkpoints[0], None]
    tree = str(found).splitlines()
    assert tree[0] == "thread t: 5 runs"
    assert [line.split()[0] for line in tree[1:]] == ["+-", "|", "|", "|", "+-"]
    assert "DUPLICATE" in tree[3]
    assert tree[4].endswith("<- head")
    assert "ask answered by somebody" in tree[5]


async def test_run_ids_are_told(app: App) -> None:
    graph = one(app.saver)
    run_id = "0e4bfb1c-9d7b-4a0f-8e1a-7f3f4b2f9c11"
    await app.invoke(graph, {"log": []}, config={**on_thread("t"), "run_id": run_id})
    assert [run.run_id for run in await lineage(app)] == [run_id]


@pytest.mark.parametrize("build", [nested(2), functional], ids=["subgraphs", "functional"])
async def test_other_graphs(app: App, build: Any) -> None:
    graph = build(app.saver)
    start: Any = 1 if build is functional else {"log": []}
    result = await app.invoke(graph, start)
    while isinstance(result, dict) and "__interrupt__" in result:
        result = await app.invoke(graph, Command(resume={i.id: "x" for i in result["__interrupt__"]}))
    found = await lineage(app)
    assert kinds(found)[0] == "input"
    assert found.runs[-1].is_head
    assert str(found)


async def test_an_unknown_thread(app: App) -> None:
    found = await lineage(app, "nobody")
    assert (len(found), str(found)) == (0, "thread nobody: 0 runs")
