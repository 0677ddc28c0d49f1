"""One filter grammar: typed, exact, deep, and never raising for what an item happens to hold."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.store.base import PutOp

from stepvault.errors import ConfigurationError
from stepvault.stores._ops.filters import compile_filter

NS = ("items",)
MOMENT = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)

VALUES: dict[str, Any] = {
    "int": {"v": 1},
    "float": {"v": 1.0},
    "decimal": {"v": Decimal(1)},
    "true": {"v": True},
    "text": {"v": "1"},
    "none": {"v": None},
    "missing": {"w": 1},
    "big": {"v": 2**80},
    "bigger": {"v": 2**80 + 1},
    "tenth": {"v": Fraction(1, 10)},
    "nan": {"v": float("nan")},
    "list": {"v": [1, {"a": 2}]},
    "tuple": {"v": (1, {"a": 2.0})},
    "object": {"v": {"a": 1, "b": {"c": "x"}}},
    "moment": {"v": MOMENT},
    "naive": {"v": dt.datetime(2026, 1, 1)},
    "bytes": {"v": b"1"},
    "dotted": {"v.a": 1},
    "number key": {1: "one", "v": "n"},
    "surrogate": {"v": "\ud800"},
}

ONE = {"int", "float", "decimal"}
PRESENT = set(VALUES) - {"missing", "dotted"}

CASES: list[tuple[Any, set[str]]] = [
    ({"v": 1}, ONE),
    ({"v": {"$eq": 1.0}}, ONE),
    ({"v": Decimal("1.00")}, ONE),
    ({"v": True}, {"true"}),
    ({"v": "1"}, {"text"}),
    ({"v": None}, {"none"}),
    ({"v": {"$ne": 1}}, PRESENT - ONE),
    ({"v": {"$ne": None}}, PRESENT - {"none"}),
    ({"v": 2**80}, {"big"}),
    ({"v": float(2**80)}, {"big"}),
    ({"v": {"$gt": 2**80}}, {"bigger"}),
    ({"v": {"$gte": 2**80}}, {"big", "bigger"}),
    ({"v": {"$gt": 1}}, {"big", "bigger"}),
    ({"v": {"$lt": 1}}, {"tenth"}),
    ({"v": {"$lte": 1, "$gt": 0.5}}, ONE),
    ({"v": {"$gte": "1"}}, {"text", "number key", "surrogate"}),
    ({"v": {"$lt": "2"}}, {"text"}),
    ({"v": {"$gte": MOMENT}}, {"moment"}),
    ({"v": {"$lt": dt.datetime(2027, 1, 1)}}, {"naive"}),
    ({"v": {"$gt": b"0"}}, {"bytes"}),
    ({"v": {"$gt": None}}, set()),
    ({"v": {"$gt": [0]}}, set()),
    ({"v": {"$gte": True}}, set()),
    ({"v": float("nan")}, set()),
    ({"v": [1, {"a": 2}]}, {"list", "tuple"}),
    ({"v": {"$eq": [1, {"a": 2}]}}, {"list", "tuple"}),
    ({"v": [1]}, set()),
    ({"v": {"$ne": [1, {"a": 2}]}}, PRESENT - {"list", "tuple"}),
    ({"v": {"a": 1}}, {"object"}),
    ({"v": {"a": {"$gte": 1}, "b": {"c": "x"}}}, {"object"}),
    ({"v": {"$eq": {"a": 1}}}, set()),
    ({"v": {"$eq": {"b": {"c": "x"}, "a": 1}}}, {"object"}),
    ({"v": {}}, {"object"}),
    ({"v.a": 1}, {"object", "dotted"}),
    ({"v.b.c": {"$ne": "y"}}, {"object"}),
    ({"v": "\ud800"}, {"surrogate"}),
    ({"v": 1, "w": 1}, set()),
    ({"w": 1}, {"missing"}),
    ({"x": {"$ne": 1}}, set()),
    ({}, set(VALUES)),
]


async def test_the_grammar(store: Any) -> None:
    await store.abatch([PutOp(NS, key, value) for key, value in VALUES.items()])
    for wanted, expected in CASES:
        found = await store.asearch(NS, filter=wanted, limit=100)
        assert {item.key for item in found} == expected, wanted


async def test_wrong_filters_are_refused(store: Any) -> None:
    for wrong in ({"v": {"$in": [1]}}, {"v": {"$gt": 1, "a": 2}}, {"a": {"b": {"$x": 1}}}, {1: 2}, [("v", 1)]):
        with pytest.raises(ConfigurationError):
            await store.asearch(NS, filter=wrong)


async def test_a_filter_reads_on_until_it_has_enough(store: Any) -> None:
    await store.abatch([PutOp(NS, f"k{number}", {"n": number, "even": number % 2 == 0}) for number in range(1200)])
    found = await store.asearch(NS, filter={"n": {"$lt": 7}}, limit=5)
    assert [item.value["n"] for item in found] == [6, 5, 4, 3, 2]
    found = await store.asearch(NS, filter={"n": {"$lt": 7}}, limit=5, offset=5)
    assert [item.value["n"] for item in found] == [1, 0]
    found = await store.asearch(NS, filter={"even": True, "n": {"$gte": 0}}, limit=1000)
    assert [item.value["n"] for item in found] == list(range(1198, -1, -2))
    assert [item.value["n"] for item in await store.asearch(NS, filter={"n": 3})] == [3]


async def test_more_scalars_than_are_indexed(store: Any) -> None:
    await store.aput(NS, "wide", {f"f{number}": number for number in range(200)})
    await store.aput(NS, "narrow", {"f7": 7})
    assert {item.key for item in await store.asearch(NS, filter={"f7": 7})} == {"wide", "narrow"}
    assert [item.key for item in await store.asearch(NS, filter={"f199": 199})] == ["wide"]
    assert await store.asearch(NS, filter={"f7": 8}) == []


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from([0.5, 1.0, 2**70, -0.0, float("inf")]),
    st.sampled_from(["", "a", "1", "\ud800"]), st.just(Decimal("0.5")),
)  # fmt: skip
DEEP = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["a", "b", "a.b"]), inner, max_size=2)
    ),
    max_leaves=4,
)
VALUE = st.dictionaries(st.sampled_from(["a", "b", "a.b"]), DEEP, max_size=3)
OPERATOR = st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"])
CONDITION = st.one_of(SCALARS, DEEP, st.dictionaries(OPERATOR, DEEP, min_size=1, max_size=2))
FILTER = st.dictionaries(st.sampled_from(["a", "b", "a.b"]), CONDITION, max_size=2)


@settings(
    max_examples=30,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(values=st.lists(VALUE, max_size=8), filters=st.lists(FILTER, max_size=4))
async def test_the_database_narrows_without_losing_anything(store: Any, values: list[Any], filters: list[Any]) -> None:
    before = await store.asearch(NS, limit=100)
    puts = [PutOp(NS, str(number), value) for number, value in enumerate(values)]
    await store.abatch([PutOp(NS, item.key, None) for item in before] + puts)
    for wanted in filters:
        test = compile_filter(wanted)
        expected = {str(number) for number, value in enumerate(values) if test is None or test(value)}
        assert {item.key for item in await store.asearch(NS, filter=wanted, limit=100)} == expected
