"""Without a lease: a run that another overtook is told, or becomes a fork; nobody else is."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from langgraph.graph import START
from langgraph.types import Command, Send

from stepvault.errors import HeadMovedError
from tests.contract.hitl.building import SHAPES, App, answer_to, asks, built, chain, note, on_thread
from tests.contract.matrix import Database


async def race(app: App, other: App, durability: str) -> list[Any]:
    """Two workers answer one question; the second overtakes the first inside its node. What each ran into."""
    overtaken: list[Any] = []

    async def slow(state: Any) -> Any:
        graph = chain(other.saver, ("ask", asks("ok?")), ("work", note), ("after", note))
        while durability == "async" and (await other.state(graph)).next != ("work",):
            await asyncio.sleep(0.005)  # the checkpoint of this very step is still on its way
        overtaken.append(await other.invoke(graph, Command(resume="second")))
        return {"log": ["slow"]}

    def sync_slow(state: Any) -> Any:
        return asyncio.run(slow(state))

    graph = chain(app.saver, ("ask", asks("ok?")), ("work", sync_slow if app.sync else slow), ("after", note))
    await app.invoke(graph, {"log": []})
    try:
        result = await app.invoke(graph, Command(resume="first"), durability=durability)
    except HeadMovedError as exc:
        return [exc, *overtaken]
    return [result, *overtaken]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_the_loser_is_told_and_stores_nothing(database: Database, durability: str) -> None:
    app = await App.on(database, on_conflict="raise")
    other = await app.another(on_conflict="raise")
    lost, won = await race(app, other, durability)
    assert isinstance(lost, HeadMovedError)
    head = await app.state(chain(app.saver, ("ask", asks("ok?")), ("work", note), ("after", note)))
    assert head.values == {"log": won["log"]}
    assert "slow" not in repr(won)


async def test_the_loser_becomes_a_fork_where_asked(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    app = await App.on(database)
    other = await app.another()
    with caplog.at_level(logging.WARNING, "stepvault"):
        first, second = await race(app, other, "sync")
    assert "slow" in first["log"]
    assert second["log"]
    assert "becomes a fork" in caplog.text


@pytest.mark.parametrize("shape", SHAPES)
async def test_no_graph_is_taken_for_its_own_rival(database: Database, shape: str) -> None:
    app = await App.on(database, on_conflict="raise")
    graph = SHAPES[shape](app.saver)
    start: Any = 1 if shape == "functional" else {"log": []}
    result = await app.invoke(graph, start, durability="async")
    if isinstance(result, dict) and "__interrupt__" in result:
        await app.invoke(graph, answer_to((await app.state(graph)).interrupts))
    await app.invoke(graph, start)


async def test_legitimate_writers_beside_a_run(database: Database) -> None:
    """update_state in a node, and sends into a subgraph that keeps its state."""
    app = await App.on(database, on_conflict="raise")
    inner = chain(True, ("work", note))

    def updates(state: Any) -> Any:
        asyncio.run(app.call(graph, "update_state", on_thread("other"), {"topic": "x"}, as_node="updates"))
        return {"log": ["updated"]}

    async def aupdates(state: Any) -> Any:
        await graph.aupdate_state(on_thread("t"), {"topic": "x"}, as_node="fan")
        return {"log": ["updated"]}

    nodes = {"updates": updates if app.sync else aupdates, "fan": note, "sub": inner}
    edges = [(START, "updates"), ("updates", "fan"), ("fan", lambda state: [Send("sub", {"log": []})])]
    graph = built(nodes, edges, app.saver)
    await app.invoke(graph, {"log": []})
    await app.invoke(graph, {"log": ["again"]})
