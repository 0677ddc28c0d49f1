"""The matrix of backends and call modes, crossed with LangGraph's ways to persist."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.contract.matrix import AIO, MODES, database, matrix, opened, sqlite_file
from tests.graphs.comparing import Twins

__all__ = ["database", "sqlite_file"]

DURABILITIES = {"sync": ("sync", "exit"), "async": ("async", "exit"), AIO: ("async",)}

SETTINGS = [
    pytest.param((*param.values[0], durability), id=f"{param.id}-{durability}", marks=param.marks)
    for param in matrix((*MODES, AIO))
    for durability in DURABILITIES[param.values[0][1]]
]


@pytest.fixture(params=SETTINGS)
async def twins(request: pytest.FixtureRequest) -> AsyncIterator[Twins]:
    """Runs an app on our saver and on `InMemorySaver` and compares them after each step."""
    cls, mode, durability = request.param
    async with opened(request, cls, mode) as database:
        yield Twins(database, durability, await database.raw(), await database.raw())
