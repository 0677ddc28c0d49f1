"""Keys are linked to the people whose data they seal: an erasure destroys those that are one person's alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from langgraph.store.base import PutOp

from stepvault import Vault
from stepvault.stores._dialect import Find, NewItem, Work
from tests.contract.building import config, put
from tests.contract.matrix import Database
from tests.contract.sealed.raw import Raw
from tests.contract.sealed.test_stores import Vaults


@pytest.fixture
async def vaults(database: Database) -> AsyncIterator[Vaults]:
    vaults = Vaults(database)
    yield vaults
    await vaults.close()


async def keys_of(vault: Vault, *subjects: str) -> dict[str, set[Any]]:
    """Of each: what is linked to them, and whether it is alive."""
    found = {name: await vault.keys.aof(name) for name in subjects}
    return {
        name: {(key.kind, key.subjects, key.wrapped_by is not None) for key in keys} for name, keys in found.items()
    }


async def filled(vaults: Vaults, **options: Any) -> Vault:
    vault = vaults.open(**options)
    await vault.asetup()
    saver = vault.checkpointer
    await put(saver, {"x": 1}, at=config("alone", user_id="ann"))
    head = await put(saver, {"x": 1}, at=config("both", user_id="ann"))
    head["configurable"]["user_id"] = "bob"
    await put(saver, {"x": 2}, at=head)
    await vault.store.aput(("u-ann", "facts"), "k", {"x": 1})
    await vault.store.aput(("u-bob", "facts"), "k", {"x": 1})
    return vault


PATTERNS: Any = [("u-{subject}",)]


@pytest.mark.parametrize("shared", ["keep", "erase"])
async def test_an_erasure_destroys_the_keys_of_one_person_alone(vaults: Vaults, shared: str) -> None:
    vault = await filled(vaults, subject_patterns=PATTERNS)
    assert await keys_of(vault, "ann", "bob") == {
        "ann": {("thread", 1, True), ("thread", 2, True), ("namespace", 1, True)},
        "bob": {("thread", 2, True), ("namespace", 1, True)},
    }
    await vault.erasure.aerase("ann", shared=shared)
    after = await keys_of(vaults.open(subject_patterns=PATTERNS), "ann", "bob")
    if shared == "keep":
        assert after["bob"] == {("thread", 1, True), ("namespace", 1, True)}
        assert after["ann"] == {("thread", 1, False), ("namespace", 1, False)}
        assert (await vault.checkpointer.aget_tuple(config("both"))).checkpoint["channel_values"] == {"x": 2}
    else:
        assert after["bob"] == {("thread", 2, False), ("namespace", 1, True)}
        assert after["ann"] == {("thread", 1, False), ("thread", 2, False), ("namespace", 1, False)}
    assert (await vault.store.aget(("u-bob", "facts"), "k")).value == {"x": 1}


async def test_rows_of_a_backup_stay_shut_once_their_person_was_erased(vaults: Vaults) -> None:
    """A thread that the database has lost is not found by an erasure, its key is; nor can an item come back."""
    vault = await filled(vaults)
    raw = Raw(vault.checkpointer)
    inner = vault.store._scope.core.dialect.inner
    (row,) = (await vault.store._driver.arun(inner.work(b"", Work(gets=[(b"u-ann\0facts\0", b"k")])))).gets
    await raw.do(raw.dialect.delete(await raw.key("alone")))
    await vault.subjects.alink("ann", "u-ann")
    await vault.erasure.aerase("ann")
    assert ("thread", 1, True) not in (await keys_of(vault, "ann"))["ann"]
    back = NewItem(row.ns, row.key, None, None, None, None, None, "", (), row.body)
    await vault.store._driver.arun(inner.work(b"", Work(puts=[back])))
    assert await vault.store.aget(("u-ann", "facts"), "k") is None
    await vault.erasure.areadmit("u-ann")
    await vault.store.aput(("u-ann", "facts"), "k", {"x": 3})
    assert (await vaults.open().store.aget(("u-ann", "facts"), "k")).value == {"x": 3}


async def test_a_key_of_a_thread_that_stays_is_not_destroyed(vaults: Vaults) -> None:
    vault = await filled(vaults)
    keys = vault.checkpointer._core.keys
    await put(vault.checkpointer, {"x": 7}, at=config("nobody's"))
    raw = Raw(vault.checkpointer)
    at = await raw.key("nobody's")
    uid = bytes((await raw.skeleton("nobody's")).thread.uid)
    ((owner),) = {key.owner for key in await vault.keys.aof("ann") if key.subjects == 1 and key.kind == "thread"}
    assert owner != uid.hex()
    from stepvault.checkpointers._ops.subjects import token

    mark = token(vault.checkpointer._scope, "ann")
    await raw.do(keys.link(mark, uid, place=at.thread))  # as a write does that is refused then
    await vault.erasure.aerase("ann")
    again = vaults.open().checkpointer
    assert (await again.aget_tuple(config("nobody's"))).checkpoint["channel_values"] == {"x": 7}
    assert (await again.aget_tuple(config("both"))).checkpoint["channel_values"] == {"x": 2}


async def test_anonymised_threads_keep_their_keys(vaults: Vaults) -> None:
    vault = await filled(vaults)
    await vault.erasure.aanonymise("ann")
    again = vaults.open().checkpointer
    assert (await again.aget_tuple(config("alone"))).checkpoint["channel_values"] == {"x": 1}
    assert not [key for key in await vault.keys.aof("ann") if key.wrapped_by and key.kind == "thread"]


async def test_a_copy_is_linked_as_its_source_is_and_a_join_as_it_happens(vaults: Vaults) -> None:
    vault = await filled(vaults)
    await vault.checkpointer.acopy_thread("both", "copy")
    assert len([key for key in await vault.keys.aof("bob") if key.kind == "thread" and key.subjects == 2]) == 2
    await vault.checkpointer.adelete_thread("copy")
    assert len([key for key in await vault.keys.aof("bob") if key.wrapped_by and key.kind == "thread"]) == 1


async def stored(store: Any, prefix: bytes = b"") -> list[Any]:
    """Rows of items as they are stored."""
    inner = store._scope.core.dialect.inner
    (found,) = (await store._driver.arun(inner.work(b"", Work(finds=[Find(prefix, 1000)])))).finds
    return [hit.row for hit in found]


async def put_back(store: Any, rows: list[Any]) -> None:
    """Rows out of a backup, into the database past every check."""
    inner = store._scope.core.dialect.inner
    back = [NewItem(row.ns, row.key, None, None, None, None, None, "", (), row.body) for row in rows]
    await store._driver.arun(inner.work(b"", Work(puts=back)))


THEIRS = [("u-ann", "facts"), ("u-ann",), ("u-ann", "facts", "deep"), ("memories_of", "ann", "x"), ("of", "ann")]
OTHERS = [("u-bob", "facts"), ("u-ann-2",), ("team", "notes"), ("memories_of", "bob"), ("facts",)]


@pytest.mark.parametrize("hidden", [False, True], ids=["names", "tokens"])
async def test_every_namespace_of_a_person_has_a_key_that_goes_with_them_and_with_nobody_else(
    vaults: Vaults, hidden: bool
) -> None:
    """What a key per person would give: each of theirs is shut by an erasure, and nothing of anybody else."""
    options = {"subject_patterns": [("u-{subject}",), ("of", "{subject}")], "pseudonymise_ids": hidden}
    vault = vaults.open(**options)
    await vault.asetup()
    for namespace in (*THEIRS, *OTHERS):
        for key in ("1", "2"):
            await vault.store.aput(namespace, key, {"in": list(namespace)})
    rows = await stored(vault.store)
    owners = {bytes(row.body[8:24]) for row in rows}
    assert len(owners) == len(THEIRS) + len(OTHERS), "a key for each namespace"
    linked = {name: {key.owner for key in await vault.keys.aof(name)} for name in ("ann", "bob", "ann-2")}
    assert {name: len(found) for name, found in linked.items()} == {"ann": 5, "bob": 2, "ann-2": 1}
    assert len(set.union(*linked.values())) == 8, "no key is two people's"
    await vault.erasure.aerase("ann")
    await put_back(vault.store, rows)
    for reader in (vault.store, vaults.open(**options).store):
        for namespace in THEIRS:
            assert await reader.aget(namespace, "1") is None
            assert await reader.asearch(namespace) == []
        for namespace in OTHERS:
            assert (await reader.aget(namespace, "2")).value == {"in": list(namespace)}
        assert {item.namespace for item in await reader.asearch((), limit=100)} == set(OTHERS)
        if hidden:
            assert await reader.alist_namespaces() == sorted(OTHERS)


async def test_a_pattern_that_came_later_reaches_the_keys_of_what_was_there(vaults: Vaults) -> None:
    before = vaults.open(subject_patterns=PATTERNS)
    await before.asetup()
    await before.store.aput(("of", "ann", "deep"), "k", {"x": 1})
    await before.store.aput(("of", "bob"), "k", {"x": 1})
    rows = await stored(before.store)
    assert await before.keys.aof("ann") == []
    vault = vaults.open(subject_patterns=[*PATTERNS, ("of", "{subject}")])
    await vault.erasure.aerase("ann")
    await put_back(vault.store, rows)
    assert await vault.store.aget(("of", "ann", "deep"), "k") is None
    assert (await vault.store.aget(("of", "bob"), "k")).value == {"x": 1}


async def test_the_memory_of_a_thread_is_shut_with_its_thread(vaults: Vaults) -> None:
    vault = await filled(vaults, subject_patterns=PATTERNS)
    for thread in ("alone", "both"):
        await vault.store.aput((*vault.store.thread_scope(thread), "notes"), "k", {"x": 1})
    rows = [row for row in await stored(vault.store) if row.ns.startswith(b"thread_scope")]
    await vault.erasure.aerase("ann")
    await put_back(vault.store, rows)
    inside = [await vault.store.aget((*vault.store.thread_scope(thread), "notes"), "k") for thread in ("alone", "both")]
    assert inside[0] is None
    assert inside[1].value == {"x": 1}
    await put(vault.checkpointer, {"x": 1}, at=config("alone", user_id="bob"))
    await vault.store.aput((*vault.store.thread_scope("alone"), "notes"), "k", {"x": 2})
    other = vaults.open(subject_patterns=PATTERNS).store
    assert (await other.aget((*other.thread_scope("alone"), "notes"), "k")).value == {"x": 2}


@pytest.mark.parametrize("count", [30, pytest.param(10_000, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])])
async def test_a_person_with_many_namespaces(vaults: Vaults, count: int) -> None:
    vault = vaults.open(subject_patterns=PATTERNS)
    await vault.asetup()
    ops = [PutOp(("u-ann", f"n{number}"), "k", {"x": number}) for number in range(count)]
    for at in range(0, count, 500):
        await vault.store.abatch(ops[at : at + 500])
    await vault.store.aput(("u-bob", "n0"), "k", {"x": 1})
    rows = await stored(vault.store)
    assert len(await vault.keys.aof("ann")) == count
    receipt = await vault.erasure.aerase("ann")
    assert receipt is not None
    assert not any(key.wrapped_by for key in await vault.keys.aof("ann"))
    await put_back(vault.store, rows)
    assert [item.namespace for item in await vault.store.asearch((), limit=10)] == [("u-bob", "n0")]
