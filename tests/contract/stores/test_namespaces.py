"""Prefixes are of whole labels, labels are data, and every verb checks them alike."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

STRANGE = [
    "acme",
    "acme-corp",
    "a%",
    "a_",
    "_",
    "%",
    "*x",
    "a'b",
    'a"b',
    "\\",
    "ä",
    "\ud800",
    "[a]",
    "?",
    " ",
    "\x01",
    "😀",
]


async def test_a_prefix_matches_whole_labels(store: Any) -> None:
    for label in STRANGE:
        await store.aput(("tenant", label), "k", {"l": label})
        await store.aput(("tenant", label, "deep"), "k", {"l": label})
    for label in STRANGE:
        found = await store.asearch(("tenant", label), limit=100)
        assert [item.value for item in found] == [{"l": label}] * 2
        assert await store.alist_namespaces(prefix=("tenant", label)) == [("tenant", label), ("tenant", label, "deep")]
    assert len(await store.asearch(("tenant",), limit=100)) == 2 * len(STRANGE)
    assert await store.asearch(("ten",)) == []
    assert await store.asearch(("TENANT",)) == []


BAD: list[Any] = [("a.b",), ("",), ("a", ""), ("a\0",), (1,), ("a", None), "abc"]


async def test_every_verb_refuses_bad_labels(store: Any) -> None:
    def calls(bad: Any) -> list[Any]:
        return [
            lambda: store.aput(bad, "k", {}),
            lambda: store.aget(bad, "k"),
            lambda: store.adelete(bad, "k"),
            lambda: store.asearch(bad),
            lambda: store.adelete_namespace(bad),
            lambda: store.abatch([PutOp(bad, "k", {})]),
            lambda: store.abatch([PutOp(bad, "k", None)]),
            lambda: store.abatch([GetOp(bad, "k")]),
            lambda: store.abatch([SearchOp(bad)]),
            lambda: store.abatch([ListNamespacesOp(match_conditions=(MatchCondition("prefix", bad),))]),
            lambda: store.abatch([ListNamespacesOp(match_conditions=(MatchCondition("suffix", bad),))]),
        ]

    for bad in BAD:
        for call in calls(bad):
            with pytest.raises(InvalidNamespaceError):
                await call()


async def test_roots_that_items_cannot_have(store: Any) -> None:
    for bad in ((), ("langgraph",), ("langgraph", "x")):
        with pytest.raises(InvalidNamespaceError):
            await store.aput(bad, "k", {})
        with pytest.raises(InvalidNamespaceError):
            await store.abatch([PutOp(bad, "k", {})])
        assert await store.aget(bad, "k") is None


async def test_listing(store: Any) -> None:
    for namespace in [
        ("a", "b", "c"),
        ("a", "b", "d", "e"),
        ("a", "b", "d", "i"),
        ("a", "b", "f"),
        ("a", "c", "f"),
        ("z",),
    ]:
        await store.aput(namespace, "k", {})
        await store.aput(namespace, "l", {})
    assert await store.alist_namespaces(prefix=("a", "b"), max_depth=3) == [
        ("a", "b", "c"),
        ("a", "b", "d"),
        ("a", "b", "f"),
    ]
    assert await store.alist_namespaces(suffix=("f",)) == [("a", "b", "f"), ("a", "c", "f")]
    assert await store.alist_namespaces(prefix=("a", "*", "f")) == [("a", "b", "f"), ("a", "c", "f")]
    assert await store.alist_namespaces(prefix=("*",), suffix=("*", "i")) == [("a", "b", "d", "i")]
    assert await store.alist_namespaces(prefix=("a",), limit=2, offset=1) == [
        ("a", "b", "d", "e"),
        ("a", "b", "d", "i"),
    ]
    assert await store.alist_namespaces(max_depth=1) == [("a",), ("z",)]
    assert await store.alist_namespaces(limit=0) == []
    assert await store.alist_namespaces(prefix=("a", "b", "c", "d", "e")) == []


async def test_an_emptied_namespace_is_not_listed(store: Any) -> None:
    await store.aput(("a", "b"), "k", {})
    await store.adelete(("a", "b"), "k")
    assert await store.alist_namespaces() == []


LABELS = st.sampled_from(["a", "ab", "b", "%", "_", "\ud800"])
PATTERN = st.lists(st.one_of(LABELS, st.just("*")), max_size=3).map(tuple)


@settings(
    max_examples=25,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
async def test_listing_as_the_in_memory_store_does(store: Any, data: st.DataObject) -> None:
    names = [
        ("a",),
        ("a", "b"),
        ("a", "ab"),
        ("ab",),
        ("ab", "%"),
        ("_", "a", "b"),
        ("%", "a", "b", "\ud800"),
        ("a", "b", "a"),
    ]
    oracle = InMemoryStore()
    for name in names:
        oracle.put(name, "k", {})
    if not await store.asearch(()):
        await store.abatch([PutOp(name, "k", {}) for name in names])
    asked = {
        "prefix": data.draw(PATTERN),
        "suffix": data.draw(PATTERN),
        "max_depth": data.draw(st.sampled_from([None, 1, 2, 3])),
        "limit": data.draw(st.integers(0, 10)),
        "offset": data.draw(st.integers(0, 5)),
    }
    assert await store.alist_namespaces(**asked) == oracle.list_namespaces(**asked)
