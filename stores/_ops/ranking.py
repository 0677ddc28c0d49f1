"""Exact ranking in the process: vectors by numpy, words by BM25."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from stepvault.errors import MissingDependencyError


def nearest(query: bytes, found: Sequence[tuple[Any, bytes]], distance: str, limit: int) -> list[tuple[Any, float]]:
    """The names whose nearest vector is most similar to the query, best first.

    Args:
        query: A float32 vector.
        found: Names with their vectors, one after the other; those of another length are passed over.
        distance: "cosine" (similarity), "dot" (inner product) or "l2" (the distance, negative).
        limit: At most this many.

    Raises:
        MissingDependencyError: numpy is not installed.
    """
    np = _numpy()
    size = len(query)
    fitting = [(name, vectors) for name, vectors in found if vectors and len(vectors) % size == 0]
    if not fitting or not limit:
        return []
    asked = np.frombuffer(query, np.float32)
    matrix = np.frombuffer(b"".join([vectors for _, vectors in fitting]), np.float32).reshape(-1, len(asked))
    scores = similarity(np, matrix, asked, distance)
    if len(matrix) > len(fitting):  # several vectors of one item: its best one counts
        starts = np.cumsum([0] + [len(vectors) // size for _, vectors in fitting[:-1]])
        scores = np.maximum.reduceat(scores, starts)
    order = best(np, scores, limit)
    return [(fitting[place][0], float(scores[place])) for place in order]


def similarity(np: Any, matrix: Any, asked: Any, distance: str) -> Any:
    """The score of each row of a matrix."""
    if distance == "l2":
        return -np.sqrt(((matrix - asked) ** 2).sum(axis=1))
    scores = matrix @ asked
    if distance == "cosine":
        norms = np.sqrt(np.einsum("ij,ij->i", matrix, matrix)) * math.sqrt(float(asked @ asked))
        scores = np.divide(scores, norms, out=np.zeros_like(scores), where=norms > 0)
    return scores


def best(np: Any, scores: Any, limit: int) -> Any:
    """The places of the highest scores, highest first, ties in the order they came."""
    if limit >= len(scores):
        return np.argsort(-scores, kind="stable")
    # All that reach the last score that gets in, so that a tie on the border is not cut by chance.
    border = np.partition(scores, len(scores) - limit)[len(scores) - limit]
    among = np.flatnonzero(scores >= border)
    return among[np.argsort(-scores[among], kind="stable")][:limit]


def _numpy() -> Any:
    try:
        import numpy
    except ImportError as exc:
        raise MissingDependencyError("Vector search needs numpy: pip install 'stepvault[vector]'") from exc
    return numpy


def by_words(words: Iterable[str], found: Sequence[tuple[Any, str]], limit: int) -> list[tuple[Any, float]]:
    """The names whose text holds any of the words, by BM25, best first."""
    asked = list(dict.fromkeys(words))
    counted = [(name, Counter(text.split())) for name, text in found]
    lengths = [sum(counts.values()) for _, counts in counted]
    average = sum(lengths) / len(lengths) if lengths else 1.0
    weight = {word: _rarity(len(counted), sum(word in counts for _, counts in counted)) for word in asked}
    scored = []
    for (name, counts), length in zip(counted, lengths, strict=True):
        score = 0.0
        for word in asked:
            if times := counts.get(word, 0):
                score += weight[word] * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * length / (average or 1.0)))
        if score > 0:
            scored.append((name, score))
    scored.sort(key=lambda pair: -pair[1])
    return scored[:limit]


def _rarity(total: int, having: int) -> float:
    return max(math.log((total - having + 0.5) / (having + 0.5)), 1e-6)
