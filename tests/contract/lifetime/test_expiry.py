"""Threads expire whole: unseen from their deadline on, whatever the sweeps, and gone after one."""

from __future__ import annotations

import asyncio
import operator
import time
from typing import Annotated, Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from stepvault.checkpointers._effects import Effects
from stepvault.checkpointers._inbox import Inbox
from stepvault.errors import ConfigurationError, ThreadGoneError
from tests.contract.building import config, ids, listed, put
from tests.contract.lifetime.building import docs_left, later
from tests.contract.matrix import Database

SHORT = {"default_ttl": 0.8 / 60}
PAST = 1.0  # seconds, beyond SHORT


class State(TypedDict):
    log: Annotated[list[str], operator.add]


async def names(saver: Any) -> list[str]:
    return [thread.thread_id for thread in (await saver.athreads()).threads]


async def test_an_expired_thread_is_nowhere_before_any_sweep(database: Database) -> None:
    saver = await database.saver(ttl=SHORT)
    stored = await put(saver, {"a": "x" * 500})
    await put(saver, {"a": 1}, at=config("lives", stepvault_ttl=60))
    later(saver, 1)
    assert await saver.aget_tuple(stored) is None
    assert await saver.aget_tuple(config()) is None
    assert await listed(saver, config()) == []
    assert {entry.config["configurable"]["thread_id"] for entry in await listed(saver)} == {"lives"}
    assert await names(saver) == ["lives"]


async def test_other_savers_do_not_see_it_either(database: Database) -> None:
    saver, other = await database.saver(ttl=SHORT), await database.saver()
    await put(saver, {"a": 1})
    assert await ids(other, config())
    await asyncio.sleep(PAST)
    assert await other.aget_tuple(config()) is None
    assert await listed(other) == []
    assert await names(other) == []


async def test_a_sweep_leaves_nothing_of_it(database: Database) -> None:
    saver = await database.saver(ttl=SHORT)
    marker = "marker-1f8a0c7e93"
    at = await put(saver, {"a": marker * 50}, at=config(user_id="ann"))
    await saver.aput_writes(at, [("a", marker)], "task")
    later(saver, 1)
    report = await saver.asweep(dry_run=True)
    assert (report.threads, await saver.asweep(dry_run=True) == report) in ((1, True), (1, False))
    report = await saver.asweep()
    assert (report.threads, report.checkpoints, report.more) == (1, 1, False)
    assert (await saver.asweep()).threads == 0
    assert marker.encode() not in database.content()


async def test_activity_moves_the_deadline(database: Database) -> None:
    saver = await database.saver(ttl=SHORT)
    await put(saver, {"a": 1})
    for _ in range(3):
        await asyncio.sleep(0.4)
        assert await saver.aget_tuple(config()) is not None  # reading counts
    assert (await saver.asweep()).threads == 0


async def test_reading_does_not_count_unless_it_is_to(database: Database) -> None:
    saver = await database.saver(ttl={**SHORT, "refresh_on_read": False})
    await put(saver, {"a": 1})
    for _ in range(3):
        await asyncio.sleep(0.4)
        await saver.aget_tuple(config())
    assert await saver.aget_tuple(config()) is None


async def test_looking_through_a_history_counts_as_reading(database: Database) -> None:
    saver = await database.saver(ttl={"default_ttl": 10})
    at = await put(saver, {"a": 1})
    later(saver, 6)
    assert await ids(saver, at)  # one checkpoint, or every thread: copies and those who look after an app
    assert await ids(saver)
    later(saver, 3)
    assert await ids(saver, config())
    later(saver, 9)
    assert await ids(saver, config())


async def test_a_thread_under_a_lease_does_not_expire(database: Database) -> None:
    saver, other = await database.raw(ttl={"default_ttl": 1}), await database.saver()
    await put(database.under_async_names(saver), {"a": 1})
    async with saver.lease("t", ttl=600):
        later(saver, 2)
        later(other, 2)
        assert await names(other) == ["t"]
        assert (await other.asweep()).threads == 0
    assert await names(other) == []
    later(other, 2)  # a sweep looks again a little later
    assert (await other.asweep()).threads == 1


async def test_a_new_thread_takes_the_place_of_an_expired_one(database: Database) -> None:
    saver = await database.saver(ttl=SHORT)
    old = await put(saver, {"a": "old"})
    later(saver, 1)
    new = await put(saver, {"a": "new"})
    assert await ids(saver, config()) == [new["configurable"]["checkpoint_id"]]
    assert await saver.aget_tuple(old) is None


async def test_a_copy_is_swept_as_well(database: Database) -> None:
    saver = await database.saver(ttl=SHORT)
    await put(saver, {"a": 1})
    await saver.acopy_thread("t", "copy")
    later(saver, 2)
    assert await names(saver) == []
    await saver.acopy_thread("t", "late")  # there is nothing to copy any more
    assert (await saver.asweep()).threads == 2
    assert await docs_left(saver) == []


async def test_a_sweep_stops_when_its_time_is_up(database: Database) -> None:
    saver = await database.saver(ttl=SHORT)
    await put(saver, {"a": 1})
    later(saver, 1)
    report = await saver.asweep(seconds=0)
    assert (report.threads, report.more) == (0, True)
    assert (await saver.asweep(dry_run=True)).checkpoints == 1
    assert (await saver.asweep(seconds=60)).threads == 1


async def test_the_clocks_of_clients_do_not_matter(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    saver = await database.saver(ttl={"default_ttl": 60})
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 86_400)
    await put(saver, {"a": 1})
    monkeypatch.setattr(time, "time", lambda: real() - 86_400)
    reader = await database.saver(ttl={"default_ttl": 60})
    assert await names(reader) == ["t"]
    assert (await reader.asweep()).threads == 0
    later(reader, 59)
    assert await names(reader) == ["t"]
    later(reader, 2)
    assert (await reader.asweep()).threads == 1


async def test_deadlines_given_afterwards_count_from_the_last_write(database: Database) -> None:
    before = await database.saver()
    await put(before, {"a": 1})
    saver = await database.saver(ttl={"default_ttl": 30})
    later(saver, 20)
    told: list[int] = []
    assert await saver.aapply_ttl(progress=told.append) == 1
    assert told == [1]
    assert await names(saver) == ["t"]
    later(saver, 11)
    assert await names(saver) == []
    assert (await saver.asweep()).threads == 1
    assert await docs_left(saver) == []


async def test_a_database_filled_before_gets_deadlines_by_command(database: Database) -> None:
    before = await database.saver()
    for n in range(3):
        await put(before, {"a": n}, at=config(f"t{n}"))
    saver = await database.saver(ttl=SHORT)
    assert await saver.aapply_ttl() == 3
    assert await saver.aapply_ttl() == 0
    later(saver, 1)
    assert (await saver.asweep()).threads == 3


async def test_a_thread_may_live_without_end(database: Database) -> None:
    saver = await database.saver(ttl=SHORT)
    await put(saver, {"a": 1}, at=config(stepvault_ttl=None))
    later(saver, 1)
    assert await saver.aget_tuple(config()) is not None
    assert (await saver.asweep()).threads == 0


async def test_it_does_so_until_it_is_told_otherwise(database: Database) -> None:
    saver = await database.saver(ttl={"default_ttl": 30})
    await put(saver, {"a": 1}, at=config(stepvault_ttl=None))
    await put(saver, {"a": 2})
    assert await saver.aapply_ttl() == 0
    later(saver, 31)
    assert await names(saver) == ["t"]
    await put(saver, {"a": 3}, at=config(stepvault_ttl=10))
    later(saver, 11)
    assert (await saver.asweep()).threads == 1


async def test_a_writer_without_a_ttl_leaves_a_thread_its_time(database: Database) -> None:
    """A support tool that writes a thread is no reason to keep personal data for ever."""
    saver, tool = await database.saver(ttl={"default_ttl": 30}), await database.saver()
    await put(saver, {"a": 1})
    later(tool, 20)
    await put(tool, {"a": 2})  # activity, as any
    later(tool, 29)
    assert await names(tool) == ["t"]
    await tool.aget_tuple(config())  # looking at it is none
    later(tool, 2)
    assert await names(tool) == []
    assert (await tool.asweep()).threads == 1


async def test_the_next_default_replaces_the_one_before(database: Database) -> None:
    saver, longer = await database.saver(ttl={"default_ttl": 30}), await database.saver(ttl={"default_ttl": 60})
    await put(saver, {"a": 1})
    await put(longer, {"a": 2})
    await put(saver, {"a": 1}, at=config("told", stepvault_ttl=30))
    await put(longer, {"a": 2}, at=config("told"))
    later(longer, 31)
    assert await names(longer) == ["t"]


async def test_a_sweep_stops_at_its_limit_and_goes_on(database: Database) -> None:
    saver = await database.saver(ttl=SHORT)
    for n in range(5):
        await put(saver, {"a": n}, at=config(f"t{n}"))
    later(saver, 1)
    report = await saver.asweep(limit=2)
    assert (report.threads, report.more) == (2, True)
    assert (await saver.asweep()).threads == 3


async def test_two_sweeps_at_once_remove_each_thread_once(database: Database) -> None:
    one, two = await database.saver(ttl=SHORT), await database.saver(ttl=SHORT)
    for n in range(20):
        await put(one, {"a": n}, at=config(f"t{n}"))
    await asyncio.sleep(PAST)
    reports = await asyncio.gather(one.asweep(), two.asweep())
    assert sum(report.threads for report in reports) == 20


async def test_a_default_that_is_none_is_not_given(database: Database) -> None:
    saver = await database.saver()
    with pytest.raises(ConfigurationError, match="default_ttl"):
        await saver.aapply_ttl()


async def test_a_saver_without_a_default_has_none_to_give(database: Database) -> None:
    saver = await database.saver()
    with pytest.raises(ConfigurationError, match="default_ttl"):
        await saver.aapply_ttl()


@pytest.mark.parametrize(
    "ttl",
    [
        {"default_ttl": 0},
        {"default_ttl": -1},
        {"default_ttl": "1"},
        {"minutes": 1},
        5,
        {"refresh_on_read": "no"},
        {"pin_interrupted": None},
    ],
)
async def test_what_is_no_time_is_refused(ttl: Any, database: Database) -> None:
    with pytest.raises(ConfigurationError):
        database.unprepared(ttl=ttl)


def slow_graph(saver: Any, disturb: Any) -> Any:
    async def node(state: State) -> Any:
        await disturb()
        return {"log": ["x"]}

    return StateGraph(State).add_node("n", node).add_edge(START, "n").compile(checkpointer=saver)


@pytest.mark.parametrize("swept", [False, True])
async def test_a_run_revives_what_it_loaded_unless_it_was_swept(swept: bool, async_database: Database) -> None:
    saver = await async_database.raw(ttl=SHORT)
    other = await async_database.saver(ttl=SHORT)

    async def nothing() -> None:
        pass

    async def sleep() -> None:
        await asyncio.sleep(PAST)
        if swept:
            assert (await other.asweep()).threads == 1

    await slow_graph(saver, nothing).ainvoke({"log": ["a"]}, config())
    late = slow_graph(saver, sleep)
    if swept:
        with pytest.raises(ThreadGoneError):
            await late.ainvoke({"log": ["b"]}, config())
        assert await saver.aget_tuple(config()) is None
    else:
        done = await late.ainvoke({"log": ["b"]}, config())
        assert done["log"] == ["a", "x", "b", "x"]


async def test_a_run_that_begins_late_gets_time(async_database: Database) -> None:
    saver = await async_database.raw(ttl={"default_ttl": 10})
    other = await async_database.saver()

    async def pass_time() -> None:
        for one in (saver, other):
            later(one, 8)
        assert (await other.asweep()).threads == 0

    graph = slow_graph(saver, pass_time)
    await graph.ainvoke({"log": ["a"]}, config(), durability="exit")
    assert (await graph.ainvoke({"log": ["b"]}, config(), durability="exit"))["log"] == ["a", "x", "b", "x"]
    assert await ids(other, config())


async def test_a_thread_that_waits_for_a_human_does_not_expire(async_database: Database) -> None:
    saver = await async_database.raw(ttl=SHORT)

    def ask(state: State) -> Any:
        return {"log": [interrupt("?")]}

    inner = StateGraph(State).add_node("ask", ask).add_edge(START, "ask").compile()
    graph = StateGraph(State).add_node("sub", inner).add_edge(START, "sub").compile(checkpointer=saver)
    await graph.ainvoke({"log": []}, config())
    await asyncio.sleep(PAST)
    report = await async_database.under_async_names(saver).asweep()
    assert (report.threads, report.kept) == (0, 1)
    assert (await graph.ainvoke(Command(resume="yes"), config()))["log"] == ["yes"]
    await asyncio.sleep(PAST)
    assert await saver.aget_tuple(config()) is None


def effectful(saver: Any) -> Any:
    """A graph that pays, asks in a subgraph, and dies of the next payment."""
    effects = Effects(saver)

    async def pay(state: State) -> Any:
        await effects.aonce("pay", returns_one)
        return {"log": [interrupt("go on?")]}

    async def die(state: State) -> Any:
        await effects.aonce("again", fails)
        return {}

    inner = StateGraph(State).add_node("pay", pay).add_edge(START, "pay").compile()
    builder = StateGraph(State).add_node("sub", inner).add_node("die", die)
    return builder.add_edge(START, "sub").add_edge("sub", "die").compile(checkpointer=saver)


async def returns_one() -> int:
    return 1


async def fails() -> None:
    raise RuntimeError("no answer")


async def lived(saver: Any) -> None:
    """A thread with everything a thread can have."""
    graph, inbox = effectful(saver), Inbox(saver)
    at = config("thread-5d1e", user_id="person-5d1e")
    await graph.ainvoke({"log": ["a"]}, at)
    (question,) = await inbox.alist()
    await inbox.aamend(question.id, external_ref="message-5d1e")
    decision = await inbox.adecide(question.id, "yes", by="decider-5d1e")
    with pytest.raises(RuntimeError):
        await graph.ainvoke(
            decision.command, {"configurable": {**at["configurable"], **decision.config["configurable"]}}
        )
    await graph.ainvoke({"log": ["b"]}, at)  # it asks again
    await saver.atag((await graph.aget_state(at)).config, "name-5d1e")


async def test_whatever_tells_of_threads_is_blind_to_expired_ones(async_database: Database) -> None:
    saver = await async_database.raw(ttl={"default_ttl": 30, "pin_interrupted": False})
    await lived(saver)
    inbox, effects, at = Inbox(saver), Effects(saver), config("thread-5d1e")
    assert len(await effects.ain_doubt()) == len(await inbox.alist()) == 1
    head = (await saver.aget_tuple(at)).config
    later(saver, 31)
    assert await effects.ain_doubt() == []
    for status in ("pending", "answered", None):
        assert (
            len(await inbox.alist(status=status)) == len(await inbox.alist(status=status, thread_id="thread-5d1e")) == 0
        )
    assert list(await inbox.achanges()) == []
    assert await inbox.adue() == []
    assert (await saver.alineage("thread-5d1e")).runs == ()
    assert await saver.atags("thread-5d1e") == {}
    assert await saver.ainterrupts(at) == []
    assert await saver.aancestors(at) == []
    assert await saver.aget_each(at, [head["configurable"]["checkpoint_id"]]) == []
    assert (await saver.averify()).checkpoints == 0
    with pytest.raises(ConfigurationError):
        await saver.atag(head, "x")
    with pytest.raises(ConfigurationError):
        await saver.acompact_thread("thread-5d1e", keep_messages=1)


@pytest.mark.parametrize("how", ["sweep", "delete", "renew"])
async def test_nothing_that_leads_to_a_thread_outlives_it(how: str, async_database: Database) -> None:
    saver = await async_database.raw(ttl={"default_ttl": 30, "pin_interrupted": False})
    await lived(saver)
    assert {name for name, _ in await docs_left(saver)} == {"expiry", "effects", "subjects", "deciders", "inbox"}
    if how == "delete":
        await saver.adelete_thread("thread-5d1e")
    later(saver, 31)
    if how == "renew":
        await put(saver, {"a": 1}, at=config("thread-5d1e", stepvault_ttl=None))
        await saver.asweep()
        await saver.adelete_thread("thread-5d1e")
    assert (await async_database.under_async_names(saver).asweep()).threads == (how == "sweep")
    assert await docs_left(saver) == []
    content = async_database.content()
    for part in (b"thread-5d1e", b"person-5d1e", b"decider-5d1e", b"message-5d1e", b"name-5d1e"):
        assert part not in content
