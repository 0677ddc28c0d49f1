"""Killed by SIGKILL between any two round trips: nothing is paid twice, lost or listed wrongly."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command

from stepvault.checkpointers._inbox import Inbox
from tests.contract.hitl import children
from tests.contract.hitl.building import on_thread, one, two_in_a_node
from tests.contract.matrix import Database

KILLS = [  # of each outcome; a soak, as often in all
    pytest.param(5, id="5", marks=pytest.mark.timeout(600)),
    pytest.param(500, id="500", marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
]


def enough_of(outcomes: Counter[str], kills: int) -> bool:
    """Whether each outcome was seen often, and of a soak all of them together as often as asked."""
    return min(outcomes.values()) >= min(kills, 20) and outcomes.total() >= kills


@pytest.mark.parametrize("kills", KILLS)
async def test_a_payment_happens_once_wherever_its_process_dies(shared: Database, tmp_path: Path, kills: int) -> None:
    place, ledger = children.place_of(shared), str(tmp_path / "ledger")
    saver = await shared.raw()
    graph = children.paying(saver, ledger)
    outcomes: Counter[str] = Counter()
    points: list[Any] = ["before the charge", "after the charge"]
    last = None  # how many batches a whole run has
    thread = 0
    while last is None or len(outcomes) < 4 or not enough_of(outcomes, kills):
        point = points[thread % 2] if thread % 3 == 2 else (thread * 2 // 3) % (last or 1000)
        name = f"t{thread}"
        graph.invoke({"log": []}, on_thread(name))
        killed = children.was_killed(children.pay, place, ledger, name, point)
        if not killed:
            assert isinstance(point, int)
            last = point
        outcomes[children.settle(saver, ledger, name)] += killed
        assert len(children.charges(ledger, name)) == 1
        thread += 1
    assert children.Effects(saver).in_doubt() == []


@pytest.mark.parametrize("kills", KILLS)
async def test_a_decision_is_whole_or_not_there(shared: Database, kills: int) -> None:
    place = children.place_of(shared)
    saver = await shared.raw()
    inbox, graph = Inbox(saver), one(saver)
    outcomes: Counter[str] = Counter()
    point, rounds, cursor = 0, 0, None
    while len(outcomes) < 2 or not enough_of(outcomes, kills):
        thread = f"t{rounds}"
        question = graph.invoke({"log": []}, on_thread(thread))["__interrupt__"][0]
        killed = children.was_killed(children.decide, place, question.id, "yes", point if rounds % 2 else None)
        found = inbox.get(question.id)
        told, cursor = kinds(inbox, thread, cursor)
        assert told == (["created"] if found.status == "pending" else ["created", "decided"])
        assert question.id in {i.id for i in inbox.list(status=found.status, limit=10_000)}
        decision = found.decision or inbox.decide(question.id, "no", by="operator")
        answer = graph.invoke(decision.command, decision.config)["log"][1][1]
        assert answer == ("yes" if found.decision else "no")
        outcomes[found.status] += killed
        point, rounds = (point + rounds % 2) if killed else 0, rounds + 1


@pytest.mark.parametrize("kills", KILLS)
async def test_lists_and_feed_stay_true_wherever_a_run_dies(shared: Database, kills: int) -> None:
    place = children.place_of(shared)
    saver = await shared.raw()
    inbox, graph = Inbox(saver), two_in_a_node(saver)
    graph.invoke({"log": []}, on_thread("living"))
    count = batches = 0
    cursor: str | None = None
    while count < kills * 2:
        thread = f"t{count}"
        if count % 2:
            graph.invoke({"log": []}, on_thread(thread))
        killed = children.was_killed(children.turn, place, thread, None if count % 2 else {"log": []}, batches)
        shown = {i.id for i in graph.get_state(on_thread(thread)).interrupts}
        listed = inbox.list(thread_id=thread, limit=1000)
        assert {i.interrupt_id for i in listed} == shown
        assert {i.id for i in inbox.list(limit=10_000) if i.thread_id == thread} == {i.id for i in listed}
        graph.invoke({"log": ["again"]}, on_thread(thread))
        graph.invoke(Command(resume="yes"), on_thread(thread))
        cursor = assert_feed_is_true(inbox, thread, cursor)
        batches, count = batches + (count % 2) if killed else 0, count + 1


def kinds(inbox: Inbox, thread: str, cursor: str | None) -> tuple[list[str], str | None]:
    """What the feed says of a thread after a cursor, and the cursor to go on from."""
    found: list[str] = []
    while (page := inbox.changes(cursor)).cursor != (cursor or ""):
        found += [change.kind for change in page if change.interrupt.thread_id == thread]
        cursor = page.cursor
    return found, cursor


def assert_feed_is_true(inbox: Inbox, thread: str, cursor: str | None) -> str | None:
    """Applied in order, the feed ends where the list is."""
    last: dict[str, str] = {}
    while (page := inbox.changes(cursor)).cursor != (cursor or ""):
        for change in page:
            if change.interrupt.thread_id == thread:
                assert (change.kind == "created") == (last.get(change.interrupt.id) != "created")
                last[change.interrupt.id] = change.kind
        cursor = page.cursor
    listed = inbox.list(status=None, thread_id=thread, limit=1000)
    assert last == {i.id: "created" if i.status == "pending" else i.status for i in listed}
    return cursor
