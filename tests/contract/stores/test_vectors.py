"""Search by meaning: as brute force finds it, with filters too, and nothing half done when something is wrong."""

from __future__ import annotations

import math
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from langgraph.store.base import PutOp, SearchOp

from stepvault.errors import ConfigurationError, DimensionsError, EmbeddingError, IndexMismatchError
from tests.contract.stores.embedding import DIMS, aembed, embed, similarity, vector

NS = ("docs",)
INDEX: dict[str, Any] = {"dims": DIMS, "embed": embed, "fields": ["text"]}
TEXTS = [f"c{number % 20} i{number}" for number in range(300)]


async def fill(store: Any) -> None:
    await store.abatch([
        PutOp(("docs", f"g{number % 4}"), f"k{number}", {"text": text, "n": number, "kind": "ab"[number % 2]})
        for number, text in enumerate(TEXTS)
    ])  # fmt: skip


@pytest.mark.parametrize("distance", ["cosine", "dot", "l2"])
async def test_as_brute_force_finds_it(stores: Any, distance: str) -> None:
    store = await stores.open(index={**INDEX, "distance_type": distance})
    await fill(store)
    for query in ("c3 i9001", "c7 i9002"):
        asked = vector(query)
        scores = {f"k{number}": similarity(distance, asked, vector(text)) for number, text in enumerate(TEXTS)}
        best = sorted(scores, key=lambda key: -scores[key])
        found = await store.asearch(NS, query=query, limit=10)
        assert [item.key for item in found] == best[:10]
        for item in found:
            assert math.isclose(item.score, scores[item.key], rel_tol=1e-3, abs_tol=1e-3)
        found = await store.asearch(NS, query=query, filter={"kind": "a"}, limit=10)
        assert [item.key for item in found] == [key for key in best if int(key[1:]) % 2 == 0][:10]
        found = await store.asearch(("docs", "g1"), query=query, filter={"n": {"$lt": 30}}, limit=10)
        assert [item.key for item in found] == [key for key in best if int(key[1:]) % 4 == 1 and int(key[1:]) < 30][:10]
        pages = [await store.asearch(NS, query=query, limit=7, offset=start) for start in range(0, 28, 7)]
        assert [item.key for page in pages for item in page] == best[:28]


async def test_which_fields_are_embedded(stores: Any) -> None:
    store = await stores.open(index={**INDEX, "fields": ["text", "notes[*].body"]})
    await store.aput(NS, "two", {"text": "c1 i1", "notes": [{"body": "c2 i2"}, {"body": "c3 i3"}]})
    await store.aput(NS, "one", {"text": "c4 i4"})
    await store.aput(NS, "none", {"title": "c5 i5"})
    await store.aput(NS, "off", {"text": "c6 i6"}, index=False)
    await store.aput(NS, "own", {"text": "c7 i7", "title": "c8 i8"}, index=["title"])
    for query, key in (("c1 i1", "two"), ("c2 i2", "two"), ("c3 i3", "two"), ("c4 i4", "one"), ("c8 i8", "own")):
        found = await store.asearch(NS, query=query)
        assert found[0].key == key
        assert math.isclose(found[0].score, 1.0, abs_tol=1e-3)
        assert sorted(item.key for item in found) == ["one", "own", "two"]
    assert {item.key for item in await store.asearch(NS)} == {"two", "one", "none", "off", "own"}


async def test_a_new_value_has_new_vectors(stores: Any) -> None:
    store = await stores.open(index=INDEX)
    await store.aput(NS, "k", {"text": "c1 i1"})
    await store.aput(NS, "k", {"text": "c2 i2"})
    (found,) = await store.asearch(NS, query="c1 i1")
    assert found.score < 0.9
    await store.aput(NS, "k", {"text": "c2 i2"}, index=False)
    assert await store.asearch(NS, query="c2 i2") == []
    await store.aput(NS, "k", {"text": "c2 i2"})
    await store.adelete(NS, "k")
    assert await store.asearch(NS, query="c2 i2") == []


async def test_the_whole_value(stores: Any) -> None:
    store = await stores.open(index={"dims": DIMS, "embed": embed})
    await store.aput(NS, "k", {"text": "c1 i1", "when": __import__("datetime").datetime(2026, 1, 1)})
    assert [item.key for item in await store.asearch(NS, query="c1 i1")] == ["k"]


class Model(Embeddings):
    """An embedder with a name."""

    def __init__(self, model: str = "one", dims: int = DIMS) -> None:
        self.model = model
        self.dims = dims
        self.calls = 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.calls += 1
        return [vector(text)[: self.dims] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return vector(text)[: self.dims]


async def test_embedders_of_every_kind(stores: Any) -> None:
    model = Model()
    store = await stores.open(index={**INDEX, "embed": model})
    await store.abatch([PutOp(NS, f"k{number}", {"text": "c1 i1"}) for number in range(20)])
    assert model.calls == 1
    assert len(await store.asearch(NS, query="c1 i1", limit=50)) == 20
    assert model.calls == 1
    with pytest.raises(ConfigurationError, match="embed"):
        stores.raw(index={**INDEX, "embed": "nowhere:no-model"})
    for wrong in ({"dims": 0}, {"embed": None}, {"distance_type": "hamming"}, {"dimensions": 3}, {"fields": [1]}):
        with pytest.raises(ConfigurationError):
            stores.raw(index={**INDEX, **wrong})


async def test_a_coroutine_embeds(stores: Any) -> None:
    store = await stores.open(index={**INDEX, "embed": aembed, "model": "m"})
    if stores.mode == "sync":
        with pytest.raises(EmbeddingError):
            await store.aput(NS, "k", {"text": "c1 i1"})
        return
    await store.aput(NS, "k", {"text": "c1 i1"})
    assert [item.key for item in await store.asearch(NS, query="c1 i1")] == ["k"]


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        (lambda texts: 1 / 0, EmbeddingError),
        (lambda texts: [[0.0] * 3 for _ in texts], DimensionsError),
        (lambda texts: [], EmbeddingError),
        (lambda texts: None, EmbeddingError),
        (lambda texts: [["x"] * DIMS for _ in texts], EmbeddingError),
        (lambda texts: [[float("nan")] * DIMS for _ in texts], EmbeddingError),
    ],
)
async def test_a_broken_embedder_stores_nothing(stores: Any, broken: Any, error: Any) -> None:
    store = await stores.open(index={**INDEX, "embed": broken})
    with pytest.raises(error):
        await store.abatch([PutOp(NS, "plain", {"n": 1}), PutOp(NS, "k", {"text": "c1 i1"})])
    assert await store.asearch(()) == []
    with pytest.raises(error):
        await store.asearch(NS, query="x")
    await store.aput(NS, "k", {"text": "c1 i1"}, index=False)
    assert len(await store.asearch(NS)) == 1


async def test_another_model_is_told_and_reindex_helps(stores: Any) -> None:
    first = await stores.open(index={**INDEX, "embed": Model("one")})
    await fill(first)
    await first.aput(NS, "own", {"text": "c9 i9", "title": "c8 i8"}, index=["title"])
    await first.aput(NS, "off", {"text": "c9 i9"}, index=False)
    for changed in (
        {"embed": Model("two")},
        {"embed": Model("one", 8), "dims": 8},
        {"distance_type": "l2", "embed": Model("one")},
    ):
        other = await stores.open(index={**INDEX, **changed})
        with pytest.raises(IndexMismatchError, match="reindex"):
            await other.asearch(NS, query="c1 i1")
        with pytest.raises(IndexMismatchError):
            await other.aput(NS, "new", {"text": "c1 i1"})
        assert await other.aget(NS, "new") is None
    small = await stores.open(index={**INDEX, "embed": Model("two", 8), "dims": 8})
    assert await small.areindex() == len(TEXTS) + 1
    scores = {f"k{n}": similarity("cosine", vector("c3 i9")[:8], vector(text)[:8]) for n, text in enumerate(TEXTS)}
    scores["own"] = similarity("cosine", vector("c3 i9")[:8], vector("c8 i8")[:8])
    found = await small.asearch(NS, query="c3 i9", limit=20)
    assert [item.key for item in found] == sorted(scores, key=lambda key: -scores[key])[:20]
    late = await stores.open(index={**INDEX, "embed": Model("one")})
    with pytest.raises(IndexMismatchError):
        await late.asearch(NS, query="c1 i1")


async def test_min_score_and_batches_of_searches(stores: Any) -> None:
    store = await stores.open(index=INDEX)
    await fill(store)
    asked = vector("c3 i9001")
    scores = sorted((similarity("cosine", asked, vector(text)) for text in TEXTS), reverse=True)
    floor = (scores[4] + scores[5]) / 2
    assert len(await store.asearch(NS, query="c3 i9001", limit=100, min_score=floor)) == 5
    two, plain, none = await store.abatch(
        [SearchOp(NS, query="c3 i9001"), SearchOp(NS), SearchOp(("x",), query="c1 i1")]
    )
    assert (len(two), len(plain), none) == (10, 10, [])
    assert plain[0].score is None
    with pytest.raises(ConfigurationError, match="query"):
        await store.asearch(NS, min_score=0.5)


async def test_vectors_go_with_their_namespace(stores: Any) -> None:
    store = await stores.open(index=INDEX)
    await fill(store)
    await store.aput(("docs", "g1"), "plain", {"n": 1})
    removed = await store.adelete_namespace(("docs", "g1"))
    assert (removed.items, removed.vectors) == (76, 0 if stores.sealed else 75)  # they are inside the items
    assert len(await store.asearch((), query="c1 i1", limit=1000)) == 225
    tenant = store.for_tenant("other")
    assert await tenant.asearch((), query="c1 i1") == []
