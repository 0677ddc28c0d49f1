"""One person is forgotten everywhere, with proof, and stays forgotten."""

from __future__ import annotations

import asyncio
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore
from langgraph.types import interrupt

from stepvault import Run
from stepvault.checkpointers._effects import Effects
from stepvault.checkpointers._erasure import Erasure
from stepvault.checkpointers._inbox import Inbox
from stepvault.checkpointers._ops.erasing import stones
from stepvault.checkpointers._ops.spaces import drop_docs, space
from stepvault.checkpointers._ops.subjects import SUBJECTS, token
from stepvault.checkpointers._subjects import Subjects
from stepvault.erasure import verify_receipt
from stepvault.errors import (
    AlreadyDecidedError,
    ConfigurationError,
    HoldError,
    PlanStaleError,
    SubjectErasedError,
    ThreadGoneError,
    VerifyFailedError,
)
from tests.contract.building import config, put
from tests.contract.matrix import AsAsync, Database, InThreads

HOSTILE = ("ann", "ann-2", "an", "a%n_*'\"\x00/:{}", "ünï", "x" * 300)


async def filled(saver: Any, subjects: Any = ("ann", "bob")) -> None:
    for subject in subjects:
        await put(saver, {"a": f"secret of {subject}" * 30}, at=config(f"thread of {subject}", user_id=subject))
    await put(saver, {"a": 1}, at=config("nobody's"))


async def names(saver: Any) -> set[str]:
    return {thread.thread_id for thread in (await saver.athreads()).threads}


def erasure_of(saver: Any, **options: Any) -> Any:
    """The erasure of a saver, called as its saver is."""
    if isinstance(saver, AsAsync):
        return InThreads(Erasure(saver.saver, **options))
    return Erasure(saver, **options)


async def test_a_person_is_gone_and_the_others_are_not(database: Database) -> None:
    saver = await database.saver()
    await filled(saver)
    erasure = erasure_of(saver)
    plan = await erasure.aplan("ann")
    assert [thread.thread_id for thread in plan.threads] == ["thread of ann"]
    assert plan.unattributed == 1
    request = await erasure.aerase("ann", plan=plan)
    assert request.state == "receipted"
    assert request.counts == {"threads": 1, "checkpoints": 1}
    assert await names(saver) == {"thread of bob", "nobody's"}
    assert b"secret of ann" not in database.content()
    assert (await erasure.aplan("ann")).threads == []


async def test_late_writes_are_refused(database: Database) -> None:
    saver = await database.saver()
    await filled(saver)
    erasure = erasure_of(saver)
    await erasure.aerase("ann")
    for thread in ("thread of ann", "another"):
        with pytest.raises(SubjectErasedError):
            await put(saver, {"a": 1}, at=config(thread, user_id="ann"))
    with pytest.raises(SubjectErasedError):
        await saver.aput_writes(config("third", checkpoint_id="c", user_id=["bob", "ann"]), [("a", 1)], "task")
    assert await names(saver) == {"thread of bob", "nobody's"}
    await erasure.areadmit("ann")
    await put(saver, {"a": 1}, at=config("fresh", user_id="ann"))
    assert [thread.thread_id for thread in (await erasure.aplan("ann")).threads] == ["fresh"]


async def test_threads_of_somebody_whose_erasure_is_under_way_are_not_copied(async_database: Database) -> None:
    saver = await async_database.raw()
    await put(saver, {"a": 1}, at=config("hers", user_id=["ann", "bob"]))
    await saver._arun(stones.close(saver._scope, [token(saver._scope, "ann")], "hers", 0))
    with pytest.raises(SubjectErasedError):
        await saver.acopy_thread("hers", "copy")
    assert await names(saver) == {"hers"}
    assert (await erasure_of(saver).aerase("ann")).counts == {"shared": 1}
    await saver.acopy_thread("hers", "copy")
    assert {thread.thread_id for thread in (await erasure_of(saver).aplan("bob")).threads} == {"copy", "hers"}
    assert (await erasure_of(saver).aplan("ann")).threads == []


async def test_late_effects_are_refused(async_database: Database) -> None:
    saver = await async_database.raw()
    effects, calls = Effects(saver), list[int]()

    async def pay(state: MessagesState) -> Any:
        await effects.aonce("pay", calls.append, 1)
        return {"messages": []}

    graph = StateGraph(MessagesState).add_node("pay", pay).add_edge(START, "pay").compile(checkpointer=saver)
    await graph.ainvoke({"messages": []}, config("both", user_id=["ann", "bob"]))
    await erasure_of(saver).aerase("ann")
    with pytest.raises(SubjectErasedError):
        await graph.ainvoke({"messages": []}, config("new", user_id="ann"), durability="async")
    late = config("both", user_id="ann")
    late["configurable"]["__pregel_task_id"] = "late"
    before = var_child_runnable_config.set(late)
    with pytest.raises(SubjectErasedError):
        await effects.aonce("pay", calls.append, 1)
    var_child_runnable_config.reset(before)
    assert calls == [1]


@pytest.mark.parametrize("shared", ["keep", "erase"])
async def test_shared_threads_follow_the_choice(shared: str, database: Database) -> None:
    saver = await database.saver()
    await put(saver, {"a": 1}, at=config("both", user_id=["ann", "bob"]))
    erasure = erasure_of(saver)
    assert [thread.shared for thread in (await erasure.aplan("ann")).threads] == [True]
    request = await erasure.aerase("ann", shared=shared)
    assert await names(saver) == ({"both"} if shared == "keep" else set())
    assert request.counts == ({"shared": 1} if shared == "keep" else {"threads": 1, "checkpoints": 1})
    if shared == "keep":
        await put(saver, {"a": 2}, at=config("both", user_id="bob"))
        with pytest.raises(SubjectErasedError):
            await put(saver, {"a": 3}, at=config("both", user_id="ann"))


async def test_a_name_leaves_the_metadata_of_a_thread_that_stays(async_database: Database) -> None:
    saver = await async_database.raw()
    at = config("both")
    for person in ("ann", "bob", "ann"):
        at["configurable"]["user_id"] = person
        at = await put(saver, {"a": f"said by {person}"}, at=at, metadata={"user_id": person, "topic": "ann"})
    run = config("both", user_id="bob")
    run["configurable"]["__pregel_runtime"] = type("Runtime", (), {"control": type("Control", (), {})()})()
    head = (await saver.aget_tuple(run)).config
    await erasure_of(saver).aerase("ann")
    other = await async_database.raw()
    assert [entry async for entry in other.alist(None, filter={"user_id": "ann"})] == []
    assert len([entry async for entry in other.alist(None, filter={"user_id": "bob", "topic": "ann"})]) == 1
    assert len([entry async for entry in other.alist(None, filter={"user_id": "[erased]"})]) == 2
    assert (await other.aget_tuple(config("both"))).checkpoint["channel_values"] == {"a": "said by ann"}
    run["configurable"]["checkpoint_id"] = head["configurable"]["checkpoint_id"]
    await put(saver, {"a": "bob goes on"}, at=run, metadata={"user_id": "bob"})
    assert len([entry async for entry in other.alist(config("both"))]) == 4


async def test_subjects_are_told_apart_whatever_they_look_like(database: Database) -> None:
    saver = await database.saver()
    await filled(saver, HOSTILE)
    for n, subject in enumerate(HOSTILE):
        request = await erasure_of(saver).aerase(subject)
        assert request.counts == {"threads": 1, "checkpoints": 1}
        assert len(await names(saver)) == len(HOSTILE) - n


async def test_a_hold_stops_it(database: Database) -> None:
    saver = await database.saver()
    await filled(saver)
    erasure = erasure_of(saver)
    await erasure.ahold("ann", "case 12")
    with pytest.raises(HoldError, match="case 12"):
        await erasure.aerase("ann")
    assert "thread of ann" in await names(saver)
    await erasure.arelease("ann")
    assert (await erasure.aerase("ann")).state == "receipted"


async def test_a_stale_plan_is_refused(database: Database) -> None:
    saver = await database.saver()
    await filled(saver)
    erasure = erasure_of(saver)
    plan = await erasure.aplan("ann")
    await put(saver, {"a": 1}, at=config("new", user_id="ann"))
    with pytest.raises(PlanStaleError):
        await erasure.aerase("ann", plan=plan)
    with pytest.raises(ConfigurationError):
        await erasure.aerase("ann", shared="some")


async def test_receipts_are_genuine_and_chained(database: Database) -> None:
    saver = await database.saver()
    await filled(saver)
    erasure = erasure_of(saver)
    key = await erasure.apublic_key()
    receipts = []
    for subject in ("ann", "bob"):
        request = await erasure.aerase(subject)
        assert request.receipt is not None
        receipts.append(request.receipt["receipt"])
        assert subject not in json.dumps(request.receipt["receipt"])
        assert verify_receipt(json.dumps(request.receipt["receipt"]), key)["removed"]["threads"] == 1
        assert (await erasure.astatus(request.id)).receipt == request.receipt
    assert receipts[0]["previous"] is None
    assert receipts[1]["previous"] is not None
    for name, value in (("remaining", 1), ("previous", None), ("removed", {})):
        with pytest.raises(VerifyFailedError):
            verify_receipt({**receipts[1], name: value}, key)
    with pytest.raises(VerifyFailedError):
        verify_receipt(receipts[0], "00" * 32)
    with pytest.raises(VerifyFailedError):
        verify_receipt("{}", key)


async def test_the_store_is_part_of_it(database: Database) -> None:
    saver, store = await database.saver(), InMemoryStore()
    for namespace in (("users", "ann"), ("users", "ann", "notes"), ("users", "ann-2"), ("teams", "x", "ann")):
        store.put(namespace, "k", {"v": 1})
    erasure = erasure_of(saver, store=store)
    assert (await erasure.aplan("ann")).namespaces == {
        ("users", "ann"): 1,
        ("users", "ann", "notes"): 1,
        ("teams", "x", "ann"): 1,
    }
    await erasure.aerase("ann")
    assert [item.namespace for item in store.search(())] == [("users", "ann-2")]


async def test_patterns_say_whose_a_namespace_is(database: Database) -> None:
    saver, store = await database.saver(), InMemoryStore()
    store.put(("users", "u-ann"), "k", {})
    store.put(("users", "ann"), "k", {})
    erasure = erasure_of(saver, store=store, subject_patterns=[("users", "u-{subject}")])
    await erasure.aerase("ann")
    assert [item.namespace for item in store.search(())] == [("users", "ann")]


async def test_a_journal_outlives_the_database(database: Database, tmp_path: Path) -> None:
    saver = await database.saver()
    journal = tmp_path / "journal.jsonl"
    await filled(saver)
    await erasure_of(saver, journal=journal).aerase("ann")
    assert "ann" not in journal.read_text()
    other = saver.for_tenant("restored")  # as a database that never knew of the erasure
    await filled(other)
    line = json.loads(journal.read_text())
    kept = tmp_path / "restored.jsonl"
    scope = getattr(other, "saver", other)._scope
    kept.write_text(json.dumps({**line, "tenant": scope.tenant.hex(), "token": token(scope, "ann").hex()}) + "\n")
    done = await erasure_of(other, journal=kept).areconcile()
    assert [request.counts for request in done] == [{"threads": 1, "checkpoints": 1}]
    assert await names(other) == {"thread of bob", "nobody's"}
    assert await erasure_of(other, journal=kept).areconcile() == []


@pytest.mark.parametrize("shared", ["keep", "anonymise", "erase"])
async def test_reconciling_repeats_what_was_chosen(shared: str, async_database: Database, tmp_path: Path) -> None:
    saver, journal = await async_database.raw(), tmp_path / "journal.jsonl"
    other = saver.for_tenant("restored")  # as a database that never knew of the erasure
    for restored in (saver, other):
        await put(restored, {"messages": ["ann was here"]}, at=config("both", user_id=["ann", "bob"]))
    await erasure_of(saver, journal=journal).aerase("ann", shared=shared)
    scope = other._scope
    line = {**json.loads(journal.read_text()), "tenant": scope.tenant.hex(), "token": token(scope, "ann").hex()}
    journal.write_text(json.dumps(line) + "\n")
    told: list[Any] = []
    (done,) = await erasure_of(other, journal=journal, hooks={"crm": told.append}).areconcile()
    assert (told, done.hooks) == ([], {}), "it was told then, and nobody knows the name now"
    for restored in (saver, other):
        found = await restored.aget_tuple(config("both"))
        said = found and found.checkpoint["channel_values"]["messages"]
        assert said == {"keep": ["ann was here"], "anonymise": ["[erased]"], "erase": None}[shared]
    assert (await erasure_of(other).aplan("ann")).threads == []


async def test_export_gives_everything_in_clear(database: Database) -> None:
    saver, store = await database.saver(), InMemoryStore()
    await filled(saver)
    store.put(("users", "ann"), "k", {"likes": "tea"})
    out = io.StringIO()
    count = await erasure_of(saver, store=store).aexport("ann", out)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert len(lines) == count
    assert lines[0]["values"] == {"a": "secret of ann" * 30}
    assert lines[-1]["value"] == {"likes": "tea"}


async def test_export_tells_what_was_said_and_done_as_typed_steps(async_database: Database) -> None:
    saver = await async_database.raw()
    graph = StateGraph(MessagesState).add_node("n", lambda state: {"messages": [("ai", "tea it is")]})
    graph = graph.add_edge(START, "n").compile(checkpointer=saver)
    await graph.ainvoke({"messages": [("user", "tea, please")]}, config("hers", user_id="ann"))
    out = io.StringIO()
    await erasure_of(async_database.under_async_names(saver)).aexport("ann", out)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    steps = [line["step"] for line in lines if line["kind"] == "step"]
    run = await Run.afrom_thread(saver, "hers")
    assert steps == json.loads(run.dump_json())["steps"]
    assert "tea, please" in json.dumps(steps)


async def test_export_gives_what_inbox_and_effects_hold(async_database: Database, tmp_path: Path) -> None:
    """Of a person with two ids, each thread once, whatever became of the index; and what they decided for others."""
    saver = await async_database.raw()
    inbox, effects = Inbox(saver), Effects(saver)

    async def ask(state: MessagesState) -> Any:
        await effects.aonce("pay", lambda amount: {"paid": amount, "rate": math.inf}, 17)
        return {"messages": [("ai", interrupt({"lone": "\ud800"}))]}

    graph = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask").compile(checkpointer=saver)
    for thread, person in (("hers", ["ann", "a-17"]), ("his", "bob")):
        await graph.ainvoke({"messages": []}, config(thread, user_id=person))
        (waiting,) = (await inbox.alist(thread_id=thread)).interrupts
        await inbox.aamend(waiting.id, external_ref=f"ticket {thread}", default="no")
    await inbox.adecide(waiting.id, {"of": "his"}, by="a-17", note="sure")
    await Subjects(saver).alink("ann", "a-17")
    await drop_docs_of(saver, SUBJECTS)
    with (tmp_path / "ann.jsonl").open("w", encoding="utf-8") as file:
        await erasure_of(async_database.under_async_names(saver)).aexport("ann", file)
    lines = [json.loads(line) for line in (tmp_path / "ann.jsonl").read_text(encoding="utf-8").splitlines()]
    kinds = [line["kind"] for line in lines]
    assert (kinds.count("checkpoint"), kinds.count("question"), kinds.count("effect")) == (2, 1, 1)
    question = lines[kinds.index("question")]
    assert (question["value"], question["default"], question["external_ref"]) == (
        {"lone": "\ud800"}, "no", "ticket hers",
    )  # fmt: skip
    assert lines[kinds.index("effect")]["result"] == {"paid": 17, "rate": "inf"}
    decision = lines[kinds.index("decision")]
    assert (decision["thread_id"], decision["answer"], decision["note"]) == ("his", {"of": "his"}, "sure")


async def drop_docs_of(saver: Any, name: str) -> None:
    """Lose an index."""
    scope = saver._scope

    def lose() -> Any:
        docs = yield from scope.core.dialect.docs(space(scope, name), b"", b"", 100)
        yield from drop_docs(scope, name, [doc.key for doc in docs])

    await saver._arun(lose())


async def test_a_run_at_work_is_told(async_database: Database) -> None:
    saver = await async_database.raw()
    erasure = erasure_of(async_database.under_async_names(saver))

    async def node(state: MessagesState) -> Any:
        await erasure.aerase("ann")
        return {"messages": [("ai", "x")]}

    graph = StateGraph(MessagesState).add_node("n", node).add_edge(START, "n").compile(checkpointer=saver)
    with pytest.raises((ThreadGoneError, SubjectErasedError)):
        await graph.ainvoke({"messages": []}, config(user_id="ann"))
    assert await names(async_database.under_async_names(saver)) == set()


async def test_deciders_are_people_too(async_database: Database) -> None:
    """Copies of their decisions included; not what somebody else decided before them."""
    saver = await async_database.raw()

    def ask(state: MessagesState) -> Any:
        return {"messages": [("ai", interrupt("?"))]}

    graph = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask").compile(checkpointer=saver)
    waiting = (await graph.ainvoke({"messages": []}, config(user_id="bob")))["__interrupt__"][0].id
    inbox = Inbox(saver)
    await inbox.adecide(waiting, "yes", by="ann", note="go on, says my doctor")
    with pytest.raises(AlreadyDecidedError):
        await inbox.adecide(waiting, "no", by="zoe")
    await saver.acopy_thread("t", "copy")
    erasure = erasure_of(async_database.under_async_names(saver))
    assert (await erasure.aplan("zoe")).decisions == 0
    assert (await erasure.aerase("zoe")).counts == {}
    assert (await erasure.aplan("ann")).decisions == 2
    assert (await erasure.aerase("ann")).counts == {"decisions": 2}
    decided = [one.decision for one in (await inbox.alist(status="decided")).interrupts]
    assert [(one.answer, one.note) for one in decided if one] == [("yes", "[erased]")] * 2
    assert all(one and one.by and one.by.startswith("erased:") for one in decided)


async def test_two_workers_write_one_receipt(database: Database) -> None:
    one, two = await database.saver(), await database.saver()
    for n in range(12):
        await put(one, {"a": n}, at=config(f"t{n}", user_id="ann"))
    done = await asyncio.gather(erasure_of(one).aerase("ann"), erasure_of(two).aerase("ann"))
    receipts = {json.dumps(request.receipt, sort_keys=True) for request in done}
    requests = {request.id for request in done}
    assert len(receipts) == len(requests)
    assert await names(one) == set()
