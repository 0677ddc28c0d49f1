"""Names and ids of renamed nodes, against the ids that LangGraph itself gives."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Send

from stepvault._core.renames import Aliases, Clues, Place, interrupt_id, recognise, renamed
from tests.contract.evolution.deploying import SHAPES


class Recording(InMemorySaver):
    """Keeps the paths of tasks, which the memory saver does not give back."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: dict[str, str] = {}

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self.paths[task_id] = task_path
        super().put_writes(config, writes, task_id, task_path)


@pytest.mark.parametrize("shape", ["the node that asks", "both", "a node that is sent to", "a function", "its task"])
def test_every_task_of_a_real_graph_is_recognised(shape: str) -> None:
    build, names, _ = SHAPES[shape]
    saver = Recording()
    config: Any = {"configurable": {"thread_id": "t"}}
    build(saver).invoke({"log": []}, config)
    head = saver.get_tuple(config)
    assert head is not None
    checkpoint = head.checkpoint
    place = Place(checkpoint["id"], checkpoint["v"], head.metadata["step"] + 1)
    sends = checkpoint["channel_values"].get("__pregel_tasks") or []
    clues = Clues(sends, checkpoint["channel_versions"], [*names, *names.values(), "charge"])

    for task_id, channel, value in head.pending_writes or []:
        task = recognise(place, "", task_id, saver.paths[task_id], clues)
        assert task is not None
        if channel == "__interrupt__":
            assert value[0].id == interrupt_id(task.ns, 0)
        again = renamed(
            Aliases.of({new: old for old, new in names.items()}), place, "", renamed(Aliases.of(names), place, "", task)
        )
        assert again == task


def test_channels_and_what_they_hold_follow() -> None:
    aliases = Aliases.of({"a": "x", "b": "y", "y": "z"})

    assert aliases.channel("branch:to:b") == "branch:to:z"
    assert aliases.channel("join:a+b+c:a") == "join:x+z+c:x"
    assert aliases.channel("notes:a") == "notes:a"
    assert aliases.value("join:a+b:c", {"a", "b"}) == {"x", "z"}
    assert aliases.value("join:a+b:c", ({"a"}, True)) == ({"x"}, True)
    assert aliases.value("join:a+b:c", "a") == "x"
    assert aliases.value("notes", {"a"}) == {"a"}
    assert aliases.value("__pregel_tasks", [Send("a", 1), Send("c", 2)]) == [Send("x", 1), Send("c", 2)]
    assert aliases.value("__error_source_node__", "b") == "z"
    assert aliases.versions({"branch:to:a": 1, "branch:to:x": 2}) == {"branch:to:x": 2}
    assert aliases.values({"branch:to:x": 2, "branch:to:a": 1}) == {"branch:to:x": 2}
    assert aliases.seen({"a": {"branch:to:a": 1}, "__interrupt__": {"branch:to:b": 2}}) == {
        "x": {"branch:to:x": 1},
        "__interrupt__": {"branch:to:z": 2},
    }
    assert aliases.seen({"__snapshot_bumps__": {"a|branch:to:b": 1, "b:notes": 2}}) == {
        "__snapshot_bumps__": {"x|branch:to:z": 1, "z:notes": 2}
    }
