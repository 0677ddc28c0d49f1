"""What Postgres refuses becomes an error with a name, without payloads, and nothing of it is stored."""

from __future__ import annotations

import asyncio
import contextlib
import os
import traceback
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from stepvault import Vault
from stepvault._drivers.postgres_errors import error_of
from stepvault.checkpointers.postgres import PostgresSaver
from stepvault.errors import (
    MigrationRequiredError,
    SchemaError,
    StepvaultError,
    StorageCorruptError,
    StorageError,
    StorageFullError,
    StorageReadOnlyError,
    StorageUnavailableError,
)
from tests.backend.postgres.both_ways import WAYS, Caller
from tests.servers import Postgres, fresh_database

AT: Any = {"configurable": {"thread_id": "t"}}


@pytest_asyncio.fixture(params=WAYS)
async def caller(request: pytest.FixtureRequest, postgres_url: str) -> AsyncIterator[Caller]:
    saver = PostgresSaver.from_conn_string(postgres_url)
    await saver.asetup()
    caller = Caller(saver, request.param)
    await caller.put("first")
    yield caller
    await caller.close()
    await saver.aclose()


def sql(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def fresh(caller: Caller, url: str) -> Caller:
    """The same, with sessions that begin now."""
    return Caller(PostgresSaver.from_conn_string(url), caller.way)


async def refused(caller: Caller, url: str, setting: str, error: type[StepvaultError], words: str) -> None:
    """Writing fails while new sessions have this setting."""
    name = url.rsplit("/", 1)[1]
    sql(url, f"ALTER DATABASE {name} SET {setting}")
    with psycopg.connect(url.rsplit("/", 1)[0] + "/postgres", autocommit=True) as admin:
        other = fresh(caller, url)
        with pytest.raises(error, match=words):
            await other.put("refused")
        assert await other.get() == "first"
        await other.close()
        await other.saver.aclose()
        admin.execute(f"ALTER DATABASE {name} RESET ALL".encode())
    await caller.put("second")


async def test_a_read_only_server(caller: Caller, postgres_url: str) -> None:
    await refused(caller, postgres_url, "default_transaction_read_only = on", StorageReadOnlyError, "to the primary")


def test_a_vault_takes_the_url_of_sqlalchemy_as_savers_do(postgres_url: str) -> None:
    with Vault.open(postgres_url.replace("postgresql://", "postgresql+psycopg://")) as vault:
        vault.store.put(("a",), "k", {"v": 1})
        assert len(vault.threads()) == 0


def test_health_says_why_nothing_can_be_written(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin, Vault.open(postgres_url) as vault:
        vault.setup()
        assert vault.health().warnings == ()
        role = f"narrow_{os.getpid()}"
        admin.execute(f"CREATE ROLE {role} LOGIN; ALTER ROLE {role} SET default_transaction_read_only = on".encode())
        try:
            url = postgres_url.replace("postgres@", f"{role}@")
            with Vault.open(url, automatic_setup=False) as narrow:
                assert "privilege" in (narrow.health().reason or "")
            admin.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}".encode())
            with Vault.open(url, automatic_setup=False) as narrow:
                health = narrow.health()
                assert (health.reachable, ["no writes" in health.warnings[0], "privilege" in health.warnings[1]]) == (
                    True,
                    [True, True],
                )
            admin.execute(f"REVOKE USAGE ON SCHEMA public FROM PUBLIC; ALTER ROLE {role} RESET ALL".encode())
            with Vault.open(url) as narrow:
                with pytest.raises(SchemaError, match="USAGE"):
                    narrow.setup()
                assert "USAGE" in (narrow.health().reason or "")
        finally:
            admin.execute(f"GRANT USAGE ON SCHEMA public TO PUBLIC; DROP OWNED BY {role}; DROP ROLE {role}".encode())


@pytest.mark.parametrize(
    ("setting", "words"), [("lock_timeout", "locked by another"), ("statement_timeout", "ended the")]
)
async def test_a_lock_that_is_not_given(caller: Caller, postgres_url: str, setting: str, words: str) -> None:
    with psycopg.connect(postgres_url) as holder:
        holder.execute("SELECT 1 FROM stepvault_thread FOR UPDATE")
        await refused_while_locked(caller, postgres_url, f"{setting} = '200ms'", words)
        holder.rollback()
    await caller.put("second")
    assert await caller.get() == "second"


async def refused_while_locked(caller: Caller, url: str, setting: str, words: str) -> None:
    sql(url, f"ALTER DATABASE {url.rsplit('/', 1)[1]} SET {setting}")
    other = fresh(caller, url)
    with pytest.raises(StorageUnavailableError, match=words):
        await other.put("refused")
    assert await other.get() == "first"
    await other.close()
    await other.saver.aclose()


async def test_deadlocks_are_repeated(caller: Caller, postgres_url: str) -> None:
    sql(postgres_url, f"ALTER DATABASE {postgres_url.rsplit('/', 1)[1]} SET deadlock_timeout = '10ms'")
    other = fresh(caller, postgres_url)
    await other.put(0, "a")
    await other.put(0, "b")

    def by_hand() -> None:
        with psycopg.connect(postgres_url) as connection:
            for order in (("a", "b"), ("b", "a")) * 10:
                for thread in order:
                    query = b"UPDATE stepvault_thread SET updated_at = 1 WHERE thread = %s"
                    try:
                        connection.execute(query, (thread.encode(),))
                    except psycopg.errors.DeadlockDetected:
                        connection.rollback()
                connection.commit()

    by_hands = asyncio.create_task(asyncio.to_thread(by_hand))
    for number in range(20):
        await asyncio.gather(other.put(number, "a"), other.put(number, "b"))
    await by_hands
    assert [await other.get("a"), await other.get("b")] == [19, 19]
    await other.close()
    await other.saver.aclose()


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_stricter_isolation_by_default(caller: Caller, postgres_url: str, level: str) -> None:
    name = postgres_url.rsplit("/", 1)[1]
    sql(postgres_url, f"ALTER DATABASE {name} SET default_transaction_isolation = '{level}'")
    savers = [fresh(caller, postgres_url) for _ in range(3)]
    for saver in savers:
        await saver.put("there", f"warm{id(saver)}")
    await asyncio.gather(*(saver.put(number, "hot") for number, saver in enumerate(savers * 4)))
    found = [entry async for entry in caller.saver.alist({"configurable": {"thread_id": "hot"}})]
    assert len(found) == 12
    for saver in savers:
        await saver.close()
        await saver.saver.aclose()


async def test_too_many_connections() -> None:
    settings = {"max_connections": "5", "superuser_reserved_connections": "0", "reserved_connections": "0"}
    with Postgres(settings) as server, fresh_database(server.url) as url, contextlib.ExitStack() as taken:
        options: dict[str, Any] = {"pool_timeout": 1, "automatic_setup": True}
        saver = PostgresSaver.from_conn_string(url, **options)
        with contextlib.suppress(psycopg.OperationalError):
            while True:
                taken.enter_context(psycopg.connect(url))
        for _ in range(2):
            with pytest.raises(StorageUnavailableError, match="too many clients"):
                saver.get_tuple(AT)
            with pytest.raises(StorageUnavailableError, match="too many clients"):
                await saver.aget_tuple(AT)
        taken.close()
        assert saver.get_tuple(AT) is None
        await saver.aclose()


async def test_a_pool_that_is_too_small_says_so(postgres_url: str) -> None:
    saver = PostgresSaver.from_conn_string(
        postgres_url, pool_config={"max_size": 1}, pool_timeout=0.2, automatic_setup=True
    )
    caller = Caller(saver, "async")
    await caller.put(1)
    with psycopg.connect(postgres_url) as holder:
        holder.execute("SELECT 1 FROM stepvault_thread FOR UPDATE")
        waiting = asyncio.create_task(caller.put(2))
        await asyncio.sleep(0.05)
        with pytest.raises(StorageUnavailableError, match="max_size"):
            await caller.get()
        holder.rollback()
    await waiting
    await saver.aclose()


async def test_wrong_credentials_and_unknown_databases_are_named(postgres_url: str) -> None:
    for url in (postgres_url + "x", postgres_url.replace("postgres@", "nobody_here:sesame@")):
        saver = PostgresSaver.from_conn_string(url)
        with pytest.raises(StorageUnavailableError, match="does not exist") as caught:
            saver.get_tuple(AT)
        with pytest.raises(StorageUnavailableError, match="does not exist"):
            await saver.aget_tuple(AT)
        assert "sesame" not in "".join(traceback.format_exception(caught.value))


STATES: list[tuple[str, type[StepvaultError]]] = [
    ("53100", StorageFullError), ("53200", StorageFullError), ("53300", StorageUnavailableError),
    ("25006", StorageReadOnlyError), ("42P01", MigrationRequiredError), ("42703", MigrationRequiredError),
    ("3F000", SchemaError), ("42501", StorageError), ("54000", StorageError),
    ("57P01", StorageUnavailableError), ("57P02", StorageUnavailableError), ("57P03", StorageUnavailableError),
    ("08006", StorageUnavailableError), ("40001", StorageUnavailableError), ("40P01", StorageUnavailableError),
    ("55P03", StorageUnavailableError), ("57014", StorageUnavailableError), ("XX001", StorageCorruptError),
]  # fmt: skip


@pytest.mark.parametrize(("state", "error"), STATES)
def test_each_state_has_a_name(state: str, error: type[StepvaultError]) -> None:
    found = error_of(psycopg.errors.lookup(state)("it said so"), "Postgres host:5432/app")
    assert type(found) is error
    lost = state.startswith(("57P", "08", "40"))
    assert getattr(found, "repeat", False) == lost


def test_details_of_the_server_are_left_out(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TABLE t (a text NOT NULL, b text)")
        with pytest.raises(psycopg.Error, match="a secret") as caught:
            connection.execute("INSERT INTO t VALUES (NULL, 'a secret')")
    assert "a secret" not in str(error_of(caught.value, "Postgres"))


async def test_a_value_beyond_what_a_row_holds_leaves_nothing(caller: Caller, postgres_url: str) -> None:
    sql(postgres_url, "ALTER TABLE stepvault_chunk ADD CONSTRAINT small CHECK (length(body) < 100000)")
    with pytest.raises(StorageError) as caught:
        await caller.put(["marker" * 1_000, os.urandom(200_000)])
    assert "marker" not in str(caught.value)
    assert await caller.get() == "first"
    sql(postgres_url, "ALTER TABLE stepvault_chunk DROP CONSTRAINT small")
    await caller.put(["x" * 1_000_000])
