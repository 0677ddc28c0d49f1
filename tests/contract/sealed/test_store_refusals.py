"""Items that were moved, changed, forged or cut are refused in every way to read, each with an error of its own."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from langgraph.store.base import GetOp, PutOp, SearchOp

from stepvault.encryption import Keyring
from stepvault.errors import (
    ConfigurationError,
    KeyNotFoundError,
    KeyUnavailableError,
    PayloadError,
    PlaintextRejectedError,
    RowMismatchError,
    TamperedError,
    TruncatedError,
    UnsupportedFormatError,
    WrongKeyError,
)
from stepvault.stores._dialect import Find, NewItem, Work
from tests.contract.building import put
from tests.contract.matrix import Database
from tests.contract.sealed.raw import Raw, flipped
from tests.contract.sealed.test_refusals import Service
from tests.contract.sealed.test_stores import INDEX, Vaults

SECRET = "a-secret-that-shows-nowhere"
HIDDEN = pytest.mark.parametrize("hidden", [False, True], ids=["names", "tokens"])


@pytest.fixture
async def vaults(database: Database) -> AsyncIterator[Vaults]:
    vaults = Vaults(database)
    yield vaults
    await vaults.close()


class Rows:
    """The stored rows of a sealed store, for somebody who has the database and no keys."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.inner = store._scope.core.dialect.inner

    async def all(self, tenant: bytes = b"") -> list[Any]:
        """Oldest first."""
        (found,) = (await self.do(self.inner.work(tenant, Work(finds=[Find(b"", 100)])))).finds
        return [hit.row for hit in reversed(found)]

    async def put(self, row: Any, body: bytes, tenant: bytes = b"", **more: Any) -> None:
        item = NewItem(row.ns, row.key, None, None, None, more.get("tokens"), None, "", more.get("vectors", ()), body)
        await self.do(self.inner.work(tenant, Work(puts=[item])))

    async def do(self, op: Any) -> Any:
        return await self.store._driver.arun(op)


async def filled(vaults: Vaults, **options: Any) -> Any:
    vault = vaults.open(index=INDEX, **options)
    await vault.asetup()
    for namespace, key in ((("n",), "one"), (("n",), "two"), (("other",), "one")):
        await vault.store.aput(namespace, key, {"text": SECRET, "kind": f"{SECRET} {key}"}, ttl=60)
    await vault.for_tenant("acme").store.aput(("n",), "one", {"text": SECRET})
    return vault


def readings(store: Any, *, few: bool = False) -> Iterator[Any]:
    """Every way to come upon the item "one" in ("n",), or a few of them."""
    yield store.aget(("n",), "one")
    yield asyncio.to_thread(store.search, ("n",))
    if few:
        return
    yield asyncio.to_thread(store.get, ("n",), "one")
    yield store.abatch([GetOp(("n",), "two"), GetOp(("n",), "one")])
    for how in ({}, {"filter": {"kind": f"{SECRET} one"}}, {"filter": {"kind": {"$gte": ""}}}, {"query": "abc"},
                {"query": "secret", "mode": "text"}, {"query": "secret", "mode": "hybrid"}):  # fmt: skip
        yield store.asearch(("n",), **how)
        yield asyncio.to_thread(store.search, ("n",), **how)


async def refused(store: Any, error: type[Exception], hidden: bool, *, few: bool = False) -> list[str]:
    """What the refusals say."""
    said = []
    for reading in readings(store, few=few):
        with pytest.raises(error) as caught:
            await reading
        assert type(caught.value) is error
        if isinstance(caught.value, PayloadError):
            assert hidden or "'one' in ('n',)" in str(caught.value)
        said.append(repr(caught.value))
    said.append(str(caught.getrepr(style="long", showlocals=False)))
    return said


DAMAGES: list[tuple[Any, type[PayloadError]]] = [
    (lambda body: b"plain" + SECRET.encode(), PlaintextRejectedError),
    (lambda body: b"", PlaintextRejectedError),
    (lambda body: body[:-1], TruncatedError),
    (lambda body: body[:20], TruncatedError),
    (lambda body: body + b"x", TruncatedError),
    (lambda body: body[:1] + b"\x02" + body[2:], UnsupportedFormatError),
    (lambda body: body[:2] + b"\x02" + body[3:], UnsupportedFormatError),
    (lambda body: body[:3] + b"\x02" + body[4:], UnsupportedFormatError),
    (lambda body: body[:8] + os.urandom(16) + body[24:], KeyNotFoundError),
    (lambda body: flipped(body, 8 * 30), TamperedError),
    (lambda body: flipped(body, 8 * 40), RowMismatchError),
    (lambda body: flipped(body, 8 * 60), TamperedError),
    (lambda body: flipped(body, 8 * len(body) - 1), TamperedError),
]


@HIDDEN
async def test_each_damage_has_its_error_in_every_way_to_read(
    vaults: Vaults, hidden: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    vault = await filled(vaults, pseudonymise_ids=hidden)
    store, rows = vault.store, Rows(vault.store)
    (one, *_) = await rows.all()
    said = []
    for number, (damage, error) in enumerate(DAMAGES):
        await rows.put(one, damage(one.body))
        said += await refused(store, error, hidden, few=number > 0)
    assert (await store.aget(("n",), "two")).value["text"] == SECRET
    assert [item.key for item in await store.asearch(("other",), query="secret", mode="text")] == ["one"]
    await store.aput(("n",), "one", {"text": "again"})
    assert len(await store.asearch(("n",))) == 2
    await rows.put(one, flipped(one.body, 500))
    assert (await store.adelete_namespace(("n",))).items == 2
    assert await store.asearch(("n",)) == []
    key = bytes(range(32))
    for text in (*said, caplog.text, repr(vault.store._scope), repr(store), repr(store._scope.core.dialect.keys)):
        assert SECRET not in text.replace('f"{SECRET} one"', "")
        assert key.hex() not in text
        assert repr(key) not in text


async def test_every_flipped_bit_is_refused(vaults: Vaults) -> None:
    """All of them on SQLite, which is the fastest."""
    vault = await filled(vaults)
    rows = Rows(vault.store)
    (one, *_) = await rows.all()
    dialect, step = vault.store._scope.core.dialect, 1 if vaults.database.name == "sqlite" else 61
    names = await rows.do(dialect._names(b""))
    refused: set[type] = set()
    for bit in range(0, 8 * len(one.body), step):
        with pytest.raises(PayloadError) as caught:
            await rows.do(dialect._opened(names, [one._replace(body=flipped(one.body, bit))]))
        refused.add(type(caught.value))
    assert refused >= {TamperedError}
    for end in range(0, len(one.body), step):
        with pytest.raises((TruncatedError, PlaintextRejectedError)):
            await rows.do(dialect._opened(names, [one._replace(body=one.body[:end])]))


@HIDDEN
async def test_an_item_in_another_place_is_refused(vaults: Vaults, hidden: bool) -> None:
    vault = await filled(vaults, pseudonymise_ids=hidden)
    store, rows = vault.store, Rows(vault.store)
    one, two, other = await rows.all()
    (theirs,) = await rows.all(b"acme")
    await put(vault.checkpointer, {"x": SECRET})
    raw = Raw(vault.checkpointer)
    checkpoint = (await raw.skeleton("t")).checkpoints[0]
    for body, error in (
        (two.body, RowMismatchError),  # of another key
        (other.body, KeyNotFoundError),  # of another namespace: another data key
        (theirs.body, KeyNotFoundError),  # of another tenant
        (bytes(checkpoint.body), KeyNotFoundError),  # of another table
    ):
        await rows.put(one, body)
        await refused(store, error, hidden, few=True)
    await rows.put(theirs, one.body, b"acme")
    with pytest.raises(KeyNotFoundError):
        await vault.for_tenant("acme").store.aget(("n",), "one")


async def test_what_stands_beside_an_item_makes_no_false_answer(vaults: Vaults) -> None:
    """Tokens, words and vectors in the columns of a sealed item: they can hide it, and nothing else."""
    vault = await filled(vaults)
    store, rows = vault.store, Rows(vault.store)
    one, two, _ = await rows.all()
    dialect = store._scope.core.dialect
    names = await rows.do(dialect._names(b""))
    from stepvault.stores._ops.filters import tokens_of
    from stepvault.stores._sealed_items import keyed

    tokens = {key: keyed(names, tokens_of({"kind": f"{SECRET} {key}"})) for key in ("one", "two")}
    far = b"\0\0\x80\x3f" * 8
    await rows.put(one, one.body, tokens=tokens["two"], vectors=[far])
    await rows.put(two, two.body, tokens=tokens["one"], vectors=[far])
    for key in ("one", "two"):
        assert await store.asearch(("n",), filter={"kind": f"{SECRET} {key}"}) == []
        assert [item.key for item in await store.asearch(("n",), filter={"kind": {"$lte": f"{SECRET} one"}})] == ["one"]
    found = await store.asearch(("n",), query=SECRET)
    assert {round(item.score, 3) for item in found} == {1.0}, "vectors inside the envelope count"


@pytest.mark.parametrize("ring", ["another key of the same id", "another id", "none"])
async def test_another_keyring_or_none_is_refused_at_once(vaults: Vaults, ring: str) -> None:
    await filled(vaults)
    rings = {"another key of the same id": Keyring({"test": os.urandom(32)}), "another id": Keyring.generate("other")}
    error = {"another id": KeyNotFoundError, "none": ConfigurationError}.get(ring, WrongKeyError)
    store = vaults.open(index=INDEX, keyring=rings.get(ring)).store
    attempts: list[Any] = [
        store.aput(("n",), "one", {"x": 1}), store.adelete(("n",), "one"), store.alist_namespaces(),
        store.adelete_namespace(("n",)), store.asweep_ttl(), asyncio.to_thread(store.put, ("n",), "one", {"x": 1}),
    ]  # fmt: skip
    for attempt in (*attempts, *readings(store)):
        with pytest.raises(error, match={"none": "pass keyring="}.get(ring, "test")):
            await attempt
    assert len(await vaults.open(index=INDEX).store.asearch(("n",))) == 2


async def test_a_key_service_that_is_down_is_not_a_lost_key(vaults: Vaults) -> None:
    service = Service()
    ring = Keyring(primary="far", service=service)
    vault = await filled(vaults, keyring=ring)
    calls = service.calls
    assert len(await vault.store.asearch((), query="secret", mode="text")) == 3
    assert service.calls == calls, "keys are cached"
    service.down = True
    assert (await vault.store.aget(("n",), "one")).value["text"] == SECRET
    with pytest.raises(KeyUnavailableError):
        await vault.store.aput(("new",), "k", {"x": 1})
    cold = vaults.open(index=INDEX, keyring=ring).store
    for attempt in (*readings(cold), cold.aput(("n",), "one", {"x": 1})):
        with pytest.raises(KeyUnavailableError):
            await attempt
    service.down = False
    assert len(await cold.asearch((), query="secret", mode="text")) == 3
    await vault.store.aput(("new",), "k", {"x": 1})
    assert await cold.asearch(("n",), filter={"kind": f"{SECRET} one"}, limit=1) != []


async def test_a_search_over_many_with_one_bad_row_says_which(vaults: Vaults) -> None:
    vault = vaults.open()
    await vault.asetup()
    store, rows = vault.store, Rows(vault.store)
    await store.abatch([PutOp(("many", "of"), f"k{number}", {"text": SECRET}) for number in range(50)])
    (bad,) = [row for row in await rows.all() if row.key == b"k33"]
    await rows.put(bad, flipped(bad.body, 999))
    for how in ({"limit": 50}, {"query": "secret", "mode": "text"}, {"filter": {"text": {"$gt": ""}}, "limit": 50}):
        with pytest.raises(TamperedError, match=r"item 'k33' in \('many', 'of'\)") as caught:
            await store.asearch(("many",), **how)
        assert SECRET not in str(caught.value)
    (found,) = await store.abatch([SearchOp(("many",), limit=0)])
    assert found == []
