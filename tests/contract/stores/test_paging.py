"""Newest write first, and a page is what it says."""

from __future__ import annotations

from typing import Any

from langgraph.store.base import PutOp, SearchOp

NS = ("log",)


async def test_newest_write_first(store: Any) -> None:
    for number in range(5):
        await store.aput(NS, f"k{number}", {"n": number})
    await store.aput(NS, "k1", {"n": 9})
    assert [item.key for item in await store.asearch(NS)] == ["k1", "k4", "k3", "k2", "k0"]


async def test_a_batch_is_written_in_its_order(store: Any) -> None:
    await store.abatch([PutOp(NS, key, {"n": 1}) for key in "cab"])
    assert [item.key for item in await store.asearch(NS)] == ["b", "a", "c"]
    await store.abatch([PutOp(NS, key, {"n": 1}) for key in "abca"])
    assert [item.key for item in await store.asearch(NS)] == ["a", "c", "b"]


async def test_pages_follow_one_another(store: Any) -> None:
    names = [("log", str(number % 3)) for number in range(50)]
    await store.abatch(
        [PutOp(name, f"k{number}", {"n": number, "odd": number % 2}) for number, name in enumerate(names)]
    )
    whole = [item.value["n"] for item in await store.asearch(NS, limit=1000)]
    assert sorted(whole) == list(range(50))
    for size in (1, 7, 50):
        pages = [await store.asearch(NS, limit=size, offset=start) for start in range(0, 60, size)]
        assert [item.value["n"] for page in pages for item in page] == whole
    odd = [number for number in whole if number % 2]
    pages = [await store.asearch(NS, filter={"odd": {"$gt": 0}}, limit=4, offset=start) for start in range(0, 32, 4)]
    assert [item.value["n"] for page in pages for item in page] == odd


async def test_limits(store: Any) -> None:
    await store.abatch([PutOp(NS, str(number), {"n": number}) for number in range(15)])
    assert len(await store.asearch(NS)) == 10
    assert await store.asearch(NS, limit=0) == []
    assert len(await store.asearch(NS, limit=10_000)) == 15
    assert await store.asearch(NS, offset=100) == []
    many, none = await store.abatch([SearchOp(NS, limit=12), SearchOp(("other",), limit=12)])
    assert (len(many), none) == (12, [])
