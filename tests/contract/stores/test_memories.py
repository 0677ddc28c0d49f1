"""The layer of memories: what is remembered, found, contradicted and forgotten, over every store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from langgraph.store.base import InvalidNamespaceError

from stepvault.errors import ConfigurationError, EmbeddingError
from stepvault.stores.memories import Memories, Memory, RetrievalReport
from tests.contract.stores.embedding import DIMS, embed
from tests.contract.stores.matrix import Stores


class InThread:
    """The sync methods under their async names."""

    def __init__(self, memories: Memories) -> None:
        self.memories = memories

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.memories, name[1:])
        return lambda *args, **kwargs: asyncio.to_thread(method, *args, **kwargs)


def over(stores: Stores, store: Any, **options: Any) -> Any:
    if stores.mode == "sync":
        return InThread(Memories(store.store, **options))
    return Memories(store, **options)


async def test_a_memory_comes_back_and_is_replaced(stores: Stores, store: Any) -> None:
    memories = over(stores, store)
    data = {"amount": Decimal("1.50"), "when": (1, 2)}
    done = await memories.aupsert(
        "pays cash", id="pay", data=data, tags=["money", "$eq", "a.b"], scope=("shop",), user="a"
    )
    assert (done.stored, done.removed, done.id) == (("pay",), (), "pay")
    found = await memories.aget("pay", scope=("shop",), user="a")
    assert found == Memory("pay", "pays cash", data, None, ("money", "$eq", "a.b"), ("shop",), "a",
                           created_at=found.created_at, updated_at=found.updated_at)  # fmt: skip
    await memories.aupsert("pays by card", id="pay", scope=("shop",), user="a")
    again = await memories.aget("pay", scope=("shop",), user="a")
    assert (again.text, again.data, again.tags) == ("pays by card", {}, ())
    assert again.created_at == found.created_at
    assert again.updated_at >= found.updated_at
    await memories.adelete("pay", scope=("shop",), user="a")
    assert await memories.aget("pay", scope=("shop",), user="a") is None
    await memories.adelete("pay", scope=("shop",), user="a")


async def test_people_and_scopes_do_not_leak(stores: Stores, store: Any) -> None:
    memories = over(stores, store)
    people = [None, "ann", "ann2", "ann.b", "ann%2Eb", "%", " ", "a\0b"]
    for user in people:
        for scope in ((), ("team",), ("team", "blue"), ("teams",)):
            await memories.aupsert(f"{user!r} in {scope}", id="same", scope=scope, user=user)
    for user in people:
        assert {entry.scope for entry in await memories.alist(user=user)} == {
            (),
            ("team",),
            ("team", "blue"),
            ("teams",),
        }
        found = await memories.alist(user=user, scope=("team",))
        assert {(entry.text, entry.user) for entry in found} == {
            (f"{user!r} in ('team',)", user), (f"{user!r} in ('team', 'blue')", user),
        }  # fmt: skip
    assert await memories.aclear(user="ann") == 4
    assert await memories.aclear(scope=("team",), user=None) == 2
    assert len(await memories.alist(user="ann2")) == 4
    assert len(await memories.alist()) == 2
    with pytest.raises(ConfigurationError, match="not empty"):  # nobody's, and so in nobody's erasure
        await memories.aupsert("x", user="")
    with pytest.raises(InvalidNamespaceError):
        await memories.aupsert("x", scope=("a.b",))
    with pytest.raises(ConfigurationError, match="user"):
        await memories.aupsert("x", user=7)


async def test_the_latest_stands(stores: Stores, store: Any) -> None:
    memories = over(stores, store)
    await memories.aupsert("drinks coffee", about="drink", user="ann", contradictions="keep_both")
    await memories.aupsert("drinks tea", about="drink", user="ann", contradictions="keep_both")
    await memories.aupsert("likes jazz", about="music", user="ann")
    await memories.aupsert("drinks cola", about="drink", user="bob")
    await memories.aupsert("drinks milk", about="drink", user="ann", scope=("office",))
    done = await memories.aupsert("drinks water", about="drink", user="ann")
    assert len(done.removed) == 2
    assert {entry.text for entry in await memories.alist(user="ann")} == {"drinks water", "likes jazz", "drinks milk"}
    assert {entry.text for entry in await memories.alist(user="bob")} == {"drinks cola"}
    await asyncio.gather(*(memories.aupsert(f"drinks {n}", about="drink", user="ann") for n in range(8)))
    assert len(await memories.alist(user="ann", about="drink")) == 2  # one in each scope
    named = await memories.aupsert("drinks mate", id="mine", about="drink", user="ann")
    assert (named.id, len(named.removed)) == ("mine", 1)


async def test_both_are_kept_but_nothing_twice(stores: Stores, store: Any) -> None:
    memories = over(stores, store, contradictions="keep_both")
    first = await memories.aupsert("drinks tea", about="drink")
    await memories.aupsert("drinks coffee", about="drink")
    again = await memories.aupsert("drinks tea", about="drink")
    assert again.id == first.id
    assert [entry.text for entry in await memories.alist(about="drink")] == ["drinks tea", "drinks coffee"]


async def test_a_function_decides(stores: Stores, store: Any) -> None:
    seen: list[tuple[tuple[Memory, ...], Memory]] = []

    def merge(others: tuple[Memory, ...], new: Memory) -> list[Memory]:
        seen.append((others, new))
        return [replace(others[0], text=f"{others[0].text}, then {new.text}")]

    memories = over(stores, store, contradictions=merge)
    first = await memories.aupsert("lives in Rome", about="home")
    same = await memories.aupsert("lives in Rome", about="home")
    assert not seen
    assert same.id == first.id
    done = await memories.aupsert("lives in Oslo", about="home")
    assert done.stored == (first.id,)
    assert [entry.text for entry in await memories.alist()] == ["lives in Rome, then lives in Oslo"]
    assert [entry.text for entry in seen[0][0]] == ["lives in Rome"]
    kept = await memories.aupsert("lives in Bonn", about="home", contradictions=lambda others, new: others)
    assert (kept.stored, kept.removed, kept.id) == ((), (), None)
    gone = await memories.aupsert("lives nowhere", about="home", contradictions=lambda others, new: [])
    assert gone.removed == (first.id,)
    await memories.aupsert("lives in Rome", about="home")
    wrong: list[Callable[..., Any]] = [lambda others, new: None, lambda others, new: new, lambda others, new: ["x"]]
    for policy in wrong:
        with pytest.raises(ConfigurationError, match="policy"):
            await memories.aupsert("lives in Bonn", about="home", contradictions=policy)
    assert [entry.text for entry in await memories.alist()] == ["lives in Rome"]

    async def ask(others: tuple[Memory, ...], new: Memory) -> list[Memory]:
        return [new]

    if stores.mode == "async":
        await memories.aupsert("lives in Bonn", about="home", contradictions=ask)
        assert [entry.text for entry in await memories.alist()] == ["lives in Bonn"]
    else:
        with pytest.raises(ConfigurationError, match="async"):
            await memories.aupsert("lives in Bonn", about="home", contradictions=ask)


async def test_found_by_meaning_by_words_and_by_both_with_a_report(stores: Stores) -> None:
    store = await stores.open(index={"dims": DIMS, "embed": embed})
    memories = over(stores, store, stale_after=timedelta(0))
    await memories.aupsert("tea and soup", user="ann", tags=["diet"], data={"year": 2024})
    await memories.aupsert("train to lisbon", user="ann", tags=["trip", "old"], data={"year": 2025})
    await memories.aupsert("train to rome", user="bob", tags=["trip"])
    await memories.aput_summary("they spoke of trains", thread_id="t", checkpoint_ids=["c1", "c2"], user="ann")
    for mode in ("vector", "text", "hybrid"):
        found = await memories.asearch("train to lisbon", user="ann", mode=mode, limit=1)
        assert [entry.text for entry in found] == ["train to lisbon"]
        assert found[0].score == found.report.scores[0]
        assert (found.report.searches, found.report.hits, found.report.share_stale) == (1, 1, 1.0)
        assert str(found.report).startswith("searches 1, empty 0, hits 1")
    assert [e.text for e in await memories.asearch("tea", user="ann", tags=["diet"])] == ["tea and soup"]
    assert len(await memories.asearch(user="ann", tags=["trip", "old"])) == 1
    assert [e.text for e in await memories.asearch(user="ann", filter={"year": {"$gt": 2024}})] == ["train to lisbon"]
    nothing = await memories.asearch("tea", user="nobody")
    assert (len(nothing), nothing.report.empty, nothing.report.share_stale) == (0, 1, None)
    both = RetrievalReport.combined([nothing.report, (await memories.asearch(user="ann")).report])
    assert (both.searches, both.empty, both.hits) == (2, 1, 3)
    (summary,) = await memories.asummaries("t", user="ann")
    assert (summary.kind, summary.thread_id, summary.checkpoint_ids) == ("summary", "t", ("c1", "c2"))
    assert not await memories.asummaries("t2", user="ann")


async def test_refused_before_anything_is_stored(stores: Stores) -> None:
    def broken(texts: Any) -> Any:
        raise RuntimeError("no model")

    store = await stores.open(index={"dims": 2, "embed": broken})
    memories = over(stores, store)
    with pytest.raises(EmbeddingError):
        await memories.aupsert("x", about="y")
    for wrong in ({"text": ""}, {"text": None}, {"data": [1]}, {"tags": "abc"}, {"about": ""}, {"contradictions": "x"}):
        with pytest.raises(ConfigurationError):
            await memories.aupsert(**{"text": "x", **wrong})
    with pytest.raises(ConfigurationError, match="checkpoint_ids"):
        await memories.aput_summary("x", thread_id="t", checkpoint_ids=[])
    assert not await memories.alist()
    with pytest.raises(ConfigurationError, match="store"):
        Memories(object())  # type: ignore[arg-type]
