"""One database with every kind of row, full of markers: none is found in it, sealed from the start or afterwards."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.store.base import BaseStore
from langgraph.types import interrupt

from stepvault import Vault
from tests.contract.building import config, put
from tests.contract.matrix import Database
from tests.contract.sealed.test_nothing_in_clear import Marker, Places, State
from tests.contract.sealed.test_stores import INDEX, Vaults

OPTIONS: dict[str, Any] = {
    "index": INDEX,
    "ttl": {"default_ttl": 600},
    "store_ttl": {"default_ttl": 600},
    "unknown_types": "raw",
    "interrupt_deadline": 600,
}
# What a marker has to be in for the test to have meant something.
SHOWN_UNSEALED = {
    *("thread id", "subject", "state", "tag", "write", "error", "failure", "task path"),
    *("answer", "second question", "default", "reference"),
    *("effect name", "effect result", "in doubt", "hold", "copied thread"),
    *("label", "key", "memory text", "memory field", "read label", "read key", "read value"),
}


@pytest.fixture
async def vaults(database: Database) -> AsyncIterator[Vaults]:
    vaults = Vaults(database)
    yield vaults
    await vaults.close()


def app(vault: Vault, at: Places) -> Any:
    """A graph that remembers, reads its memory, pays, asks twice and fails."""

    async def remember(state: State, *, store: BaseStore) -> State:
        await store.aput(
            (at("label"), at("second label")), at("key"), {"text": at("memory text"), at("memory field"): 1}
        )
        read = await store.aget((at("read label"),), at("read key"))
        assert read is not None
        return {"log": [read.value["text"]]}

    async def ask(state: State) -> State:
        answer = interrupt({"question": at("question")})
        paid = await vault.effects.aonce(at("effect name"), lambda of: at("effect result"), at("effect argument"))
        return {"log": [answer, paid, interrupt(at("second question"))]}

    builder = StateGraph(State)
    builder.add_node("remember", remember)
    builder.add_node("ask", ask)
    builder.add_edge(START, "remember")
    builder.add_edge("remember", "ask")
    return builder.compile(checkpointer=vault.checkpointer, store=vault.store)


async def fail(vault: Vault, at: Places) -> None:
    """A run that ends in the middle of an effect."""

    async def broken(of: str) -> None:
        raise ConnectionError(at("in doubt"))

    async def pay(state: State) -> State:
        await vault.effects.aonce(at("in doubt"), broken, at("in doubt"))
        return {}

    async def raising(state: State) -> State:
        raise RuntimeError(at("failure"))

    for name, node in (("pay", pay), ("raising", raising)):
        builder = StateGraph(State)
        builder.add_node(name, node)
        builder.add_edge(START, name)
        graph = builder.compile(checkpointer=vault.checkpointer)
        with pytest.raises((ConnectionError, RuntimeError)):
            await graph.ainvoke({"text": at("state")}, config(at(f"{name} thread")))


async def fill(vault: Vault, at: Places) -> None:
    saver, store = vault.checkpointer, vault.store
    await store.aput((at("read label"),), at("read key"), {"text": at("read value"), "list": [at("read value")]})
    thread: Any = {
        "configurable": {"thread_id": at("thread id"), "user_id": at("subject")},
        "metadata": {at("metadata key"): at("metadata")},
    }
    graph = app(vault, at)
    await graph.ainvoke({"log": [at("state")] * 3, "text": at("state") * 100}, thread)
    (asked,) = await vault.inbox.alist()
    decision = await vault.inbox.adecide(asked.id, at("answer"), by=at("decider"), note=at("remark"))
    await graph.ainvoke(decision.command, {**decision.config, **thread})
    (asked,) = await vault.inbox.alist()
    await vault.inbox.aamend(asked.id, default=at("default"), external_ref=at("reference"))
    await fail(vault, at)

    first = await put(
        saver,
        {at("channel"): {at("dict key"): [at("state")] * 9}, "bytes": at("bytes").encode(), "long": at("long") * 2000},
        at=config(at("plain thread"), user_id=at("subject")),
        metadata={"who": at("metadata"), "deep": {"list": [at("deep metadata")]}},
    )
    await saver.aput_writes(first, [("x", at("write")), ("__error__", at("error"))], "task", at("task path"))
    await saver.atag(first, at("tag"))
    await saver.acopy_thread(at("plain thread"), at("copied thread"))
    await vault.erasure.ahold(at("subject"), at("hold"))


async def read_back(vault: Vault, at: Places) -> None:
    """What tells that everything is still there and can be found."""
    named = {info.thread_id for info in await vault.athreads(limit=50)}
    assert named == {
        at(name) for name in ("thread id", "plain thread", "copied thread", "pay thread", "raising thread")
    }
    assert {info.thread_id for info in await vault.athreads(subject=at("subject"))} >= {at("thread id")}
    (asked,) = await vault.inbox.alist(external_ref=at("reference"))
    assert (asked.value, asked.default) == (at("second question"), at("default"))
    (decided,) = await vault.inbox.alist(status="answered")
    assert (decided.value, decided.thread_id) == ({"question": at("question")}, at("thread id"))
    assert len(await vault.effects.ain_doubt()) == 1
    assert set(await vault.checkpointer.atags(at("plain thread"))) == {at("tag")}
    found = [one async for one in vault.checkpointer.alist(None, filter={"who": at("metadata")})]
    assert {one.config["configurable"]["thread_id"] for one in found} == {at("plain thread"), at("copied thread")}
    (item,) = await vault.store.asearch((at("label"),), query=at("memory text"))
    assert item.value["text"] == at("memory text")
    (word,) = re.findall(r"[a-z0-9]+$", at("read value"))
    assert [one.key for one in await vault.store.asearch((), query=word, mode="text")] == [at("read key")]
    lineage = await vault.alineage(at("thread id"))
    assert lineage.runs
    assert (await vault.erasure.aplan(at("subject"))).held == at("hold")


def seen(vaults: Vaults, at: Places) -> set[str]:
    return set(at.found_in(vaults.database.content()))


async def test_sealed_from_the_start_no_row_shows_what_it_holds(vaults: Vaults, marker: Marker) -> None:
    at, vault = Places(marker), vaults.open(pseudonymise_ids=True, **OPTIONS)
    await vault.asetup()
    await fill(vault, at)
    assert seen(vaults, at) == set()
    assert [place for file in vaults.database.files() for place in at.found_in(file)] == []  # type: ignore[attr-defined]
    await read_back(vaults.open(pseudonymise_ids=True, **OPTIONS), at)


async def test_sealed_afterwards_no_row_shows_what_it_held(vaults: Vaults, marker: Marker) -> None:
    at, plain = Places(marker), vaults.open(keyring=None, compression=None, **OPTIONS)
    await plain.asetup()
    await fill(plain, at)
    await read_back(plain, at)
    assert seen(vaults, at) >= SHOWN_UNSEALED - ({"task path"} if "redis" in vaults.database.name else set())
    vault = vaults.open(pseudonymise_ids=True, **OPTIONS)
    await vault.aseal(settle=0)
    assert seen(vaults, at) == set()
    await read_back(vaults.open(pseudonymise_ids=True, **OPTIONS), at)
    assert seen(vaults, at) == set()
