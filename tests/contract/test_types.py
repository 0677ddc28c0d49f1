"""Types across savers: an allowlist given to a clone, types given to a saver, and who may revive what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from stepvault.errors import UnknownTypeError
from tests.contract.building import put
from tests.contract.matrix import Database


@dataclass
class Claim:
    number: int
    notes: list[str]


class Person(BaseModel):
    name: str


VALUE = {"claim": Claim(7, ["a" * 300]), "person": Person(name="Ada")}


async def value(saver: Any, stored: Any) -> Any:
    return (await saver.aget_tuple(stored)).checkpoint["channel_values"]


async def test_plain_data_of_imported_modules_is_revived(saver: Any) -> None:
    stored = await put(saver, VALUE)

    assert await value(saver, stored) == VALUE


async def test_a_closed_saver_names_the_type_and_where_it_is(database: Database) -> None:
    stored = await put(await database.saver(), VALUE)
    closed = await database.saver(unknown_types="refuse")

    with pytest.raises(UnknownTypeError, match=r"Thread 't', checkpoint .*channel 'claim'.*Claim"):
        await closed.aget_tuple(stored)


async def test_registered_types_are_revived_by_a_closed_saver(database: Database) -> None:
    stored = await put(await database.saver(types=[Claim, Person]), VALUE)
    closed = await database.saver(types=[Claim, Person], unknown_types="refuse")

    assert await value(closed, stored) == VALUE


async def test_an_allowlist_opens_a_clone_and_only_that(database: Database) -> None:
    closed = await database.saver(unknown_types="refuse")
    stored = await put(await database.saver(), VALUE)
    clone = closed.with_allowlist([(Claim.__module__, "Claim"), (Person.__module__, "Person")])

    assert await value(clone, stored) == VALUE
    with pytest.raises(UnknownTypeError):
        await closed.aget_tuple(stored)


async def test_a_clone_works_on_the_same_threads(saver: Any) -> None:
    clone = saver.with_allowlist([(Claim.__module__, "Claim")])
    stored = await put(saver, {"items": ["x" * 500, "y" * 500]})
    child = await put(clone, {"items": ["x" * 500, "y" * 500, "z" * 500]}, at=stored)
    await saver.aput_writes(child, [("items", ["x" * 500])], "task")

    assert await value(saver, child) == await value(clone, child) == {"items": ["x" * 500, "y" * 500, "z" * 500]}
    assert len((await clone.aget_tuple(child)).pending_writes) == 1
    await clone.adelete_thread("t")
    assert await saver.aget_tuple(child) is None


async def test_a_clone_keeps_its_tenant(database: Database) -> None:
    clone = (await database.saver(tenant="one")).with_allowlist([("a", "B")])
    stored = await put(clone, {"a": 1})

    assert clone.for_tenant("two") is not clone
    assert await clone.for_tenant("two").aget_tuple(stored) is None
    assert await value(clone.for_tenant("one"), stored) == {"a": 1}
