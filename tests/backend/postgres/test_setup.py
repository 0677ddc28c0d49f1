"""Tables: made once by any number of callers, in any schema, beside whatever is there; migrated or refused."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver as OfficialSaver

from stepvault._core.migrate import Migration
from stepvault.checkpointers.postgres import PostgresSaver, schema
from stepvault.checkpointers.postgres.aio import AsyncPostgresSaver
from stepvault.errors import ConfigurationError, MigrationRequiredError, SchemaError, SchemaTooNewError, StorageError
from tests.contract.building import checkpoint, config

Catalog = dict[str, list[tuple[Any, ...]]]
AT = config("t")


@pytest.fixture
def connection(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


def catalog(connection: psycopg.Connection[Any], schema: str = "public", prefix: str = "stepvault_") -> Catalog:
    """Columns, indexes, partitions and storage of the tables, without the prefix in their names."""
    queries = {
        "columns": b"SELECT table_name, column_name, data_type, is_nullable, column_default "
        b"FROM information_schema.columns WHERE table_schema = %s AND starts_with(table_name, %s)",
        "indexes": b"SELECT indexdef, 1 FROM pg_indexes WHERE schemaname = %s AND starts_with(tablename, %s)",
        "storage": b"SELECT relname, attname, attstorage, reloptions FROM pg_class c "
        b"JOIN pg_attribute a ON a.attrelid = c.oid "
        b"WHERE relnamespace = %s::regnamespace AND starts_with(relname, %s) AND attnum > 0",
    }
    found = {name: connection.execute(query, (schema, prefix)).fetchall() for name, query in queries.items()}
    plain = [
        (name, sorted(str(row).replace(prefix, "").replace(schema, "") for row in rows)) for name, rows in found.items()
    ]
    assert all(rows for _, rows in plain)
    return dict(plain)  # type: ignore[arg-type]


def set_up(url: str) -> str:
    try:
        with PostgresSaver.from_conn_string(url, schema="shared") as saver:
            saver.setup()
            saver.put(
                config(f"t{multiprocessing.current_process().pid}"), checkpoint({"a": 1}), {"step": 1}, {"a": "1"}
            )
    except Exception as exc:
        return repr(exc)
    return ""


def test_eight_processes_at_once(postgres_url: str) -> None:
    with multiprocessing.get_context("spawn").Pool(8) as pool:
        assert pool.map(set_up, [postgres_url] * 8, chunksize=1) == [""] * 8
    with PostgresSaver.from_conn_string(postgres_url, schema="shared") as saver:
        assert len({entry.config["configurable"]["thread_id"] for entry in saver.list(None)}) == 8


def test_inside_a_transaction_of_the_caller(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TABLE theirs (a int)")
        saver = PostgresSaver(connection)
        saver.setup()
        saver.put(AT, checkpoint({"a": 1}), {"step": 1}, {"a": "00000001"})
        assert saver.get_tuple(AT) is not None
        connection.rollback()
        with pytest.raises(MigrationRequiredError):
            saver.get_tuple(AT)
        connection.rollback()
        saver.setup()
        saver.setup()
        connection.commit()
    with PostgresSaver.from_conn_string(postgres_url) as other:
        assert other.get_tuple(AT) is None


def test_missing_tables_say_what_to_call(postgres_url: str) -> None:
    with PostgresSaver.from_conn_string(postgres_url) as saver:
        for _ in range(2):
            with pytest.raises(MigrationRequiredError, match=r"call setup\(\) once"):
                saver.get_tuple(AT)
            with pytest.raises(MigrationRequiredError, match=r"call setup\(\) once"):
                saver.put(AT, checkpoint({"a": 1}), {"step": 1}, {"a": "00000001"})
    nowhere = PostgresSaver.from_conn_string(postgres_url, schema="nowhere")
    with nowhere as saver, pytest.raises(MigrationRequiredError, match=r"call setup\(\) once"):
        saver.get_tuple(AT)
    with PostgresSaver.from_conn_string(postgres_url, automatic_setup=True) as saver:
        assert saver.get_tuple(AT) is None


@pytest.mark.parametrize("partitions", [0, 3])
def test_printed_ddl_makes_the_same_tables(
    connection: psycopg.Connection[Any], postgres_url: str, partitions: int
) -> None:
    text = PostgresSaver.ddl(schema="printed", partitions=partitions)
    assert text == AsyncPostgresSaver.ddl(schema="printed", partitions=partitions)
    with connection.transaction():
        connection.execute(text.encode())
    with PostgresSaver.from_conn_string(postgres_url, schema="made", partitions=partitions) as saver:
        saver.setup()
    assert catalog(connection, "printed") == catalog(connection, "made")
    connection.execute("CREATE ROLE narrow LOGIN")
    try:
        connection.execute("GRANT USAGE ON SCHEMA printed TO narrow")
        connection.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA printed TO narrow")
        narrow = postgres_url.replace("postgres@", "narrow@")
        with PostgresSaver.from_conn_string(narrow, schema="printed") as saver:
            saver.setup()
            saver.put(AT, checkpoint({"a": 1}), {"step": 1}, {"a": "00000001"})
            assert saver.get_tuple(AT) is not None
            saver.prune(["t"])
            saver.delete_thread("t")
        with (
            PostgresSaver.from_conn_string(narrow, schema="made") as saver,
            pytest.raises(StorageError, match="privilege"),
        ):
            saver.get_tuple(AT)
    finally:
        connection.execute("DROP OWNED BY narrow")
        connection.execute("DROP ROLE narrow")


@pytest.mark.parametrize(
    ("schema_name", "prefix"),
    [(None, ""), ("public", "x_"), ('we"ird; DROP TABLE x', 'Pre"fix '), ("Ünï", "ß_"), ("select", "null:")],
)
def test_any_schema_and_prefix(postgres_url: str, schema_name: str | None, prefix: str) -> None:
    with PostgresSaver.from_conn_string(postgres_url, schema=schema_name, table_prefix=prefix) as saver:
        saver.setup()
        at = saver.put(AT, checkpoint({"a": [1, "x" * 500]}), {"step": 1, "who": "x"}, {"a": "00000001"})
        saver.put_writes(at, [("a", 2), ("__error__", "e")], "task")
        (entry,) = saver.list(None, filter={"who": "x"})
        assert entry.checkpoint["channel_values"] == {"a": [1, "x" * 500]}
        saver.copy_thread("t", "u")
        saver.prune(["t", "u"])
        saver.delete_for_runs(["nobody"])
        assert len(saver.threads()) == 2
        saver.delete_thread("t")
    with PostgresSaver.from_conn_string(postgres_url, schema="other", table_prefix=prefix) as other:
        other.setup()
        assert list(other.list(None)) == []


@pytest.mark.parametrize(
    "options", [{"table_prefix": "x" * 50}, {"schema": ""}, {"schema": "a\0"}, {"table_prefix": "%s"}]
)
def test_names_that_do_not_fit_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="schema and table_prefix"):
        PostgresSaver.from_conn_string("postgresql://localhost/none", **options)


def test_beside_the_tables_of_the_official_saver(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    with OfficialSaver.from_conn_string(postgres_url) as official:
        official.setup()
        with PostgresSaver.from_conn_string(postgres_url) as saver:
            saver.setup()
            assert not caplog.records
            official.put(AT, checkpoint({"a": 1}), {"step": 1}, {"a": "1"})
            with caplog.at_level(logging.WARNING, "stepvault"):
                saver.setup()
            (line,) = caplog.records
            assert "copy_all" in line.getMessage()
            saver.put(AT, checkpoint({"a": 2}), {"step": 1}, {"a": "00000001"})
            saver.setup()
            assert len(caplog.records) == 1
            saver.delete_thread("t")
            found = official.get_tuple(AT)
            assert found is not None
            assert found.checkpoint["channel_values"] == {"a": 1}


NEXT = Migration(2, "next", "ALTER TABLE {thread} ADD COLUMN more int;\nSELECT no_such_function();", 2)


def test_a_failed_migration_leaves_the_state_before_it(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with PostgresSaver.from_conn_string(postgres_url) as saver:
        with monkeypatch.context() as patch:
            patch.setattr(schema, "MIGRATIONS", [*schema.MIGRATIONS, NEXT])
            for _ in range(2):
                with pytest.raises(StorageError, match="no_such_function"):
                    saver.setup()
        saver.put(AT, checkpoint({"a": 1}), {"step": 1}, {"a": "00000001"})
        good = Migration(2, "next", "ALTER TABLE {thread} ADD COLUMN more int;", 1)
        monkeypatch.setattr(schema, "MIGRATIONS", [*schema.MIGRATIONS, good])
        saver.setup()
        assert saver.get_tuple(AT) is not None


def test_a_killed_migration_is_repeated(connection: psycopg.Connection[Any], postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as holder:
        holder.execute(schema.QUERIES["lock_migrations"])
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            waiting = pool.apply_async(set_up, (postgres_url,))
            while not connection.execute(
                "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'advisory'"
            ).fetchall():
                pass
            pool.terminate()
            assert not waiting.ready()
    assert set_up(postgres_url) == ""


@pytest.mark.parametrize(("oldest", "works"), [(1, True), (2, False)])
def test_newer_tables(postgres_url: str, connection: psycopg.Connection[Any], oldest: int, works: bool) -> None:
    with PostgresSaver.from_conn_string(postgres_url) as saver:
        saver.setup()
        connection.execute("INSERT INTO stepvault_migration VALUES (2, 'next', 'x', %s, 0)", (oldest,))
        if works:
            saver.setup()
        else:
            with pytest.raises(SchemaTooNewError, match="upgrade this process"):
                saver.setup()


def test_a_migration_that_was_applied_from_another_text(postgres_url: str, connection: psycopg.Connection[Any]) -> None:
    with PostgresSaver.from_conn_string(postgres_url) as saver:
        saver.setup()
        connection.execute("UPDATE stepvault_migration SET checksum = 'other'")
        with pytest.raises(SchemaError, match="another text"):
            saver.setup()


def test_partitions_hold_threads_apart(postgres_url: str, connection: psycopg.Connection[Any]) -> None:
    with PostgresSaver.from_conn_string(postgres_url, partitions=4) as saver:
        saver.setup()
        for number in range(12):
            at = saver.put(config(f"t{number}"), checkpoint({"a": ["x" * 500]}), {"who": number}, {"a": "00000001"})
            saver.put_writes(at, [("a", 1)], "task")
        assert [entry.metadata["who"] for entry in saver.list(None, filter={"who": 7})] == [7]
        saver.delete_thread("t3")
        assert len(saver.threads()) == 11
    query = b"SELECT count(*) FROM (SELECT DISTINCT tableoid FROM stepvault_%s) x"
    for table in (b"checkpoint", b"chunk", b"write"):
        row = connection.execute(query % table).fetchone()
        assert row is not None
        assert row[0] > 1
