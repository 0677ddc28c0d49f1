"""What migrations make of channel values, writes and inputs, and what they refuse."""

from __future__ import annotations

import copy
import dataclasses
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.types import Send
from pydantic import BaseModel, ConfigDict, field_validator
from typing_extensions import TypedDict

from stepvault._core.evolution import Evolution
from stepvault._core.record import Record, Write, decode_record, decode_writes, encode_record, encode_writes
from stepvault.errors import ConfigurationError, StateInvalidError


def rename(values: dict[str, Any]) -> dict[str, Any]:
    if "name" in values:
        values["customer"] = values.pop("name")
    return values


def split(values: dict[str, Any]) -> dict[str, Any]:
    if "customer" in values:
        values["first"], _, values["last"] = values.pop("customer").partition(" ")
    values.setdefault("lang", "en")
    return values


def number(values: dict[str, Any]) -> dict[str, Any]:
    values["log"] = [f"{place}" for place, _ in enumerate(values.get("log", []))]
    return values


def evolution(*steps: Any, schema: Any = None) -> Evolution:
    return Evolution.of(len(steps) + 1, dict(enumerate(steps, 1)), schema, None)


def test_values_go_version_by_version_and_control_channels_stay() -> None:
    values = {"name": "Ada L", "branch:to:ask": None, "join:a+b:c": {"a"}}

    assert evolution(rename, split).migrated(copy.deepcopy(values), None) == {
        "first": "Ada",
        "last": "L",
        "lang": "en",
        "branch:to:ask": None,
        "join:a+b:c": {"a"},
    }
    assert evolution(rename, split).migrated({"customer": "Ada L"}, 2)["last"] == "L"
    assert evolution(rename).migrated({"branch:to:ask": None}, None) == {"branch:to:ask": None}


@pytest.mark.parametrize(
    ("channel", "value", "written"),
    [
        ("name", "Bo B", [("first", "Bo"), ("last", "B")]),
        ("name", "Ada L", [("first", "Ada"), ("last", "L"), ("lang", "en")]),  # what is there already
        ("other", 7, [("other", 7)]),
        ("branch:to:ask", None, [("branch:to:ask", None)]),
        ("__interrupt__", ["?"], [("__interrupt__", ["?"])]),
        ("__pregel_tasks", Send("n", {"name": "Bo B"}), [("__pregel_tasks", Send("n", {"first": "Bo", "last": "B"}))]),
        ("__pregel_tasks", Send("n", "name"), [("__pregel_tasks", Send("n", "name"))]),
    ],
)
def test_a_write_becomes_what_it_changes(channel: str, value: Any, written: list[tuple[str, Any]]) -> None:
    values = {"name": "Ada L", "other": 1}

    found = evolution(rename, split).write(channel, value, values, None)

    assert sorted(found, key=str) == sorted(written, key=str)
    assert values == {"name": "Ada L", "other": 1}


def test_an_update_of_a_list_is_migrated_like_a_list() -> None:
    assert evolution(number).write("log", ["x", "y", "z"], {"log": ["a"]}, None) == [("log", ["0", "1", "2"])]


def test_inputs_and_sends_are_migrated_with_the_values() -> None:
    values = {"__start__": {"name": "Ada L"}, "__pregel_tasks": [Send("n", {"name": "Bo B"}), Send("n", 1)]}

    found = evolution(rename).migrated(values, None)

    assert found == {
        "__start__": {"customer": "Ada L"},
        "__pregel_tasks": [Send("n", {"customer": "Bo B"}), Send("n", 1)],
    }


def test_versions_that_do_not_fit_are_named() -> None:
    late = Evolution.of(3, {2: rename}, None, None)

    assert not late.is_stale(3)
    assert late.is_stale(2)
    with pytest.raises(StateInvalidError, match=r"version 1.*state_version=3.*from 1 to 2"):
        late.is_stale(None)
    with pytest.raises(StateInvalidError, match=r"version 4, newer.*state_version=3"):
        late.is_stale(4)
    with pytest.raises(StateInvalidError, match=r"version 2, newer.*state_version=none"):
        Evolution().check_writable(2)
    assert not Evolution().is_stale(9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, None, None, None), "state_version must be"),
        ((True, None, None, None), "state_version must be"),
        ((None, {1: rename}, None, None), "needs state_version"),
        ((2, {2: rename}, None, None), "raise state_version to 3"),
        ((2, {"1": rename}, None, None), "dict of functions"),
        ((2, {1: "fn"}, None, None), "dict of functions"),
        ((2, [rename], None, None), "dict of functions"),
        ((None, None, None, ["ask"]), "dict of node names"),
        ((None, None, int, None), "pydantic model, dataclass or TypedDict"),
        ((None, None, "State", None), "must be a class"),
        ((None, None, None, {"a": 1}), "dict of node names"),
        ((None, None, None, {"a": "b", "b": "a"}), "circle"),
    ],
)
def test_options_that_do_not_fit_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Evolution.of(*arguments)


@pytest.mark.parametrize(
    "broken",
    [
        lambda values: None,
        lambda values: values["nothing"],
        lambda values: {1: 2},
        lambda values: {**values, "branch:to:ask": None},
    ],
)
def test_a_migration_that_fails_is_named(broken: Any) -> None:
    with pytest.raises(StateInvalidError, match=r"state_migrations\[1\]"):
        evolution(broken).migrated({"name": "Ada"}, None)


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")

    count: int
    secret: str = ""

    @field_validator("secret")
    @classmethod
    def short(cls, value: str) -> str:
        if len(value) > 5:
            raise ValueError(f"{value} is long")
        return value


class Opaque:
    pass


class Keys(TypedDict):
    messages: Annotated[list[AnyMessage], "reducer"]
    opaque: Opaque
    numbers: list[int]


@dataclasses.dataclass
class Data:
    count: int


@pytest.mark.parametrize(
    ("schema", "values", "wrong"),
    [
        (Model, {"count": 1, "branch:to:x": None, "private": 1}, None),
        (Model, {"count": "hunter2"}, r"Model at count \(int_parsing\)"),
        (Model, {}, r"Model at count \(missing\)"),
        (Model, {"count": 1, "secret": "hunter2"}, r"Model at secret \(value_error\)"),
        (Keys, {"messages": [HumanMessage("hi")], "opaque": Opaque()}, None),
        (Keys, {}, None),
        (Keys, {"messages": ["hunter2"]}, r"Keys at messages \(TypeError\)"),
        (Keys, {"numbers": [1, "hunter2"]}, r"Keys at numbers\.1 \(int_parsing\)"),
        (Keys, {"opaque": "hunter2"}, r"Keys at opaque \(is_instance_of\)"),
        (Data, {"count": 1}, None),
        (Data, {"count": []}, r"Data at count \(int_type\)"),
    ],
)
def test_a_schema_names_the_path_and_never_the_value(schema: Any, values: Any, wrong: str | None) -> None:
    check = Evolution.of(None, None, schema, None).schema
    assert check is not None
    if wrong is None:
        check.check(values, begun=True)
        return
    with pytest.raises(StateInvalidError, match=wrong) as caught:
        check.check(values, begun=True)
    assert "hunter2" not in str(caught.value)


def test_a_thread_that_has_not_begun_need_not_be_complete() -> None:
    check = Evolution.of(None, None, Model, None).schema
    assert check is not None
    check.check({}, begun=False)


@given(st.none() | st.integers(1, 2**40), st.integers(0, 9))
def test_records_and_writes_keep_the_version_and_cost_nothing_without(version: int | None, tick: int) -> None:
    record = Record(4, "2026-01-02T03:04:05+00:00", state_version=version)
    writes = [Write(0, "log", b"\x01")]

    assert decode_record(encode_record(record)).state_version == version
    found = decode_writes(encode_writes("path", writes, tick, version))
    assert (found.tick, found.state_version) == (tick, version)
    if version is None:
        assert len(encode_writes("path", writes)) < len(encode_writes("path", writes, 0, 1))
