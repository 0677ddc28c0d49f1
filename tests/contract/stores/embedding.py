"""A deterministic embedder: texts of the form "c<topic> i<seed> ..." get a vector near their topic's centre."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

DIMS = 24
CENTRES = np.random.default_rng(0).normal(size=(20, DIMS)).astype("f4")
_NAMED = re.compile(r"c(\d+) i(\d+)")


def vector(text: str) -> list[float]:
    """The vector of one text."""
    found = _NAMED.search(text)
    topic, seed = (int(found[1]), int(found[2])) if found else (0, sum(map(ord, text)))
    noise = np.random.default_rng(seed).normal(size=DIMS).astype("f4")
    return (CENTRES[topic % 20] + 0.7 * noise).astype("f4").tolist()


def embed(texts: Sequence[str]) -> list[list[float]]:
    """The vectors of texts."""
    return [vector(text) for text in texts]


async def aembed(texts: Sequence[str]) -> list[list[float]]:
    """The same, as a coroutine."""
    return embed(texts)


def similarity(distance: str, a: Sequence[float], b: Sequence[float]) -> float:
    """The score of two vectors, as the stores define it."""
    left, right = np.array(a, "f8"), np.array(b, "f8")
    if distance == "l2":
        return -float(np.linalg.norm(left - right))
    product = float(left @ right)
    return product if distance == "dot" else product / float(np.linalg.norm(left) * np.linalg.norm(right))
