"""A sealed vault's store: nothing in clear, everything found, rows that were moved refused."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langgraph.store.base import PutOp

from stepvault import Vault
from stepvault.encryption import Keyring
from stepvault.errors import ConfigurationError, RowMismatchError, WrongKeyError
from stepvault.stores._dialect import Find, NewItem, Work
from stepvault.stores._sealed_items import Names
from stepvault.stores.sqlite import SqliteStore
from tests.contract.matrix import KEYRING, Database, SqliteDatabase
from tests.contract.sealed.test_nothing_in_clear import Marker, Places


class Model:
    """Letters counted: alike texts have alike vectors."""

    def __call__(self, texts: list[str]) -> list[list[float]]:
        return [[float(text.count(letter)) + 0.01 for letter in "abcdefgh"] for text in texts]


INDEX = {"dims": 8, "embed": Model(), "fields": ["text"]}


class Vaults:
    def __init__(self, database: Database) -> None:
        self.database = database
        self._opened: list[Vault] = []

    def open(self, **options: Any) -> Vault:
        url = self.database.url
        url = f"sqlite:///{url}" if isinstance(self.database, SqliteDatabase) else url
        chosen = {"keyring": KEYRING, **self.database.options, **options}
        chosen.pop("cluster_mode", None)
        if chosen["keyring"] is None:
            del chosen["keyring"]
        vault = Vault.open(url, **chosen)
        self._opened.append(vault)
        return vault

    async def close(self) -> None:
        for vault in self._opened:
            await vault.aclose()


@pytest.fixture
async def vaults(database: Database) -> AsyncIterator[Vaults]:
    vaults = Vaults(database)
    yield vaults
    await vaults.close()


async def test_nothing_of_an_item_is_found(vaults: Vaults, marker: Marker) -> None:
    store, at = vaults.open(pseudonymise_ids=True, index=INDEX).store, Places(marker)
    await store.asetup()
    for number in range(3):
        namespace = (at("label"), at(f"second label {number}"))
        value = {"text": at("text"), at("field"): at("scalar"), "deep": {"list": [at("deep")] * 9}, "n": number}
        await store.aput(namespace, at("key"), value, index=["text", at("path")])
    assert at.found_in(vaults.database.content()) == []

    other = vaults.open(pseudonymise_ids=True, index=INDEX).store
    assert (await other.aget((at("label"), at("second label 0")), at("key"))).value["text"] == at("text")
    found = await other.asearch((at("label"),), filter={at("field"): at("scalar"), "n": {"$gte": 1}})
    assert sorted(item.value["n"] for item in found) == [1, 2]
    assert {item.namespace[0] for item in await other.asearch((), query=at("text"))} == {at("label")}
    assert len(await other.asearch((at("label"),), query=at("text").partition("-")[2], mode="text")) == 3
    listed = await other.alist_namespaces(prefix=(at("label"),))
    assert listed == sorted((at("label"), at(f"second label {number}")) for number in range(3))
    assert await other.alist_namespaces(max_depth=1) == [(at("label"),)]
    removed = await other.adelete_namespace((at("label"), at("second label 1")))
    assert removed.items == 1
    assert len(await other.asearch((at("label"),))) == 2


async def test_names_stay_readable_unless_told_otherwise(vaults: Vaults, marker: Marker) -> None:
    store, at = vaults.open().store, Places(marker)
    await store.asetup()
    await store.aput(("users", at("label")), at("key"), {"text": at("text")})
    assert at.found_in(vaults.database.content()) == ["label", "key"]


async def test_vectors_may_stay_readable_for_the_database_to_rank(vaults: Vaults) -> None:
    store = vaults.open(index={**INDEX, "plaintext_vectors": True}).store
    await store.asetup()
    for text in ("aaa", "bbb", "abab"):
        await store.aput(("docs",), text, {"text": text})
    assert [item.key for item in await store.asearch(("docs",), query="aaaa")][:2] == ["aaa", "abab"]


async def test_where_an_item_came_from_is_told_and_not_shown(vaults: Vaults, marker: Marker) -> None:
    from langchain_core.runnables.config import var_child_runnable_config

    store, at = vaults.open().store, Places(marker)
    await store.asetup()
    token = var_child_runnable_config.set({"configurable": {"thread_id": at("thread")}})
    try:
        await store.aput(("n",), "k", {"x": 1})
    finally:
        var_child_runnable_config.reset(token)
    assert at.found_in(vaults.database.content()) == []
    assert (await store.aget(("n",), "k")).source.thread_id == at("thread")


async def test_moved_items_and_other_keyrings_are_refused(vaults: Vaults) -> None:
    store = vaults.open().store
    await store.asetup()
    await store.aput(("n",), "one", {"x": 1})
    await store.aput(("n",), "two", {"x": 2})
    inner = store._scope.core.dialect.inner
    reply = await store._driver.arun(inner.work(b"", Work(gets=[(b"n\0", b"one")])))
    (row,) = reply.gets
    moved = NewItem(b"n\0", b"two", None, None, None, None, None, "", (), row.body)
    await store._driver.arun(inner.work(b"", Work(puts=[moved])))
    assert (await store.aget(("n",), "one")).value == {"x": 1}
    with pytest.raises(RowMismatchError):
        await store.aget(("n",), "two")
    with pytest.raises(WrongKeyError):
        await vaults.open(keyring=Keyring({"test": os.urandom(32)})).store.aget(("n",), "one")
    with pytest.raises(ConfigurationError, match="pass keyring="):
        await vaults.open(keyring=None).store.aget(("n",), "one")


async def test_the_first_of_all_may_be_many(vaults: Vaults) -> None:
    """Whoever looks while another one marks an empty database as sealed does not take the mark for an item."""
    stores = [vaults.open().store for _ in range(6)]
    await asyncio.gather(*(store.aput(("n",), str(number), {"x": number}) for number, store in enumerate(stores)))
    assert len(await stores[0].asearch(("n",))) == 6


async def test_a_destroyed_key_hides_no_namespace_but_its_own(vaults: Vaults) -> None:
    """Whatever is newest: rows out of a backup stand beside newer ones, in a namespace, above it and below it."""
    vault = vaults.open(pseudonymise_ids=True)
    await vault.asetup()
    store, keys = vault.store, vault.checkpointer._core.keys

    async def shred(*labels: str) -> None:
        index = await store._arun(keys.index())
        names = Names(index, store._scope.tenant, hidden=True)
        owner = names.owner(names.ns(b"".join(label.encode() + b"\0" for label in labels)))
        assert await vault.checkpointer._driver.arun(keys.shred([owner])) == 1

    for labels, key in ((("a",), "own"), (("a", "gone"), "k"), (("b", "kept"), "k"), (("b",), "own"), (("c",), "1")):
        await store.aput(labels, key, {"x": 1})
    await store.aput(("c",), "2", {"x": 1})
    await shred("a", "gone")  # the newest below ("a",)
    await shred("b")  # the newest below ("b",), which has a living one below it
    inner = store._scope.core.dialect.inner
    (found,) = (await store._driver.arun(inner.work(b"", Work(finds=[Find(b"", 10)])))).finds
    row = found[0].row  # ("c",) "2"
    await shred("c")
    await store.aput(("c",), "1", {"x": 2})  # its second key
    back = NewItem(row.ns, row.key, None, None, None, None, None, "", (), row.body)
    await store._driver.arun(inner.work(b"", Work(puts=[back])))
    for reader in (store, vaults.open(pseudonymise_ids=True).store):
        assert await reader.alist_namespaces() == [("a",), ("b", "kept"), ("c",)]
        assert await reader.alist_namespaces(max_depth=1) == [("a",), ("b",), ("c",)]
        assert await reader.alist_namespaces(prefix=("b",)) == [("b", "kept")]
        assert {(item.namespace, item.key) for item in await reader.asearch(())} == {
            (("a",), "own"), (("b", "kept"), "k"), (("c",), "1")
        }  # fmt: skip
        assert [item.key for item in await reader.asearch((), limit=1, offset=1)] != []


@pytest.mark.parametrize("plain", [False, True], ids=["inside", "plaintext vectors"])
async def test_rows_of_destroyed_keys_end_no_page(vaults: Vaults, plain: bool) -> None:
    """Were they the newest, the nearest and the only ones of the first pages."""
    vault = vaults.open(index={**INDEX, **({"plaintext_vectors": True} if plain else {})})
    await vault.asetup()
    store, keys = vault.store, vault.checkpointer._core.keys
    living = [f"k{number}" for number in range(7)]
    for key in living:
        await store.aput(("n",), key, {"text": "aab word", "kind": "x", "n": 1})
    await store.abatch([
        PutOp(("n", "gone"), str(number), {"text": "aaa word", "kind": "x", "n": 1}) for number in range(60)
    ])  # fmt: skip
    owner = (await store._arun(keys.index())).owner(store._scope.tenant, b"n\0gone\0")
    await vault.checkpointer._driver.arun(keys.shred([owner]))
    for how in ({}, {"filter": {"kind": "x"}}, {"filter": {"n": {"$gte": 1}}}, {"query": "aaa"},
                {"query": "word", "mode": "text"}):  # fmt: skip
        pages: list[list[str]] = []
        while not pages or len(pages[-1]) == 3:
            found = await store.asearch((), limit=3, offset=3 * len(pages), **how)
            pages.append([item.key for item in found])
        if how:  # ranked or filtered, so read from the beginning each time
            assert [len(page) for page in pages] == [3, 3, 1]
        assert {key for page in pages for key in page} == set(living)


async def test_ttl_moves_and_batches_work_sealed(vaults: Vaults) -> None:
    store = vaults.open(pseudonymise_ids=True, store_ttl={"default_ttl": 60, "refresh_on_read": True}).store
    await store.asetup()
    await store.aput(("n",), "k", {"x": 1})
    assert (await store.aget(("n",), "k")).value == {"x": 1}
    assert len(await store.asearch(("n",))) == 1
    await store.aput(("n",), "k", {"x": 2})
    await store.adelete(("n",), "k")
    assert await store.aget(("n",), "k") is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keyring": KEYRING}, "pass keys_url="),
        ({"pseudonymise_ids": True}, "need a keyring"),
        ({"keys_url": "sqlite:///x.db"}, "need a keyring"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        SqliteStore.from_conn_string(":memory:", **options)
