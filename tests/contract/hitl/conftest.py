"""Every backend and both call modes; of a cluster, one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.contract.matrix import Database, matrix, opened

LEFT_OUT = "redis-cluster-sync"


@pytest.fixture(params=[param for param in matrix() if param.id != LEFT_OUT])
async def database(request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    """An empty database."""
    async with opened(request, *request.param) as database:
        yield database


@pytest.fixture(params=[param for param in matrix(("sync",)) if param.id != LEFT_OUT])
async def shared(request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    """An empty database that other processes open too."""
    async with opened(request, *request.param) as database:
        yield database
