"""A thread written by version 1 of an app, with a human asked, goes on under version 3."""

from __future__ import annotations

import operator
from typing import Annotated, Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

from stepvault.checkpointers._effects import Effects
from stepvault.errors import StateInvalidError
from tests.contract.evolution.deploying import DONE, Deploy
from tests.contract.matrix import Database


class One(TypedDict, total=False):
    name: str
    total: int
    log: Annotated[list[str], operator.add]


class Two(TypedDict, total=False):
    customer: str
    total: int
    log: Annotated[list[str], operator.add]


class Money(BaseModel):
    cents: int
    currency: str


class Three(BaseModel):
    customer: str
    total: Money
    log: Annotated[list[str], operator.add] = []


def pay() -> str:
    DONE["pay"] += 1
    return "paid"


def build(state: Any, key: str, node: str, saver: Any) -> Any:
    def look(state: Any) -> Any:
        return {"log": ["looked"]}

    def ask(state: Any) -> Any:
        seen = state if isinstance(state, dict) else dict(state)
        paid = Effects(saver).once("pay", pay)
        return {"log": [f"{paid} {seen[key]}: {interrupt('pay?')}"]}

    graph = StateGraph(state)
    graph.add_node("look", look)
    graph.add_node(node, ask)
    graph.add_edge(START, "look")
    graph.add_edge("look", node)
    return graph.compile(checkpointer=saver)


def one(saver: Any) -> Any:
    return build(One, "name", "ask", saver)


def two(saver: Any) -> Any:
    return build(Two, "customer", "confirm", saver)


def three(saver: Any) -> Any:
    return build(Three, "customer", "approve", saver)


def to_two(values: dict[str, Any]) -> dict[str, Any]:
    if "name" in values:
        values["customer"] = values.pop("name")
    return values


def to_three(values: dict[str, Any]) -> dict[str, Any]:
    if type(values.get("total")) is int:
        values["total"] = Money(cents=values["total"], currency="EUR")
    return values


TWO: dict[str, Any] = {"state_version": 2, "state_migrations": {1: to_two}, "node_aliases": {"ask": "confirm"}}
THREE: dict[str, Any] = {
    "state_version": 3,
    "state_migrations": {1: to_two, 2: to_three},
    "node_aliases": {"ask": "confirm", "confirm": "approve"},
    "state_schema": Three,
    "types": [Money],
}


async def asked(database: Database) -> Deploy:
    DONE.clear()
    first = await Deploy.of(database, one)
    await first.invoke({"name": "Ada", "total": 4200})
    return first


async def test_version_3_answers_what_version_1_asked(database: Database) -> None:
    first = await asked(database)
    third = await Deploy.of(database, three, **THREE)

    (waiting,) = (await third.call(third.inbox, "list")).interrupts
    state = await third.state()
    assert (waiting.node, state.next) == ("approve", ("approve",))
    assert waiting.interrupt_id == state.interrupts[0].id != waiting.id
    assert state.values["total"] == Money(cents=4200, currency="EUR")
    decision = await third.call(third.inbox, "decide", state.interrupts[0].id, "yes", by="Grace")
    assert (await third.call(third.inbox, "get", waiting.id)).decision == decision
    said = await third.invoke(decision.command)

    assert said["log"] == ["looked", "paid Ada: yes"]
    assert DONE["pay"] == 1
    assert [i.status for i in (await third.call(third.inbox, "list", status=None)).interrupts] == ["answered"]
    plain = await Deploy.of(database, types=[Money])
    assert await plain.values() == {
        "customer": "Ada",
        "total": Money(cents=4200, currency="EUR"),
        "log": ["looked", "paid Ada: yes"],
    }
    for code in (first, await Deploy.of(database, two, **TWO)):
        with pytest.raises(StateInvalidError, match=r"Thread 't', checkpoint .*version 3.*state_version=(none|2)"):
            await code.invoke({"log": []})


async def test_every_step_of_the_old_thread_is_read_in_the_new_form(database: Database) -> None:
    await asked(database)
    third = await Deploy.of(database, three, **THREE)

    found = [entry async for entry in database.under_async_names(third.saver).alist(third.thread)]

    assert [sorted(entry.checkpoint["channel_values"]) for entry in found] == [
        ["branch:to:approve", "customer", "log", "total"],
        ["branch:to:look", "customer", "total"],
        ["__start__"],
    ]
    assert found[-1].checkpoint["channel_values"]["__start__"] == {
        "customer": "Ada",
        "total": Money(cents=4200, currency="EUR"),
    }


async def test_a_state_that_does_not_fit_names_the_place(database: Database) -> None:
    await asked(database)
    third = await Deploy.of(database, three, **{**THREE, "state_migrations": {1: to_two, 2: lambda values: values}})

    with pytest.raises(StateInvalidError, match=r"Thread 't', checkpoint .*does not fit Three at total"):
        await third.state()
    unable = await Deploy.of(database, three, **{**THREE, "state_migrations": {2: to_three}})
    with pytest.raises(StateInvalidError, match=r"version 1.*state_version=3.*from 1 to 2"):
        await unable.state()


async def test_what_a_finished_task_wrote_is_migrated_too(database: Database) -> None:
    def build(state: Any, written: dict[str, Any], saver: Any) -> Any:
        def fill(state: Any) -> Any:
            DONE["fill"] += 1
            return written

        graph = StateGraph(state)
        graph.add_node("fill", fill)
        graph.add_node("ask", lambda state: {"log": [interrupt("go on?")]})
        graph.add_edge(START, "fill")
        graph.add_edge(START, "ask")
        return graph.compile(checkpointer=saver)

    DONE.clear()
    first = await Deploy.of(
        database, lambda saver: build(One, {"name": "Ada", "total": 4200, "log": ["filled"]}, saver)
    )
    await first.invoke({"name": "nobody", "total": 1, "log": ["begun"]})
    third = await Deploy.of(database, lambda saver: build(Three, {}, saver), **{**THREE, "node_aliases": None})

    said = await third.invoke(Command(resume="yes"))

    assert said == {
        "customer": "Ada",
        "total": Money(cents=4200, currency="EUR"),
        "log": ["begun", "yes", "filled"],
    }
    assert DONE["fill"] == 1
    assert (await (await Deploy.of(database, types=[Money])).values())["customer"] == "Ada"
