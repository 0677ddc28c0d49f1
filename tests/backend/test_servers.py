"""The test servers themselves: data survives what the fault tests do to them, and nothing outlives them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from tests.processes import is_gone, wait_until
from tests.servers import (
    PgBouncer,
    Postgres,
    Redis62,
    RedisCluster,
    RedisSentinel,
    RedisServer,
    Server,
    Valkey,
    fresh_database,
)

ENDINGS = ["kill", "stop_immediately", "stop"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_postgres_keeps_what_it_committed(postgres_server: Postgres, ending: str) -> None:
    port = postgres_server.port
    with fresh_database(postgres_server.url) as url:
        _sql(url, "CREATE TABLE t AS SELECT 42 AS n")
        getattr(postgres_server, ending)()
        assert not postgres_server.running
        postgres_server.restart()
        assert postgres_server.port == port
        assert _sql(url, "SELECT n FROM t") == [(42,)]


def test_postgres_has_pgvector(postgres_url: str) -> None:
    _sql(postgres_url, "CREATE EXTENSION vector")
    assert _sql(postgres_url, "SELECT '[1,2]'::vector <-> '[1,4]'") == [(2.0,)]


def test_databases_are_fresh_and_dropped(postgres_server: Postgres) -> None:
    count = "SELECT count(*) FROM pg_database WHERE datname LIKE 'stepvault_test_%'"
    with fresh_database(postgres_server.url) as one, fresh_database(postgres_server.url) as other:
        _sql(one, "CREATE TABLE t ()")
        _sql(other, "CREATE TABLE t ()")
        assert _sql(postgres_server.url, count) == [(2,)]
    assert _sql(postgres_server.url, count) == [(0,)]


@pytest.mark.parametrize("ending", ENDINGS)
def test_valkey_keeps_what_it_acknowledged(valkey_server: Valkey, ending: str) -> None:
    _survives(valkey_server, ending)


@pytest.mark.parametrize("ending", ENDINGS)
def test_redis62_keeps_what_it_acknowledged(redis62_server: Redis62, ending: str) -> None:
    assert redis62_server.info("INFO", "server")["redis_version"].startswith("6.2.")
    _survives(redis62_server, ending)


def test_redis_url_is_an_empty_database(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0
        client.set("left", "behind")


test_redis_url_is_an_empty_database_again = test_redis_url_is_an_empty_database


def test_paused_valkey_does_not_answer_until_resumed(valkey_server: Valkey) -> None:
    with redis.Redis(port=valkey_server.port, socket_timeout=0.2, retry=None) as client:
        valkey_server.pause()
        with pytest.raises(redis.TimeoutError):
            client.ping()
        valkey_server.resume()
        assert valkey_server.command("PING") == "PONG"


def test_paused_postgres_freezes_open_connections_too(postgres_server: Postgres) -> None:
    with psycopg.connect(postgres_server.url) as connection:
        postgres_server.pause()
        statuses = [process.status() for process in _family(postgres_server)]
        postgres_server.resume()
        assert len(statuses) > 1
        assert set(statuses) == {psutil.STATUS_STOPPED}
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_heal_undoes_pause_and_kill(valkey_server: Valkey) -> None:
    valkey_server.pause()
    assert valkey_server.heal().command("PING") == "PONG"
    valkey_server.kill()
    assert valkey_server.heal().command("PING") == "PONG"


def test_cluster_serves_every_slot_and_heals(redis_cluster: RedisCluster) -> None:
    with redis.RedisCluster.from_url(redis_cluster.url) as client:
        for number in range(30):
            client.set(f"key-{number}", number)
    assert all(node.command("DBSIZE") for node in redis_cluster.nodes)
    redis_cluster.nodes[1].kill()
    redis_cluster.heal()
    with redis.RedisCluster.from_url(redis_cluster.url) as client:
        assert [client.get(f"key-{number}") for number in range(30)] == [b"%d" % n for n in range(30)]


def test_sentinel_promotes_the_replica_of_a_killed_primary() -> None:
    with RedisSentinel() as group:
        group.primary.command("SET", "k", "v")
        group.primary.command("WAIT", 1, 10_000)
        group.primary.kill()
        group.wait_for_failover()
        assert group.sentinel.primary_port == group.replicas[0].port
        assert group.replicas[0].command("GET", "k") == "v"


def test_pgbouncer_pools_transactions(pgbouncer: PgBouncer) -> None:
    assert _sql(pgbouncer.url, "SELECT 1") == [(1,)]


def test_close_removes_processes_and_files() -> None:
    with Valkey() as server:
        process = _family(server)[0]
    assert is_gone(process)
    assert not server.folder.exists()


@pytest.mark.parametrize("kind", ["Postgres", "Valkey"])
def test_nothing_outlives_a_killed_test_process(kind: str) -> None:
    root = Path(__file__).parents[2]
    code = f"import tests.servers as s; x = s.{kind}(); print(x._process.pid, x.folder, flush=True); input()"
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, stdin=-1, stdout=-1, text=True, cwd=root) as child:
        assert child.stdout is not None
        pid, folder = child.stdout.readline().split()
        server = psutil.Process(int(pid))
        child.kill()
    wait_until(lambda: is_gone(server) and not Path(folder).exists(), "it was left behind")


def _survives(server: RedisServer, ending: str) -> None:
    port = server.port
    server.command("SET", "k", "v")
    getattr(server, ending)()
    assert not server.running
    server.restart()
    assert server.port == port
    assert server.command("GET", "k") == "v"


def _family(server: Server) -> list[psutil.Process]:
    assert server._process is not None
    parent = psutil.Process(server._process.pid)
    return [parent, *parent.children(recursive=True)]


def _sql(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []
