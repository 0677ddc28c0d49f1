"""Leases: one worker at a time, stopped before its first node, fenced in every write."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from langgraph.types import Command

from stepvault.checkpointers._ops import leasing
from stepvault.errors import ConfigurationError, FencedError, HeadMovedError, LeaseHeldError
from tests.contract.hitl import children
from tests.contract.hitl.building import App, asks, chain, note, on_thread, one
from tests.contract.matrix import Database


@pytest.fixture
async def app(database: Database) -> App:
    return await App.on(database)


@contextlib.asynccontextmanager
async def leased(app: App, thread: str = "t", **options: Any) -> Any:
    """A lease in either way."""
    lease = app.saver.lease(thread, **options)
    if not app.sync:
        async with lease as config:
            yield config
        return
    config = lease.__enter__()
    try:
        yield config
    finally:
        lease.__exit__(None, None, None)


def counted(app: App, runs: list[str], name: str) -> Any:
    def node(state: Any) -> Any:
        runs.append(name)
        return {"log": [name]}

    return chain(app.saver, ("ask", asks("ok?")), ("work", node), ("after", note))


async def test_a_second_worker_is_stopped_before_its_first_node(app: App) -> None:
    runs: list[str] = []
    await app.invoke(counted(app, runs, "first"), {"log": []})
    other = await app.another()
    async with leased(app, ttl=30) as config:
        with pytest.raises(LeaseHeldError, match="is leased by"):
            await other.invoke(counted(other, runs, "second"), Command(resume="yes"))
        with pytest.raises(LeaseHeldError):
            async with leased(other):
                pass
        assert runs == []
        await app.invoke(counted(app, runs, "first"), Command(resume="yes"), config=config)
        assert (await app.call(app.saver, "threads")).threads[0].status == "running"
        assert (await other.state(one(other.saver))).values["log"][1] == "first"  # reading is free
    assert runs == ["first"]
    assert (await app.call(app.saver, "threads")).threads[0].status == "idle"
    await other.invoke(counted(other, runs, "second"), {"log": []})


async def test_the_question_that_is_answered_must_still_wait(app: App) -> None:
    graph = one(app.saver)
    (question,) = (await app.invoke(graph, {"log": []}))["__interrupt__"]
    async with leased(app, expect_interrupt=question.id) as config:
        await app.invoke(graph, Command(resume={question.id: "yes"}), config=config)
    with pytest.raises(HeadMovedError, match="does not wait"):
        async with leased(app, expect_interrupt=question.id):
            pytest.fail("it does not wait any more")
    async with leased(app):
        pass  # the refused lease was given back


async def test_a_lost_lease_stops_its_run_and_stores_nothing(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder sleeps through its time; another takes over; what the first does afterwards is refused."""
    other = await app.another()
    runs: list[str] = []
    taken = False

    def sleeps(state: Any) -> Any:
        runs.append("sleeps")
        return {"log": ["stale"]}

    async def take() -> None:
        nonlocal taken
        async with leased(other, ttl=30) as config:
            await other.invoke(chain(other.saver, ("quick", note)), {"log": ["newer"]}, config=config)
        taken = True

    def unwatched(state: Any) -> Any:
        runs.append("unwatched")
        return {"log": ["stale too"]}

    graph = chain(app.saver, ("sleeps", _then(app, sleeps, take)), ("unwatched", unwatched), ("last", unwatched))
    monkeypatch.setattr(leasing, "renew", unheard)
    async with leased(app, ttl=0.05) as config:
        with pytest.raises(FencedError):
            await app.invoke(graph, {"log": []}, config=config, durability="sync")
    assert taken
    assert runs == ["sleeps"]  # it was stopped at its next step
    assert (await other.state(chain(other.saver, ("quick", note)))).values["log"] == ["newer", 1]


def unheard(*args: Any) -> Any:
    """A heartbeat that does not come through."""
    return True
    yield


def _then(app: App, node: Callable[[Any], Any], more: Callable[[], Any]) -> Any:
    """A node that does something else once the lease has run out."""

    async def asynchronous(state: Any) -> Any:
        await asyncio.sleep(0.1)
        await more()
        return node(state)

    def synchronous(state: Any) -> Any:
        return asyncio.run(asynchronous(state))

    return synchronous if app.sync else asynchronous


async def test_the_heartbeat_keeps_a_lease(app: App) -> None:
    other = await app.another()
    async with leased(app, ttl=0.3):
        await asyncio.sleep(0.9)
        with pytest.raises(LeaseHeldError):
            async with leased(other):
                pass
    async with leased(other):
        pass


async def test_a_lease_on_a_thread_that_does_not_exist_yet(app: App) -> None:
    async with leased(app, "new") as config:
        other = await app.another()
        with pytest.raises(LeaseHeldError):
            await other.invoke(one(other.saver), {"log": []}, "new")
        result = await app.invoke(one(app.saver), {"log": []}, config=config)
        assert result["__interrupt__"]


async def test_a_lease_is_not_copied(app: App) -> None:
    await app.invoke(one(app.saver), {"log": []})
    async with leased(app):
        await app.call(app.saver, "copy_thread", "t", "copy")
        await app.invoke(one(app.saver), Command(resume="yes"), "copy")


async def test_a_wrong_ttl(app: App) -> None:
    with pytest.raises(ConfigurationError, match="ttl"):
        app.saver.lease("t", ttl=0)


async def test_the_lease_of_a_killed_holder_is_taken_over(shared: Database) -> None:
    saver = await shared.raw()
    one(saver).invoke({"log": []}, on_thread("t"))
    ready = children.event()
    child = children.start(children.hold, children.place_of(shared), "t", ready)
    assert ready.wait(60)
    with pytest.raises(LeaseHeldError):
        one(saver).invoke(Command(resume="yes"), on_thread("t"))
    child.kill()
    child.join()
    while True:  # at most its ttl of a second
        try:
            with saver.lease("t") as config:
                assert one(saver).invoke(Command(resume="yes"), config)["log"][1] == ["ok?", "yes"]
                return
        except LeaseHeldError:
            await asyncio.sleep(0.05)
