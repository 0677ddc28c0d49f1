"""Exact ranking: the cache changes nothing but the time it takes."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import pytest

from stepvault.stores._ops.ranking import VectorCache, by_words, nearest

DIMS = 5


def packed(rows: Any) -> bytes:
    return np.asarray(rows, "f4").tobytes()


def brute(found: list[tuple[Any, bytes]], query: bytes, distance: str, limit: int) -> list[int]:
    asked = np.frombuffer(query, "f4").astype("f8")
    scores = []
    for place, (_, vectors) in enumerate(found):
        rows = np.frombuffer(vectors, "f4").astype("f8").reshape(-1, DIMS)
        if not len(rows):
            continue
        if distance == "l2":
            each = -np.linalg.norm(rows - asked, axis=1)
        else:
            each = rows @ asked
            if distance == "cosine":
                each = each / (np.linalg.norm(rows, axis=1) * np.linalg.norm(asked))
        scores.append((-each.max(), place))
    return [place for _, place in sorted(scores)[:limit]]


@pytest.mark.parametrize("distance", ["cosine", "dot", "l2"])
@pytest.mark.parametrize("size", [10**6, 2000, 0])
def test_the_cache_gives_what_brute_force_gives(distance: str, size: int) -> None:
    chance = np.random.default_rng(1)
    cache = VectorCache(size)
    stored: dict[Any, bytes] = {}
    for step in range(30):
        for number in range(step, step + 8):
            stored[(number, step)] = packed(chance.normal(size=(number % 3, DIMS)))
        found = list(stored.items())[:: 1 + step % 3]
        query = packed(chance.normal(size=DIMS))
        versions = [version for version, _ in found]
        cache.add(DIMS, [(version, stored[version]) for version in cache.missing(versions)])
        ranked = cache.nearest(versions, query, distance, 10)
        if ranked is None:
            assert size < 10**6
            ranked = nearest(found, query, distance, 10)
        assert [place for place, _ in ranked] == brute(found, query, distance, 10)
        scores = [score for _, score in ranked]
        assert scores == sorted(scores, reverse=True)


def test_vectors_of_another_length_count_as_none() -> None:
    cache = VectorCache(10**6)
    cache.add(2, [("a", packed([1, 0])), ("b", packed([1, 0, 0])), ("c", b"")])
    assert cache.missing(["a", "b", "c", "d"]) == ["d"]
    assert cache.nearest(["a", "b", "c"], packed([1, 0]), "cosine", 5) == [(0, 1.0)]
    assert cache.nearest(["d"], packed([1, 0]), "cosine", 5) is None
    cache.add(3, [("e", packed([0, 0, 1]))])
    assert cache.missing(["a", "e"]) == ["a"]
    cache.clear()
    assert cache.missing(["e"]) == ["e"]


def test_zero_vectors_score_zero() -> None:
    assert nearest([("a", packed([0, 0])), ("b", packed([-1, 0]))], packed([1, 0]), "cosine", 2) == [
        (0, 0.0),
        (1, -1.0),
    ]
    assert nearest([("a", packed([1, 0]))], packed([0, 0]), "cosine", 2) == [(0, 0.0)]


def test_ties_keep_their_order_and_are_not_cut_by_chance() -> None:
    found = [(number, array("f", [1.0, 0.0]).tobytes()) for number in range(50)]
    assert [place for place, _ in nearest(found, packed([1, 0]), "dot", 7)] == list(range(7))


def test_rare_words_weigh_more() -> None:
    found = [("rare", {"zebra": 1, "a": 3}), ("common", {"dog": 1, "a": 3}), ("both", {"dog": 1, "zebra": 1, "a": 2})]
    ranked = [name for name, _ in by_words(["dog", "zebra"], found, 10, 40)]
    assert ranked[0] == "both"
    assert by_words(["dog"], [], 0, 0) == []
