"""A process that still knows a key after another has destroyed it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stepvault import Vault
from tests.contract.building import config, put
from tests.contract.matrix import KEYRING, Database, SqliteDatabase


@pytest.fixture
async def pair(database: Database, tmp_path: Path) -> AsyncIterator[tuple[Vault, Vault]]:
    """Two processes' vaults."""
    url = f"sqlite:///{database.url}" if isinstance(database, SqliteDatabase) else database.url
    options = {**database.options, "keyring": KEYRING, "subject_patterns": [("people", "{subject}")]}
    async with Vault.open(url, **options) as one, Vault.open(url, **options) as other:
        await one.asetup()
        yield one, other


async def test_memory_of_the_next_thread_of_an_id_can_be_read(pair: tuple[Vault, Vault]) -> None:
    one, other = pair
    notes = (*one.store.thread_scope("t"), "notes")
    for again in range(3):
        deleting, writing = (one, other) if again % 2 else (other, one)
        await put(writing.checkpointer, {"n": again}, at=config("t"))
        await writing.store.aput(notes, "first", {"n": again})
        await deleting.checkpointer.adelete_thread("t")
        await put(writing.checkpointer, {"n": again}, at=config("t"))
        await writing.store.aput(notes, "second", {"n": again})
        await writing.store.aput(notes, "third", {"n": again})
        found = await deleting.store.asearch(notes)
        assert {item.key: item.value for item in found} == {"second": {"n": again}, "third": {"n": again}}


async def test_memory_of_who_comes_back_at_once_can_be_read(pair: tuple[Vault, Vault]) -> None:
    one, other = pair
    place = ("people", "ann", "facts")
    await other.store.aput(place, "before", {"n": 1})
    await one.erasure.aerase("ann")
    await one.erasure.areadmit("ann")
    await other.store.aput(place, "after", {"n": 2})
    assert [item.key for item in await one.store.asearch(place)] == ["after"]
    assert [item.key for item in await other.store.asearch(place)] == ["after"]
