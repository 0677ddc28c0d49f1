"""Keys are linked to the people whose data they seal: an erasure destroys those that are one person's alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from stepvault import Vault
from stepvault.stores._dialect import NewItem, Work
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
