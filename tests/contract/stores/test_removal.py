"""Whole namespaces and thread scopes go at once, and only they."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.store.base import PutOp

from stepvault.errors import ConfigurationError, IdentifierError


async def test_delete_namespace(store: Any) -> None:
    names = [("users", "ada"), ("users", "ada", "prefs"), ("users", "ada2"), ("users",), ("teams", "ada")]
    await store.abatch([PutOp(name, f"k{number}", {"n": number}) for name in names for number in range(3)])
    assert (await store.adelete_namespace(("users", "ada"))).items == 6
    assert await store.alist_namespaces() == [("teams", "ada"), ("users",), ("users", "ada2")]
    assert (await store.adelete_namespace(("users", "ada"))).items == 0
    assert (await store.adelete_namespace(("users",))).items == 6
    assert [item.namespace for item in await store.asearch((), limit=50)] == [("teams", "ada")] * 3
    with pytest.raises(ConfigurationError, match="label"):
        await store.adelete_namespace(())


async def test_a_large_namespace(store: Any) -> None:
    await store.abatch([PutOp(("big", "x"), f"k{number}", {"n": number}) for number in range(2500)])
    await store.aput(("big", "y"), "k", {"n": 0})
    assert (await store.adelete_namespace(("big", "x"))).items == 2500
    assert len(await store.asearch((), limit=5000)) == 1


async def test_a_thread_has_memory_of_its_own(store: Any) -> None:
    for thread_id in ("t.1", "t", "", "a\0b", "\ud800", "t%2E1", 7):
        scope = store.thread_scope(thread_id)
        await store.aput(scope, "k", {"t": str(thread_id)})
        await store.aput((*scope, "notes"), "k", {"t": str(thread_id)})
    assert store.thread_scope(7) == store.thread_scope("7")
    assert len(await store.alist_namespaces(max_depth=2)) == 7
    assert (await store.adelete_thread_scope("t.1")).items == 2
    assert await store.asearch(store.thread_scope("t.1")) == []
    assert len(await store.asearch(store.thread_scope("t"))) == 2
    with pytest.raises(IdentifierError):
        store.thread_scope(None)


async def test_the_memory_of_many_threads_goes_together(store: Any) -> None:
    threads = [f"t{i}" for i in range(600)]
    for thread_id in ("t7", "t70", "t599", "t6000"):
        scope = store.thread_scope(thread_id)
        await store.aput(scope, "k", {"t": thread_id})
        await store.aput((*scope, "notes"), "k", {"t": thread_id})

    assert (await store.adelete_thread_scope(*threads, "t7")).items == 6
    assert (await store.adelete_thread_scope(*threads)).items == 0
    assert (await store.adelete_thread_scope()).items == 0
    assert {item.value["t"] for item in await store.asearch(())} == {"t6000"}
    await store.aput(store.thread_scope("t70"), "k", {"t": "again"})
    assert len(await store.alist_namespaces()) == 3
