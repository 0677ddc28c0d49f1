"""The servers, each started once per test process when the first test asks for it.

A fixture hands out a healthy server: what an earlier test paused or killed is resumed or started again.
`STEPVAULT_TEST_POSTGRES_URL` and `STEPVAULT_TEST_REDIS_URL` name servers to use in place of ours for
`postgres_url` and `redis_url`; tests that kill a server always have one of ours.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
import redis

from tests.servers import PgBouncer, Postgres, Redis62, RedisCluster, Valkey, clear_database, fresh_database

pytest.register_assert_rewrite("tests.contract.building", "tests.graphs.comparing")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse names that differ from process to process, which parallel runs cannot share; choose the default tests."""
    changing = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if changing:
        raise pytest.UsageError(f"give these parameters ids without an address: {changing}")
    if not os.environ.get("STEPVAULT_TEST_ALL"):
        out = [item for item in items if _left_out(item)]
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if not _left_out(item)]


# What runs by default, so that the whole takes minutes on two cores; STEPVAULT_TEST_ALL=1 runs every combination.
# The core contract, and what several processes do to each other, runs in every mode. The rest (the same operations on
# the same primitives) runs on SQLite in sync and in one of the other modes, on a server in async. A cluster runs the
# core, where keys and slots matter. Everything sealed runs on SQLite; on servers, what only sealing does.
CORE = {
    *(
        f"tests/contract/test_{name}.py"
        for name in ("conformance", "checkpoints", "writes", "listing", "removal", "gone")
    ),
    *(f"tests/contract/stores/test_{name}.py" for name in ("items", "batches")),
}
# Of what only sealing does, what is the same on a cluster as on one server of it.
ALIKE = {
    f"tests/contract/sealed/test_{name}.py"
    for name in ("changing_over", "every_refusal", "converting_items", "store_refusals", "reindexing")
}
# Graphs: each durability and each mode is left, if not each of them on each backend.
OTHER_SETTINGS = ("sqlite-sync-exit", "sqlite-async-async", "postgres-async-exit", "redis-async-async")
ITEMS = "tests/contract/stores/test_items.py"  # of stores, what runs on a cluster, and sealed on servers
WRITTEN_ONCE = ("tests/contract/", "tests/graphs/")


def _left_out(item: pytest.Item) -> bool:
    path, _, name = item.nodeid.partition("::")
    if path.startswith("tests/contract/stores/") and ("-cluster-" in name or "-sealed-" in name):
        return "sqlite-sealed-async" not in name and (path != ITEMS or "-sync" in name or "cluster-sealed" in name)
    if "postgres-sealed" in name or "redis-sealed" in name:
        return True
    if not path.startswith(WRITTEN_ONCE) or path in CORE or "shared" in getattr(item, "fixturenames", ()):
        return False
    if "redis-cluster" in name:
        return ("stores" not in path and "sealed/" not in path) or path in ALIKE
    if path.startswith("tests/graphs/") and any(f"[{setting}" in name for setting in OTHER_SETTINGS):
        return True
    if "sqlite-async" in name and path.startswith("tests/contract/"):
        return True
    return "postgres-sync" in name or "redis-sync" in name


@pytest.fixture(scope="session")
def _postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def _valkey() -> Iterator[Valkey]:
    with Valkey() as server:
        yield server


@pytest.fixture(scope="session")
def _redis62() -> Iterator[Redis62]:
    if reason := Redis62.reason_missing():
        pytest.skip(reason)
    with Redis62() as server:
        yield server


@pytest.fixture(scope="session")
def _redis_cluster() -> Iterator[RedisCluster]:
    with RedisCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def _pgbouncer(_postgres: Postgres) -> Iterator[PgBouncer]:
    if PgBouncer.binary() is None:
        pytest.skip("PgBouncer is not installed (apt install pgbouncer)")
    with PgBouncer(_postgres) as pooler:
        yield pooler


@pytest.fixture
def postgres_server(_postgres: Postgres) -> Postgres:
    """Our PostgreSQL; a test may kill, pause and restart it."""
    return _postgres.heal()


@pytest.fixture
def valkey_server(_valkey: Valkey) -> Valkey:
    """Our Valkey, emptied; a test may kill, pause and restart it."""
    _valkey.heal().flush()
    return _valkey


@pytest.fixture
def redis62_server(_redis62: Redis62) -> Redis62:
    """Our Redis 6.2, emptied; skips, saying why, on a platform for which pip has none."""
    _redis62.heal().flush()
    return _redis62


@pytest.fixture
def redis_cluster(_redis_cluster: RedisCluster) -> RedisCluster:
    """Our cluster of three masters, emptied."""
    _redis_cluster.heal().flush()
    return _redis_cluster


@pytest.fixture
def pgbouncer(postgres_server: Postgres, _pgbouncer: PgBouncer) -> PgBouncer:
    """Our PgBouncer in front of `postgres_server`, pooling transactions; skips where it is not installed."""
    return _pgbouncer.heal()


@pytest.fixture(scope="session")
def _emptied() -> Iterator[Callable[[str], str]]:
    """Makes one database per server, and empties it each time it is asked for."""
    made: dict[str, str] = {}
    with contextlib.ExitStack() as stack:

        def empty(server_url: str) -> str:
            if server_url not in made:
                made[server_url] = stack.enter_context(fresh_database(server_url))
            clear_database(made[server_url])
            return made[server_url]

        yield empty
        with contextlib.suppress(psycopg.OperationalError):  # a server of ours is gone by now, and its data with it
            stack.close()


@pytest.fixture
def postgres_clean_url(request: pytest.FixtureRequest, _emptied: Callable[[str], str]) -> str:
    """The url of a database without tables: used again and again, which is much faster than a fresh one."""
    theirs = os.environ.get("STEPVAULT_TEST_POSTGRES_URL")
    return _emptied(theirs or request.getfixturevalue("postgres_server").url)


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The url of an empty database, dropped after the test."""
    theirs = os.environ.get("STEPVAULT_TEST_POSTGRES_URL")
    with fresh_database(theirs or request.getfixturevalue("postgres_server").url) as url:
        yield url


@pytest.fixture
def redis_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The url of an empty Redis database."""
    theirs = os.environ.get("STEPVAULT_TEST_REDIS_URL")
    if not theirs:
        yield request.getfixturevalue("valkey_server").url
        return
    url = _database_of_this_process(theirs)
    with redis.Redis.from_url(url) as client:
        if client.dbsize():  # not ours to empty
            pytest.fail(f"the Redis database of {url} is not empty")
        yield url
        client.flushdb()


def _database_of_this_process(url: str) -> str:
    """Parallel test processes get databases of their own: the one named, the next, ..."""
    parts = urlsplit(url)
    number = int(parts.path.strip("/") or 0) + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    return urlunsplit(parts._replace(path=f"/{number}"))
