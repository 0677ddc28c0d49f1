"""An erasure takes as much memory for a person with many threads as for one with few."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest

from stepvault._keystore import store
from stepvault.checkpointers._erasure import Erasure
from stepvault.checkpointers._ops.erasing import steps
from tests.contract.building import config, put
from tests.contract.matrix import Database

SIZES = [
    pytest.param((30, 150), 30, id="30"),
    pytest.param((2000, 10_000), None, id="2000", marks=[pytest.mark.soak, pytest.mark.timeout(1800)]),
]


@pytest.mark.parametrize(("sizes", "page"), SIZES)
async def test_five_times_the_threads_take_no_more_memory(
    async_database: Database,
    sizes: tuple[int, int],
    page: int | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if page is not None:
        monkeypatch.setattr(steps, "_THREADS", page)
        monkeypatch.setattr(steps, "_PAGE", page)
        monkeypatch.setattr(store, "_PAGE", page)  # of keys
    saver = await async_database.saver()
    await peak(saver, 3)  # what is loaded and kept once

    few, many = [await peak(saver, count) for count in sizes]

    if page is None:
        with capsys.disabled():
            print(f"\n{async_database.name}: {few / 1e6:.2f} MB for {sizes[0]}, {many / 1e6:.2f} MB for {sizes[1]}")
    assert many < 1.25 * few + 50_000


async def peak(saver: Any, count: int) -> int:
    """The most memory that the erasure of a person with so many threads takes at a time."""
    person = f"of {count}"
    for number in range(count):
        await put(saver, {"a": number}, at=config(f"{person}, {number}", user_id=person))
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    try:
        assert (await Erasure(saver).aerase(person)).counts["threads"] == count
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
