"""Everything a database holds is read before somebody needs it; what is damaged is named, and left by a fork."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import make_dataclass
from functools import partial
from types import ModuleType
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from stepvault.errors import ConfigurationError, PayloadError
from stepvault.verification import VerifyReport
from tests.contract.building import config, put
from tests.contract.evolution.damage import body_of, chunk_of, flipped, replace_stored
from tests.contract.evolution.deploying import SHAPES, Deploy, Log, step
from tests.contract.matrix import Database


def chat(saver: Any) -> Any:
    graph = StateGraph(Log)
    graph.add_node("say", step("said " + "x" * 300))
    graph.add_edge(START, "say")
    return graph.compile(checkpointer=saver)


async def history(app: Deploy, database: Database) -> list[str]:
    """Checkpoint ids, newest first."""
    return [entry.checkpoint["id"] async for entry in database.under_async_names(app.saver).alist(app.thread)]


async def test_a_sound_database_is_read_whole(database: Database) -> None:
    for thread in ("t", "u"):
        app = await Deploy.of(database, chat, thread=thread)
        await app.invoke({"log": ["hello " * 100]})
        await app.invoke({"log": ["again " * 100]})
    said: list[VerifyReport] = []

    report = await app.call(app.saver, "verify", progress=said.append, graph=app.graph)

    assert report.ok
    assert (report.threads, report.checkpoints) == (2, 12)
    assert [part.threads for part in said] == [1, 2]
    assert (await app.call(app.saver, "verify", "u")).checkpoints == 6
    assert (await app.call(app.saver, "verify", "nobody")) == VerifyReport()


async def test_a_damaged_checkpoint_is_named_and_left_by_a_fork(database: Database) -> None:
    app = await Deploy.of(database, chat)
    await app.invoke({"log": ["one " * 100]})
    await app.invoke({"log": ["two " * 100]})
    head, previous, *_ = await history(app, database)
    body = await asyncio.to_thread(body_of, app.saver, "t", head)
    replace_stored(database, body, flipped(body))
    app = await Deploy.of(database, chat)

    report = await app.call(app.saver, "verify")
    assert [(p.kind, p.checkpoint_id, p.nearest) for p in report.problems] == [("unreadable", head, previous)]
    for read in (app.state, lambda: app.invoke({"log": []})):
        with pytest.raises(PayloadError, match=rf"Thread 't', checkpoint '{head}'.*nearest older.*'{previous}'"):
            await read()
    with pytest.raises(PayloadError):
        await app.call(app.saver, "repair", "t", to=head)
    with pytest.raises(ConfigurationError, match="no checkpoint 'nothing'"):
        await app.call(app.saver, "repair", "t", to="nothing")
    fork = await app.call(app.saver, "repair", "t", to=previous)

    now = await app.head()
    assert now.checkpoint["id"] == fork > head
    assert (now.metadata["source"], now.metadata["repaired_from"]) == ("fork", previous)
    assert len((await app.invoke(None))["log"]) == 4
    assert len((await app.call(app.saver, "verify")).problems) == 1


async def test_damaged_elements_take_along_what_needs_them(database: Database) -> None:
    app = await Deploy.of(database, chat)
    await app.invoke({"log": ["one " * 100]})
    before = len(await history(app, database))
    body = await asyncio.to_thread(chunk_of, app.saver, "t")
    replace_stored(database, body, flipped(body))
    app = await Deploy.of(database, chat)

    report = await app.call(app.saver, "verify")

    assert {p.kind for p in report.problems} == {"unreadable"}
    assert 0 < len(report.problems) <= report.checkpoints == before


async def test_a_class_that_is_gone_is_not_called_corrupt(database: Database) -> None:
    module = sys.modules["app_of_yesterday"] = ModuleType("app_of_yesterday")
    claim = make_dataclass("Claim", [("number", int)])
    claim.__module__, claim.__qualname__ = "app_of_yesterday", "Claim"
    module.Claim = claim  # type: ignore[attr-defined]
    app = await Deploy.of(database)
    saver = database.under_async_names(app.saver)
    older = await put(saver, {"log": ["plain"]})
    await put(saver, {"log": [claim(7)] * 3}, at=older)
    del sys.modules["app_of_yesterday"], module.Claim

    app = await Deploy.of(database)
    (problem,) = (await app.call(app.saver, "verify")).problems

    assert problem.kind == "type not loaded"
    assert "app_of_yesterday:Claim" in problem.reason
    assert "corrupt" not in str(problem)
    assert problem.nearest == older["configurable"]["checkpoint_id"]


async def test_a_deploy_that_loses_a_node_or_a_channel_is_told_before(database: Database) -> None:
    lost = {}
    for shape, (build, names, _) in SHAPES.items():
        old = await Deploy.of(database, build, thread=shape)
        await old.invoke({"log": []})
        new = await Deploy.of(database, partial(build, **names), thread=shape)
        lost[shape] = {p.kind for p in (await new.call(new.saver, "verify", shape, graph=new.graph)).problems}
        same = await Deploy.of(database, partial(build, **names), thread=shape, node_aliases=names)
        assert (await same.call(same.saver, "verify", shape, graph=same.graph)).ok, shape
    assert lost == {shape: {"node gone"} if shape != "its task" else set() for shape in SHAPES}

    await put(database.under_async_names(old.saver), {"notes": ["kept"], "log": []}, at=config("other"))
    (problem,) = (await old.call(old.saver, "verify", "other", graph=chat(old.saver))).problems
    assert problem.kind == "channel gone"
    assert "'notes'" in problem.reason
