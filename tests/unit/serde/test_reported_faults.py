"""Faults reported against LangGraph's savers, each with the value that is right."""

from __future__ import annotations

import ipaddress
import logging
import math
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from stepvault.errors import UnknownTypeError, ValueNotSerializableError
from stepvault.types import TypedSerializer, TypeRegistry
from tests.unit.serde import app_types as app
from tests.unit.serde.comparing import assert_same, difference

SERDE = TypedSerializer()
THEIRS = JsonPlusSerializer()

# Where theirs changes the value or gives up today; should they mend it, the row moves to the others.
CHANGED_BY_THEIRS: dict[str, Any] = {
    "a set of tuples": {(1, 2), (3, ("x",))},
    "a frozenset of tuples": frozenset([(1, 2)]),
    "a bounded deque": deque([1, 2], maxlen=5),
    "a defaultdict": defaultdict(list, a=[1]),
    "an OrderedDict": OrderedDict(b=1, a=2),
    "a Counter": Counter("aab"),
    "an IntEnum": app.Level.HIGH,
    "a str enum": app.Status.OPEN,
    "an int beyond 64 bits": 2**256 + 1,
    "a Fraction": Fraction(1, 3),
    "a complex": 1 - 2j,
    "a range": range(1, 10, 3),
    "a PurePath": PurePosixPath("/a/b"),
    "a generic model": app.Page[int](items=[1]),
    "a tuple": (1, (2, "x")),
    "a tuple as a key's value": {("a", 1): [(1,)]},
    "lone surrogates": "a\ud800b",
    "lone surrogates in a key": {"\udfff": 1},
    "a bytearray": {"a": bytearray(b"x")},
    "an IPv6 scope": ipaddress.ip_address("fe80::1%eth0"),
    "a private attribute": app.Private(n=1),
    "fields set": app.Model(n=1),
    "an enum in a class": app.Outer.Inner.X,
    "a flag": app.Access.READ | app.Access.WRITE,
    "a not idempotent dataclass": app.Derived(2),
    "a not idempotent attrs class": app.FrozenAttr(1),
    "a not idempotent model": app.Growing(text="a"),
    "a numpy scalar": np.float32(1.5),
    "an enum key": {app.Color.RED: 1, app.Level.LOW: 2},
    "a signalling NaN": [Decimal("sNaN")],
    "minus zero keys": {-0.0: 1},
    "a message with a tuple": HumanMessage("x", additional_kwargs={"t": (1,)}),
}


@pytest.mark.parametrize("name", CHANGED_BY_THEIRS)
def test_the_exact_value_comes_back(name: str) -> None:
    value = CHANGED_BY_THEIRS[name]
    for wrapped in (value, [value], {"k": value}, app.Claim(1, items=[value]), HumanMessage("m", surplus=value)):
        assert_same(SERDE.loads_typed(SERDE.dumps_typed(wrapped)), wrapped)


def test_most_of_it_is_changed_by_theirs() -> None:
    """The list above is worth its lines: it is not what everyone does anyway."""
    logging.disable(logging.WARNING)
    try:
        changed = [name for name, value in CHANGED_BY_THEIRS.items() if _theirs_changes([value])]
    finally:
        logging.disable(logging.NOTSET)
    assert len(changed) >= len(CHANGED_BY_THEIRS) * 2 // 3


def _theirs_changes(value: Any) -> bool:
    try:
        return difference(THEIRS.loads_typed(THEIRS.dumps_typed(value)), value) is not None
    except (TypeError, AttributeError):
        return True


@pytest.mark.parametrize("text", ["a\0b", "\0", "\ud83d\ude00", "\U0001f600", "é", "e\u0301", "\u2028"])
def test_text_is_unchanged(text: str) -> None:
    for value in (text, {text: text}, HumanMessage(text) if text.isprintable() else [text]):
        assert_same(SERDE.loads(SERDE.dumps(value)), value)


def test_floats_without_a_json_form() -> None:
    value = [math.nan, math.inf, -math.inf, -0.0, 5e-324]
    assert_same(SERDE.loads(SERDE.dumps(value)), value)


def test_a_type_that_is_gone_is_an_error_not_a_dict() -> None:
    registry = TypeRegistry()
    registry.register(app.Claim, name="renamed-away")
    data = TypedSerializer(registry=registry).dumps({"claims": [app.Claim(1)]})
    with pytest.raises(UnknownTypeError, match="renamed-away"):
        SERDE.loads(data)


def test_a_frame_like_object_is_refused_and_a_codec_can_be_registered() -> None:
    class Frame:
        def __init__(self, columns: dict[str, list[int]]) -> None:
            self.columns = columns

    with pytest.raises(ValueNotSerializableError, match="register"):
        SERDE.dumps(Frame({"a": [1]}))
    known = TypedSerializer(types=[Frame])
    assert known.loads(known.dumps(Frame({"a": [1]}))).columns == {"a": [1]}


def test_data_like_an_envelope_stays_data() -> None:
    value = {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "HumanMessage"], "kwargs": {"content": "x"}}
    assert_same(SERDE.loads(SERDE.dumps(value)), value)


def test_messages_of_every_path() -> None:
    value = {"messages": [HumanMessage("x")], "nested": {"m": (HumanMessage("y"),)}}
    assert_same(SERDE.loads(SERDE.dumps(value)), value)
