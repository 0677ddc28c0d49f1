"""Channel versions grow and keep the format that a thread came with."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from tests.contract.building import put
from tests.contract.matrix import Database


@pytest.mark.parametrize(
    "first",
    [None, 1, 0, 7.0, f"{1:032}.{0.25:016}", f"{9:032}.0.9999999999999999", "0000000a", "0000ffff"],
)
async def test_versions_grow_and_keep_their_type_and_width(saver: Any, first: Any) -> None:
    versions = [first if first is not None else saver.get_next_version(None)]
    for _ in range(300):
        versions.append(saver.get_next_version(versions[-1]))

    assert all(early < late for early, late in pairwise(versions))
    assert {type(version) for version in versions} == {type(versions[0])}
    if isinstance(first, str):
        assert {len(version) for version in versions} == {len(first)}


async def test_versions_are_the_same_everywhere(database: Database) -> None:
    one, other = await database.saver(), await database.saver()
    assert one.get_next_version(None) == other.get_next_version(None)
    assert one.get_next_version(one.get_next_version(None), None) == "00000002"


async def test_a_thread_of_the_official_saver_stays_in_order(saver: Any) -> None:
    official = InMemorySaver()
    version = None
    for _ in range(11):
        version = official.get_next_version(version, None)

    assert version is not None
    assert saver.get_next_version(version) > version
    assert official.get_next_version(saver.get_next_version(version), None) > saver.get_next_version(version)


@pytest.mark.parametrize("version", [1, 2.5, "00000001", "1.0", 2**40, 0])
async def test_versions_come_back_with_their_type(saver: Any, version: Any) -> None:
    versions, seen = {"a": version, "b": 1, "c": 1.0, "d": True}, {"node": {"a": version, "c": 1.0}}
    stored = await put(saver, {"a": 1}, channel_versions=versions, versions_seen=seen)

    found = (await saver.aget_tuple(stored)).checkpoint

    assert repr(found["channel_versions"]) == repr(versions)
    assert repr(found["versions_seen"]) == repr(seen)
