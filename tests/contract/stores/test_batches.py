"""A batch reads the state before it, the last put of a key wins, and a mistake in it stops all of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from stepvault.errors import ConfigurationError

NS = ("a", "b")


async def test_reads_see_the_state_before_the_batch(store: Any) -> None:
    await store.aput(NS, "old", {"v": 1})
    results = await store.abatch([
        PutOp(NS, "new", {"v": 2}),
        GetOp(NS, "new"),
        PutOp(NS, "old", {"v": 3}),
        GetOp(NS, "old"),
        SearchOp(("a",)),
        SearchOp(("a",), filter={"v": {"$gt": 2}}),
        PutOp(("c",), "k", {"v": 4}),
        ListNamespacesOp(),
        PutOp(NS, "old", None),
        GetOp(NS, "old"),
    ])  # fmt: skip
    assert results[0] is results[1] is None
    assert results[3].value == results[9].value == {"v": 1}
    assert [item.key for item in results[4]] == ["old"]
    assert results[5] == []
    assert results[7] == [NS]
    assert await store.aget(NS, "old") is None
    assert (await store.aget(NS, "new")).value == {"v": 2}


async def test_the_last_put_of_a_key_wins(store: Any) -> None:
    await store.abatch([PutOp(NS, "k", {"v": number}) for number in range(5)])
    assert (await store.aget(NS, "k")).value == {"v": 4}
    await store.abatch([PutOp(NS, "k", None), PutOp(NS, "k", {"v": 9})])
    assert (await store.aget(NS, "k")).value == {"v": 9}
    await store.abatch([PutOp(NS, "k", {"v": 10}), PutOp(NS, "k", None)])
    assert await store.aget(NS, "k") is None


async def test_a_large_batch(store: Any) -> None:
    names = [(("n", str(number % 7)), f"k{number}") for number in range(1500)]
    await store.abatch([PutOp(*name, {"n": number}) for number, name in enumerate(names)])
    items = await store.abatch([GetOp(*name) for name in names])
    assert [item.value["n"] for item in items] == list(range(1500))
    assert len(await store.asearch(("n",), limit=5000)) == 1500


WRONG: list[Any] = [
    PutOp(NS, "k", {"f": object()}),
    PutOp(("a.b",), "k", {}),
    PutOp(NS, "k", {}, ttl=-1),
    PutOp(NS, "k", {}, ttl=float("nan")),
    PutOp(NS, "k", {}, index="text"),  # type: ignore[arg-type]
    SearchOp(NS, limit=-1),
    SearchOp(NS, offset=-1),
    SearchOp(NS, filter={"v": {"$regex": "x"}}),
    ListNamespacesOp(limit=-1),
    ListNamespacesOp(match_conditions=(MatchCondition("infix", ("a",)),)),  # type: ignore[arg-type]
    "no operation",
]


async def test_a_mistake_stops_the_whole_batch(store: Any) -> None:
    for wrong in WRONG:
        with pytest.raises((ConfigurationError, InvalidNamespaceError, TypeError)):
            await store.abatch([PutOp(NS, "first", {"v": 1}), wrong, PutOp(NS, "last", {"v": 2})])
    assert await store.asearch(()) == []


async def test_an_empty_batch(store: Any) -> None:
    assert await store.abatch([]) == []


LABELS = st.sampled_from(["a", "b", "%", "a_"])
NAMESPACES = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
PREFIXES = st.lists(LABELS, max_size=2).map(tuple)
KEYS = st.sampled_from(["k", "l", "m\0"])
VALUES = st.fixed_dictionaries({"v": st.integers(0, 3)})
OPERATIONS = st.one_of(
    st.tuples(NAMESPACES, KEYS, st.one_of(st.none(), VALUES)).map(lambda drawn: PutOp(*drawn)),
    st.tuples(NAMESPACES, KEYS).map(lambda drawn: GetOp(*drawn)),
    st.tuples(PREFIXES, st.one_of(st.none(), VALUES)).map(lambda drawn: SearchOp(*drawn, limit=1000)),
)


@settings(
    max_examples=12,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(batches=st.lists(st.lists(OPERATIONS, max_size=8), max_size=6))
async def test_batches_as_the_in_memory_store_does_them(store: Any, batches: list[list[Any]]) -> None:
    await store.abatch([PutOp(item.namespace, item.key, None) for item in await store.asearch((), limit=1000)])
    oracle = InMemoryStore()
    for ops in batches:
        ours, theirs = await store.abatch(ops), oracle.batch(ops)
        for op, mine, expected in zip(ops, ours, theirs, strict=True):
            assert told(op, mine) == told(op, expected), op
    # An emptied namespace stays in the list of the in-memory store, so what is left is compared by its items.
    left = {(item.namespace, item.key, item.value["v"]) for item in await store.asearch((), limit=1000)}
    assert left == {(item.namespace, item.key, item.value["v"]) for item in oracle.search((), limit=1000)}


def told(op: Any, result: Any) -> Any:
    """A result without times and without an order that is not promised to be the same."""
    if isinstance(op, SearchOp):
        return sorted((item.namespace, item.key, item.value["v"]) for item in result)
    if isinstance(op, GetOp):
        return None if result is None else (result.namespace, result.key, result.value)
    return result
