"""Tokens: whoever matches has them, whatever the types."""

from __future__ import annotations

import enum
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.store.memory import _compare_values

from stepvault.errors import ConfigurationError
from stepvault.stores._ops.filters import compile_filter, required_tokens, same, tokens_of


class Level(enum.IntEnum):
    LOW = 1


class Name(str, enum.Enum):
    ADA = "ada"


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=True), st.decimals(allow_nan=True), st.fractions(),
    st.text(), st.sampled_from([Level.LOW, Name.ADA, np.float64(1.0), np.int64(1), Decimal("sNaN")]),
)  # fmt: skip
VALUES = st.recursive(
    st.dictionaries(st.text(max_size=3), SCALARS, max_size=3),
    lambda inner: st.dictionaries(st.text(max_size=3), st.one_of(SCALARS, inner), max_size=3),
    max_leaves=6,
)


def has_all(value: Any, wanted: Any) -> bool:
    held = tokens_of(value)
    if held is None:
        return True
    each = {held[at : at + 8] for at in range(0, len(held), 8)}
    return set(required_tokens(wanted)) <= each


@given(value=VALUES, wanted=VALUES)
def test_what_matches_has_the_tokens(value: Any, wanted: Any) -> None:
    test = compile_filter(wanted) if not any("$" in key for key in keys_in(wanted)) else None
    if test is not None and test(value):
        assert has_all(value, wanted)


def keys_in(value: Any) -> list[str]:
    if not isinstance(value, dict):
        return []
    return [*value, *(key for field in value.values() for key in keys_in(field))]


@given(value=VALUES)
def test_a_value_matches_its_own_fields(value: Any) -> None:
    for key, field in value.items():
        if "." in key or "$" in key or any("$" in inner for inner in keys_in(field)):
            continue
        if same(field, field):
            assert has_all(value, {key: field})
            assert has_all(value, {key: {"$eq": field}}) or isinstance(field, dict)


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (1, 1.0, True), (1, True, False), (1, Decimal(1), True), (Fraction(1, 2), 0.5, True), (Level.LOW, 1, True),
        (Name.ADA, "ada", True), (np.int64(3), 3, True), ("1", 1, False), (None, None, True), (None, 0, False),
        ((1, 2), [1, 2], True), ({"a": 1}, {"a": 1.0}, True), ({"a": 1}, {"a": 1, "b": 2}, False),
        (b"x", b"x", True), (b"x", "x", False), (float("nan"), float("nan"), False),
        (np.array([1, 2]), np.array([1, 2]), False), ({1}, {1}, True), (2**70, float(2**70), True),
        (2**70 + 1, float(2**70), False),
    ],
)  # fmt: skip
def test_equality(a: Any, b: Any, equal: bool) -> None:
    assert same(a, b) is same(b, a) is equal
    if equal:
        assert has_all({"k": a}, {"k": b})
        assert has_all({"k": b}, {"k": a})


PLAIN = st.recursive(
    st.one_of(st.integers(-3, 3), st.text(max_size=2), st.floats(allow_nan=False, allow_infinity=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)),
    max_leaves=5,
)
FILTER = st.recursive(
    st.dictionaries(st.sampled_from("ab"), PLAIN, max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


@given(value=st.dictionaries(st.sampled_from("ab"), PLAIN, max_size=2), wanted=FILTER)
def test_plain_filters_mean_what_they_mean_to_the_in_memory_store(value: Any, wanted: Any) -> None:
    """Lists apart: there a list of objects is a list of filters; with us a list equals a list."""
    if "[" in repr(wanted):
        return
    test = compile_filter(wanted)
    theirs = all(_compare_values(value.get(key), condition) for key, condition in wanted.items())
    assert (test is None or test(value)) == theirs


def test_empty_and_wrong_filters() -> None:
    assert compile_filter(None) is compile_filter({}) is None
    for wrong in ([], "x", {1: 2}, {"a": {"$in": []}}, {"a": {"$eq": 1, "b": 2}}):
        if wrong == [] or wrong:
            with pytest.raises(ConfigurationError):
                compile_filter(wrong)  # type: ignore[arg-type]
