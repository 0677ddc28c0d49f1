"""Items of a store on the way into a sealed database and out of it: texts, vectors, times and order stay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langgraph.store.base import PutOp

from stepvault._core.envelope import is_sealed
from stepvault._core.plan import Call
from stepvault._keystore import marker as stored_marker
from stepvault.checkpointers import _conversion as thread_conversion
from stepvault.errors import ConfigurationError, PlaintextRejectedError, SubjectErasedError
from stepvault.stores._dialect import NewItem, Work
from tests.contract.building import config, put, whole
from tests.contract.matrix import Database, RedisDatabase
from tests.contract.sealed.test_nothing_in_clear import Marker, Places
from tests.contract.sealed.test_stores import INDEX, Vaults

HIDDEN = pytest.mark.parametrize("hidden", [False, True], ids=["names", "tokens"])


@pytest.fixture
async def vaults(database: Database) -> AsyncIterator[Vaults]:
    vaults = Vaults(database)
    yield vaults
    await vaults.close()


async def grown(store: Any, at: Places, count: int = 5) -> None:
    for number in range(count):
        namespace = (at("label"), at("second label"), f"n{number % 2}")
        value = {"text": f"{at('text')} word{number}", at("field"): at("scalar"), "n": number}
        index = ["text", at("path")] if number % 2 else None
        await store.aput(namespace, f"{at('key')} {number}", value, index=index, ttl=600 if number % 2 else None)


async def shown(store: Any, at: Places) -> Any:
    """Everything that can be found, in all ways to look."""
    label = at("label")
    finds = [
        {"filter": {at("field"): at("scalar"), "n": {"$gte": 2}}},
        {"query": "word3", "mode": "text"},
        {"query": "aaabbb"},
        {"query": "word2", "mode": "hybrid"},
        {"limit": 2, "offset": 1},
    ]
    items = [
        [(item.namespace, item.key, item.value, item.created_at, item.updated_at) for item in found]
        for find in finds
        for found in [await store.asearch((label,), **find)]
    ]
    one = await store.aget((label, at("second label"), "n1"), f"{at('key')} 3")
    listed = [await store.alist_namespaces(prefix=(label,)), await store.alist_namespaces(prefix=(label,), max_depth=2)]
    return items, one.value, one.created_at, listed


@HIDDEN
async def test_all_of_an_item_is_sealed_found_as_before_and_comes_back(
    vaults: Vaults, marker: Marker, hidden: bool
) -> None:
    at, names = Places(marker), {"pseudonymise_ids": True} if hidden else {}
    plain = vaults.open(keyring=None, index=INDEX, store_ttl={"default_ttl": 600})
    tenants = [plain.store, plain.for_tenant("acme").store]
    for store in tenants:
        await store.asetup()
        await grown(store, at)
    before = [await shown(store, at) for store in tenants]
    assert at.found_in(vaults.database.content())

    sealed = vaults.open(index=INDEX, **names)
    with pytest.raises(ConfigurationError, match="unsealed items"):
        await sealed.store.aget(("n",), "k")
    done = await sealed.aseal(settle=0)
    assert done.items == 10
    left = set(at.found_in(vaults.database.content()))
    assert left <= (set() if hidden else {"label", "second label", "key"})
    for vault in (sealed, vaults.open(index=INDEX, **names)):
        assert [await shown(store, at) for store in (vault.store, vault.for_tenant("acme").store)] == before
    with pytest.raises(ConfigurationError, match="pass keyring="):
        await vaults.open(keyring=None).store.aget(("n",), "k")
    plain.store._scope.core.seen.admitted = float("-inf")  # a minute later
    with pytest.raises(ConfigurationError, match="pass keyring="):
        await plain.store.aput(("n",), "k", {"x": 1})
    assert (await sealed.aseal(settle=0)).items == 0

    await sealed.store.aput((at("label"), "new"), "k", {"text": "new", "n": 1})
    assert (await sealed.aunseal(settle=0)).items == 11
    back = vaults.open(keyring=None, index=INDEX)
    await back.store.adelete((at("label"), "new"), "k")
    assert [await shown(store, at) for store in (back.store, back.for_tenant("acme").store)] == before
    with pytest.raises(ConfigurationError, match="unsealed"):
        await vaults.open(**names).store.aget(("n",), "k")


@HIDDEN
@pytest.mark.parametrize("leaving", [False, True], ids=["seal", "unseal"])
async def test_pods_with_keys_find_everything_throughout(
    vaults: Vaults, marker: Marker, hidden: bool, leaving: bool
) -> None:
    at, names = Places(marker), {"pseudonymise_ids": True, "index": INDEX} if hidden else {"index": INDEX}
    first = vaults.open(keyring=None, index=INDEX) if not leaving else vaults.open(**names)
    await first.store.asetup()
    await grown(first.store, at)
    before = await shown(first.store, at)
    pod, worker = vaults.open(**names).store, vaults.open(**names)
    task = asyncio.create_task((worker.aunseal if leaving else worker.aseal)(settle=1.0))
    while not worker.store._scope.core.dialect.mixed:
        await asyncio.sleep(0)
    if leaving:
        await asyncio.sleep(0.1)
        pod._scope.core.seen.admitted = float("-inf")
    rounds = 0
    while not task.done():
        if not leaving:
            pod._scope.core.seen.admitted = float("-inf")
        assert await shown(pod, at) == before
        await pod.aput(("own",), f"k{rounds}", {"n": rounds})
        assert (await pod.aget(("own",), f"k{rounds}")).value == {"n": rounds}
        if rounds:
            await pod.adelete(("own",), f"k{rounds - 1}")
            for _ in range(50 if hidden and isinstance(vaults.database, RedisDatabase) else 1):
                if (left := await pod.aget(("own",), f"k{rounds - 1}")) is None:
                    break
                await asyncio.sleep(0.02)  # it was about to be moved to another key, and is taken from there
            assert left is None
        await pod.aput(("own",), "same", {"n": rounds})
        rounds += 1
        await asyncio.sleep(0.02)
    await task
    after = vaults.open(keyring=None, index=INDEX).store if leaving else vaults.open(**names).store
    assert await shown_below(after) == {("same", rounds - 1), (f"k{rounds - 1}", rounds - 1)}
    await after.adelete_namespace(("own",))
    assert await shown(after, at) == before


@pytest.mark.parametrize("leaving", [False, True], ids=["seal", "unseal"])
async def test_what_another_one_has_converted_is_not_converted_again(vaults: Vaults, leaving: bool) -> None:
    first = vaults.open() if leaving else vaults.open(keyring=None)
    await first.asetup()
    await first.store.aput(("n",), "k", {"n": 1})
    way = "aunseal" if leaving else "aseal"
    mine, theirs = vaults.open(), vaults.open()
    inner = mine.store._scope.core.dialect.inner
    whole = inner.whole

    def late(names: Any) -> Any:
        del inner.whole
        yield Call(lambda: getattr(theirs, way[1:])(settle=0), lambda: getattr(theirs, way)(settle=0))
        return (yield from whole(names))

    inner.whole = late
    await getattr(mine, way)(settle=0)
    store = (vaults.open(keyring=None) if leaving else vaults.open()).store
    assert (await store.aget(("n",), "k")).value == {"n": 1}


@HIDDEN
async def test_several_that_convert_at_once_lose_nothing(vaults: Vaults, hidden: bool) -> None:
    names = {"pseudonymise_ids": True} if hidden else {}
    plain = vaults.open(keyring=None).store
    await plain.asetup()
    await plain.abatch([PutOp(("all", f"n{number % 3}"), str(number), {"n": number}) for number in range(150)])
    before = {(item.namespace, item.key, item.updated_at) for item in await plain.asearch((), limit=500)}
    for way in ("aseal", "aunseal"):
        workers = [vaults.open(**names) for _ in range(2)]
        await asyncio.gather(*(getattr(worker, way)(settle=0) for worker in workers))
        store = vaults.open(**names if way == "aseal" else {"keyring": None}).store
        items = await store.asearch((), limit=500)
        assert {(item.namespace, item.key, item.updated_at) for item in items} == before


async def test_two_that_move_one_item_agree_whose_copy_stays(vaults: Vaults) -> None:
    """Between the copy of an item and its end where it was, another one does the same, and the app goes on."""
    vault = vaults.open(keyring=None, store_ttl={"default_ttl": 600})
    await vault.asetup()
    plain = vault.store
    drive, ns = plain._driver.arun, ("all", "n")
    dialects = [vaults.open(pseudonymise_ids=True).store._scope.core.dialect for _ in range(2)]
    for dialect in dialects:
        await drive(dialect.keys.index())

    async def changes(dialect: Any) -> list[Any]:
        ((name, _, _),), _ = await drive(dialect.inner.page(None, 10))
        (whole,) = await drive(dialect.inner.whole([name]))
        return [(whole, await drive(dialect.sealed_item(whole.tenant, whole.item)))]

    does: dict[str, Any] = {
        "nothing": lambda: asyncio.sleep(0),
        "deletes": lambda: plain.adelete(ns, "k"),
        "writes": lambda: plain.aput(ns, "k", {"n": 2}),
        "touches": lambda: plain.aget(ns, "k"),
    }
    for what, app in does.items():
        for copied in (True, False):
            await plain.aput(ns, "k", {"n": 1})
            mine, theirs = await changes(dialects[0]), await changes(dialects[1])
            other = (dialects[1].inner.exchange, theirs)
            await moved_meanwhile(drive, dialects[0].inner, mine, [other, app] if copied else [app, other])
            rows, _ = await drive(dialects[0].inner.page(None, 10))
            forms = [is_sealed(body) for _, _, body in rows]
            if what == "nothing":
                assert forms == [True]
            elif what == "deletes":
                assert forms == [True] * copied, "one without keys does not know of what is sealed already"
            else:
                assert forms, "the next pass converts what the app wrote or touched"
            await drive(dialects[0].inner.delete_below(b"", [b""]))


async def moved_meanwhile(drive: Any, inner: Any, changes: Any, others: list[Any]) -> None:
    """Exchange items; between copy and end where there is such a moment, the others have their turn, else before."""

    async def between() -> None:
        for other in others:
            await (drive(other[0](other[1])) if isinstance(other, tuple) else other())

    def later(*args: Any) -> Any:
        yield Call(lambda: None, between)
        return (yield from type(inner)._leave(inner, *args))

    if hasattr(inner, "_leave"):
        inner._leave = later
    else:
        await between()
    await drive(inner.exchange(changes))
    vars(inner).pop("_leave", None)


async def shown_below(store: Any) -> set[Any]:
    return {(item.key, item.value["n"]) for item in await store.asearch(("own",), limit=50)}


async def test_whoever_was_erased_stays_refused(vaults: Vaults) -> None:
    plain = vaults.open(keyring=None)
    await plain.asetup()
    await plain.erasure.aerase("ann")
    await refused(plain, "ann")
    sealed = vaults.open()
    await sealed.aseal(settle=0)
    await sealed.erasure.aerase("bob")
    await refused(sealed, "ann", "bob")
    assert await sealed.keys.aof("bob") == [], "nobody who was erased gets a new key"
    await sealed.aunseal(settle=0)
    back = vaults.open(keyring=None)
    await back.erasure.aerase("cleo")
    await refused(back, "ann", "bob", "cleo")
    again = vaults.open()
    await again.aseal(settle=0)
    await refused(again, "ann", "bob", "cleo")
    await again.erasure.areadmit("ann")
    await again.store.aput(("users", "ann"), "k", {"x": 1})


async def refused(vault: Any, *people: str) -> None:
    for name in people:
        with pytest.raises(SubjectErasedError):
            await vault.store.aput(("users", name), "k", {"x": 1})
    await vault.store.aput(("users", "ann-2"), "k", {"x": 1})


async def test_a_plain_item_is_refused_while_only_threads_are_being_sealed(vaults: Vaults) -> None:
    vault = vaults.open()
    await vault.asetup()
    await vault.store.aput(("n",), "k", {"x": 1})
    forged = NewItem(b"n\0", b"k", None, None, None, None, None, "", (), b"\0\x08msgpack\x81\xa1x\x02")
    await vault.store._driver.arun(vault.store._scope.core.dialect.inner.work(b"", Work(puts=[forged])))
    vault.checkpointer._core.keys.accept_plain = True
    with pytest.raises(PlaintextRejectedError):
        await vault.store.aget(("n",), "k")


async def test_a_sealing_that_was_given_up_hides_nothing(vaults: Vaults, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = vaults.open(keyring=None)
    await plain.asetup()
    for number in range(3):
        await put(plain.checkpointer, {"n": number}, at=config(str(number)))
        await plain.store.aput(("n",), str(number), {"n": number})
    with monkeypatch.context() as ended:
        ended.setattr(thread_conversion, "WINDOW", 0)
        ended.setattr(stored_marker, "WINDOW", 0)
        with pytest.raises(ZeroDivisionError):
            await vaults.open().aseal(settle=0, report=lambda progress: 1 / 0)  # type: ignore[arg-type, return-value]
    pod = vaults.open()
    for number in range(3):
        with pytest.raises(ConfigurationError, match=r"half sealed.*run vault.seal\(\)"):
            await pod.checkpointer.aget_tuple(config(str(number)))
        with pytest.raises(ConfigurationError, match=r"half sealed.*run vault.seal\(\)"):
            await pod.store.aget(("n",), str(number))
    await vaults.open().aseal(settle=0)
    for number in range(3):
        assert len(await whole(pod.checkpointer, str(number))) == 1
        assert (await pod.store.aget(("n",), str(number))).value == {"n": number}


async def test_threads_and_items_of_one_vault_change_together(vaults: Vaults, marker: Marker) -> None:
    at = Places(marker)
    plain = vaults.open(keyring=None)
    await plain.asetup()
    await put(plain.checkpointer, {"text": at("thread text")}, at=config(at("thread"), user_id=at("subject")))
    await plain.store.aput(("n",), "k", {"text": at("text")})
    await plain.erasure.ahold("held", at("reason"))
    await plain.for_tenant("no threads").erasure.ahold("held", at("other reason"))
    sealed = vaults.open()
    done = await sealed.aseal(settle=0)
    assert (done.threads, done.items) == (1, 1)
    if "redis" not in vaults.database.name:  # which cannot tell of a tenant without threads
        assert at.found_in(vaults.database.content()) == []
    assert (await sealed.erasure.aplan("held")).held == at("reason")
    done = await sealed.aunseal(settle=0)
    assert (done.threads, done.items) == (1, 1)
    back = vaults.open(keyring=None)
    assert (await back.store.aget(("n",), "k")).value == {"text": at("text")}
    assert (await back.erasure.aplan("held")).held == at("reason")
    assert (await back.erasure.aplan(at("subject"))).threads[0].thread_id == at("thread")


async def test_a_page_of_items_whose_key_was_destroyed_ends_no_search(
    vaults: Vaults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepvault.stores._mixed._PAGE", 2)
    vault = vaults.open()
    await vault.asetup()
    store, keys = vault.store, vault.checkpointer._core.keys
    for namespace, key in (("kept", "k"), ("gone", "1"), ("gone", "2")):
        await store.aput((namespace,), key, {"text": "word"})
    owner = (await store._arun(keys.index())).owner(store._scope.tenant, b"gone\0")
    assert await vault.checkpointer._driver.arun(keys.shred([owner])) == 1
    store._scope.core.dialect.mixed = True
    assert [item.key for item in await store.asearch((), query="word", mode="text")] == ["k"]
