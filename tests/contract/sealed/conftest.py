"""Sealed databases on every backend, called through the async half."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.contract.matrix import (
    KEYRING,
    WANTED,
    Database,
    PostgresDatabase,
    RedisClusterDatabase,
    RedisDatabase,
    SqliteDatabase,
    opened,
)


class Sealed(Database):
    """A database whose savers have a keyring, unless they are given another or None."""

    sealed = True

    def files(self) -> Iterator[bytes]:
        """The files of the server, its logs among them, unless it is another machine."""
        yield b""

    def unprepared(self, **options: Any) -> Any:
        return super().unprepared(**{"keyring": KEYRING, **options})


class SealedSqlite(Sealed, SqliteDatabase):
    def files(self) -> Iterator[bytes]:
        yield self.content()

    def content(self) -> bytes:
        """The files as they are, write-ahead log and all, and as they are after a checkpoint."""
        folder = Path(self.url).parent
        raw = b"".join(path.read_bytes() for path in folder.iterdir())
        return raw + super().content()


class SealedPostgres(Sealed, PostgresDatabase):
    def files(self) -> Iterator[bytes]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
            query = "SELECT current_setting('data_directory'), oid FROM pg_database WHERE datname = current_database()"
            folder, oid = connection.execute(query).fetchall()[0]
        yield from _contents(Path(folder) / "base" / str(oid))
        yield from _contents(Path(folder) / "pg_wal")


class SealedRedis(Sealed, RedisDatabase):
    def files(self) -> Iterator[bytes]:
        """Append-only files, and a dump."""
        for node in self._nodes():
            with node:
                node.save()
                yield from _contents(Path(node.config_get("dir")["dir"]))

    def content(self) -> bytes:
        """Values as they are read, and as servers write them to files."""
        dumps = []
        for node in self._nodes():
            with node:
                dumps += [node.dump(key) or b"" for key in node.scan_iter(count=1000)]
        return super().content() + b"\n".join(dumps)


class SealedCluster(SealedRedis, RedisClusterDatabase):
    pass


def _contents(folder: Path) -> Iterator[bytes]:
    for path in folder.rglob("*") if folder.exists() else ():
        with contextlib.suppress(OSError):  # a server removes files at any time
            if path.is_file():
                yield path.read_bytes()


SEALED: tuple[type[Database], ...] = (SealedSqlite, SealedPostgres, SealedRedis, SealedCluster)


def params() -> list[Any]:
    return [
        pytest.param(cls, id=cls.name, marks=pytest.mark.xdist_group(cls.name) if cls.server else ())
        for cls in SEALED
        if cls.name in WANTED
    ]


@pytest.fixture(params=params())
async def database(request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    async with opened(request, request.param, "async") as database:
        yield database


@pytest.fixture
def marker() -> Any:
    """A text that does not compress and that nobody else stores."""
    return lambda place: f"{place}-{os.urandom(12).hex()}"
