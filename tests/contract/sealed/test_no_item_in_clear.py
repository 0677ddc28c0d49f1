"""Whatever users can put into a store, in whatever place: none of it is found in what is stored, logs and dumps too."""

from __future__ import annotations

import logging
import struct
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.graph import START, StateGraph
from langgraph.store.base import BaseStore, PutOp
from langgraph.types import interrupt

from stepvault.stores._ops.filters import tokens_of
from stepvault.stores.memories import Memories
from tests.contract.matrix import Database
from tests.contract.sealed.test_nothing_in_clear import Marker, Places, State
from tests.contract.sealed.test_stores import Vaults


@pytest.fixture
async def vaults(database: Database) -> AsyncIterator[Vaults]:
    vaults = Vaults(database)
    yield vaults
    await vaults.close()


class Telling:
    """Texts as vectors that nobody else has; remembers them."""

    def __init__(self) -> None:
        self.made: dict[str, list[float]] = {}

    def __call__(self, texts: list[str]) -> list[list[float]]:
        for text in texts:
            end = text.encode().rjust(8)[-8:]
            self.made.setdefault(text, [(byte * 331 + place) / 997 for place, byte in enumerate(end)])
        return [self.made[text] for text in texts]

    def forms(self) -> dict[str, list[bytes]]:
        """What stands in a database for each, where vectors are not sealed: all of it, half of it, and as text."""
        forms = {}
        for text, vector in self.made.items():
            raw = struct.pack(f"{len(vector)}f", *vector)
            words = ",".join(f"{number:.7g}" for number in vector[2:5]).encode()
            forms[text] = [raw, raw[4:20], raw.hex().encode()[8:40], words]
        return forms


def told(embed: Telling, content: bytes) -> list[str]:
    """The texts whose vectors are found."""
    return [text for text, forms in embed.forms().items() if any(form in content for form in forms)]


async def fill(vault: Any, at: Places) -> None:
    """A value, name, word, filter, deadline or source in every place of a store."""
    store = vault.store
    value = {
        "text": at("text"), at("field"): {"deep": [at("list"), {at("deep field"): at("deep")}]},
        "bytes": at("bytes").encode(), "when": at("scalar"),
    }  # fmt: skip
    for number in range(3):
        name = at("label"), at(f"label below {number}")
        await store.aput(name, at("key"), value, index=["text", at("index path")], ttl=600)
        await store.aget(name, at("key"))  # which moves its deadline
    await store.aput((at("label"),), at("long key"), {"text": at("long text"), "long": at("long") * 500})
    await store.abatch([
        PutOp((at("batch label"),), f"{at('batch key')} {number}", {"text": f"{at('batch')} {number}"}, ttl=None)
        for number in range(5)
    ])  # fmt: skip
    await store.aput((at("label"),), at("replaced key"), {"text": at("replaced")})
    await store.aput((at("label"),), at("replaced key"), {"text": "other"})
    await store.aput((at("deleted label"),), at("deleted key"), {"text": at("deleted")})
    await store.adelete((at("deleted label"),), at("deleted key"))
    await store.aput(
        (*store.thread_scope(at("scope thread")), at("scope label")), at("scope key"), {"text": at("scope")}
    )
    token = var_child_runnable_config.set({"configurable": {"thread_id": at("source thread")}})
    try:
        await store.aput(("source",), at("source key"), {"text": at("source")})
    finally:
        var_child_runnable_config.reset(token)
    memories = Memories(store)
    await memories.aupsert(
        at("memory"), user=at("user"), scope=[at("scope")], tags=[at("memory tag")], about=at("about"),
        data={"a": at("data")}, id=at("memory id"),
    )  # fmt: skip
    for how in ({"filter": {"when": at("scalar")}}, {"query": at("query")}, {"query": at("query"), "mode": "text"}):
        await store.asearch((at("label"),), **how, max_age=timedelta(days=1))
    await vault.for_tenant("acme").store.aput((at("tenant label"),), at("tenant key"), {"text": at("tenant text")})
    await vault.erasure.aerase(at("erased"))
    await read_in_a_run(vault, at)


async def read_in_a_run(vault: Any, at: Places) -> None:
    """A thread that waits for a human has read an item: notes of it, and pins of its deadline."""
    await vault.store.aput((at("read label"),), at("read key"), {"text": at("read")}, ttl=600)

    async def ask(state: State, *, store: BaseStore) -> State:
        assert await store.aget((at("read label"),), at("read key")) is not None
        interrupt("?")
        return {}

    builder = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    graph = builder.compile(checkpointer=vault.checkpointer, store=vault.store)
    await graph.ainvoke({"text": ""}, {"configurable": {"thread_id": at("waiting thread")}})
    assert (await vault.alineage(at("waiting thread"))).items


def unkeyed(at: Places) -> dict[str, bytes]:
    """Tokens by which an unsealed store finds items."""
    values = {"when": at("scalar")}, {"text": at("text")}
    return {f"token of {name}": bytes(tokens_of(value) or b"") for value in values for name in value}


async def test_nothing_that_users_put_into_a_store_is_found(
    vaults: Vaults, marker: Marker, tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    at, embed = Places(marker), Telling()
    folder = tmp_path_factory.mktemp("keys")
    options: dict[str, Any] = {
        "index": {"dims": 8, "embed": embed, "fields": ["text"]}, "pseudonymise_ids": True,
        "keys_url": f"sqlite:///{folder / 'keys.db'}",
    }  # fmt: skip
    vault = vaults.open(**options)
    await vault.asetup()
    await fill(vault, at)
    contents = [vaults.database.content(), *vaults.database.files()]  # type: ignore[attr-defined]
    contents += [path.read_bytes() for path in folder.iterdir()]
    for content in contents:
        assert at.found_in(content) == []
        assert told(embed, content) == []
        assert [
            name for name, token in unkeyed(at).items() if token in content or token.hex().encode() in content
        ] == []
    assert at.found_in(caplog.text.encode()) == []
    found = await vaults.open(**options).store.asearch((at("label"),), query=at("text"), filter={"when": at("scalar")})
    assert len(found) == 3


async def test_the_scan_finds_what_is_not_sealed(vaults: Vaults, marker: Marker) -> None:
    """All of it but what was taken away again."""
    at, embed = Places(marker), Telling()
    vault = vaults.open(keyring=None, compression=None, index={"dims": 8, "embed": embed, "fields": ["text"]})
    await vault.asetup()
    await fill(vault, at)
    content = b"".join([vaults.database.content(), *vaults.database.files()])  # type: ignore[attr-defined]
    never = {"query", "erased", "replaced", "deleted", "deleted label", "deleted key"}
    assert set(at.texts) - set(at.found_in(content)) <= never
    assert told(embed, content)
    if vaults.database.name != "postgres":  # which holds them as numbers
        assert all(token in content for token in unkeyed(at).values())
