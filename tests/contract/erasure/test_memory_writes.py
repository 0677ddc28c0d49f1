"""Memory of a person who was erased: what is put late is refused, in the write itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import PutOp

from stepvault import Memories, Vault
from stepvault.checkpointers._ops.subjects import token
from stepvault.errors import SubjectErasedError
from tests.contract.matrix import Database, InThreads, SqliteDatabase

HERS = [("users", "ann"), ("ann",), ("a", "b", "ann", "c")]
NOT_HERS = [("users", "ann-2"), ("users", "an"), ("annex", "bob")]


class Vaults:
    """Vaults over one database, called as the test is."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._opened: list[Vault] = []

    def open(self, **options: Any) -> Vault:
        url = self._database.url
        chosen = {**self._database.options, **options}
        chosen.pop("cluster_mode", None)
        vault = Vault.open(f"sqlite:///{url}" if isinstance(self._database, SqliteDatabase) else url, **chosen)
        self._opened.append(vault)
        return vault

    def named(self, what: Any) -> Any:
        return InThreads(what) if self._database.mode == "sync" else what

    async def close(self) -> None:
        for vault in self._opened:
            await vault.aclose()


@pytest.fixture
async def vaults(database: Database) -> AsyncIterator[Vaults]:
    vaults = Vaults(database)
    yield vaults
    await vaults.close()


async def test_a_late_put_is_refused_whole(vaults: Vaults, database: Database) -> None:
    vault = vaults.open()
    store, erasure = vaults.named(vault.store), vaults.named(vault.erasure)
    for namespace in (*HERS, *NOT_HERS):
        await store.aput(namespace, "k", {"n": 1})
    assert (await erasure.aerase("ann")).counts == {"items": len(HERS)}

    elsewhere = vaults.named(vaults.open().store)
    for namespace in HERS:
        with pytest.raises(SubjectErasedError):
            await elsewhere.aput(namespace, "k", {"n": 2})
        await elsewhere.adelete(namespace, "k")
    memories = vaults.named(Memories(vault.store))
    with pytest.raises(SubjectErasedError):
        await memories.aupsert("likes tea", user="ann", scope=("office",))
    bobs = [PutOp(("users", "bob"), "k", {"n": 1}), PutOp(NOT_HERS[0], "k", None)]
    with pytest.raises(SubjectErasedError):
        await store.abatch([*bobs, PutOp(HERS[0], "k", {"n": 2})])
    crowd = [PutOp(("crowd", f"{n}"), "k", {"n": n}) for n in range(30)]
    with pytest.raises(SubjectErasedError):
        await store.abatch([*crowd, PutOp(HERS[0], "k", {"n": 2})])
    assert sorted(await store.alist_namespaces()) == sorted(NOT_HERS)
    assert b"users\0ann\0" not in database.content()
    other = vaults.named(vault.for_tenant("other").store)
    await other.aput(HERS[0], "k", {"n": 1})

    await erasure.areadmit("ann")
    for namespace in HERS:
        await elsewhere.aput(namespace, "k", {"n": 3})
    assert (await store.aget(HERS[0], "k")).value == {"n": 3}


async def test_patterns_say_what_is_refused(vaults: Vaults) -> None:
    vault = vaults.open(subject_patterns=[("users", "u-{subject}")])
    store = vaults.named(vault.store)
    await vaults.named(vault.erasure).aerase("ann")
    with pytest.raises(SubjectErasedError):
        await store.aput(("users", "u-ann", "facts"), "k", {"n": 1})
    with pytest.raises(SubjectErasedError):
        await vaults.named(Memories(vault.store)).aupsert("likes tea", user="ann")
    await store.aput(("users", "ann"), "k", {"n": 1})


async def test_no_item_survives_writers_that_race_with_the_erasure(vaults: Vaults) -> None:
    vault, other = vaults.open(), vaults.open()
    store, late = vaults.named(vault.store), vaults.named(other.store)
    for n in range(3):
        await store.aput(("users", "ann", f"{n}"), "k", {"n": n})

    async def write(number: int) -> int:
        for n in range(10_000):
            try:
                await late.aput(("ann", f"{number} {n % 7}", f"{n}"), f"k{n}", {"n": n})
            except SubjectErasedError:
                return n
        return -1

    writers = [asyncio.create_task(write(number)) for number in range(4)]
    await asyncio.sleep(0.1)
    await vaults.named(vault.erasure).aerase("ann")
    assert min(await asyncio.gather(*writers)) >= 0
    assert await store.alist_namespaces() == []


async def test_an_erasure_that_was_stopped_before_it_told_the_store(
    vaults: Vaults, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = vaults.open(), vaults.open()
    await vaults.named(first.store).aput(HERS[0], "k", {"n": 1})

    def stop(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(first.store, "mark_erased", stop)
        patched.setattr(first.store, "amark_erased", stop)
        with pytest.raises(KeyboardInterrupt):
            await first.erasure.aerase("ann")
    await vaults.named(second.store).aput(HERS[1], "k", {"n": 1})  # the door is not shut yet
    (done,) = await vaults.named(second.erasure).aresume()
    assert done.state == "receipted"
    assert done.counts == {"items": 2}
    with pytest.raises(SubjectErasedError):
        await vaults.named(first.store).aput(HERS[0], "k", {"n": 2})


async def test_reconciling_refuses_again(vaults: Vaults, tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    vault = vaults.open(journal=journal)
    await vaults.named(vault.erasure).aerase("ann")
    restored = vault.for_tenant("restored")  # as a database that never knew of the erasure
    await vaults.named(restored.store).aput(HERS[0], "k", {"n": 1})
    scope = restored.checkpointer._scope
    line = {**json.loads(journal.read_text()), "tenant": scope.tenant.hex(), "token": token(scope, "ann").hex()}
    journal.write_text(json.dumps(line) + "\n")
    (done,) = await vaults.named(restored.erasure).areconcile()
    assert done.counts == {"items": 1}
    with pytest.raises(SubjectErasedError):
        await vaults.named(restored.store).aput(HERS[0], "k", {"n": 1})

    await vaults.named(restored.store).amark_erased([token(scope, "ann")], erased=False)  # as if it had been lost
    assert await vaults.named(restored.erasure).areconcile() == []
    with pytest.raises(SubjectErasedError):
        await vaults.named(restored.store).aput(HERS[0], "k", {"n": 1})
