"""What goes in comes out: the same value of the same type, wherever it stands."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepvault._core.serde.wire import array_header, map_header
from stepvault.types import TypedSerializer
from tests.unit.serde.comparing import assert_same
from tests.unit.serde.strategies import BLOCKS, anything, atoms, clean, messages, objects, values

SERDE = TypedSerializer()
QUICK = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
THOROUGH = settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))


@given(anything)
@THOROUGH
def test_any_value_comes_back(value: Any) -> None:
    data = SERDE.dumps(value)
    back = SERDE.loads(data)
    assert_same(back, value)
    assert SERDE.dumps(back) == data


@given(atoms | values)
@THOROUGH
def test_each_value_type_comes_back(value: Any) -> None:
    tag, data = SERDE.dumps_typed(value)
    assert_same(SERDE.loads_typed((tag, data)), value)


@given(objects(atoms | values))
@QUICK
def test_objects_come_back(value: Any) -> None:
    assert_same(SERDE.loads(SERDE.dumps(value)), value)


@given(st.lists(anything, max_size=4))
@QUICK
def test_a_list_is_its_header_and_its_items(items: list[Any]) -> None:
    parts = b"".join(SERDE.dumps(item) for item in items)
    assert SERDE.dumps(items) == array_header(len(items)) + parts
    assert_same(SERDE.loads(array_header(len(items)) + parts), items)


@given(
    st.dictionaries(
        clean | st.integers(-9, 9) | st.booleans() | st.none() | st.binary(max_size=3), anything, max_size=4
    )
)
@QUICK
def test_a_plain_dict_is_its_header_keys_and_values(value: dict[Any, Any]) -> None:
    parts = b"".join(SERDE.dumps(k) + SERDE.dumps(v) for k, v in value.items())
    assert SERDE.dumps(value) == map_header(len(value)) + parts
    assert_same(SERDE.loads(map_header(len(value)) + parts), value)


@pytest.mark.parametrize("size", [0, 15, 16, 65535, 65536, 70000])
def test_headers_of_any_size(size: int) -> None:
    assert SERDE.dumps([None] * size) == array_header(size) + b"\xc0" * size
    value = {str(n): n for n in range(size)}
    assert SERDE.dumps(value).startswith(map_header(size))
    assert SERDE.loads(SERDE.dumps(value)) == value


@given(st.lists(st.integers(0, 9), max_size=5).flatmap(st.permutations))
@QUICK
def test_equal_sets_give_equal_bytes(items: list[int]) -> None:
    one = {(n, str(n)) for n in items}
    other = {(n, str(n)) for n in reversed(items)}
    assert SERDE.dumps(one) == SERDE.dumps(other)


def test_type_and_order_change_the_bytes() -> None:
    kinds: list[Any] = [
        1,
        True,
        1.0,
        "1",
        b"1",
        [1],
        (1,),
        {1},
        frozenset([1]),
        {1: 1},
        -0.0,
        0.0,
        None,
        0,
        False,
    ]
    assert len({SERDE.dumps(kind) for kind in kinds}) == len(kinds)
    assert SERDE.dumps({"a": 1, "b": 2}) != SERDE.dumps({"b": 2, "a": 1})


@given(messages(atoms))
@QUICK
def test_a_message_is_dumped_alike_alone_and_in_a_list(message: Any) -> None:
    assert SERDE.dumps([message]) == array_header(1) + SERDE.dumps(message)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: str(block["type"]))
def test_content_blocks(block: dict[str, Any]) -> None:
    from langchain_core.messages import AIMessage, HumanMessage

    for cls in (HumanMessage, AIMessage):
        message = cls(content=[block])
        assert_same(SERDE.loads(SERDE.dumps(message)), message)
