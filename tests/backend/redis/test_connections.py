"""Ways to connect, both halves, what happens when servers come and go."""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

from stepvault import Vault
from stepvault._drivers.redis_connect import endpoint_of
from stepvault.checkpointers.redis import RedisSaver
from stepvault.checkpointers.redis.aio import AsyncRedisSaver
from stepvault.encryption import Keyring
from stepvault.errors import (
    ConfigurationError,
    EventLoopError,
    StorageCorruptError,
    StorageFullError,
    StorageReadOnlyError,
    StorageUnavailableError,
)
from tests.backend.redis.building import checkpoint, config, ids, put
from tests.contract.lifetime.building import later
from tests.processes import wait_until
from tests.servers import Redis62, RedisCluster, RedisSentinel, Valkey


async def aput(saver: Any, thread: str, number: int, **values: Any) -> None:
    made = checkpoint(number, **values)
    await saver.aput(config(thread), made, {"source": "loop", "step": number}, made["channel_versions"])


@pytest.mark.parametrize(
    ("url", "kind", "hosts"),
    [
        ("redis://localhost:6379/0", "server", ()),
        ("rediss://u:p@h/1", "server", ()),
        ("unix:///run/redis.sock?db=2", "server", ()),
        ("redis+sentinel://:secret@a:1,b/main/3", "sentinel", (("a", 1), ("b", 26379))),
        ("redis+cluster://a:1,[::1]:2", "cluster", (("a", 1), ("::1", 2))),
        ("rediss+cluster://u:p%40@a", "cluster", (("a", 6379),)),
    ],
)
def test_urls(url: str, kind: str, hosts: Any) -> None:
    endpoint = endpoint_of(url, None)
    assert (endpoint.kind, endpoint.hosts) == (kind, hosts)
    assert "secret" not in endpoint.where
    assert endpoint.options["socket_timeout"] > 0


@pytest.mark.parametrize("url", ["redis://h/0", "redis+sentinel://a/main", "redis+cluster://a:1"])
def test_the_query_of_a_url_wins(url: str) -> None:
    endpoint = endpoint_of(f"{url}?socket_timeout=2.5&max_connections=7&client_name=1", {"socket_timeout": 9})
    assert endpoint.options["socket_timeout"] == 2.5
    assert endpoint.limit == 7
    assert endpoint.options["client_name"] == "1"
    for flag in ("True", "1"):
        with pytest.raises(ConfigurationError, match="decode_responses"):
            endpoint_of(f"{url}?decode_responses={flag}", None)


@pytest.mark.parametrize(
    "url", ["http://x", "localhost:6379", "redis+sentinel://h:1", "redis+cluster://", "redis://h:x"]
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"redis\+sentinel://"):
        RedisSaver(url)


def test_arguments_are_checked(valkey_server: Any) -> None:
    for arguments in ({}, {"redis_url": valkey_server.url, "redis_client": redis.Redis()}, {"redis_client": object()}):
        with pytest.raises(ConfigurationError):
            RedisSaver(**arguments)  # type: ignore[arg-type]
    for prefix in ("", "a{b}"):
        with pytest.raises(ConfigurationError, match="prefix"):
            RedisSaver(valkey_server.url, prefix=prefix)
    with pytest.raises(ConfigurationError, match="decode_responses"):
        RedisSaver(valkey_server.url, connection_args={"decode_responses": True})
    for client in (redis.Redis(decode_responses=True), redis.asyncio.Redis(decode_responses=True)):
        with pytest.raises(ConfigurationError, match="decode_responses"):
            RedisSaver(redis_client=client)


async def test_a_given_client_serves_its_half_and_stays_open(any_server: Any) -> None:
    cluster = isinstance(any_server, RedisCluster)
    with (redis.RedisCluster if cluster else redis.Redis).from_url(any_server.url) as client:
        with RedisSaver(redis_client=client) as saver:
            put(saver, "t", 1)
            with pytest.raises(ConfigurationError, match=r"redis_url=.*redis\.asyncio"):
                await saver.aget_tuple(config("t"))
        assert client.ping()
    async with (redis.asyncio.RedisCluster if cluster else redis.asyncio.Redis).from_url(any_server.url) as tasks:
        async with RedisSaver(redis_client=tasks) as saver:
            assert await saver.aget_tuple(config("t"))
            with pytest.raises(ConfigurationError, match=r"redis_url=.*redis\.Redis"):
                saver.get_tuple(config("t"))
        assert await tasks.ping()


def test_official_forms(valkey_server: Any, client: redis.Redis) -> None:
    prefixes = {"checkpoint_prefix": "mine", "checkpoint_write_prefix": "mine_too"}
    with RedisSaver.from_conn_string(redis_client=client, **prefixes) as saver:
        put(saver, "t", 1)
    with RedisSaver.from_conn_string(redis_url=valkey_server.url, prefix="mine") as saver:
        assert len(list(saver.list(config("t")))) == 1
    for either in (RedisSaver, AsyncRedisSaver):
        with pytest.raises(ConfigurationError, match="redis_url= or redis_client="):
            either.from_conn_string()
        with pytest.raises(ConfigurationError, match="decode_responses"):
            either.from_conn_string(redis_client=redis.Redis(decode_responses=True))


async def test_the_async_class_serves_other_threads(any_server: Any) -> None:
    async with AsyncRedisSaver.from_conn_string(any_server.url) as saver:
        await saver.setup()
        await aput(saver, "t", 1)
        assert await asyncio.to_thread(saver.get_tuple, config("t"))
        assert await asyncio.to_thread(saver.rebuild_indexes) == 0
        assert await saver.arebuild_indexes() == 0
        with pytest.raises(EventLoopError):
            saver.get_tuple(config("t"))


ONE_LOOP_AFTER_ANOTHER = """
import asyncio, gc, sys
from stepvault.checkpointers.redis import RedisSaver
from tests.backend.redis.building import ids
from tests.backend.redis.test_connections import aput
saver = RedisSaver(sys.argv[1])
async def work(number):
    await aput(saver, "t", number)
    gc.collect()
for number in range(1, 4):
    asyncio.run(work(number))
print(len(ids(saver, "t")))
saver.close()
"""


def test_a_saver_serves_one_loop_after_another(any_server: Any) -> None:
    """In a process of its own: asyncio warns of what a loop leaves open that ended without `aclose`."""
    words = [sys.executable, "-c", ONE_LOOP_AFTER_ANOTHER, any_server.url]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3])
    assert done.stdout == "3\n"
    assert done.stderr == ""


async def test_many_tasks_on_default_settings(any_server: Any) -> None:
    async with RedisSaver(any_server.url) as saver:

        async def work(thread: int) -> None:
            for number in range(1, 4):
                await aput(saver, f"t{thread}", number, items=list(range(number)))
                assert await saver.aget_tuple(config(f"t{thread}"))

        await asyncio.gather(*map(work, range(150)))
        assert len(await saver.athreads(limit=200)) == 150


async def test_many_tasks_on_one_thread(any_server: Any) -> None:
    async with RedisSaver(any_server.url) as first, RedisSaver(any_server.url) as second:
        await asyncio.gather(*(aput((first, second)[n % 2], "t", n, items=[n]) for n in range(1, 60)))
        found = {entry.checkpoint["id"]: entry async for entry in first.alist(config("t"))}
        assert len(found) == 59
        assert {entry.checkpoint["channel_values"]["items"][0] for entry in found.values()} == set(range(1, 60))


def test_scripts_that_the_server_forgot(any_server: Any, saver: RedisSaver) -> None:
    with RedisSaver(any_server.url) as saver:
        put(saver, "t", 1)
        for node in getattr(any_server, "nodes", None) or [any_server]:
            node.command("SCRIPT", "FLUSH")
        put(saver, "t", 2)
        assert len(saver.threads()) == 1


def test_killed_connections_and_a_restart(valkey_server: Any, saver: RedisSaver, client: redis.Redis) -> None:
    put(saver, "t", 1)
    client.client_kill_filter(_type="normal", skipme=True)
    put(saver, "t", 2)
    valkey_server.kill()
    with pytest.raises(StorageUnavailableError):
        put(saver, "t", 3)
    valkey_server.restart()
    put(saver, "t", 3)
    assert len(ids(saver, "t")) == 3


def test_a_server_that_does_not_answer(valkey_server: Any) -> None:
    with RedisSaver(valkey_server.url, connection_args={"socket_timeout": 0.2}) as saver:
        put(saver, "t", 1)
        valkey_server.pause()
        with pytest.raises(StorageUnavailableError, match="in time"):
            put(saver, "t", 2)
        valkey_server.resume()
        put(saver, "t", 2)


def test_full_memory_stores_nothing() -> None:
    with Valkey("--maxmemory", "8mb") as server, RedisSaver(server.url) as saver:
        put(saver, "small", 1, items=["kept"])
        noise = random.Random(1).randbytes(1 << 20)  # does not compress
        number = 0
        with contextlib.suppress(StorageFullError):
            for number in range(1, 500):
                put(saver, "t", number, items=[noise[n + number :][:5000] for n in range(0, 100_000, 5000)])
        before = ids(saver, "t")
        assert len(before) == number - 1 < 490
        for thread in ("t", "new"):
            with pytest.raises(StorageFullError):
                put(saver, thread, 600, items=[noise])
        assert ids(saver, "t") == before
        assert saver.get_tuple(config("new")) is None
        saver.delete_thread("t")  # memory is given back in the background
        wait_until(lambda: int(server.info("INFO", "memory")["used_memory"]) < 6 << 20, "memory was not freed")
        put(saver, "new", 1, items=["again"])
        assert {info.thread_id for info in saver.threads()} == {"small", "new"}


@pytest.mark.parametrize("server_class", [Valkey, Redis62])
def test_an_upload_that_fills_the_memory_gives_it_back(server_class: Any) -> None:
    if server_class is Redis62 and (reason := Redis62.reason_missing()):
        pytest.skip(reason)
    with server_class("--maxmemory", "8mb") as server, RedisSaver(server.url) as saver:
        put(saver, "old", 1, items=["kept"])
        pieces = [random.Random(number).randbytes(2000) for number in range(6000)]
        for number, thread in enumerate(("old", "new", "old")):
            with pytest.raises(StorageFullError):
                put(saver, thread, 10 + number, items=pieces)
            put(saver, "old", 20 + number, items=["more"])
        assert saver.get_tuple(config("new")) is None
        assert len(ids(saver, "old")) == 4


def test_a_key_of_somebody_else(saver: RedisSaver, client: redis.Redis) -> None:
    put(saver, "t", 1)
    (key,) = client.keys("stepvault:ck:*")
    client.delete(key)
    client.set(key, "theirs")
    for call in (lambda: put(saver, "t", 2), lambda: saver.get_tuple(config("t")), lambda: saver.delete_thread("t")):
        with pytest.raises(StorageCorruptError, match=key.decode()):
            call()
    assert client.get(key) == b"theirs"


def test_permissions_and_passwords(valkey_server: Any, client: redis.Redis) -> None:
    client.execute_command("ACL", "SETUSER", "weak", "on", ">pw", "~*", "+@all", "-evalsha", "-eval")
    url = valkey_server.url.replace("redis://", "redis://weak:{}@")
    with RedisSaver(url.format("pw")) as saver, pytest.raises(ConfigurationError, match="permit"):
        put(saver, "t", 1)
    with RedisSaver(url.format("wrong")) as saver, pytest.raises(ConfigurationError, match="password"):
        put(saver, "t", 1)
    client.execute_command("ACL", "DELUSER", "weak")


NEEDED = (
    "+evalsha +eval +hmget +hget +hset +hdel +hexists +hstrlen +hkeys +hincrby +hscan +exists +unlink "
    "+persist +pexpire +pexpireat +time "
    "+zadd +zrem +zremrangebylex +zscore +zmscore +zrevrangebyscore +zrangebylex +scan +ping +info"
)


async def test_the_documented_commands_are_enough(valkey_server: Any, client: redis.Redis, caplog: Any) -> None:
    client.execute_command("ACL", "SETUSER", "app", "on", ">pw", "~stepvault:*", *NEEDED.split())
    with RedisSaver(valkey_server.url.replace("redis://", "redis://app:pw@"), ttl={"default_ttl": 60}) as saver:
        saver.setup()
        assert "maxmemory-policy" in caplog.text
        put(saver, "t", 1, metadata={"run_id": "r"}, items=[f"{n}" * 300 for n in range(4000)])
        saver.put_writes(config("t", checkpoint(1)["id"]), [("items", 1)], "task")
        saver.copy_thread("t", "u")
        put(saver, "t", 2)
        saver.prune(["t"])
        assert len(saver.threads()) == 2
        saver.rebuild_indexes()
        saver.delete_for_runs(["r"])
        saver.delete_thread("t")
        await saver.aclose()
    client.execute_command("ACL", "DELUSER", "app")


FURTHER = "+sadd +smembers +sismember +smismember +srem +sscan +zcard +zcount +zrange +zrangebyscore +zrevrange"


@pytest.mark.parametrize("sealed", [False, True])
def test_the_documented_commands_are_enough_for_erasures(
    valkey_server: Any, client: redis.Redis, tmp_path: Path, sealed: bool
) -> None:
    """What the role may not do is in the receipt, and stops nothing."""
    client.execute_command("ACL", "SETUSER", "app", "on", ">pw", "~stepvault:*", *NEEDED.split(), *FURTHER.split())
    options: dict[str, Any] = {"journal": tmp_path / "journal", "vacuum": True}
    if sealed:
        options["keyring"] = Keyring.generate()
    with Vault.open(valkey_server.url.replace("redis://", "redis://app:pw@"), **options) as vault:
        put(vault.checkpointer, "t", 1)
        vault.checkpointer.put(config("hers", user_id=["ann", "bob"]), checkpoint(1), {"source": "loop"}, {})
        vault.store.put(("users", "ann"), "k", {"likes": "tea"})
        assert len(vault.store.search(("users",), filter={"likes": "tea"})) == 1
        vault.subjects.link("ann", "a-17")
        vault.erasure.hold("ann", "case 7")
        vault.erasure.release("ann")
        done = vault.erasure.erase("a-17", shared="anonymise", plan=vault.erasure.plan("a-17"))
        assert done.counts == {"anonymised": 1, "items": 1}
        assert [step.done for step in done.purge] == [False] * 3
        assert [one.state for one in vault.erasure.resume()] == ["receipted"]
        assert vault.erasure.reconcile() == []
        vault.erasure.readmit("ann")
        vault.sweep()
        vault.health()
    client.execute_command("ACL", "DELUSER", "app")


def test_prefixes_do_not_meet(valkey_server: Any, client: redis.Redis) -> None:
    with RedisSaver(valkey_server.url, prefix="a") as a, RedisSaver(valkey_server.url, prefix="a*?[x]") as b:
        put(a, "t", 1, metadata={"run_id": "r"})
        put(b, "u", 1, metadata={"run_id": "r"})
        client.delete(*client.keys("*:ix:*"))
        assert (a.rebuild_indexes(), b.rebuild_indexes()) == (2, 2)
        assert ids(a, None) == ids(b, None)
        a.delete_for_runs(["r"])
        assert (len(a.threads()), len(b.threads())) == (0, 1)
        b.delete_thread("u")
        assert client.keys() == []


def test_a_sweep_finds_tenants_that_were_lost(valkey_server: Any, client: redis.Redis) -> None:
    with RedisSaver(valkey_server.url, ttl={"default_ttl": 60}) as saver:
        put(saver.for_tenant("acme"), "t", 1)
        client.delete(*client.keys("*:ix:*"))
        later(saver, 61)
        assert saver.sweep().threads == 0
        saver.rebuild_indexes()
        assert [saver.sweep().threads for _ in range(2)] == [1, 0]
        assert client.keys() == []


def test_eviction_policies(caplog: Any) -> None:
    with Valkey("--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru") as server:
        with RedisSaver(server.url) as saver, pytest.raises(ConfigurationError, match="noeviction"):
            saver.setup()
        with RedisSaver(server.url, allow_eviction=True) as saver:
            saver.setup()
        assert "allkeys-lru" in caplog.text
        server.command("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
        with Vault.open(server.url) as vault:
            (warning,) = vault.health().warnings
            assert "native_grace" not in warning
        with Vault.open(server.url, ttl={"default_ttl": 60}) as vault:
            vault.setup()
            assert "native_grace_minutes" in caplog.text
            (warning,) = vault.health().warnings
            assert "native_grace_minutes" in warning
        server.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
        with Vault.open(server.url) as vault:
            assert vault.health().warnings == ()


@pytest.mark.parametrize("ttl", [None, {"default_ttl": 60}])
def test_slot_migration(ttl: Any, redis_cluster: RedisCluster) -> None:
    with RedisSaver(redis_cluster.url, ttl=ttl) as saver, redis.RedisCluster.from_url(redis_cluster.url) as client:
        put(saver, "t", 1, items=[1])
        (key,) = [key for node in redis_cluster.nodes for key in node.command("KEYS", "stepvault:ck:*")]
        slot = client.keyslot(key)
        source = next(node for node in redis_cluster.nodes if node.command("KEYS", key))
        target = next(node for node in redis_cluster.nodes if node is not source)
        source_id, target_id = source.command("CLUSTER", "MYID"), target.command("CLUSTER", "MYID")
        target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
        put(saver, "t", 2, items=[1, 2])
        source.command("MIGRATE", target.host, target.port, key, 0, 5000)
        put(saver, "t", 3, items=[1, 2, 3])  # what led to a thread with a deadline still is on the other node
        for left in source.command("KEYS", "stepvault:led:*"):
            source.command("MIGRATE", target.host, target.port, left, 0, 5000)
        for node in (target, source):
            node.command("CLUSTER", "SETSLOT", slot, "NODE", target_id)
        put(saver, "t", 4, items=[1, 2, 3, 4])
        assert (target.command("PTTL", key) > 0) == (ttl is not None)
        assert len(ids(saver, "t")) == 4
        saver.delete_thread("t")
        for node in (target, source):  # as it was
            node.command("CLUSTER", "SETSLOT", slot, "NODE", source_id)


def test_sentinel_failover_loses_nothing_that_replicas_confirmed() -> None:
    with RedisSentinel() as group:
        url = f"redis+sentinel://{group.sentinel.host}:{group.sentinel.port}/{group.service}"
        with RedisSaver(url, wait_replicas=1, wait_timeout=5) as saver:
            for number in range(1, 20):
                put(saver, "t", number, items=list(range(number)))
            group.primary.kill()
            group.wait_for_failover()
            assert len(ids(saver, "t")) == 19
            strict = RedisSaver(url, wait_replicas=1, wait_timeout=0.05)
            with strict, pytest.raises(StorageUnavailableError, match="0 of wait_replicas=1"):
                put(strict, "t", 20)
            with RedisSaver(url) as lax:
                put(lax, "t", 21)
                assert len(ids(lax, "t")) == 21


async def test_replicas_confirm_async_writes_too() -> None:
    with RedisSentinel() as group:
        async with RedisSaver(group.primary.url, wait_replicas=1, wait_timeout=5) as saver:
            await aput(saver, "t", 1)
            group.replicas[0].pause()
            async with RedisSaver(group.primary.url, wait_replicas=1, wait_timeout=0.05) as strict:
                with pytest.raises(StorageUnavailableError, match="wait_replicas=1"):
                    await aput(strict, "t", 2)
            group.replicas[0].resume()


def test_a_replica_cannot_be_written() -> None:
    with RedisSentinel() as group, Vault.open(group.replicas[0].url) as vault:
        with pytest.raises(StorageReadOnlyError):
            put(vault.checkpointer, "t", 1)
        assert "replica" in vault.health().warnings[0]


async def test_a_cluster_of_one_node() -> None:
    with RedisCluster(masters=1) as cluster, Vault.open(cluster.url) as vault:
        vault.setup()
        put(vault.checkpointer, "t", 1)
        assert vault.health().warnings == ()
        async with Vault.open(cluster.url) as other:
            await other.asetup()
            assert (await other.ahealth()).warnings == ()
            assert len(await other.athreads()) == 1


def test_what_a_server_says_of_itself(valkey_server: Any, client: redis.Redis, caplog: Any) -> None:
    at = valkey_server.url.removesuffix("/0")
    with Vault.open(f"{at}/999") as vault, pytest.raises(ConfigurationError, match="no database of this number"):
        vault.threads()
    client.config_set("maxmemory", 1)
    try:
        with Vault.open(valkey_server.url) as vault:
            assert "maxmemory is reached" in vault.health().warnings[0]
    finally:
        client.config_set("maxmemory", 0)
    with Vault.open("redis://localhost:1/0") as vault:
        for _ in range(2):
            health = vault.health()
            assert (health.reachable, health.error) == (False, "StorageUnavailableError")
            assert "refused" in (health.reason or "")
        with pytest.raises(StorageUnavailableError, match="refused"):
            vault.setup()
    assert "CONFIG" not in caplog.text


def test_the_store_of_a_vault_waits_for_replicas_as_its_saver_does() -> None:
    with Vault.open("redis://localhost:1", wait_replicas=1, wait_timeout=5.0, cluster_mode=False) as vault:
        for driver in (vault.checkpointer._driver, vault.store._driver):
            settings = driver._sync._settings
            assert (settings.wait_replicas, settings.wait_timeout, driver._sync._cluster_mode) == (1, 5.0, False)


def test_without_redis_py_the_message_names_the_extra() -> None:
    code = "import sys; sys.modules['redis'] = None\nimport stepvault.checkpointers.redis"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "stepvault[redis]" in done.stderr


def test_a_server_that_forgot_the_scripts_is_told_each_once(valkey_server: Any, client: redis.Redis) -> None:
    with RedisSaver(valkey_server.url) as saver:
        for number in range(40):
            put(saver, f"t{number}", 1)
        scope, dialect = saver._scope, saver._core.dialect
        keys = [scope.key(f"t{number}") for number in range(40)]
        found = saver._run(dialect.notes_at([(key, b"") for key in keys]))
        rows = [(key, row) for key, (row, _) in zip(keys, found, strict=True)]
        client.script_flush()
        client.config_resetstat()
        assert [gone.checkpoints for gone in saver._run(dialect.delete_all(rows))] == [1] * 40
        assert client.info("commandstats")["cmdstat_eval"]["calls"] == 2  # delete, unregister
        assert not list(saver.threads())
