"""What only Redis does: clients, clusters, groups and their registry, old servers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis
from langgraph.store.base import GetOp, PutOp

from stepvault.errors import ConfigurationError, EventLoopError
from stepvault.stores.redis import RedisStore
from stepvault.stores.redis.aio import AsyncRedisStore
from tests.contract.stores.embedding import DIMS, embed

pytestmark = pytest.mark.xdist_group("redis")

NS = ("a", "b")
INDEX: dict[str, Any] = {"dims": DIMS, "embed": embed, "fields": ["text"]}


def test_official_constructor_forms(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        store = RedisStore(client, ttl={"default_ttl": 10}, store_prefix="mine", vector_prefix="vectors")
        store.setup()
        store.put(NS, "k", {"v": 1})
        store.close()
        assert RedisStore(redis_client=client, prefix="mine").get(NS, "k") is not None
        assert all(key.startswith(b"mine:") for key in client.scan_iter())
    with RedisStore.from_conn_string(redis_url, prefix="mine") as store:
        assert store.get(NS, "k") is not None
    with pytest.raises(ConfigurationError):
        RedisStore()
    with pytest.raises(ConfigurationError, match="prefix"):
        RedisStore(redis_url, prefix="{x}")


async def test_official_async_forms(redis_url: str) -> None:
    async with AsyncRedisStore.from_conn_string(redis_url, index=INDEX) as store:
        await store.setup()
        await store.aput(NS, "k", {"text": "c1 i1"})
        assert [item.key for item in await store.asearch(NS, query="c1 i1")] == ["k"]
        with pytest.raises(EventLoopError):
            store.get(NS, "k")
        assert (await asyncio.to_thread(store.get, NS, "k")).key == "k"


def test_nothing_is_left_of_what_is_deleted(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client, RedisStore.from_conn_string(redis_url, index=INDEX) as store:
        store.batch([PutOp(("users", f"u{n % 7}", "x"), f"k{n}", {"text": f"c1 i{n}"}, ttl=60) for n in range(100)])
        assert len(store.search(("users",), limit=1000)) == 100
        assert store.delete_namespace(("users",)) == (100, 100)
        store.sweep_ttl()
        assert set(client.scan_iter()) == {b"stepvault:st:index"}
        store.put(("users", "u1"), "k", {"text": "c1 i1"})
        assert len(store.search(("users",))) == 1


def test_expired_groups_leave_nothing(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client, RedisStore.from_conn_string(redis_url) as store:
        store.for_tenant("blue").put(NS, "k", {"text": "word"}, ttl=0)
        assert store.sweep_ttl() == 1
        assert list(client.scan_iter()) == []


def test_on_a_cluster(redis_cluster: Any) -> None:
    with RedisStore.from_conn_string(redis_cluster.url, cluster_mode=True, index=INDEX) as store:
        names = [(("users", f"u{number % 20}"), f"k{number}") for number in range(100)]
        store.batch(
            [PutOp(*name, {"text": f"c{number % 20} i{number}", "n": number}) for number, name in enumerate(names)]
        )
        assert [item.value["n"] for item in store.batch([GetOp(*name) for name in names])] == list(range(100))
        assert len(store.search((), limit=1000)) == 100
        assert len(store.list_namespaces(prefix=("users",))) == 20
        assert store.search(("users",), query="c3 i3", limit=1)[0].key == "k3"
        assert store.reindex() == 100
        assert store.delete_namespace(("users",)).items == 100
        assert store.list_namespaces() == []


def test_on_the_oldest_redis(redis62_server: Any) -> None:
    with RedisStore.from_conn_string(redis62_server.url, index=INDEX) as store:
        store.put(NS, "k", {"text": "c1 i1", "v": 1}, ttl=10)
        assert store.search(NS, query="c1 i1", filter={"v": 1})[0].key == "k"
        assert store.search(NS, query="c1", mode="text")[0].key == "k"
        assert store.get(NS, "k").value["v"] == 1
        assert store.delete_namespace(("a",)) == (1, 1)


def test_scripts_survive_a_flush(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client, RedisStore.from_conn_string(redis_url) as store:
        store.put(NS, "k", {"v": 1})
        client.script_flush()
        store.put(NS, "k", {"v": 2})
        assert store.get(NS, "k").value == {"v": 2}
