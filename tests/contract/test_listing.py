"""Lists: newest first, whatever is asked for, and never more than that."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from stepvault.errors import ConfigurationError
from tests.contract.building import config, id_of, ids, listed, new_id, put
from tests.contract.matrix import Database


async def chain(saver: Any, length: int, thread: str = "t", ns: str = "") -> list[str]:
    """The ids of a chain of checkpoints, newest first."""
    at = config(thread, ns)
    stored = []
    for step in range(length):
        at = await put(saver, {"items": list(range(step))}, at=at, metadata={"step": step, "odd": step % 2})
        stored.append(id_of(at))
    return stored[::-1]  # type: ignore[return-value]


async def test_a_list_is_newest_first_and_complete(saver: Any) -> None:
    stored = await chain(saver, 120)

    found = await listed(saver, config())

    assert [id_of(entry.config) for entry in found] == stored
    assert [id_of(entry.parent_config) for entry in found] == [*stored[1:], None]
    assert [entry.checkpoint["channel_values"]["items"] for entry in found] == [
        list(range(step)) for step in range(119, -1, -1)
    ]


async def test_a_list_shows_what_a_get_does(saver: Any) -> None:
    await chain(saver, 5)
    for entry in await listed(saver, config()):
        await saver.aput_writes(entry.config, [("a", id_of(entry.config))], "task")

    for entry in await listed(saver, config()):
        assert await saver.aget_tuple(entry.config) == entry


async def test_an_empty_list(saver: Any) -> None:
    assert await ids(saver, None) == []
    assert await ids(saver, config("never")) == []
    await chain(saver, 2)
    assert await ids(saver, config("t", "another")) == []
    assert await ids(saver, config("t", "", new_id())) == []


async def test_a_thread_without_a_namespace_lists_all_of_them_by_id(saver: Any) -> None:
    stored = []
    for ns in ("", "b", "a", "", "a", "b"):
        stored.append((ns, id_of(await put(saver, at=config("t", ns)))))

    found = await listed(saver, {"configurable": {"thread_id": "t"}})

    assert [(e.config["configurable"]["checkpoint_ns"], id_of(e.config)) for e in found] == stored[::-1]


async def test_without_a_thread_all_are_listed_newest_first(saver: Any) -> None:
    order = list(itertools.islice(itertools.cycle(("t1", "t2", "t3")), 130))
    stored = [id_of(await put(saver, at=config(thread))) for thread in order]

    found = await listed(saver, None)

    assert [id_of(entry.config) for entry in found] == stored[::-1]
    assert [entry.config["configurable"]["thread_id"] for entry in found] == order[::-1]


async def test_the_same_id_in_several_threads_and_namespaces_is_listed_once_for_each(saver: Any) -> None:
    id = new_id()
    places = [(f"t{i}", f"ns{j}") for i in range(9) for j in range(9)]
    for thread, ns in places:
        await put(saver, at=config(thread, ns), id=id)

    found = [entry.config["configurable"] for entry in await listed(saver, None)]

    assert sorted((named["thread_id"], named["checkpoint_ns"]) for named in found) == places


@pytest.mark.parametrize("limit", [0, 1, 2, 49, 50, 51, 60, 10_000])
async def test_limits(saver: Any, limit: int) -> None:
    stored = await chain(saver, 60)

    assert await ids(saver, config(), limit=limit) == stored[:limit]


@pytest.mark.parametrize("limit", [-1, -(2**70), 1.5, "3"])
async def test_limits_that_are_none_are_refused(saver: Any, limit: Any) -> None:
    await chain(saver, 1)
    with pytest.raises(ConfigurationError, match="limit"):
        await ids(saver, config(), limit=limit)


async def test_before_is_exclusive(saver: Any) -> None:
    stored = await chain(saver, 60)

    assert await ids(saver, config(), before=config("t", "", stored[2])) == stored[3:]
    assert await ids(saver, config(), before=config("t", "", stored[2]), limit=2) == stored[3:5]
    assert await ids(saver, config(), before=config("t", "", stored[-1])) == []
    assert await ids(saver, config(), before=config("t", "", new_id())) == stored
    assert await ids(saver, config(), before=config("t")) == stored
    assert await ids(saver, None, before=config("t", "", stored[2])) == stored[3:]
    assert await ids(saver, {"configurable": {"thread_id": "t"}}, before=config("t", "", stored[-2])) == stored[-1:]


async def test_pages_by_before_are_the_whole_list(saver: Any) -> None:
    stored = await chain(saver, 23)
    pages: list[str] = []
    while page := await ids(saver, config(), limit=5, before=config("t", "", pages[-1]) if pages else None):
        pages += page

    assert pages == stored


async def test_a_list_of_one_checkpoint(saver: Any) -> None:
    stored = await chain(saver, 3)

    assert await ids(saver, config("t", "", stored[1])) == [stored[1]]
    assert await ids(saver, config("t", "", stored[1]), before=config("t", "", stored[1])) == []
    assert await ids(saver, config("t", "", stored[1]), filter={"step": 1}) == [stored[1]]
    assert await ids(saver, config("t", "", stored[1]), filter={"step": 2}) == []


async def test_filter_before_and_limit_work_together(saver: Any) -> None:
    stored = await chain(saver, 130)
    odd = [id for id, step in zip(stored, range(129, -1, -1), strict=True) if step % 2]

    assert await ids(saver, config(), filter={"odd": 1}) == odd
    assert await ids(saver, config(), filter={"odd": 1}, limit=55) == odd[:55]
    assert await ids(saver, config(), filter={"odd": 1}, before=config("t", "", odd[3]), limit=2) == odd[4:6]
    assert await ids(saver, None, filter={"odd": 1, "step": 7}) == [stored[129 - 7]]


async def test_a_list_may_be_left_half_read(database: Database) -> None:
    saver = await database.saver()
    stored = await chain(saver, 60)
    entries = saver.alist(config())
    first = await anext(entries)
    await entries.aclose()

    assert id_of(first.config) == stored[0]
    assert len(await ids(saver, config())) == 60


async def test_what_is_stored_while_a_list_is_read_does_not_disturb_it(saver: Any) -> None:
    stored = await chain(saver, 60)
    seen = []
    async for entry in saver.alist(config()):
        seen.append(id_of(entry.config))
        if len(seen) in (1, 50):
            await put(saver, at=config())

    assert seen == stored
