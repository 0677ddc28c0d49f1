"""Backends for tests of graphs, which call savers in one way."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.contract.matrix import Database, matrix, opened


@pytest.fixture(params=matrix(modes=("async",)))
async def async_database(request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    """An empty database of each backend, called through the async half."""
    async with opened(request, *request.param) as database:
        yield database
