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
        self._entries: dict[Version, int] = {}  # numbers of the entries below
        self._spans: Any = None  # entry: first row, number of rows
        self._matrix: Any = None
        self._norms: Any = None
        self._used = 0

    def clear(self) -> None:
        """Forget everything: after a reindex, and when data has to be gone."""
        with self._lock:
            self._entries, self._spans, self._matrix, self._norms, self._used = {}, None, None, None, 0

    def missing(self, versions: Iterable[Version]) -> list[Version]:
        """Those of these versions whose vectors are not here."""
        entries = self._entries
        return [version for version in versions if version not in entries]

    def add(self, dims: int, found: Iterable[tuple[Version, bytes]]) -> None:
        """Keep the vectors of versions; ones of another length than `dims` count as none."""
        np = numpy()
        new = dict(found)
        counts = [len(vectors) // (4 * dims) if len(vectors) % (4 * dims) == 0 else 0 for vectors in new.values()]
        kept = [vectors for vectors, count in zip(new.values(), counts, strict=True) if count]
        rows = np.frombuffer(b"".join(kept), np.float32).reshape(-1, dims)
        with self._lock:
            if self._matrix is not None and self._matrix.shape[1] != dims:
                self._entries, self._matrix, self._used = {}, None, 0
            if 4 * dims * (self._used + len(rows)) > self._max_bytes:
                self._entries, self._used = {}, 0
            self._matrix = _grown(np, self._matrix, self._used, len(rows), (dims,), np.float32)
            self._norms = _grown(np, self._norms, self._used, len(rows), (), np.float32)
            self._spans = _grown(np, self._spans, len(self._entries), len(new), (2,), np.int64)
            self._matrix[self._used : self._used + len(rows)] = rows
            self._norms[self._used : self._used + len(rows)] = np.sqrt((rows * rows).sum(axis=1))
            for version, count in zip(new, counts, strict=True):
                self._spans[self._entries.setdefault(version, len(self._entries))] = (self._used, count)
                self._used += count

    def nearest(
        self, versions: Sequence[Version], query: bytes, distance: str, limit: int
    ) -> list[tuple[int, float]] | None:
        """The most similar of these versions, best first, by their places in the list, with their scores.

        The best vector of an item counts. None if not all are here: then they do not fit in, or the cache was
        cleared meanwhile.
        """
        np = numpy()
        if not limit or not versions:
            return []
        with self._lock:
            try:
                entries = np.fromiter(map(self._entries.__getitem__, versions), np.int64, len(versions))
            except KeyError:
                return None
            every: Any = self._spans
            spans, matrix, norms = every[entries], self._matrix, self._norms
        owners = np.flatnonzero(spans[:, 1])
        if not len(owners):
            return []
        starts, counts = spans[owners].T
        rows = _rows(np, starts, counts)
        scores = _scores(np, matrix[: int(rows.max()) + 1], norms, rows, np.frombuffer(query, np.float32), distance)
        if len(rows) > len(owners):
            scores = np.maximum.reduceat(scores, np.cumsum(counts) - counts)
        return [(int(owners[place]), float(scores[place])) for place in _best(np, scores, limit)]


def _grown(np: Any, array: Any, used: int, more: int, shape: tuple[int, ...], kind: Any) -> Any:
    """An array with room for more rows; the old one, if it has it."""
    if array is not None and used + more <= len(array):
        return array
    grown = np.empty((max(256, 2 * used, used + more), *shape), kind)
    if used and array is not None:
        grown[:used] = array[:used]
    return grown


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
    # A product with everything is cheaper than a copy of a large part of it. Not by `@`: on a busy machine the
    # threads of BLAS wait for one another, ten times as long as one of them needs.
    whole = 4 * len(rows) > len(matrix)
    scores = np.einsum("ij,j->i", matrix if whole else matrix[rows], asked)
    scores = scores[rows] if whole else scores
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
