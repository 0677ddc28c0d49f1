"""Values of any size: whole, exact, and stored once."""

from __future__ import annotations

import random
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from tests.contract.building import put
from tests.contract.matrix import Database

MEGABYTE = 1 << 20


async def values(saver: Any, stored: Any) -> Any:
    return (await saver.aget_tuple(stored)).checkpoint["channel_values"]


@pytest.mark.parametrize("kind", ["bytes", "text", "list", "dict"])
async def test_a_channel_of_a_hundred_megabytes(database: Database, kind: str) -> None:
    noise = random.Random(1).randbytes((100 if kind == "bytes" else 10) * MEGABYTE)
    value: Any = {"bytes": noise, "text": noise.hex(), "list": [noise.hex()], "dict": {"key": noise}}[kind]
    saver = await database.saver(cache_bytes=MEGABYTE)

    stored = await put(saver, {"big": value, "small": 1})
    size = database.size()
    child = await put(saver, {"big": value, "small": 2}, at=stored, new={"small": "1"})
    await saver.aput_writes(child, [("small", 3)], "task")

    assert await values(saver, child) == {"big": value, "small": 2}
    assert await values(await database.saver(), stored) == {"big": value, "small": 1}
    assert database.size() < size + 2 * MEGABYTE, "the unchanged channel is stored once"


async def test_a_large_write_is_shared_with_its_checkpoint(database: Database) -> None:
    noise = random.Random(2).randbytes(20 * MEGABYTE)
    saver = await database.saver(cache_bytes=MEGABYTE)
    stored = await put(saver, {"a": 1})
    await saver.aput_writes(stored, [("big", noise)], "task")
    size = database.size()

    child = await put(saver, {"big": noise}, at=stored)

    assert (await values(saver, child))["big"] == noise
    assert (await saver.aget_tuple(stored)).pending_writes[0][2] == noise
    assert database.size() < size + 4 * MEGABYTE


@pytest.mark.parametrize(
    "item",
    [
        lambda i: i,
        lambda i: f"item {i}",
        lambda i: {"id": i, "text": f"item {i}" * 4},
        lambda i: HumanMessage(f"text {i}", id=str(i)),
    ],
    ids=["ints", "texts", "dicts", "messages"],
)
async def test_lists_of_a_hundred_thousand_elements(database: Database, item: Any) -> None:
    count = 100_000 if item(0) == 0 or isinstance(item(0), str) else 20_000
    saver, other = await database.saver(), await database.saver()
    items = [item(i) for i in range(count)]
    stored = await put(saver, {"items": items})
    assert await values(other, stored) == {"items": items}

    edited = [*items[:500], item(-1), *items[501:-700], item(-2)]
    child = await put(saver, {"items": edited}, at=stored)
    shuffled = edited[1000:] + edited[:1000][::-1]
    last = await put(other, {"items": shuffled}, at=child)

    assert await values(other, child) == {"items": edited}
    assert await values(saver, last) == {"items": shuffled}
    await saver.aprune(["t"])
    assert await values(other, last) == {"items": shuffled}


async def test_a_dict_of_a_hundred_thousand_items(saver: Any) -> None:
    items: dict[Any, Any] = {f"key {i}": {"value": i} for i in range(100_000)}
    stored = await put(saver, {"items": items})
    assert await values(saver, stored) == {"items": items}

    del items["key 50000"]
    items["key 7"] = "edited"
    child = await put(saver, {"items": items}, at=stored)

    found = (await values(saver, child))["items"]
    assert found == items
    assert list(found) == list(items)


async def test_a_thousand_channels_and_a_thousand_writes(saver: Any) -> None:
    state = {f"channel {i}": [f"value {i}" * 50] for i in range(1000)}
    stored = await put(saver, state)
    await saver.aput_writes(stored, [(f"channel {i}", f"write {i}" * 50) for i in range(1000)], "task")
    found = await saver.aget_tuple(stored)

    assert found.checkpoint["channel_values"] == state
    assert [value for _, _, value in found.pending_writes] == [f"write {i}" * 50 for i in range(1000)]


async def test_deeply_nested_values(saver: Any) -> None:
    value: Any = "bottom"
    for level in range(200):
        value = [value, level] if level % 2 else {"down": value}
    stored = await put(saver, {"deep": value})

    assert await values(saver, stored) == {"deep": value}


@pytest.mark.parametrize(
    "size", [0, 1, 255, 256, 257, 1023, 1024, 4096, 8191, 8192, 8193, 12_288, 65_536, 4 * MEGABYTE]
)
async def test_sizes_around_the_limits_of_the_format(saver: Any, size: int) -> None:
    text = random.Random(size).randbytes(size).hex()[:size]
    blob = random.Random(-size).randbytes(size)
    state = {"text": text, "blob": blob, "list": [text, text], "dict": {str(i): text for i in range(9)}}
    stored = await put(saver, state)
    await saver.aput_writes(stored, list(state.items()), "task")
    child = await put(saver, {**state, "text": text + "!"}, at=stored, new={"text": "2"})

    found = await saver.aget_tuple(stored)
    assert found.checkpoint["channel_values"] == state
    assert [(channel, value) for _, channel, value in found.pending_writes] == list(state.items())
    assert await values(saver, child) == {**state, "text": text + "!"}


# -- growth


def turn(number: int, words: random.Random) -> list[Any]:
    """A question and an answer that do not compress to nothing."""
    text = [" ".join(words.randbytes(6).hex() for _ in range(20)) for _ in range(2)]
    return [HumanMessage(text[0], id=f"h{number}"), AIMessage(text[1], id=f"a{number}")]


async def test_a_chat_costs_its_messages_once(database: Database) -> None:
    saver = await database.saver(compression=None)
    words = random.Random(3)
    at, messages, payload, sizes = None, [], 0, {}
    for number in range(1, 501):
        said = turn(number, words)
        messages += said
        payload += sum(len(message.content) for message in said)
        at = await put(saver, {"messages": list(messages)}, at=at, metadata={"step": number})
        await saver.aput_writes(at, [("messages", said)], f"task {number}")
        if number in (200, 500):
            sizes[number] = database.size()

    assert sizes[500] / sizes[200] <= 2.7, sizes
    # Each step has a record, a row of writes and their keys besides its message; Postgres also has a few hundred KB of
    # empty pages and indexes, and keeps the room of rows that were packed until it is used again.
    assert sizes[500] <= {"postgres": 5, "postgres-sealed": 6}.get(database.name, 4) * payload, sizes
    assert (await values(saver, at))["messages"] == messages


async def test_a_growing_text_costs_what_it_grows_by(database: Database) -> None:
    saver = await database.saver(compression=None)
    rng = random.Random(4)
    at, text, sizes = None, "", {}
    for number in range(1, 101):
        text += rng.randbytes(5000).hex()
        at = await put(saver, {"text": text}, at=at)
        if number in (40, 100):
            sizes[number] = database.size()

    assert sizes[100] / sizes[40] <= 2.7, sizes
    assert await values(saver, at) == {"text": text}


async def test_what_does_not_change_costs_nothing(database: Database) -> None:
    saver = await database.saver(compression=None)
    fixed = {"docs": [random.Random(i).randbytes(3000).hex() for i in range(50)], "config": {"a": "b" * 400}}
    at = await put(saver, {**fixed, "n": 0})
    size = database.size()
    for n in range(100):
        at = await put(saver, {**fixed, "n": n}, at=at, new={"n": "1"})
    for n in range(100):  # a graph may say that a channel is new although its value is not
        at = await put(saver, {**fixed, "n": n}, at=at)

    assert database.size() - size < 250_000, "200 records of a small channel"
