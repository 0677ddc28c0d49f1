"""What nobody would do on purpose: odd names, huge answers, a sealed inbox, bots that read while others write."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from langgraph.types import Command

from stepvault.checkpointers._inbox import Inbox
from stepvault.errors import (
    AlreadyDecidedError,
    ConfigurationError,
    InterruptNotFoundError,
    StepvaultError,
    ValueNotSerializableError,
)
from tests.contract.hitl.building import App, asks, chain, note, one, two_in_a_node
from tests.contract.matrix import Database

NAMES = ["%_*?[a-z]{x}'\";--", "nul\0nul", "lone \ud800 surrogate", "t:1|a 🎉", "x" * 200]


@pytest.fixture
async def app(database: Database) -> App:
    return await App.on(database, on_conflict="raise")


async def test_names_of_every_kind(app: App) -> None:
    graph = one(app.saver)
    for name in NAMES:
        at = {"configurable": {"thread_id": name, "user_id": name}}
        await app.invoke(graph, {"log": []}, config=at)
    for name in NAMES:
        (question,) = await app.inbox("list", thread_id=name)
        (mine,) = await app.inbox("list", subject=name)
        assert (question, question.thread_id, question.subject) == (mine, name, name)
        await app.inbox("amend", question.id, external_ref=name)
        (found,) = await app.inbox("list", external_ref=name)
        assert found.id == question.id
        decision = await app.inbox("decide", question.id, {name: name}, by=name, note=name)
        assert (decision.by, decision.note, decision.answer) == (name, name, {name: name})
        with pytest.raises(AlreadyDecidedError) as caught:
            await app.inbox("decide", question.id, "no")
        assert caught.value.by == name
        await app.invoke(graph, decision.command, config=decision.config)
        assert (await app.inbox("get", question.id)).status == "answered"
    assert not list(await app.inbox("list"))
    assert len(await app.everything()) == len(NAMES)


async def test_a_huge_question_and_a_huge_answer(app: App) -> None:
    big = "ü" * 3_000_000
    graph = chain(app.saver, ("ask", asks(big)), ("after", note))
    await app.invoke(graph, {"log": []})
    (question,) = await app.inbox("list")
    assert question.value == big
    decision = await app.inbox("decide", question.id, [big], note=big)
    other = await app.another()
    (found,) = await other.inbox("list", status="decided")
    assert found.decision == decision
    result = await other.invoke(chain(other.saver, ("ask", asks(big)), ("after", note)), decision.command)
    assert result["log"][0] == [big, [big]]


async def test_ids_that_nobody_gave(app: App) -> None:
    await app.invoke(one(app.saver), {"log": []})
    for unknown in ("", "0" * 32, "x" * 100_000, "\ud800", "a:b:c", "%", "\0"):
        for name, more in (("get", ()), ("decide", ("yes",)), ("expire", ())):
            with pytest.raises(InterruptNotFoundError):
                await app.inbox(name, unknown, *more)
    for limit in (0, -1):
        with pytest.raises(ConfigurationError, match="limit"):
            await app.inbox("list", limit=limit)
    with pytest.raises(ConfigurationError, match="status"):
        await app.inbox("list", status="PENDING")


async def test_an_answer_that_cannot_be_stored_records_nothing(app: App) -> None:
    await app.invoke(one(app.saver), {"log": []})
    (question,) = await app.inbox("list")
    with pytest.raises(ValueNotSerializableError):
        await app.inbox("decide", question.id, lambda: None)
    assert (await app.inbox("get", question.id)).status == "pending"


async def test_another_tenant_finds_and_decides_nothing(app: App) -> None:
    await app.invoke(one(app.saver), {"log": []})
    (question,) = await app.inbox("list")
    other = Inbox(app.saver.for_tenant("other"))
    assert not list(await app.call(other, "list", status=None))
    assert not list(await app.call(other, "changes"))
    for name, more in (("get", ()), ("decide", ("yes",))):
        with pytest.raises(InterruptNotFoundError):
            await app.call(other, name, question.id, *more)


async def test_a_feed_that_is_read_while_many_write(app: App) -> None:
    """In commit order, each change once, none left out, although readers and writers are at it together."""
    graph = two_in_a_node(app.saver)
    told: list[list[tuple[str, str]]] = [[], []]
    done = asyncio.Event()

    async def write(number: int) -> None:
        thread = f"t{number}"
        await app.invoke(graph, {"log": []}, thread)
        for _ in range(2):
            (question,) = await app.inbox("list", thread_id=thread)
            decision = await app.inbox("decide", question.id, "yes")
            await app.invoke(graph, decision.command, config=decision.config)

    async def read(reader: int) -> None:
        cursor = None
        while True:
            last = done.is_set()
            page = await app.inbox("changes", cursor)
            told[reader] += [(change.kind, change.interrupt.id) for change in page]
            if last and page.cursor == (cursor or ""):
                return
            cursor = page.cursor
            await asyncio.sleep(0)

    async def all_written() -> None:
        await asyncio.gather(*(write(number) for number in range(4)))
        done.set()

    await asyncio.gather(all_written(), read(0), read(1))
    assert told[0] == told[1]
    assert len(told[0]) == 4 * 2 * 3
    for id_ in {id_ for _, id_ in told[0]}:
        assert [kind for kind, of in told[0] if of == id_] == ["created", "decided", "answered"]


async def test_runs_that_meet_on_a_decision(app: App) -> None:
    """Eight runs with one decision: one answer in the thread, others are told why or find nothing to do."""
    graph = one(app.saver)
    await app.invoke(graph, {"log": []})
    (question,) = await app.inbox("list")
    decision = await app.inbox("decide", question.id, "yes")
    results = await asyncio.gather(
        *(app.invoke(graph, decision.command, config=decision.config) for _ in range(8)), return_exceptions=True
    )
    assert any(isinstance(result, dict) for result in results)
    assert all(isinstance(result, (dict, StepvaultError)) for result in results), results
    assert (await app.state(graph)).values["log"] == [0, ["ok?", "yes"], 2]
    assert (await app.inbox("get", question.id)).status == "answered"


async def test_the_same_decision_again_changes_nothing_later(app: App) -> None:
    """A bot that runs a used decision again: the next question of the thread is not answered by it."""
    graph = chain(app.saver, ("ask", asks("first?")), ("again", asks("second?")))
    await app.invoke(graph, {"log": []})
    (question,) = await app.inbox("list")
    decision = await app.inbox("decide", question.id, "yes")
    await app.invoke(graph, decision.command, config=decision.config)
    for value in (decision.command, None, Command(resume={})):
        with contextlib.suppress(StepvaultError):
            await app.invoke(graph, value, config=decision.config)
        assert (await app.state(graph)).values["log"] == [["first?", "yes"]]
        assert [i.value for i in await app.inbox("list")] == ["second?"]
