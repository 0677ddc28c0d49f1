"""Storing a checkpoint and getting it back: the same values, ids, parents and metadata."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint

from stepvault.errors import ConfigurationError
from tests.contract.building import checkpoint, config, id_of, new_id, put, whole
from tests.contract.matrix import Database

VALUES: dict[str, Any] = {
    "text": "grüß\x00",
    "count": 3,
    "ratio": 0.1,
    "flag": True,
    "nothing": None,
    "blob": bytes(range(256)),
    "empty": {"list": [], "dict": {}, "text": "", "bytes": b""},
    "messages": [HumanMessage("hi", id="1"), AIMessage("hello", id="2")],
    "nested": {"a": [{"b": (1, 2)}, {3, 4}]},
    "many": list(range(2000)),
    "wide": {f"key {i}": i for i in range(2000)},
    "long": "x" * 100_000,
    "bytes": b"y" * 100_000,
}


async def test_values_come_back_as_they_were(saver: Any) -> None:
    stored = await put(saver, VALUES)

    found = await saver.aget_tuple(stored)

    assert found.checkpoint["channel_values"] == VALUES
    assert {k: type(v) for k, v in found.checkpoint["channel_values"].items()} == {
        k: type(v) for k, v in VALUES.items()
    }


async def test_values_come_back_in_another_saver(database: Database) -> None:
    stored = await put(await database.saver(), VALUES)

    found = await (await database.saver()).aget_tuple(stored)

    assert found.checkpoint["channel_values"] == VALUES


async def test_put_returns_the_config_of_what_it_stored(saver: Any) -> None:
    id = new_id()
    assert await put(saver, id=id, at=config("t", "ns")) == config("t", "ns", id)


async def test_every_field_of_a_checkpoint_comes_back(saver: Any) -> None:
    made = checkpoint(
        {"a": 1},
        v=3,
        ts="2026-05-06T07:08:09+02:00",
        channel_versions={"a": "00000002", "b": "00000001"},
        versions_seen={"__input__": {}, "node": {"a": "00000002", "gone": "00000007"}},
        updated_channels=["a", "not a channel"],
        pending_sends=["kept as it is"],
    )
    stored = await saver.aput(config(), made, {"source": "fork", "step": 7, "parents": {"": "x"}}, {"a": 1})

    found = await saver.aget_tuple(stored)

    assert found.checkpoint == made
    assert found.metadata == {"source": "fork", "step": 7, "parents": {"": "x"}}
    assert found.config == stored
    assert found.parent_config is None
    assert found.pending_writes == []


async def test_an_empty_checkpoint_comes_back(saver: Any) -> None:
    made = empty_checkpoint()
    stored = await saver.aput(config(), made, {}, {})

    found = await saver.aget_tuple(stored)

    assert {key: found.checkpoint[key] for key in made} == made


async def test_no_checkpoint_is_none(saver: Any) -> None:
    assert await saver.aget_tuple(config("never")) is None
    await put(saver)
    assert await saver.aget_tuple(config("t", "another namespace")) is None
    assert await saver.aget_tuple(config("t", "", new_id())) is None
    assert await saver.aget_tuple(config("t", "", "not a uuid")) is None


async def test_without_an_id_the_newest_of_the_namespace_is_got(saver: Any) -> None:
    first = await put(saver, {"n": 1})
    second = await put(saver, {"n": 2}, at=first)
    await put(saver, {"n": 3}, at=config("t", "sub"))

    assert (await saver.aget_tuple(config())).checkpoint["channel_values"] == {"n": 2}
    assert (await saver.aget_tuple({"configurable": {"thread_id": "t"}})).config == second
    assert (await saver.aget_tuple(config("t", "sub"))).checkpoint["channel_values"] == {"n": 3}


async def test_the_newest_is_the_one_of_the_greatest_id_however_late_another_is_stored(saver: Any) -> None:
    early, late = new_id(), new_id()
    await put(saver, {"n": "late"}, id=late)
    await put(saver, {"n": "early"}, id=early)

    assert id_of((await saver.aget_tuple(config())).config) == late


async def test_the_parent_is_the_checkpoint_of_the_config(saver: Any) -> None:
    first = await put(saver)
    second = await put(saver, at=first)
    left, right = await put(saver, at=second), await put(saver, at=second)

    assert (await saver.aget_tuple(first)).parent_config is None
    assert (await saver.aget_tuple(second)).parent_config == first
    assert (await saver.aget_tuple(left)).parent_config == second
    assert (await saver.aget_tuple(right)).parent_config == second


async def test_a_parent_need_not_be_stored(saver: Any) -> None:
    stored = await put(saver, {"a": [1]}, at=config("t", "", "elsewhere"))

    assert (await saver.aget_tuple(stored)).parent_config == config("t", "", "elsewhere")


@pytest.mark.parametrize("id", ["1", "v1.2", "Z" * 200, "ÄÖ\x00%", "AAAAAAAA-AAAA-AAAA-AAAA-AAAAAAAAAAAA", " "])
async def test_ids_need_not_be_uuids(saver: Any, id: str) -> None:
    stored = await put(saver, {"a": id}, id=id)
    child = await put(saver, at=stored, id=id + "-")

    assert (await saver.aget_tuple(stored)).checkpoint["channel_values"] == {"a": id}
    assert id_of((await saver.aget_tuple(child)).parent_config) == id


async def test_ids_that_are_no_uuids_are_ordered_as_text(saver: Any) -> None:
    for id in ("b", "a", "ä", "B", "c"):
        await put(saver, id=id)

    assert [id_of(entry.config) for entry in await whole(saver)] == sorted("bäaBc", reverse=True)


async def test_a_channel_that_is_not_new_has_the_value_of_the_parent(saver: Any) -> None:
    versions = {"kept": "00000001", "changed": "00000001"}
    first = await put(saver, {"kept": ["a", "b"], "changed": 1}, channel_versions=versions)
    later = versions | {"changed": "00000002"}
    new = {"changed": "00000002"}

    whole_state = await put(saver, {"kept": ["a", "b"], "changed": 2}, at=first, channel_versions=later, new=new)
    only_news = await put(saver, {"changed": 2}, at=first, channel_versions=later, new=new)

    for stored in (whole_state, only_news):
        values = (await saver.aget_tuple(stored)).checkpoint["channel_values"]
        assert values == {"kept": ["a", "b"], "changed": 2}


async def test_another_saver_finds_the_values_of_the_parent_too(database: Database) -> None:
    first = await put(await database.saver(), {"kept": ["a" * 500, "b"], "small": 1})
    other = await database.saver()
    versions = {"kept": "00000001", "small": "00000001", "new": "00000002"}

    second = await put(other, {"new": 2}, at=first, channel_versions=versions, new={"new": "00000002"})

    values = (await (await database.saver()).aget_tuple(second)).checkpoint["channel_values"]
    assert values == {"kept": ["a" * 500, "b"], "small": 1, "new": 2}


async def test_a_new_channel_without_a_value_is_empty(saver: Any) -> None:
    first = await put(saver, {"a": 1, "b": 2})
    versions = {"a": "00000001", "b": "00000002"}
    second = await put(saver, {"a": 1}, at=first, channel_versions=versions, new={"b": "00000002"})

    assert (await saver.aget_tuple(second)).checkpoint["channel_values"] == {"a": 1}
    assert (await saver.aget_tuple(first)).checkpoint["channel_values"] == {"a": 1, "b": 2}


async def test_storing_an_id_again_replaces_it(saver: Any) -> None:
    first = await put(saver)
    stored = await put(saver, {"a": ["old"]}, at=first, id=(id := new_id()), metadata={"label": "old"})
    await saver.aput_writes(stored, [("a", "write")], "task")
    await put(saver, {"b": ["new"]}, id=id, metadata={"label": "new"})

    found = await saver.aget_tuple(stored)

    assert found.checkpoint["channel_values"] == {"b": ["new"]}
    assert found.metadata["label"] == "new"
    assert found.parent_config is None
    assert found.pending_writes == [("task", "a", "write")]
    assert len(await whole(saver)) == 2


async def test_a_child_of_a_replaced_checkpoint_keeps_its_own_values(saver: Any) -> None:
    parent = await put(saver, {"a": ["first", "x" * 1000]}, id=(id := new_id()))
    child = await put(saver, {"a": ["first", "x" * 1000]}, at=parent, new={})
    await put(saver, {"a": ["second"]}, id=id)

    assert (await saver.aget_tuple(child)).checkpoint["channel_values"] == {"a": ["first", "x" * 1000]}


async def test_namespaces_are_apart(saver: Any) -> None:
    id = new_id()
    spaces = ["", "child:1", "child:1|grand:2", "child", "CHILD:1", "%", "child:1\x00", "a/b"]
    for ns in spaces:
        await put(saver, {"ns": ns}, at=config("t", ns), id=id)

    for ns in spaces:
        found = await saver.aget_tuple(config("t", ns))
        assert found.checkpoint["channel_values"] == {"ns": ns}
        assert found.config == config("t", ns, id)
    assert len(await whole(saver)) == len(spaces)


async def test_threads_are_apart(saver: Any) -> None:
    id = new_id()
    threads = ["a", "A", "a ", "a%", "a_", "ab", "a\x00", "a:b", "a/b", "{a}", "ä", "a\u0308"]
    for thread in threads:
        await put(saver, {"thread": thread}, at=config(thread), id=id)

    for thread in threads:
        assert (await saver.aget_tuple(config(thread))).checkpoint["channel_values"] == {"thread": thread}
        assert len(await whole(saver, thread)) == 1


async def test_integers_are_the_threads_of_their_text_on_every_verb(saver: Any) -> None:
    stored = await put(saver, {"a": 1}, at=config(1))
    assert stored == config("1", "", id_of(stored))
    await saver.aput_writes(config(1, "", id_of(stored)), [("a", 2)], "task")

    assert (await saver.aget_tuple(config("1"))).pending_writes == [("task", "a", 2)]
    assert len(await whole(saver, 1)) == 1
    await saver.acopy_thread(1, 2)
    assert len(await whole(saver, "2")) == 1
    await saver.aprune([1, 2], strategy="keep_latest")
    await saver.adelete_thread(1)
    assert await saver.aget_tuple(config("1")) is None
    await saver.aprune([2], strategy="delete")
    assert await saver.aget_tuple(config("2")) is None


async def test_a_config_without_a_thread_is_refused(saver: Any) -> None:
    for bad in ({}, {"configurable": {}}, {"configurable": {"checkpoint_ns": ""}}):
        with pytest.raises(ConfigurationError, match="thread"):
            await saver.aget_tuple(bad)
        with pytest.raises(ConfigurationError, match="thread"):
            await put(saver, at=bad or {"configurable": {}})


async def test_metadata_takes_in_the_scalars_of_the_config_but_not_its_secrets(saver: Any) -> None:
    at = config(user_id="u1", retries=3, ratio=0.5, debug=True, tools=["no scalar"], api_key="sk-1", Token="t")
    at["metadata"] = {"release": "7", "password": "p", "langgraph_step": 9}
    at["configurable"]["__private"] = "never"

    stored = await put(saver, at=at, metadata={"user_id": "of the metadata"})

    assert (await saver.aget_tuple(stored)).metadata == {
        "source": "loop",
        "step": 0,
        "parents": {},
        "user_id": "of the metadata",
        "retries": 3,
        "ratio": 0.5,
        "debug": True,
        "release": "7",
    }
