"""Threads that wait for a human: how long, and who keeps them."""

from __future__ import annotations

import operator
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from stepvault.checkpointers._inbox import Inbox
from tests.contract.building import config
from tests.contract.lifetime.building import later
from tests.contract.matrix import Database

MINUTE = timedelta(minutes=1)


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def asking(saver: Any, questions: int = 1) -> Any:
    """A graph whose nodes each ask, side by side."""

    def ask(state: State) -> Any:
        return {"log": [interrupt("?")]}

    builder = StateGraph(State)
    for n in range(questions):
        builder.add_node(f"ask{n}", ask).add_edge(START, f"ask{n}")
    return builder.compile(checkpointer=saver)


async def names(saver: Any) -> set[str]:
    return {thread.thread_id for thread in (await saver.athreads()).threads}


async def test_a_question_that_has_lapsed_keeps_no_thread(async_database: Database) -> None:
    saver = await async_database.raw(ttl={"default_ttl": 10}, interrupt_deadline=5)
    inbox, graph = Inbox(saver), asking(saver)
    await asking(saver, 2).ainvoke({"log": []}, config("lapsed"))
    for thread in ("default", "decided"):
        await graph.ainvoke({"log": []}, config(thread))
    await graph.ainvoke({"log": []}, config("young", stepvault_ttl=1000))
    await graph.ainvoke({"log": []}, config("open", stepvault_ttl=10))
    ids = {question.thread_id: question.id for question in await inbox.alist()}
    await inbox.aamend(ids["default"], default="no")
    await inbox.aamend(ids["open"], deadline=None)
    await inbox.adecide(ids["decided"], "yes")
    later(saver, 20)
    told = await saver.asweep(dry_run=True)
    assert (told.threads, told.checkpoints) == (1, 2)
    done = await saver.asweep()
    assert (done.threads, done.checkpoints) == (1, 2)
    assert await names(saver) == {"default", "decided", "young", "open"}
    assert {question.thread_id for question in await inbox.adue()} == {"default", "young"}


@pytest.mark.parametrize("what", ["decide", "amend", "expire"])
async def test_whoever_settles_a_question_is_active(what: str, async_database: Database) -> None:
    saver, tool = await async_database.raw(ttl={"default_ttl": 10}), await async_database.raw()
    await asking(saver).ainvoke({"log": []}, config())
    (question,) = await Inbox(saver).alist()
    if what == "expire":
        await Inbox(saver).aamend(question.id, deadline=datetime.now(timezone.utc) - MINUTE)
    for one in (saver, tool):
        later(one, 8)
    before = (await saver.athreads()).threads[0].expires_at
    change = {"decide": ["yes"], "amend": [], "expire": []}[what]
    more = {"external_ref": "ticket"} if what == "amend" else {}
    await getattr(Inbox(tool), f"a{what}")(question.id, *change, **more)
    after = (await saver.athreads()).threads[0].expires_at
    assert timedelta(minutes=7) < after - before < timedelta(minutes=9)


async def test_a_question_goes_with_the_run_that_asked_it(async_database: Database) -> None:
    saver = await async_database.raw(ttl={"default_ttl": 10})
    inbox, graph = Inbox(saver), asking(saver)
    first, second = (f"{n}1111111-1111-1111-1111-111111111111" for n in (1, 2))
    await graph.ainvoke({"log": []}, {**config(), "run_id": first})
    await graph.ainvoke(Command(resume="yes"), {**config(), "run_id": first})
    await graph.ainvoke({"log": []}, {**config(), "run_id": second})
    assert len(await inbox.alist()) == 1
    await saver.adelete_for_runs([second])
    assert not await inbox.alist()
    assert [change.kind for change in await inbox.achanges()] == ["created", "answered"]
    assert (await graph.aget_state(config())).values["log"] == ["yes"]
    later(saver, 11)
    assert (await saver.asweep()).threads == 1
