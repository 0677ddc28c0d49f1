"""Servers that end or freeze while a store writes batches: a named error, nothing half written, safe to repeat."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from langgraph.store.base import PutOp

from stepvault.errors import StorageUnavailableError
from stepvault.stores.postgres import PostgresStore
from stepvault.stores.redis import RedisStore

BATCH = 40
PLACES = (("a", "x"), ("b", "x"))  # of two groups: on Redis each is whole, on Postgres both are together
IMPATIENT: dict[str, dict[str, Any]] = {
    "postgres": {"statement_timeout": 0.5, "connect_timeout": 2, "pool_timeout": 1},
    "redis": {"connection_args": {"socket_timeout": 0.5, "socket_connect_timeout": 1.0}},
}

pytestmark = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in IMPATIENT],
)


class Writer:
    """Writes batches that carry a number until it meets an error."""

    def __init__(self, store: Any, mode: str) -> None:
        self.store, self.mode = store, mode
        self.told = 0
        self.begun = asyncio.Event()

    async def batch(self, number: int) -> None:
        ops = [PutOp(place, f"k{key}", {"n": number, "text": f"word n{number}"}) for place in PLACES
               for key in range(BATCH)]  # fmt: skip
        await (asyncio.to_thread(self.store.batch, ops) if self.mode == "sync" else self.store.abatch(ops))

    async def work(self) -> None:
        while True:
            await self.batch(self.told + 1)
            self.told += 1
            if self.told == 3:
                self.begun.set()

    async def numbers(self, place: tuple[str, str]) -> set[int]:
        items = await self.store.asearch(place, limit=1000)
        assert len(items) == BATCH
        numbers = {item.value["n"] for item in items}
        assert len(numbers) == 1, "half a batch"
        (number,) = numbers
        assert len(await self.store.asearch(place, query=f"n{number}", limit=1000)) == BATCH
        return numbers


@pytest.mark.parametrize(
    ("end", "mode"),
    [
        ("killed", "async"),
        ("frozen", "sync"),
        pytest.param("killed", "sync", marks=pytest.mark.soak),
        pytest.param("frozen", "async", marks=pytest.mark.soak),
    ],
)
async def test_a_server_lost_in_the_middle_of_batches(
    request: pytest.FixtureRequest, name: str, mode: str, end: str
) -> None:
    url = request.getfixturevalue(f"{name}_url")
    server = request.getfixturevalue("postgres_server" if name == "postgres" else "valkey_server")
    cls: Any = PostgresStore if name == "postgres" else RedisStore
    store = cls.from_conn_string(url if name == "postgres" else server.url, **IMPATIENT[name])
    await store.asetup()
    writer = Writer(store, mode)
    working = asyncio.create_task(writer.work())
    await asyncio.wait_for(writer.begun.wait(), 60)

    await asyncio.to_thread(server.kill if end == "killed" else server.pause)
    with pytest.raises(StorageUnavailableError):
        await asyncio.wait_for(working, 60)
    with pytest.raises(StorageUnavailableError):
        await store.aget(PLACES[0], "k0")
    await asyncio.to_thread(server.start if end == "killed" else server.resume)

    for _ in range(30):  # a pool asks again less and less often, so somebody impatient asks more than once
        with contextlib.suppress(StorageUnavailableError):
            await store.aget(PLACES[0], "k0")
            break
    found = [await writer.numbers(place) for place in PLACES]
    assert {number for numbers in found for number in numbers} <= {writer.told, writer.told + 1}
    assert name == "redis" or found[0] == found[1]
    await writer.batch(writer.told + 1)
    await writer.batch(writer.told + 1)
    assert [await writer.numbers(place) for place in PLACES] == [{writer.told + 1}] * 2
    await store.aclose()
