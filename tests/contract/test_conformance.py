"""LangGraph's own conformance suite, whole, over every backend, sync and async."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import ALL_CAPABILITIES

from tests.contract.matrix import AIO, GIVEN, MODES, Database, matrix


@pytest.mark.parametrize("database", matrix((*MODES, AIO, GIVEN)), indirect=True)
async def test_every_capability_passes_in_full(database: Database) -> None:
    @checkpointer_test(name=f"{database.name}-{database.mode}")
    async def savers() -> AsyncGenerator[Any, None]:
        yield await database.saver()

    report = await validate(savers)

    failures = {name: result.failures for name, result in report.results.items() if not result.passed}
    assert not failures
    assert report.results.keys() == {capability.value for capability in ALL_CAPABILITIES}
    assert sum(result.tests_passed for result in report.results.values()) >= 80
