"""A thread that one process writes without pause: others come to their turn all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.contract.building import config, put
from tests.contract.matrix import Database, matrix


@asynccontextmanager
async def hammered(saver: Any, at: Any) -> AsyncIterator[None]:
    """Somebody who knows the thread, and so is faster than who has to read it first, writes until the end."""
    ended, written = False, 0

    async def hammer() -> None:
        nonlocal written
        while not ended:
            await saver.aput_writes(at, [("log", [1] * 9)], f"task {written}")
            written += 1

    writer = asyncio.create_task(hammer())
    while not written and not writer.done():
        await asyncio.sleep(0)
    yield
    ended = True
    await writer


@pytest.mark.parametrize("database", matrix(("async",)), indirect=True)
async def test_everybody_has_a_turn(database: Database) -> None:
    busy, other = await database.saver(), await database.saver()
    first = await put(busy, {"log": ["a" * 300]}, at=config("t"))
    second = await put(busy, {"log": ["a" * 300, "b"]}, at=first)
    async with hammered(busy, second):
        for step in range(3):
            await other.aput_writes(second, [("mine", step)], f"other {step}")
        await other.acopy_thread("t", "copy")
        await other.aprune(["t"])
    found = await other.aget_tuple(config("t"))
    assert {step for _, channel, step in found.pending_writes if channel == "mine"} == {0, 1, 2}
    assert [entry.config["configurable"]["checkpoint_id"] async for entry in other.alist(config("t"))] == [
        second["configurable"]["checkpoint_id"]
    ]
    assert (await other.aget_tuple(config("copy"))).checkpoint["channel_values"] == {"log": ["a" * 300, "b"]}
