"""The writes of tasks: their order, who wins, and that they need no checkpoint yet."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.types import Interrupt, Send

from stepvault.errors import ConfigurationError
from tests.contract.building import config, id_of, listed, new_id, put
from tests.contract.matrix import Database

SPECIAL = sorted(WRITES_IDX_MAP)


async def pending(saver: Any, stored: Any) -> list[tuple[str, str, Any]]:
    """The writes of a checkpoint, which a list shows too."""
    found = (await saver.aget_tuple(stored)).pending_writes
    (entry,) = await listed(saver, stored)
    assert entry.pending_writes == found
    return found


async def test_writes_come_back_with_task_and_channel(saver: Any) -> None:
    stored = await put(saver)
    values = [None, "", 0, [1, 2], {"a": (1,)}, b"\x00", "x" * 5000, Send("node", {"a": 1})]
    writes = [(f"channel {i}", value) for i, value in enumerate(values)]
    await saver.aput_writes(stored, writes, "task")

    assert await pending(saver, stored) == [("task", channel, value) for channel, value in writes]


async def test_a_channel_written_twice_by_a_task_is_two_writes(saver: Any) -> None:
    stored = await put(saver)
    await saver.aput_writes(stored, [("a", 1), ("a", 2), ("a", 1)], "task")

    assert await pending(saver, stored) == [("task", "a", 1), ("task", "a", 2), ("task", "a", 1)]


async def test_writes_are_ordered_by_path_then_task_then_index(saver: Any) -> None:
    stored = await put(saver)
    await saver.aput_writes(stored, [("a", 1), ("b", 2)], "task 1", "~2")
    await saver.aput_writes(stored, [("a", 3)], "task 3", "~1")
    await saver.aput_writes(stored, [("a", 4)], "task 2", "~1")
    await saver.aput_writes(stored, [("a", 5)], "task 0")

    assert [value for _, _, value in await pending(saver, stored)] == [5, 4, 3, 1, 2]


async def test_more_than_ten_writes_stay_in_order(saver: Any) -> None:
    stored = await put(saver)
    await saver.aput_writes(stored, [("a", i) for i in range(120)], "task")

    assert [value for _, _, value in await pending(saver, stored)] == list(range(120))


async def test_the_first_write_of_an_index_stays(saver: Any) -> None:
    stored = await put(saver)
    await saver.aput_writes(stored, [("a", "first"), ("b", "first")], "task")
    await saver.aput_writes(stored, [("a", "second"), ("c", "second")], "task")

    assert await pending(saver, stored) == [("task", "a", "first"), ("task", "b", "first")]


async def test_a_second_call_with_more_writes_adds_those_at_new_indexes(saver: Any) -> None:
    stored = await put(saver)
    await saver.aput_writes(stored, [("a", 1)], "task")
    await saver.aput_writes(stored, [("b", 2), ("c", 3)], "task")
    await saver.aput_writes(stored, [("d", 4), ("e", 5), ("f", 6), ("g", 7)], "task")
    await saver.aput_writes(stored, [("h", 8)], "task")

    assert [value for _, _, value in await pending(saver, stored)] == [1, 3, 6, 7]


async def test_an_index_taken_by_a_special_write_is_free_for_an_ordinary_one(saver: Any) -> None:
    stored = await put(saver)
    await saver.aput_writes(stored, [("__error__", "boom"), ("a", 1)], "task")
    await saver.aput_writes(stored, [("b", 0), ("a", 9)], "task")

    assert [value for _, _, value in await pending(saver, stored)] == ["boom", 0, 1]


@pytest.mark.parametrize("channel", SPECIAL)
async def test_the_last_write_of_a_special_channel_wins(saver: Any, channel: str) -> None:
    stored = await put(saver)
    await saver.aput_writes(stored, [(channel, ["first"]), ("a", 1)], "task")
    await saver.aput_writes(stored, [(channel, ["second", "longer"])], "task")
    await saver.aput_writes(stored, [("b", 2), (channel, ["third"])], "task")

    found = await pending(saver, stored)

    assert [value for _, name, value in found if name == channel] == [["third"]]
    # InMemorySaver keeps both: they have the indexes 1 and 0.
    assert {(name, value) for _, name, value in found if name != channel} == {("a", 1), ("b", 2)}


async def test_special_writes_of_one_call_come_before_the_ordinary_ones(saver: Any) -> None:
    stored = await put(saver)
    await saver.aput_writes(stored, [("a", 1), *((name, name) for name in SPECIAL)], "task")

    found = [name for _, name, _ in await pending(saver, stored)]

    assert found == [*sorted(SPECIAL, key=WRITES_IDX_MAP.__getitem__), "a"]


async def test_the_same_special_channel_twice_in_a_call_is_its_last_value(saver: Any) -> None:
    stored = await put(saver)
    await saver.aput_writes(stored, [("__interrupt__", [1]), ("__interrupt__", [2])], "task")

    assert await pending(saver, stored) == [("task", "__interrupt__", [2])]


@pytest.mark.parametrize("channel", SPECIAL)
async def test_anything_may_be_written_to_a_special_channel(saver: Any, channel: str) -> None:
    stored = await put(saver)
    values = [None, 5, "text", {"a": 1}, [HumanMessage("no interrupt", id="1")], ["x", None], ("a", 1)]
    for number, value in enumerate(values):
        await saver.aput_writes(stored, [(channel, value)], f"task {number}")
        await saver.aput_writes(stored, [("done", number)], f"task {number}")

    found = await pending(saver, stored)
    assert [value for _, name, value in found if name == channel] == values


async def test_interrupts_come_back_whole(saver: Any) -> None:
    stored = await put(saver)
    asked = [Interrupt(value={"question": "ok?"}, id="1" * 32), Interrupt(value=None, id="2" * 32)]
    await saver.aput_writes(stored, [("__interrupt__", asked)], "task", "~__pregel_pull, node")

    assert await pending(saver, stored) == [("task", "__interrupt__", asked)]


async def test_tasks_and_checkpoints_are_apart(saver: Any) -> None:
    first = await put(saver)
    second = await put(saver, at=first)
    elsewhere = await put(saver, at=config("t", "sub"), id=id_of(first))
    for stored, value in ((first, 1), (second, 2), (elsewhere, 3)):
        await saver.aput_writes(stored, [("a", value)], "task")
        await saver.aput_writes(stored, [("a", value * 10)], "other task")

    assert [value for _, _, value in await pending(saver, first)] == [10, 1]
    assert [value for _, _, value in await pending(saver, second)] == [20, 2]
    assert [value for _, _, value in await pending(saver, elsewhere)] == [30, 3]


async def test_writes_may_come_before_their_checkpoint(saver: Any) -> None:
    at = config("new thread", "", new_id())
    await saver.aput_writes(at, [("a", ["early", "x" * 2000])], "task")
    assert await saver.aget_tuple(at) is None
    assert await listed(saver, config("new thread")) == []

    await put(saver, {"a": ["early", "x" * 2000]}, at=config("new thread"), id=id_of(at))
    await saver.aput_writes(at, [("a", "late")], "other task")

    found = await pending(saver, at)
    assert found == [("other task", "a", "late"), ("task", "a", ["early", "x" * 2000])]


async def test_writes_of_another_saver_are_seen(database: Database) -> None:
    one, other = await database.saver(), await database.saver()
    stored = await put(one, {"a": ["x" * 600]})
    await other.aput_writes(stored, [("a", ["x" * 600, "y" * 600])], "task")
    await one.aput_writes(stored, [("a", ["x" * 600, "z" * 600])], "task 2")
    await other.aput_writes(stored, [("b", 1), ("c", 2)], "task")

    expected = [("task", "a", ["x" * 600, "y" * 600]), ("task", "c", 2), ("task 2", "a", ["x" * 600, "z" * 600])]
    assert await pending(one, stored) == expected
    assert await pending(other, stored) == expected


async def test_no_writes_store_nothing(saver: Any) -> None:
    await saver.aput_writes(config("t", "", new_id()), [], "task")

    assert [thread.thread_id for thread in await saver.athreads()] == []


async def test_writes_need_a_checkpoint_id(saver: Any) -> None:
    await put(saver)
    with pytest.raises(ConfigurationError, match="checkpoint_id"):
        await saver.aput_writes(config(), [("a", 1)], "task")


async def test_the_path_of_a_task_may_be_anything(saver: Any) -> None:
    stored = await put(saver)
    for i, path in enumerate(["~__pregel_push, 0", "\x00", "ä" * 3000, "%", "\ud800"]):
        await saver.aput_writes(stored, [("a", i)], f"task {i}", path)

    assert sorted(value for _, _, value in await pending(saver, stored)) == [0, 1, 2, 3, 4]
