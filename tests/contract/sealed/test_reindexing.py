"""A sealed store whose model changes: its vectors are made anew inside of the items, and nothing else changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from stepvault._core.plan import Call
from stepvault.errors import ConfigurationError, EmbeddingError, IndexMismatchError
from stepvault.stores._dialect import Find, Work
from tests.contract.matrix import Database
from tests.contract.sealed.test_nothing_in_clear import Marker, Places
from tests.contract.sealed.test_stores import Vaults

PAGE = 100  # items of one page of a reindex


class Model:
    """Letters of an alphabet counted; can fail at a call."""

    def __init__(self, alphabet: str) -> None:
        self.alphabet = alphabet
        self.left = -1  # calls until it fails

    def __call__(self, texts: list[str]) -> list[list[float]]:
        if self.left == 0:
            raise OSError("no route to host")
        self.left -= 1
        return [[float(text.count(letter)) + 0.01 for letter in self.alphabet] for text in texts]

    def index(self, **more: Any) -> dict[str, Any]:
        return {"dims": len(self.alphabet), "embed": self, "fields": ["text"], "model": self.alphabet, **more}


@pytest.fixture
async def vaults(database: Database) -> AsyncIterator[Vaults]:
    vaults = Vaults(database)
    yield vaults
    await vaults.close()


async def rows_of(store: Any) -> list[tuple[Any, ...]]:
    """Everything of items but their bodies, as it is stored."""
    dialect = store._scope.core.dialect.inner
    ((*found,),) = (await store._driver.arun(dialect.work(b"", Work(finds=[Find(b"", 1000)])))).finds
    return [(row.no, row.ns, row.key, row.created_at, row.updated_at, row.ttl, row.thread) for row, _ in found]


async def best(store: Any, query: str) -> str:
    return (await store.asearch((), query=query, limit=1))[0].key  # type: ignore[no-any-return]


@pytest.mark.parametrize("plain", [False, True], ids=["inside", "plaintext vectors"])
async def test_only_the_vectors_change(vaults: Vaults, marker: Marker, plain: bool) -> None:
    more, at = {"plaintext_vectors": True} if plain else {}, Places(marker)
    old = vaults.open(index=Model("abcd").index(**more), pseudonymise_ids=True).store
    await old.asetup()
    texts = {"a": "aaa x", "x": "xxx a", "y": "yyy b"}
    for key, text in texts.items():
        await old.aput(("docs", at("label")), key, {"text": text, "also": at("value")}, ttl=600)
    await old.aput(("docs",), "own", {"text": "zzz", at("field"): "aaaaaaaa"}, index=[at("field")])
    await old.aput(("docs",), "off", {"text": "xxxxx"}, index=False)
    await old.for_tenant("acme").aput(("docs",), "theirs", {"text": "xx"})
    before = await rows_of(old)
    model = Model("xyzabcde")
    new = vaults.open(index=model.index(**more), pseudonymise_ids=True).store
    with pytest.raises(IndexMismatchError, match="reindex"):
        await new.asearch((), query="x")
    done: list[int] = []
    assert await new.areindex(report=done.append) == 5
    assert done[-1] == 6
    assert await rows_of(new) == before
    for store in (new, vaults.open(index=model.index(**more), pseudonymise_ids=True).store):
        assert [await best(store, query) for query in ("xxx", "yyy", "aaaaaaa")] == ["x", "y", "own"]
        assert await best(store.for_tenant("acme"), "x") == "theirs"
        assert "off" not in {item.key for item in await store.asearch((), query="x", limit=50)}
        assert (await store.aget(("docs", at("label")), "a")).value == {"text": "aaa x", "also": at("value")}
    assert at.found_in(vaults.database.content()) == []
    with pytest.raises(IndexMismatchError):
        await vaults.open(index=Model("abcd").index(**more), pseudonymise_ids=True).store.asearch((), query="x")


async def test_it_goes_on_where_it_failed_and_nobody_finds_half(vaults: Vaults) -> None:
    store = vaults.open(index=Model("ab").index()).store
    await store.asetup()
    for number in range(PAGE + 5):
        await store.aput(("docs",), str(number), {"text": "x" * (number % 7 + 1)})
    model = Model("xyz")
    model.left = 1
    new = vaults.open(index=model.index()).store
    with pytest.raises(EmbeddingError):
        await new.areindex()
    model.left = -1
    for other in (new, vaults.open(index=Model("xyz").index()).store):
        with pytest.raises(IndexMismatchError, match="run reindex"):
            await other.asearch((), query="x")
    await new.aput(("docs",), "meanwhile", {"text": "zzzz"}, index=False)
    await new.aput(("docs",), "meanwhile", {"text": "zzzz"})
    assert await new.areindex() == PAGE + 6
    assert await best(new, "zzz") == "meanwhile"


async def test_what_is_written_deleted_or_erased_meanwhile_stays_so(vaults: Vaults) -> None:
    old = vaults.open(index=Model("ab").index())
    await old.asetup()
    for name in ("written", "deleted", "erased", "kept"):
        await old.store.aput(("all", "u", name), "k", {"text": "yyy"})
    model = Model("xyz")
    vault = vaults.open(index=model.index())
    elsewhere = vaults.open(index=Model("xyz").index())
    documents = vault.store._documents

    async def happens() -> None:
        await elsewhere.store.aput(("all", "u", "written"), "k", {"text": "xxx"})
        await elsewhere.store.adelete(("all", "u", "deleted"), "k")
        await elsewhere.erasure.aerase("erased")

    def between(wanted: Any) -> Any:
        yield Call(lambda: None, happens)
        return (yield from documents(wanted))

    vault.store._documents = between  # type: ignore[method-assign]
    assert await vault.store.areindex() == 4
    found = {item.namespace[2]: item.score for item in await vault.store.asearch((), query="x", limit=50)}
    assert found.keys() == {"written", "kept"}
    assert found["written"] > 0.9 > found["kept"]
    assert not any(key.wrapped_by for key in await vault.keys.aof("erased"))


async def test_not_while_a_store_is_sealed_or_unsealed_but_before_and_afterwards(vaults: Vaults) -> None:
    plain = vaults.open(keyring=None, index=Model("ab").index())
    await plain.asetup()
    await plain.store.aput(("docs",), "y", {"text": "yyy"})
    await plain.store.aput(("docs",), "x", {"text": "xxx"})
    vault = vaults.open(index=Model("xyz").index())
    await vaults.open(index=Model("ab").index()).aseal(settle=0)
    dialect = vault.store._scope.core.dialect
    assert await vault.store.areindex() == 2
    assert await best(vault.store, "yy") == "y"
    dialect.mixed = True  # as it is while somebody unseals it
    with pytest.raises(ConfigurationError, match="being sealed or unsealed"):
        await vault.store.areindex()
    dialect.mixed = False
    await vault.aunseal(settle=0)
    back = vaults.open(keyring=None, index=Model("yzabcd").index())
    assert await back.store.areindex() == 2
    assert await best(back.store, "yy") == "y"
