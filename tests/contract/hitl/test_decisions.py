"""Decisions: recorded once, checked, kept until a run has used them."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass, make_dataclass
from datetime import datetime, timedelta, timezone
from types import ModuleType
from typing import Any

import pytest
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from stepvault.errors import (
    AlreadyDecidedError,
    AnswerInvalidError,
    ConfigurationError,
    DeadlinePassedError,
    InterruptNotFoundError,
    SupersededError,
)
from tests.contract.hitl.building import App, asks, chain, nested, one, parallel
from tests.contract.matrix import Database

LONG_AGO = datetime(2020, 1, 1, tzinfo=timezone.utc)


@dataclass
class Refund:
    order: str
    cents: int


class Verdict(BaseModel):
    approved: bool
    limit: int = 0


@pytest.fixture
async def app(database: Database) -> App:
    return await App.on(database, types=[Refund])


async def asked(app: App, graph: Any, thread: str = "t") -> Any:
    await app.invoke(graph, {"log": []}, thread)
    return (await app.open(thread))[0]


async def test_a_decision_is_run_with_what_it_returns(app: App) -> None:
    graph = one(app.saver)
    question = await asked(app, graph)
    decision = await app.inbox("decide", question.id, {"ok": True}, by="ann", note="looks fine")
    assert (decision.answer, decision.by, decision.note) == ({"ok": True}, "ann", "looks fine")
    assert await app.agrees(graph) == {"'ok?'"}  # no run has used it yet
    assert [i.status for i in await app.inbox("list", status="decided")] == ["decided"]
    assert not list(await app.inbox("list"))
    assert (await app.invoke(graph, decision.command, config=decision.config))["log"][1] == ["ok?", {"ok": True}]
    answered = await app.inbox("get", question.id)
    assert (answered.status, answered.decision.by, answered.decision.at) == ("answered", "ann", decision.at)
    assert await app.changes() == [("created", "ok?"), ("decided", "ok?"), ("answered", "ok?")]


async def test_the_second_decision_is_told_who_was_first(app: App) -> None:
    question = await asked(app, one(app.saver))
    first = await app.inbox("decide", question.id, "yes", by="ann")
    with pytest.raises(AlreadyDecidedError, match="decided by ann at") as caught:
        await app.inbox("decide", question.id, "no", by="bob")
    assert (caught.value.by, caught.value.at) == ("ann", first.at)
    assert (await app.inbox("get", question.id)).decision.answer == "yes"


async def test_of_many_deciders_at_once_one_is_heard(app: App) -> None:
    question = await asked(app, one(app.saver))
    apps = [app, *[await app.another() for _ in range(3)]]
    calls = [one_.inbox("decide", question.id, n, by=f"person {n}") for n, one_ in enumerate(apps * 2)]
    found = await asyncio.gather(*calls, return_exceptions=True)
    heard = [decision for decision in found if not isinstance(decision, BaseException)]
    assert len(heard) == 1
    assert {type(refused) for refused in found if isinstance(refused, BaseException)} == {AlreadyDecidedError}
    kept = (await app.inbox("get", question.id)).decision
    assert (kept.answer, kept.by) == (heard[0].answer, heard[0].by)
    assert await app.changes() == [("created", "ok?"), ("decided", "ok?")]


async def test_an_interrupt_that_a_run_answered_is_not_decided(app: App) -> None:
    graph = one(app.saver)
    question = await asked(app, graph)
    await app.invoke(graph, Command(resume="yes"))
    with pytest.raises(AlreadyDecidedError, match="answered by a run"):
        await app.inbox("decide", question.id, "late")


async def test_a_superseded_question_is_not_decided(app: App) -> None:
    graph = one(app.saver)
    question = await asked(app, graph)
    await app.invoke(graph, {"log": ["instead"]})
    with pytest.raises(SupersededError, match="moved on"):
        await app.inbox("decide", question.id, "late")
    assert ("superseded", "ok?") in await app.changes()


async def test_an_unknown_id(app: App) -> None:
    await asked(app, one(app.saver))
    for verb in ("get", "expire"):
        with pytest.raises(InterruptNotFoundError, match="'nothing'"):
            await app.inbox(verb, "nothing")
    with pytest.raises(InterruptNotFoundError, match="'nothing'"):
        await app.inbox("decide", "nothing", 1)


async def test_an_answer_is_checked_against_its_schema(app: App) -> None:
    def node(state: Any) -> Any:
        return {"log": [interrupt("how much?", response_schema=Verdict)]}

    graph = chain(app.saver, ("ask", node))
    question = await asked(app, graph)
    assert question.response_schema["properties"]["approved"] == {"title": "Approved", "type": "boolean"}
    for wrong, place in (({}, "answer.approved is missing"), ({"approved": "maybe"}, r"answer\.approved must be")):
        with pytest.raises(AnswerInvalidError, match=place):
            await app.inbox("decide", question.id, wrong)
    decision = await app.inbox("decide", question.id, {"approved": True, "limit": 5})
    assert (await app.invoke(graph, decision.command, config=decision.config))["log"]


async def test_values_and_answers_keep_their_types(app: App) -> None:
    def node(state: Any) -> Any:
        return {"log": [interrupt(Refund("A1", 500))]}

    graph = chain(app.saver, ("ask", node))
    question = await asked(app, graph)
    assert question.value == Refund("A1", 500)
    decision = await app.inbox("decide", question.id, Refund("A1", 400))
    assert (await app.invoke(graph, decision.command, config=decision.config))["log"] == [Refund("A1", 400)]


async def test_whoever_lists_need_not_know_the_classes(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_dataclass("Claim", [("number", int)])
    made.__module__ = "an_app"
    monkeypatch.setitem(sys.modules, "an_app", ModuleType("an_app"))
    sys.modules["an_app"].Claim = made  # type: ignore[attr-defined]

    def node(state: Any) -> Any:
        return {"log": [interrupt(made(7))]}

    app = await App.on(database)
    await asked(app, chain(app.saver, ("ask", node)))
    monkeypatch.delitem(sys.modules, "an_app")
    stranger = await app.another()
    (question,) = await stranger.inbox("list")
    assert question.value.type_name.endswith("Claim")
    assert await stranger.inbox("decide", question.id, "fine")
    assert json.dumps((await stranger.inbox("get", question.id)).to_dict())


async def test_an_interrupt_is_ready_for_json(app: App) -> None:
    def node(state: Any) -> Any:
        return {"log": [interrupt({"refund": Refund("A1", 500), "at": LONG_AGO, "raw": b"\xff"})]}

    question = await asked(app, chain(app.saver, ("ask", node)))
    await app.inbox("decide", question.id, Verdict(approved=True), by="ann")
    shown = json.loads(json.dumps((await app.inbox("get", question.id)).to_dict()))
    assert shown["value"]["refund"] == {"order": "A1", "cents": 500}
    assert shown["decision"]["answer"] == {"approved": True, "limit": 0}
    assert shown["status"] == "decided"


async def test_kept_over_a_crash_between_deciding_and_running(app: App) -> None:
    question = await asked(app, nested(2)(app.saver))
    await app.inbox("decide", question.id, "yes", by="ann")
    bot = await app.another()  # the first one died here
    graph = nested(2)(bot.saver)
    (found,) = await bot.inbox("list", status="decided")
    assert found.decision == (await bot.inbox("get", question.id)).decision
    await bot.invoke(graph, found.decision.command, config=found.decision.config)
    assert (await bot.inbox("get", question.id)).status == "answered"
    assert await bot.agrees(graph) == {"'sure?'"}


async def test_kept_with_durability_exit(app: App) -> None:
    graph = parallel(app.saver)
    await app.invoke(graph, {"log": []}, durability="exit")
    for question in await app.open():
        decision = await app.inbox("decide", question.id, f"to {question.value}", by="ann")
        await app.invoke(graph, decision.command, config=decision.config, durability="exit")
    await app.agrees(graph)
    told = {i.value: (i.status, i.decision.answer) for i in await app.everything() if i.decision}
    assert told == {"left?": ("answered", "to left?"), "right?": ("answered", "to right?")}


async def test_a_decision_stays_when_its_run_fails(app: App) -> None:
    fails = [True]

    def node(state: Any) -> Any:
        answer = interrupt("ok?")
        if fails:
            raise RuntimeError("boom")
        return {"log": [answer]}

    graph = chain(app.saver, ("ask", node))
    question = await asked(app, graph)
    decision = await app.inbox("decide", question.id, "yes")
    with pytest.raises(RuntimeError, match="boom"):
        await app.invoke(graph, decision.command, config=decision.config)
    (again,) = await app.inbox("list", status="decided")
    fails.clear()
    await app.invoke(graph, again.decision.command, config=again.decision.config)
    assert (await app.inbox("get", question.id)).status == "answered"


# -- deadlines and references


async def test_a_deadline_with_a_default_answer(app: App) -> None:
    graph = one(app.saver)
    question = await asked(app, graph)
    assert not await app.inbox("due")
    with pytest.raises(DeadlinePassedError, match="has not passed"):
        await app.inbox("expire", question.id)
    await app.inbox("amend", question.id, deadline=datetime.now(timezone.utc) + timedelta(hours=1), default="no")
    assert not await app.inbox("due")
    assert await app.inbox("due", datetime.now(timezone.utc) + timedelta(hours=2))
    await app.inbox("amend", question.id, deadline=LONG_AGO)
    (late,) = await app.inbox("due")
    assert (late.id, late.default) == (question.id, "no")
    with pytest.raises(DeadlinePassedError, match="has passed"):
        await app.inbox("decide", question.id, "yes")
    settled = await app.inbox("expire", question.id)
    assert settled.decision.answer == "no"
    assert not await app.inbox("due")
    assert (await app.invoke(graph, settled.decision.command, config=settled.decision.config))["log"][1] == [
        "ok?",
        "no",
    ]


async def test_a_deadline_without_an_answer(app: App) -> None:
    graph = one(app.saver)
    question = await asked(app, graph)
    await app.inbox("amend", question.id, deadline=LONG_AGO)
    assert (await app.inbox("expire", question.id)).status == "expired"
    assert not await app.inbox("due")
    assert not await app.open()
    with pytest.raises(DeadlinePassedError):
        await app.inbox("decide", question.id, "late")
    assert await app.changes() == [("created", "ok?"), ("expired", "ok?")]


async def test_every_question_has_a_deadline_where_the_saver_says_so(database: Database) -> None:
    app = await App.on(database, interrupt_deadline=60)
    question = await asked(app, one(app.saver))
    assert question.deadline - question.created_at == timedelta(hours=1)
    assert [i.id for i in await app.inbox("due", question.deadline)] == [question.id]


async def test_found_by_an_outside_reference(app: App) -> None:
    graph = parallel(app.saver)
    await app.invoke(graph, {"log": []})
    left, right = await app.open()
    await app.inbox("amend", left.id, external_ref="ticket 1")
    await app.inbox("amend", right.id, external_ref="ticket 2")
    assert [i.id for i in await app.inbox("list", external_ref="ticket 2")] == [right.id]
    await app.inbox("amend", right.id, external_ref="ticket 3")
    assert not list(await app.inbox("list", external_ref="ticket 2"))
    await app.inbox("decide", right.id, 1)
    assert not list(await app.inbox("list", external_ref="ticket 3"))
    assert [i.status for i in await app.inbox("list", external_ref="ticket 3", status=None)] == ["decided"]
    with pytest.raises(ConfigurationError, match="amend"):
        await app.inbox("amend", left.id)


# -- lists


async def test_pages_of_many_threads_hold_still(app: App) -> None:
    graph = chain(app.saver, ("ask", asks("ok?")))
    threads = [f"t{n}" for n in range(12)]
    for thread in threads:
        await app.invoke(graph, {"log": []}, thread)
    seen: list[str] = []
    page = await app.inbox("list", limit=4)
    while True:
        seen += [i.thread_id for i in page]
        if page.cursor is None:
            break
        await app.inbox("decide", page[0].id, "while it is read")
        page = await app.inbox("list", limit=4, cursor=page.cursor)
    assert seen == threads
    assert [i.thread_id for i in await app.inbox("list", status="decided")] == ["t0", "t4", "t8"][: len(seen) // 4]


@pytest.mark.parametrize("wrong", [{"status": "open"}, {"limit": 0}, {"cursor": "no cursor"}], ids=str)
async def test_wrong_arguments_are_named(app: App, wrong: dict[str, Any]) -> None:
    for thread in ({}, {"thread_id": "t"}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            await app.inbox("list", **wrong, **thread)
    with pytest.raises(ConfigurationError, match="cursor"):
        await app.inbox("changes", "no cursor")


async def test_tenants_see_their_own(app: App) -> None:
    graph = one(app.saver)
    await asked(app, graph)
    other = App(app.database, app.saver.for_tenant("other"))
    assert not list(await other.inbox("list"))
    assert await other.changes() == []
    question = await asked(other, one(other.saver))
    assert [i.id for i in await other.inbox("list")] == [question.id]
    with pytest.raises(InterruptNotFoundError):
        await app.inbox("get", question.id)
