"""A privacy officer who trusts nothing: ids like patterns, people who come back, processes with full caches."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from stepvault import Vault
from stepvault._upkeep import copy_over
from stepvault.erasure import STATES, commits_to, verify_receipt
from stepvault.errors import (
    HoldError,
    IdentifierError,
    InterruptNotFoundError,
    SubjectErasedError,
    ThreadGoneError,
    VerifyFailedError,
)
from stepvault.receipts import verify_receipts
from tests.contract.building import checkpoint, config
from tests.contract.erasure.test_memory_writes import Vaults
from tests.contract.matrix import Database

HOSTILE = (
    "ann", "ann-2", "an", "a%", "a_", "*", "a*", "a\x00b", "\x00", "\ud800", "a\udfffb",
    "a'; DROP TABLE x; --",
    "{subject}", "a/b", "\u202eann", "ann ", " ann", "ANN", "a" * 1100, "a" * 1099, "ünï", "u\u0308nï",
)  # fmt: skip
LABELS = [person for person in HOSTILE if "\x00" not in person]  # which LangGraph allows in namespaces


@pytest.fixture
async def vaults(database: Database) -> AsyncIterator[Vaults]:
    vaults = Vaults(database)
    yield vaults
    await vaults.close()


def ask(vault: Vault, person: str) -> str:
    graph = StateGraph(MessagesState).add_node("n", lambda state: {"messages": [("ai", interrupt("?"))]})
    app = graph.add_edge(START, "n").compile(checkpointer=vault.checkpointer)
    return str(
        app.invoke({"messages": []}, config(f"of {HOSTILE.index(person)}", user_id=person))["__interrupt__"][0].id
    )


def put(vault: Vault, thread: str, **named: Any) -> Any:
    made = checkpoint({"a": thread})
    return vault.checkpointer.put(config(thread, **named), made, {"source": "loop"}, made["channel_versions"])


async def test_ids_are_never_patterns(vaults: Vaults) -> None:
    """Each id has a thread, a question, a decision and an item; each erasure takes exactly what is theirs."""
    vault = vaults.open()
    erasure, store = vaults.named(vault.erasure), vaults.named(vault.store)
    asked = {person: ask(vault, person) for person in HOSTILE}
    for person, decider in zip(HOSTILE, [*HOSTILE[1:], HOSTILE[0]], strict=True):
        vault.inbox.decide(asked[person], "yes", by=decider)
    for person in LABELS:
        await store.aput(("memory", person), "k", {"n": 1})
    for n, person in enumerate(HOSTILE):
        spaces = [("memory", person)] if person in LABELS else []
        plan = await erasure.aplan(person)
        assert plan.decisions == (n == 0), "the others decided in threads that are gone"
        assert [thread.thread_id for thread in plan.threads] == [f"of {n}"]
        assert plan.namespaces == dict.fromkeys(spaces, 1)
        await erasure.ahold(person, f"case {n}")
        with pytest.raises(HoldError, match=f"case {n}"):
            await erasure.aerase(person)
        await erasure.arelease(person)
        out = io.StringIO()
        await erasure.aexport(person, out)
        lines = [json.loads(line) for line in out.getvalue().splitlines()]
        assert {line["thread_id"] for line in lines if "thread_id" in line} >= {f"of {n}"}
        assert [line["namespace"] for line in lines if line["kind"] == "item"] == [list(space) for space in spaces]

        request = await erasure.aerase(person, plan=plan)
        assert (request.counts["threads"], request.counts.get("items", 0)) == (1, len(spaces))
        assert request.receipt is not None
        assert commits_to(request.receipt["receipt"], request.receipt["salts"], person)
        assert len(vault.threads(limit=100)) == len(HOSTILE) - n - 1
        assert len(await store.asearch((), limit=100)) == len([left for left in LABELS if left in HOSTILE[n + 1 :]])
        with pytest.raises(SubjectErasedError):
            put(vault, "late", user_id=person)
        for space in spaces:
            with pytest.raises(SubjectErasedError):
                await store.aput(space, "k", {"n": 1})
    assert list(vault.subjects.list()) == []
    for refused in (lambda: put(vault, "t", user_id="a" * 10_240), lambda: vault.erasure.erase("a" * 10_240)):
        with pytest.raises(IdentifierError, match="subject is 10,240 bytes"):
            refused()
    assert len(vault.threads()) == 0


async def test_who_comes_back_starts_clean(vaults: Vaults) -> None:
    vault = vaults.open()
    erasure, saver = vaults.named(vault.erasure), vault.checkpointer
    run = config("hers", user_id="ann")
    run["configurable"]["__pregel_runtime"] = type("Runtime", (), {"control": type("Control", (), {})()})()
    put(vault, "hers", user_id="ann")
    assert saver.get_tuple(run) is not None
    states: list[str] = []
    await erasure.aerase("ann", progress=lambda request: states.append(request.state))
    assert sorted(set(states), key=states.index) == list(STATES), "told of each state"
    with pytest.raises(HoldError, match="had begun"):
        await erasure.ahold("ann", "too late")
    await erasure.arelease("ann")
    await erasure.areadmit("ann")
    made = checkpoint({"a": "before"})
    with pytest.raises(ThreadGoneError):
        saver.put(run, made, {"source": "loop"}, made["channel_versions"])
    put(vault, "hers", user_id="ann")
    with pytest.raises(ThreadGoneError):
        saver.put(run, made, {"source": "loop"}, made["channel_versions"])
    assert [entry.checkpoint["channel_values"] for entry in saver.list(config("hers"))] == [{"a": "hers"}]
    first, second = (await erasure.aerase("ann")), (await erasure.aerase("ann"))
    assert (first.counts, second.counts) == ({"threads": 1, "checkpoints": 1}, {})
    assert len({request.id for request in (first, second)}) == 2


async def test_who_is_called_like_the_erased_can_leave_a_thread(vaults: Vaults) -> None:
    vault = vaults.open()
    for person in ("[erased]", "bob"):
        put(vault, "both", user_id=person)
    request = await vaults.named(vault.erasure).aerase("[erased]")
    assert (request.state, request.counts) == ("receipted", {"shared": 1})
    assert [thread.subjects for thread in vault.threads()] == [("bob",)]


async def test_what_another_process_has_cached_is_not_served(vaults: Vaults) -> None:
    """Its knowledge of threads, its decoded rows and its unwrapped keys are fresh; the rows are gone."""
    vault, other = vaults.open(), vaults.open()
    saver, store = vaults.named(other.checkpointer), vaults.named(other.store)
    waiting = ask(vault, "ann")
    vault.store.put(("users", "ann"), "k", {"n": 1})
    vault.store.put((*vault.store.thread_scope("of 0"), "n"), "k", {"n": 1})
    reads: list[Callable[[], Any]] = [
        lambda: saver.aget_tuple(config("of 0")), lambda: store.aget(("users", "ann"), "k"),
        lambda: store.asearch(()), lambda: vaults.named(other.inbox).alist(),
        lambda: vaults.named(other).athreads(), store.alist_namespaces,
    ]  # fmt: skip
    for read in reads:
        assert await read()
    await vaults.named(vault.erasure).aerase("ann")
    for read in reads:
        assert not await read()
    with pytest.raises(InterruptNotFoundError):
        other.inbox.get(waiting)
    assert list(other.checkpointer.list(config("of 0"))) == []


async def test_any_change_of_a_receipt_shows(vaults: Vaults) -> None:
    vault = vaults.open(hooks={"crm": lambda ids: None})
    put(vault, "hers", user_id="ann")
    erasure = vaults.named(vault.erasure)
    receipt, key = (await erasure.aerase("ann")).receipt["receipt"], await erasure.apublic_key()
    assert verify_receipt(receipt, key)
    for name, value in receipt.items():
        others: list[Any] = [None, 7, "x", [], {}, [value], str(value) + " ", not value]
        for changed in (other for other in others if (other, type(other)) != (value, type(value))):
            with pytest.raises(VerifyFailedError):
                verify_receipt({**receipt, name: changed}, key)
        with pytest.raises(VerifyFailedError):
            verify_receipt({field: receipt[field] for field in receipt if field != name}, key)
        text = json.dumps(receipt)
        twice = text[:-1] + f", {json.dumps(name)}: {json.dumps(value)}}}"
        with pytest.raises(VerifyFailedError):
            verify_receipt(twice, key)  # of two values, a reader may see the other one
    with pytest.raises(VerifyFailedError):
        verify_receipt({**receipt, "more": 1}, key)
    report = verify_receipts({"a": receipt, "b": "[" * 100_000, "c": {**receipt, "number": "1"}, "d": None}, key)
    assert (report.genuine, sorted(report.forged)) == (1, ["b", "c", "d"])


async def test_a_copy_keeps_the_door_shut(vaults: Vaults) -> None:
    """But not behind whom only the target knows."""
    target = vaults.open()
    put(target, "carl's own", user_id="carl")
    with Vault.open("memory://") as source:
        for person in ("ann", "bob", "carl"):
            source.erasure.erase(person)
        source.erasure.readmit("bob")
        assert copy_over(source, target) == (0, 0)
    with pytest.raises(SubjectErasedError):
        put(target, "late", user_id="ann")
    with pytest.raises(SubjectErasedError):
        await vaults.named(target.store).aput(("memory", "ann"), "k", {})
    for person in ("bob", "carl"):
        put(target, "another", user_id=person)
    target.erasure.readmit("ann")
    put(target, "another", user_id="ann")


async def test_a_copy_brings_nobody_back_and_keeps_links_and_holds(vaults: Vaults) -> None:
    target = vaults.open()
    with Vault.open("memory://") as source:
        put(source, "hers", user_id="ann")
        source.store.put(("users", "carl"), "k", {"v": 1})
        source.subjects.link("ann", "a-17")
        source.erasure.hold("carl", "case 12")
        for person in ("a-17", "carl"):
            target.erasure.erase(person)
            with pytest.raises(SubjectErasedError, match="Nothing was copied"):
                copy_over(source, target)
            assert (len(target.threads()), target.store.search(())) == (0, [])
            target.erasure.readmit(person)
        assert copy_over(source, target) == (1, 1)
        assert target.subjects.ids("ann") == ("ann", "a-17")
        assert target.erasure.plan("carl").held == "case 12"
