"""Exact ranking in the process: vectors by numpy, words by BM25."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from stepvault.errors import MissingDependencyError

Version: TypeAlias = tuple[Any, ...]  # names one state of one item: a write gives it another


class VectorCache:
    """Vectors by the item version they belong to, in one matrix of bounded size.

    A version is never written twice, so nothing has to be invalidated: what the database no longer names is not
    asked for, and goes when the matrix is full.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._dims = 0
        self._matrix: Any = None
        self._norms: Any = None
        self._used = 0
        self._places: dict[Version, tuple[int, int]] = {}  # first row, number of rows

    def clear(self) -> None:
        """Forget everything: after a reindex, and when data has to be gone."""
        with self._lock:
            self._matrix, self._used, self._places = None, 0, {}

    def missing(self, versions: Iterable[Version]) -> list[Version]:
        """Those of these versions whose vectors are not here."""
        places = self._places
        return [version for version in versions if version not in places]

    def add(self, dims: int, found: Iterable[tuple[Version, bytes]]) -> None:
        """Keep the vectors of versions; ones of another length than `dims` count as none."""
        np = numpy()
        with self._lock:
            for version, vectors in found:
                if version in self._places:
                    continue
                count = len(vectors) // (4 * dims) if len(vectors) % (4 * dims) == 0 else 0
                matrix, norms = self._reserve(np, dims, count)
                if count:
                    rows = np.frombuffer(vectors, np.float32).reshape(-1, dims)
                    matrix[self._used : self._used + count] = rows
                    norms[self._used : self._used + count] = np.sqrt((rows * rows).sum(axis=1))
                self._places[version] = (self._used, count)
                self._used += count

    def _reserve(self, np: Any, dims: int, count: int) -> tuple[Any, Any]:
        """Make room for more rows; returns the arrays they go to."""
        if self._matrix is not None and self._dims == dims and self._used + count <= len(self._matrix):
            return self._matrix, self._norms
        limit = max(1, self._max_bytes // (4 * dims))
        if self._matrix is None or self._dims != dims or self._used + count > limit:
            self._places, self._used, size = {}, 0, 256
        else:
            size = min(limit, 2 * len(self._matrix))
        size = max(size, self._used + count)
        matrix, norms = np.empty((size, dims), np.float32), np.empty(size, np.float32)
        if self._used and self._matrix is not None:
            matrix[: self._used], norms[: self._used] = self._matrix[: self._used], self._norms[: self._used]
        self._matrix, self._norms, self._dims = matrix, norms, dims
        return matrix, norms

    def nearest(
        self, versions: Sequence[Version], query: bytes, distance: str, limit: int
    ) -> list[tuple[int, float]] | None:
        """The most similar of these versions, best first, by their places in the list, with their scores.

        The best vector of an item counts. None if not all are here: then they do not fit in, or the cache was
        cleared meanwhile.
        """
        np = numpy()
        with self._lock:
            try:
                places = [self._places[version] for version in versions]
            except KeyError:
                return None
            matrix, norms, used = self._matrix, self._norms, self._used
        if matrix is None or not used or not limit or not places:
            return []
        starts, counts = np.array(places, np.int64).T
        owners = np.flatnonzero(counts)
        if not len(owners):
            return []
        rows = _rows(np, starts[owners], counts[owners])
        scores = _scores(np, matrix[:used], norms, rows, np.frombuffer(query, np.float32), distance)
        if len(rows) > len(owners):
            scores = np.maximum.reduceat(scores, np.cumsum(counts[owners]) - counts[owners])
        return [(int(owners[place]), float(scores[place])) for place in _best(np, scores, limit)]


def nearest(found: Sequence[tuple[Version, bytes]], query: bytes, distance: str, limit: int) -> list[tuple[int, float]]:
    """`VectorCache.nearest` for more vectors than a cache holds."""
    dims = len(query) // 4
    cache = VectorCache(sum(len(vectors) for _, vectors in found) + 4 * dims)
    cache.add(dims, found)
    return cache.nearest([version for version, _ in found], query, distance, limit) or []


def _rows(np: Any, starts: Any, counts: Any) -> Any:
    """The matrix rows of items, one item after the other."""
    if len(counts) == int(counts.sum()):
        return starts
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(starts, counts) + within


def _scores(np: Any, matrix: Any, norms: Any, rows: Any, asked: Any, distance: str) -> Any:
    """The score of each row: cosine similarity, inner product, or the negative distance."""
    if distance == "l2":
        return -np.sqrt(((matrix[rows] - asked) ** 2).sum(axis=1))
    # A product with everything is cheaper than a copy of a large part of it.
    scores = (matrix @ asked)[rows] if 4 * len(rows) > len(matrix) else matrix[rows] @ asked
    if distance == "cosine":
        lengths = norms[rows] * math.sqrt(float(asked @ asked))
        scores = np.divide(scores, lengths, out=np.zeros_like(scores), where=lengths > 0)
    return scores


def _best(np: Any, scores: Any, limit: int) -> Any:
    """The places of the highest scores, highest first, ties in the order they came."""
    if limit >= len(scores):
        return np.argsort(-scores, kind="stable")
    # All that reach the last score that gets in, so that a tie on the border is not cut by chance.
    border = np.partition(scores, len(scores) - limit)[len(scores) - limit]
    among = np.flatnonzero(scores >= border)
    return among[np.argsort(-scores[among], kind="stable")][:limit]


def numpy() -> Any:
    """The numpy module.

    Raises:
        MissingDependencyError: It is not installed.
    """
    try:
        import numpy as np
    except ImportError as exc:
        raise MissingDependencyError("Vector search needs numpy: pip install 'stepvault[vector]'") from exc
    return np


def by_words(
    words: Sequence[str], found: Sequence[tuple[Any, Mapping[str, int]]], items: int, length: int
) -> list[tuple[Any, float]]:
    """Rank names by BM25, best first, ties in the order they came.

    Args:
        words: What to look for.
        found: Names with the count of each word in their text; every one has one of the words.
        items: How many texts there are, those without the words included.
        length: How many words they have together.
    """
    average = length / items if length else 1.0
    having = Counter(word for _, counts in found for word in words if word in counts)
    scored = []
    for name, counts in found:
        spread = 1.2 * (0.25 + 0.75 * sum(counts.values()) / average)
        parts = [(word, counts[word]) for word in words if word in counts]
        score = sum(_rarity(items, having[word]) * times * 2.2 / (times + spread) for word, times in parts)
        scored.append((name, score))
    return sorted(scored, key=lambda pair: -pair[1])


def _rarity(total: int, having: int) -> float:
    return max(math.log((total - having + 0.5) / (having + 0.5)), 1e-6)
