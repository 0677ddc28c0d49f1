"""Expired items are gone at once, for every verb; reading an item can move its deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from langgraph.store.base import GetOp, PutOp

from stepvault.errors import ConfigurationError

NS = ("short", "lived")
BRIEF = 0.002  # minutes: 120 ms
PAST = 0.15  # seconds after which that is over, whatever the machine does


async def gone(store: Any, key: str = "k", namespace: Any = NS) -> None:
    """Wait until an item has expired, without reading its way past the deadline."""
    while await store.aget(namespace, key, refresh_ttl=False) is not None:
        await asyncio.sleep(0.02)


async def test_an_expired_item_does_not_exist(store: Any) -> None:
    await store.aput(NS, "k", {"v": 1, "text": "word"}, ttl=BRIEF)
    await store.aput(("other",), "k", {"v": 1})
    await gone(store)
    assert await store.asearch(NS) == []
    assert await store.asearch(NS, filter={"v": 1}) == []
    assert await store.asearch(NS, query="word") == []
    assert [item.namespace for item in await store.asearch(())] == [("other",)]
    assert await store.alist_namespaces() == [("other",)]
    assert await store.abatch([GetOp(NS, "k")]) == [None]
    assert (await store.adelete_namespace(("short",))).items == 0


async def test_what_replaces_an_expired_item_is_new(store: Any) -> None:
    await store.aput(NS, "k", {"v": 1}, ttl=BRIEF)
    first = await store.aget(NS, "k", refresh_ttl=False)
    await gone(store)
    await store.aput(NS, "k", {"v": 2})
    second = await store.aget(NS, "k")
    assert second.value == {"v": 2}
    assert first is None or second.created_at > first.created_at


async def test_a_put_without_ttl_takes_the_deadline_away(store: Any) -> None:
    await store.aput(NS, "k", {"v": 1}, ttl=BRIEF)
    await store.aput(NS, "k", {"v": 2})
    await asyncio.sleep(PAST)
    assert (await store.aget(NS, "k")).value == {"v": 2}
    assert await store.asweep_ttl() == 0


async def outlives(store: Any, read: Callable[[], Awaitable[bool]]) -> None:
    """`read` keeps `kept` alive until `left`, put at the same time with the same ttl, is gone.

    A pause of this process longer than the ttl ends both and shows nothing: then it starts again.
    """
    ttl = 0.01  # minutes: 600 ms
    while True:
        await store.abatch([PutOp(NS, "kept", {"v": 1}, ttl=ttl), PutOp(("unread",), "left", {"v": 1}, ttl=ttl)])
        longest, last = 0.0, time.monotonic()
        while await store.aget(("unread",), "left", refresh_ttl=False) is not None:
            found = await read()
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
            assert found or longest > 0.3
            await asyncio.sleep(0.05)
        kept = await store.aget(NS, "kept", refresh_ttl=False)
        longest = max(longest, time.monotonic() - last)
        if kept is not None:
            return
        assert longest > 0.3


async def test_reading_moves_the_deadline_where_it_is_asked_for(store: Any) -> None:
    async def read() -> bool:
        return await store.aget(NS, "kept", refresh_ttl=True) is not None

    await outlives(store, read)


async def test_searching_moves_deadlines_by_default(stores: Any) -> None:
    store = await stores.open(ttl={"default_ttl": 5})

    async def read() -> bool:
        return len(await store.asearch(NS)) == 1

    await outlives(store, read)


async def test_refresh_on_read_can_be_off(stores: Any) -> None:
    store = await stores.open(ttl={"default_ttl": BRIEF, "refresh_on_read": False})
    await store.aput(NS, "k", {"v": 1})
    for _ in range(200):
        if not (await store.asearch(NS) or await store.aget(NS, "k")):
            break
        await asyncio.sleep(0.02)
    assert await store.aget(NS, "k") is None


async def test_the_default_and_none(stores: Any) -> None:
    store = await stores.open(ttl={"default_ttl": BRIEF})
    await store.aput(NS, "default", {"v": 1})
    await store.aput(NS, "never", {"v": 1}, ttl=None)
    await gone(store, "default")
    assert (await store.aget(NS, "never")).value == {"v": 1}


async def test_a_sweep_removes_and_counts(store: Any) -> None:
    puts = [PutOp(("a", str(number % 5)), str(number), {"v": number}, ttl=BRIEF) for number in range(30)]
    await store.abatch([*puts, PutOp(NS, "kept", {"v": 1}, ttl=60), PutOp(NS, "immortal", {"v": 1})])
    await gone(store, "29", ("a", "4"))
    await gone(store, "0", ("a", "0"))
    assert await store.asweep_ttl() == 30
    assert await store.asweep_ttl() == 0
    assert {item.key for item in await store.asearch(())} == {"kept", "immortal"}


async def test_a_wrong_ttl_is_refused(store: Any) -> None:
    for wrong in (-1, float("inf"), "soon", 1e12):
        with pytest.raises(ConfigurationError):
            await store.aput(NS, "k", {"v": 1}, ttl=wrong)


async def test_a_wrong_ttl_setting_is_refused(stores: Any) -> None:
    with pytest.raises(ConfigurationError, match="ttl key"):
        stores.raw(ttl={"defaultttl": 1})


async def test_the_sweeper_sweeps(stores: Any) -> None:
    store = stores.raw(ttl={"default_ttl": BRIEF, "sweep_interval_minutes": 0.001})
    await stores.named(store).asetup()
    await stores.named(store).aput(NS, "k", {"v": 1})
    future = store.start_ttl_sweeper()
    assert store.start_ttl_sweeper() is future
    await gone(stores.named(store))
    assert await asyncio.to_thread(store.stop_ttl_sweeper, 30)
    assert future.done()
    await stores.named(store).asweep_ttl()
    restarted = store.start_ttl_sweeper()
    restarted.cancel()
    assert await asyncio.to_thread(store.stop_ttl_sweeper, 30)


async def test_without_a_ttl_there_is_nothing_to_sweep(stores: Any) -> None:
    store = stores.raw()
    assert store.start_ttl_sweeper().done()
    assert store.stop_ttl_sweeper()
