"""Where the contenders store: a fresh place per run, and how big it got."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit


@dataclass
class Place:
    """An empty database: `address` is what `from_conn_string` takes."""

    address: str = ""

    def size(self) -> int:
        """Bytes stored; 0 where that means nothing."""
        return 0

    @contextlib.contextmanager
    def kept(self) -> Iterator[Callable[[], None]]:
        """Keep what is stored now; each call brings it back, byte for byte. Meanwhile nobody may be connected."""
        raise NotImplementedError
        yield


class SqliteFile(Place):
    def size(self) -> int:
        with contextlib.closing(sqlite3.connect(self.address, timeout=30)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return Path(self.address).stat().st_size

    @contextlib.contextmanager
    def kept(self) -> Iterator[Callable[[], None]]:
        self.size()  # all is in the one file now
        copy = f"{self.address}.kept"
        shutil.copyfile(self.address, copy)

        def bring_back() -> None:
            for name in (f"{self.address}-wal", f"{self.address}-shm"):
                Path(name).unlink(missing_ok=True)
            shutil.copyfile(copy, self.address)

        yield bring_back


class PostgresDatabase(Place):
    def size(self) -> int:
        import psycopg

        with psycopg.connect(self.address, autocommit=True) as connection:
            tables = "relkind = 'r' AND relnamespace = 'public'::regnamespace"
            (total,) = connection.execute(  # type: ignore[misc]
                f"SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class WHERE {tables}"
            ).fetchone()
        return int(total)

    @contextlib.contextmanager
    def kept(self) -> Iterator[Callable[[], None]]:
        import psycopg
        from psycopg import sql

        parts = urlsplit(self.address)
        own = parts.path[1:]
        name, copy = sql.Identifier(own), sql.Identifier(f"{own}_kept")
        drop, make = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)"), sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        with psycopg.connect(urlunsplit(parts._replace(path="/postgres")), autocommit=True) as connection:
            connection.execute(make.format(copy, name))

            def bring_back() -> None:
                connection.execute(drop.format(name))
                connection.execute(make.format(name, copy))
                connection.execute("CHECKPOINT")

            try:
                yield bring_back
            finally:
                connection.execute(drop.format(copy))


@dataclass
class RedisDatabase(Place):
    empty: int = 0

    def size(self) -> int:
        return redis_memory(self.address) - self.empty

    @contextlib.contextmanager
    def kept(self) -> Iterator[Callable[[], None]]:
        import redis

        with contextlib.closing(redis.from_url(self.address)) as client:
            copy = {key: client.dump(key) for key in client.scan_iter(count=1000)}

            def bring_back() -> None:
                client.flushall()
                pipeline = client.pipeline(transaction=False)
                for key, value in copy.items():
                    pipeline.restore(key, 0, value)
                pipeline.execute()
                time.sleep(1.1)  # its append-only file is synced once a second

            yield bring_back


def redis_memory(address: str) -> int:
    import redis

    time.sleep(0.2)
    with contextlib.closing(redis.from_url(address)) as client:
        return int(client.info("memory")["used_memory_dataset"])  # without buffers and scripts


@dataclass
class Backends:
    """Makes places; servers are started when first asked for and stopped at the end."""

    latency_ms: float = 0.0
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _urls: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> Backends:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    @contextlib.contextmanager
    def place(self, backend: str) -> Iterator[Place]:
        """A fresh place.

        Raises:
            ServerError: The server of this backend cannot be started here.
        """
        with getattr(self, f"_{backend}")() as place:
            yield place

    @contextlib.contextmanager
    def _memory(self) -> Iterator[Place]:
        yield Place()

    @contextlib.contextmanager
    def _sqlite(self) -> Iterator[Place]:
        with tempfile.TemporaryDirectory(prefix="stepvault-bench-") as folder:
            yield SqliteFile(str(Path(folder) / "bench.db"))

    @contextlib.contextmanager
    def _postgres(self) -> Iterator[Place]:
        from tests.servers import Postgres, fresh_database

        if "postgres" not in self._urls:
            self._urls["postgres"] = self._behind_latency(self._stack.enter_context(Postgres()).url)
        with fresh_database(self._urls["postgres"]) as url:
            yield PostgresDatabase(url)

    @contextlib.contextmanager
    def _redis(self) -> Iterator[Place]:
        import redis

        from benchmarks.redis_stack import redis_url

        if "redis" not in self._urls:
            self._urls["redis"] = self._behind_latency(redis_url(self._stack))
        url = self._urls["redis"]
        with contextlib.closing(redis.from_url(url)) as client:
            client.flushall()
        yield RedisDatabase(url, redis_memory(url))

    def _behind_latency(self, url: str) -> str:
        """The same server through a proxy that adds latency, if asked for."""
        if not self.latency_ms:
            return url
        parts = urlsplit(url)
        words = [sys.executable, "-m", "benchmarks.proxy", str(parts.port), str(self.latency_ms)]
        proxy: Any = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self._stack.callback(proxy.wait)
        self._stack.callback(proxy.terminate)
        port = int(proxy.stdout.readline())
        user = f"{parts.username}@" if parts.username else ""
        return urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{port}"))
