"""What a saver was given and what it gave are copies: changing them changes nothing that is stored."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage

from tests.contract.building import checkpoint, config, listed, put, whole


def state() -> dict[str, Any]:
    """Values of each stored form: small, split, long, whole."""
    return {
        "small": [1, {"a": [2]}],
        "items": [{"n": i, "text": "x" * 200} for i in range(30)],
        "dict": {f"k{i}": ["y" * 100] for i in range(30)},
        "messages": [AIMessage("hi", id="1", additional_kwargs={"a": [1]})],
        "set": {1, 2},
        "bytes": bytearray(b"z" * 300),
    }


def spoil(values: dict[str, Any]) -> None:
    values["small"][1]["a"].append("spoilt")
    values["items"][3]["text"] = "spoilt"
    values["items"].append("spoilt")
    values["dict"]["k1"].append("spoilt")
    values["dict"]["new"] = "spoilt"
    values["messages"][0].content = "spoilt"
    values["messages"][0].additional_kwargs["a"].append("spoilt")
    values["set"].add("spoilt")
    values["bytes"].extend(b"spoilt")
    values["new"] = "spoilt"


async def test_changing_what_was_stored_changes_nothing(saver: Any) -> None:
    given = checkpoint(state(), versions_seen={"node": {"a": "1"}}, updated_channels=["a"])
    metadata = {"source": "loop", "tags": ["one"]}
    stored = await saver.aput(config(), given, metadata, given["channel_versions"])
    writes: list[Any] = list(state().items())
    await saver.aput_writes(stored, writes, "task")

    spoil(given["channel_values"])
    spoil(dict(writes))
    writes.append(("new", 1))
    given["channel_versions"]["small"] = "spoilt"
    given["versions_seen"]["node"]["a"] = "spoilt"
    given["updated_channels"].append("spoilt")  # type: ignore[union-attr]
    metadata["tags"].append("spoilt")  # type: ignore[attr-defined]

    found = await saver.aget_tuple(stored)
    assert found.checkpoint["channel_values"] == state()
    assert found.checkpoint["channel_versions"] == dict.fromkeys(state(), "00000001")
    assert found.checkpoint["versions_seen"] == {"node": {"a": "1"}}
    assert found.checkpoint["updated_channels"] == ["a"]
    assert found.metadata == {"source": "loop", "tags": ["one"]}
    assert [(channel, value) for _, channel, value in found.pending_writes] == list(state().items())


async def test_changing_what_was_got_changes_nothing(saver: Any) -> None:
    stored = await put(saver, state(), metadata={"tags": ["one"]})
    await saver.aput_writes(stored, list(state().items()), "task")
    first = await whole(saver)

    for found in (await saver.aget_tuple(stored), *await listed(saver, config())):
        spoil(found.checkpoint["channel_values"])
        spoil({channel: value for _, channel, value in found.pending_writes})
        found.pending_writes.clear()
        found.checkpoint["channel_versions"].clear()
        found.checkpoint["versions_seen"]["spoilt"] = {}
        found.metadata["tags"].append("spoilt")
        found.config["configurable"]["thread_id"] = "spoilt"

    assert await whole(saver) == first
    assert first[0].checkpoint["channel_values"] == state()


async def test_a_child_built_on_a_changed_value_leaves_its_parent_alone(saver: Any) -> None:
    stored = await put(saver, state())
    found = (await saver.aget_tuple(stored)).checkpoint["channel_values"]
    spoil(found)
    child = await put(saver, found, at=stored)

    assert (await saver.aget_tuple(stored)).checkpoint["channel_values"] == state()
    assert (await saver.aget_tuple(child)).checkpoint["channel_values"] == found
