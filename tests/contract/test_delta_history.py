"""DeltaChannels: the writes they are rebuilt from, and that no removal loses them."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from tests.contract.building import config, id_of, ids, new_id, put
from tests.contract.matrix import AsAsync

STEPS = 8


async def grow(saver: Any, at: Any, snapshots: dict[int, Any], ids: list[str], steps: int = STEPS) -> list[Any]:
    """A chain in which a DeltaChannel `log` is written at each step, and stored whole at some."""
    found = []
    for step in range(steps):
        values = {"plain": step, **({"log": snapshots[step]} if step in snapshots else {})}
        versions = {"plain": f"{step:08}", "log": f"{step:08}"}
        counters = {} if step in snapshots else {"counters_since_delta_snapshot": {"log": (step, step)}}
        at = await put(saver, values, at=at, id=ids[step], channel_versions=versions, metadata=counters)
        await saver.aput_writes(at, [("log", [f"{step}b" * 300]), ("plain", step)], "task b", "~2")
        await saver.aput_writes(at, [("log", [f"{step}a"]), ("other", 1)], "task a", "~3")
        found.append(at)
    return found


@pytest.mark.parametrize(
    "snapshots", [{}, {0: _DeltaSnapshot(["s0"])}, {3: _DeltaSnapshot(["s3"] * 300)}, {2: ["plain"], 5: None}]
)
async def test_history_is_what_memory_has(saver: Any, snapshots: dict[int, Any]) -> None:
    memory = AsAsync(InMemorySaver())
    names = [new_id() for _ in range(STEPS)]
    ours, theirs = [await grow(each, config(), snapshots, names) for each in (saver, memory)]

    for one, other in zip([*ours, config()], [*theirs, config()], strict=True):
        found = await saver.aget_delta_channel_history(config=one, channels=["log", "plain", "never"])
        assert found == await memory.aget_delta_channel_history(config=other, channels=["log", "plain", "never"])


async def test_history_follows_the_branch(saver: Any) -> None:
    memory = AsAsync(InMemorySaver())
    for each in (saver, memory):
        trunk = await grow(each, config(), {}, names := [f"a{i}" for i in range(STEPS)])
        await grow(each, trunk[3], {}, [f"b{i}" for i in range(STEPS)])
    assert names

    for id in ("a7", "b0", "b7"):
        at = config("t", "", id)
        found = await saver.aget_delta_channel_history(config=at, channels=["log"])
        assert found == await memory.aget_delta_channel_history(config=at, channels=["log"])
        assert found["log"]["writes"]


async def test_no_channels_and_no_thread_have_no_history(saver: Any) -> None:
    await put(saver)
    assert await saver.aget_delta_channel_history(config=config(), channels=[]) == {}
    empty = {"log": {"writes": []}}
    assert await saver.aget_delta_channel_history(config=config(), channels=["log"]) == empty
    assert await saver.aget_delta_channel_history(config=config("never"), channels=["log"]) == empty
    nowhere = config("t", "", new_id())
    assert await saver.aget_delta_channel_history(config=nowhere, channels=["log"]) == empty


@pytest.mark.parametrize("snapshots", [{}, {3: _DeltaSnapshot(["s3"])}, {6: ["plain"]}])
async def test_a_prune_keeps_the_ancestors_it_needs_and_no_more(saver: Any, snapshots: dict[int, Any]) -> None:
    chain = await grow(saver, config(), snapshots, names := [new_id() for _ in range(STEPS)])
    before = await saver.aget_delta_channel_history(config=chain[-1], channels=["log"])

    await saver.aprune(["t"], strategy="keep_latest")

    assert await saver.aget_delta_channel_history(config=chain[-1], channels=["log"]) == before
    needed = names[min(snapshots, default=0) :]
    assert await ids(saver, config()) == needed[::-1]


async def test_a_prune_on_a_snapshot_needs_no_ancestor(saver: Any) -> None:
    chain = await grow(saver, config(), {STEPS - 1: _DeltaSnapshot([])}, [new_id() for _ in range(STEPS)])

    await saver.aprune(["t"])

    assert await ids(saver, config()) == [id_of(chain[-1])]
