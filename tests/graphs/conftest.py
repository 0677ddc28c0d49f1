"""The matrix of backends and call modes, crossed with LangGraph's ways to persist."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.contract.matrix import AIO, MODES, database, matrix, opened, sqlite_file
from tests.graphs.comparing import Twins

__all__ = ["database", "sqlite_file"]

SETTINGS = {  # call mode and durability; what a backend sees of a durability is the same everywhere
    "sqlite": (("sync", "sync"), ("sync", "exit"), ("async", "async"), ("async", "exit"), (AIO, "async")),
    "postgres": (("sync", "sync"), ("async", "exit"), (AIO, "async")),
    "redis": (("sync", "exit"), ("async", "async"), (AIO, "sync")),
    "redis-cluster": (("async", "async"),),
}


def settings() -> list[Any]:
    """Parameters for `twins`."""
    found = {param.values[0]: param for param in matrix((*MODES, AIO))}
    return [
        pytest.param((cls, mode, durability), id=f"{cls.name}-{mode}-{durability}", marks=found[cls, mode].marks)
        for cls in dict.fromkeys(cls for cls, _ in found)
        for mode, durability in SETTINGS.get(cls.name, ())
    ]


@pytest.fixture(params=settings())
async def twins(request: pytest.FixtureRequest) -> AsyncIterator[Twins]:
    """Runs an app on our saver and on `InMemorySaver` and compares them after each step."""
    cls, mode, durability = request.param
    async with opened(request, cls, mode) as database:
        yield Twins(database, durability, await database.raw(), await database.raw())
