"""Bytes, lists and text reach the server and come back alike, whatever server, role or connection are set to."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import pq
from psycopg.adapt import Dumper, Loader

from stepvault.checkpointers.postgres import PostgresSaver
from stepvault.stores.postgres import PostgresStore
from tests.backend.postgres.both_ways import WAYS, Caller
from tests.backend.postgres.test_given_connections import put, values

# Many elements travel as arrays; backslashes, quotes and NULs are what a text form would have to escape.
VALUE = {f"\\{number}'\"": [f"\\x{number}\0\\\\" * 40] for number in range(40)}


async def story(saver: Any, way: str) -> None:
    caller = Caller(saver, way)
    await caller.call("setup")
    for value in (1, VALUE):
        await caller.put(value)
    assert await caller.get() == VALUE
    assert values(saver) == []
    put(saver, VALUE)
    assert values(saver) == [VALUE]
    await caller.close()
    saver.close()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "setting", ["standard_conforming_strings = off", "client_encoding = 'SQL_ASCII'", "bytea_output = 'escape'"]
)
async def test_settings_of_the_database(postgres_url: str, setting: str, way: str) -> None:
    name = postgres_url.rpartition("/")[2]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} SET {setting}".encode())
    await story(PostgresSaver.from_conn_string(postgres_url), way)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_databases_in_another_encoding(postgres_url: str, encoding: str) -> None:
    name = postgres_url.rpartition("/")[2] + "_encoded"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        locale = "LC_COLLATE 'C' LC_CTYPE 'C' LOCALE_PROVIDER libc TEMPLATE template0"
        connection.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' {locale}".encode())
        try:
            url = postgres_url.rpartition("/")[0] + f"/{name}"
            with PostgresSaver.from_conn_string(url) as saver, PostgresStore.from_conn_string(url) as store:
                saver.setup()
                saver.setup()
                store.setup()
                store.put(("a", "\\"), "k\\", {"text": "plain \\ words"})
                assert [item.key for item in store.search(("a",), filter={"text": "plain \\ words"})] == ["k\\"]
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


class Shout(Loader):
    format = pq.Format.BINARY

    def load(self, data: Any) -> str:
        return "!" + bytes(data).hex()


class Mute(Dumper):
    oid = 25

    def dump(self, obj: Any) -> bytes:
        return b"..."


def test_adapters_of_a_given_connection_are_its_own(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for name in ("bytea", "int8", "text"):
            connection.adapters.register_loader(name, Shout)
        for kind in (bytes, str, list):
            connection.adapters.register_dumper(kind, Mute)
        saver = PostgresSaver(connection)
        saver.setup()
        put(saver, VALUE)
        assert values(saver) == [VALUE]
        saver.delete_thread("t")
        assert values(saver) == []
