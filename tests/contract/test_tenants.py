"""A saver sees and touches its own tenant's threads only, on every verb."""

from __future__ import annotations

from typing import Any

import pytest

from stepvault.errors import IdentifierError
from tests.contract.building import config, ids, put, whole
from tests.contract.matrix import Database


async def test_the_same_ids_live_apart(database: Database) -> None:
    one, two = await database.saver(tenant="one"), await database.saver(tenant="two")
    stored = await put(one, {"a": ["x" * 600]}, metadata={"run_id": "run", "user": "u"})
    await put(two, {"a": ["y" * 600]}, id=stored["configurable"]["checkpoint_id"], metadata={"run_id": "run"})

    assert (await one.aget_tuple(stored)).checkpoint["channel_values"] == {"a": ["x" * 600]}
    assert (await two.aget_tuple(stored)).checkpoint["channel_values"] == {"a": ["y" * 600]}
    assert len(await ids(one, None)) == len(await ids(two, None)) == 1
    assert await ids(two, None, filter={"user": "u"}) == []
    assert [thread.thread_id for thread in await two.athreads()] == ["t"]


async def test_no_verb_reaches_another_tenant(database: Database) -> None:
    theirs, mine = await database.saver(tenant="theirs"), await database.saver(tenant="mine")
    stored = await put(theirs, {"a": ["x" * 600]}, metadata={"run_id": "run"})
    await put(theirs, {"a": ["x" * 600, 2]}, at=stored)
    await theirs.aput_writes(stored, [("a", 1)], "task")
    before = await whole(theirs)

    assert await mine.aget_tuple(stored) is None
    assert await ids(mine, None) == await ids(mine, config()) == []
    assert len(await mine.athreads()) == 0
    assert await mine.aget_delta_channel_history(config=stored, channels=["a"]) == {"a": {"writes": []}}
    await mine.adelete_thread("t")
    await mine.adelete_for_runs(["run"])
    await mine.aprune(["t"], strategy="keep_latest")
    await mine.aprune(["t"], strategy="delete")
    await mine.acopy_thread("t", "copy")
    await put(mine, {"a": "mine"}, at=config("t"))
    await mine.aput_writes(stored, [("a", "mine")], "task")

    assert await whole(theirs) == before
    assert len(await theirs.athreads()) == 1
    await theirs.adelete_thread("t")
    assert len(await whole(mine)) == 1


async def test_a_saver_without_a_tenant_is_a_tenant_of_its_own(database: Database) -> None:
    plain, bound = await database.saver(), await database.saver(tenant="one")
    await put(bound, at=config("theirs"))
    await put(plain, at=config("mine"))

    assert [thread.thread_id for thread in await plain.athreads()] == ["mine"]
    assert len(await ids(plain, None)) == 1
    await plain.adelete_thread("theirs")
    assert len(await whole(bound, "theirs")) == 1


async def test_for_tenant_is_a_view_over_the_same_database(database: Database) -> None:
    saver = await database.saver()
    view = saver.for_tenant("one")
    stored = await put(view, {"a": 1})

    assert await saver.aget_tuple(stored) is None
    assert (await saver.for_tenant("one").aget_tuple(stored)).checkpoint["channel_values"] == {"a": 1}
    assert (await (await database.saver(tenant="one")).aget_tuple(stored)) is not None
    assert view.for_tenant("") is not view
    assert await view.for_tenant("").aget_tuple(stored) is None


@pytest.mark.parametrize("name", ["", "One", "one ", "%", "_", "one\x00", "o", "ö", "a/b", "{x}", "\ud800"])
async def test_tenants_with_names_like_it_are_others(database: Database, name: str) -> None:
    saver = await database.saver(tenant="one")
    await put(saver)
    other = saver.for_tenant(name)

    assert await ids(other, None) == []
    await put(other, {"mine": name})
    await other.adelete_thread("t")
    assert len(await whole(saver)) == 1


async def test_tenant_and_thread_cannot_be_confused(database: Database) -> None:
    saver = await database.saver()
    pairs = [("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", ""), ("a:b", "c"), ("a", "b:c"), ("a\x00b", "c")]
    for tenant, thread in pairs:
        await put(saver.for_tenant(tenant), {"pair": [tenant, thread]}, at=config(thread))

    for tenant, thread in pairs:
        (found,) = await whole(saver.for_tenant(tenant), thread)
        assert found.checkpoint["channel_values"] == {"pair": [tenant, thread]}


@pytest.mark.parametrize("bad", [None, 1, b"one", "x" * 256])
async def test_a_tenant_is_a_short_text(database: Database, bad: Any) -> None:
    with pytest.raises(IdentifierError, match="tenant"):
        (await database.saver()).for_tenant(bad)
    with pytest.raises(IdentifierError, match="tenant"):
        database.unprepared(tenant=bad)
