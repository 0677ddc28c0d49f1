"""Docs: changed together or not at all, whatever others do at the same time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepvault._core.rows import DocChange
from tests.contract.matrix import Database, matrix

SPACE = b"a space\x00"


@pytest.fixture
async def docs(database: Database) -> Any:
    saver = await database.raw()
    return Docs(saver)


class Docs:
    def __init__(self, saver: Any) -> None:
        self._saver = saver

    async def write(self, *changes: DocChange) -> bool:
        return bool(await self._saver._driver.arun(self._saver._core.dialect.write_docs(SPACE, changes)))

    async def found(self) -> dict[bytes, bytes]:
        docs = await self._saver._driver.arun(self._saver._core.dialect.docs(SPACE, b"", b"", 100))
        return {bytes(doc.key): bytes(doc.body) for doc in docs}

    async def oldest(self, prefix: bytes, limit: int) -> list[bytes]:
        dialect = self._saver._core.dialect
        docs = await self._saver._driver.arun(dialect.docs(SPACE, prefix, b"", limit, oldest=True))
        return [bytes(doc.key) for doc in docs]


SETTINGS = matrix(("async",))


@pytest.mark.parametrize("database", SETTINGS, indirect=True)
async def test_several_are_replaced_together_or_not_at_all(docs: Docs) -> None:
    keys = [b"a", b"b", b"c"]
    assert await docs.write(*(DocChange(key, b"one", b"1", None) for key in keys))
    assert not await docs.write(*(DocChange(key, b"x", b"2", None) for key in (b"d", b"a")))
    assert await docs.found() == dict.fromkeys(keys, b"one")
    second = [DocChange(key, b"two" + key, b"2", b"1") for key in keys]
    assert await docs.write(*second)
    assert await docs.found() == {key: b"two" + key for key in keys}
    assert not await docs.write(*(change._replace(expected=b"2", version=b"3") for change in second[:2]), second[2])
    assert not await docs.write(*second[:2], DocChange(b"e", b"new", b"1", None))
    assert not await docs.write(DocChange(b"a", None, b"", b"2"), *second[1:])
    assert await docs.found() == {key: b"two" + key for key in keys}
    third = [DocChange(key, b"three", b"3", b"2") for key in keys[1:]]
    assert await docs.write(*third, DocChange(b"a", None, b"", b"2"), DocChange(b"e", b"new", b"1", None))
    assert await docs.found() == {b"b": b"three", b"c": b"three", b"e": b"new"}


@pytest.mark.parametrize("database", SETTINGS, indirect=True)
async def test_of_many_that_replace_the_same_one_succeeds(docs: Docs) -> None:
    keys = [bytes((number,)) for number in range(20)]
    assert await docs.write(*(DocChange(key, b"0", b"0", None) for key in keys))
    tries = [
        docs.write(*(DocChange(key, b"%d" % one, b"%d" % one, b"0") for key in (keys if one % 2 else keys[::-1])))
        for one in range(1, 9)
    ]
    done = await asyncio.gather(*tries)
    assert done.count(True) == 1
    assert set((await docs.found()).values()) == {b"%d" % (done.index(True) + 1)}


@pytest.mark.parametrize("database", SETTINGS, indirect=True)
async def test_all_are_met_oldest_first_page_by_page(docs: Docs) -> None:
    written = [b"p%03d" % (number * 37 % 101) for number in range(101)]
    for key in [b"o", *written, b"q"]:
        assert await docs.write(DocChange(key, b"x", b"1", None))
    met: list[bytes] = []
    while page := await docs.oldest(b"p", 7):
        assert len(page) == min(7, len(written) - len(met))
        met += page
        assert await docs.write(*(DocChange(key, None, b"") for key in page))
    assert sorted(met) == sorted(written)
    assert set(await docs.found()) == {b"o", b"q"}
