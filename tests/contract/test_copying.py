"""Copies of threads: the same rows under another id, a life of their own."""

from __future__ import annotations

from typing import Any

import pytest

from stepvault.errors import ConfigurationError, ConflictError, IdentifierError
from tests.contract.building import config, id_of, ids, put, whole
from tests.contract.matrix import Database

ITEMS = ["x" * 600, "y" * 600, 3]


async def source(saver: Any) -> list[Any]:
    """A thread with branches, a subgraph and writes; returns its checkpoints."""
    first = await put(saver, {"items": ITEMS}, metadata={"user": "u"})
    await put(saver, {"items": [*ITEMS, 4]}, at=first)
    await put(saver, {"items": ITEMS[:1]}, at=first)
    inner = await put(saver, {"items": ITEMS}, at=config("t", "sub:1"))
    await saver.aput_writes(first, [("items", ITEMS), ("__interrupt__", ["?"])], "task", "path")
    await saver.aput_writes(inner, [("items", "z" * 2000)], "task")
    return await whole(saver)


def moved(entry: Any, target: str) -> Any:
    """A checkpoint as it must be in the copy."""

    def at(named: Any) -> Any:
        return named and {"configurable": {**named["configurable"], "thread_id": target}}

    return entry._replace(config=at(entry.config), parent_config=at(entry.parent_config))


async def test_a_copy_has_everything_of_its_source(database: Database) -> None:
    saver = await database.saver()
    entries = await source(saver)

    await saver.acopy_thread("t", "copy")

    assert await whole(saver, "copy") == [moved(entry, "copy") for entry in entries]
    assert await whole(await database.saver(), "copy") == [moved(entry, "copy") for entry in entries]
    assert await whole(saver) == entries
    assert await ids(saver, config("copy"), filter={"user": "u"}) == [id_of(entries[-1].config)]


async def test_source_and_copy_live_apart(database: Database) -> None:
    saver = await database.saver()
    entries = await source(saver)
    await saver.acopy_thread("t", "copy")
    more = [*ITEMS, 4, "only in the copy" * 100]

    added = await put(saver, {"items": more}, at=config("copy", "", id_of(entries[0].config)))
    assert await whole(saver) == entries
    await put(saver, {"items": [*ITEMS, "only in the source" * 100]})
    await saver.aprune(["t"])
    await saver.adelete_thread("t")

    assert (await saver.aget_tuple(added)).checkpoint["channel_values"] == {"items": more}
    assert (await whole(saver, "copy"))[1:] == [moved(entry, "copy") for entry in entries]
    assert len(await whole(await database.saver(), "copy")) == len(entries) + 1


async def test_an_existing_target_is_a_conflict_and_stays_as_it_is(saver: Any) -> None:
    await source(saver)
    await put(saver, {"mine": 1}, at=config("target"))
    before = await whole(saver, "target")

    with pytest.raises(ConflictError, match="'target' exists"):
        await saver.acopy_thread("t", "target")

    assert await whole(saver, "target") == before


async def test_a_copy_onto_itself_is_refused(saver: Any) -> None:
    entries = await source(saver)
    with pytest.raises(ConfigurationError, match="two threads"):
        await saver.acopy_thread("t", "t")
    await put(saver, at=config("1"))
    with pytest.raises(ConfigurationError, match="two threads"):
        await saver.acopy_thread(1, "1")

    assert await whole(saver) == entries


async def test_an_unknown_source_copies_nothing(saver: Any) -> None:
    await saver.acopy_thread("never", "copy")

    assert [thread.thread_id for thread in await saver.athreads()] == []


@pytest.mark.parametrize("bad", [None, b"t", ["t"], "x" * 2001])
async def test_ids_that_cannot_be_stored_are_refused(saver: Any, bad: Any) -> None:
    await source(saver)
    for pair in ((bad, "copy"), ("t", bad)):
        with pytest.raises(IdentifierError):
            await saver.acopy_thread(*pair)


async def test_a_copy_of_a_copy(saver: Any) -> None:
    entries = await source(saver)
    await saver.acopy_thread("t", "copy")
    await saver.adelete_thread("t")
    await saver.acopy_thread("copy", "t")

    assert await whole(saver, "t") == entries


async def test_runs_are_found_in_the_copy_too(saver: Any) -> None:
    await put(saver, metadata={"run_id": "one"})
    await put(saver, metadata={"run_id": "two"})
    await saver.acopy_thread("t", "copy")

    await saver.adelete_for_runs(["one"])

    assert [entry.metadata["run_id"] for entry in await whole(saver, "copy")] == ["two"]
