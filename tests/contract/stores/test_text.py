"""Search by words, and by words and meaning together."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from langgraph.store.base import PutOp

from stepvault.errors import ConfigurationError
from tests.contract.stores.embedding import DIMS, embed

NS = ("notes",)


async def test_words_are_found_wherever_they_stand(store: Any) -> None:
    await store.abatch([
        PutOp(NS, "coffee", {"text": "Ada drinks COFFEE, black.", "tags": ["drink"]}),
        PutOp(NS, "tea", {"text": "Bob drinks tea", "deep": {"note": "and sometimes a café au lait"}}),
        PutOp(NS, "chess", {"text": "Cem plays chess"}),
        PutOp(NS, "hidden", {"text": "coffee"}, index=False),
        PutOp(("other",), "coffee", {"text": "coffee"}),
    ])  # fmt: skip
    asked = ["coffee", "Coffee!", "cafe", "CAFÉ", "drink", "drinks", "chess tea", "nothing", "?!", "tags", "'\"*)(&|"]
    found = {word: {item.key for item in await store.asearch(NS, query=word)} for word in asked}
    assert found == {
        "coffee": {"coffee"}, "Coffee!": {"coffee"}, "cafe": {"tea"}, "CAFÉ": {"tea"}, "drink": {"coffee"},
        "drinks": {"coffee", "tea"}, "chess tea": {"chess", "tea"}, "nothing": set(), "?!": set(), "tags": set(),
        "'\"*)(&|": set(),
    }  # fmt: skip


async def test_the_best_match_is_first(store: Any) -> None:
    texts = {
        "both": "red apple",
        "apple": "apple pie and more of it",
        "red": "a red car on a street",
        "none": "blue sky",
    }
    await store.abatch([PutOp(NS, key, {"text": text}) for key, text in texts.items()])
    await store.abatch([PutOp(NS, f"filler{number}", {"text": f"something else {number}"}) for number in range(20)])
    found = await store.asearch(NS, query="red apple")
    assert found[0].key == "both"
    assert {item.key for item in found} == {"both", "apple", "red"}
    assert found[0].score > found[1].score >= found[2].score > 0
    best = found[0].score
    assert [item.key for item in await store.asearch(NS, query="red apple", min_score=best)] == ["both"]


async def test_words_of_an_older_value_are_forgotten(store: Any) -> None:
    await store.aput(NS, "k", {"text": "first"})
    await store.aput(NS, "k", {"text": "second"})
    assert await store.asearch(NS, query="first") == []
    assert len(await store.asearch(NS, query="second")) == 1
    await store.adelete(NS, "k")
    assert await store.asearch(NS, query="second") == []


async def test_a_filter_does_not_starve_a_text_search(store: Any) -> None:
    await store.abatch([PutOp(NS, f"k{n}", {"text": "common word", "n": n, "rare": n % 100 == 0}) for n in range(400)])
    assert len(await store.asearch(NS, query="common", filter={"n": {"$lt": 8}}, limit=10)) == 8
    assert len(await store.asearch(NS, query="common", filter={"rare": True})) == 4
    pages = [await store.asearch(NS, query="common", limit=50, offset=start) for start in range(0, 450, 50)]
    assert len({item.key for page in pages for item in page}) == 400


async def test_what_text_search_knows_is_settable(stores: Any) -> None:
    store = await stores.open(text=["title", "parts[*].text"])
    await store.aput(NS, "k", {"title": "alpha", "body": "beta", "parts": [{"text": "gamma"}]})
    assert len(await store.asearch(NS, query="alpha")) == len(await store.asearch(NS, query="gamma")) == 1
    assert await store.asearch(NS, query="beta") == []
    silent = await stores.open(text=False)
    with pytest.raises(ConfigurationError, match="text"):
        await silent.asearch(NS, query="alpha")
    with pytest.raises(ConfigurationError, match="index"):
        await store.asearch(NS, query="alpha", mode="vector")
    with pytest.raises(ConfigurationError, match="query"):
        await store.asearch(NS, mode="text")


async def test_words_and_meaning_together(stores: Any) -> None:
    store = await stores.open(index={"dims": DIMS, "embed": embed, "fields": ["text"]}, text=["words"])
    await store.abatch([PutOp(NS, f"k{n}", {"text": f"c{n % 20} i{n}", "n": n}) for n in range(60)])
    await store.aput(NS, "meant", {"text": "c5 i555"})
    await store.aput(NS, "said", {"text": "c11 i777", "words": "a zebra"})
    query = "c5 i555 zebra"
    by_meaning = [item.key for item in await store.asearch(NS, query=query, limit=3)]
    by_words = [item.key for item in await store.asearch(NS, query="zebra", mode="text", limit=3)]
    assert by_meaning[0] == "meant"
    assert by_words == ["said"]
    both = await store.asearch(NS, query=query, mode="hybrid", limit=200)
    assert {item.key for item in both[:2]} == {"meant", "said"}
    scores = [item.score for item in both]
    assert scores == sorted(scores, reverse=True)
    assert len(both) == 62
    few = await store.asearch(NS, query=query, mode="hybrid", filter={"n": {"$lt": 5}})
    assert {item.key for item in few} == {f"k{n}" for n in range(5)}


async def test_what_was_written_long_ago_can_be_left_out(store: Any) -> None:
    await store.aput(NS, "k", {"text": "word"})
    assert len(await store.asearch(NS, max_age=timedelta(hours=1))) == 1
    assert len(await store.asearch(NS, query="word", max_age=timedelta(hours=1))) == 1
    while await store.asearch(NS, max_age=timedelta(milliseconds=5)):
        pass
    assert await store.asearch(NS, query="word", max_age=timedelta(milliseconds=5)) == []
    for wrong in (5, timedelta(seconds=-1)):
        with pytest.raises(ConfigurationError, match="max_age"):
            await store.asearch(NS, max_age=wrong)
