"""`Vault`: everything of one app's persistence over one URL."""

from __future__ import annotations

import os
from typing import Any, TypeVar

from typing_extensions import Self

from stepvault.checkpointers._effects import Effects
from stepvault.checkpointers._inbox import Inbox
from stepvault.checkpointers._ops.overview import ThreadInfo, ThreadPage
from stepvault.checkpointers._shells import ExpiringSaver
from stepvault.errors import ConfigurationError, MissingDependencyError

T = TypeVar("T")

__all__ = ["ThreadInfo", "ThreadPage", "Vault"]

_ENVIRONMENT = "STEPVAULT_URL"
_FORMS = (
    "sqlite:///app.db (relative), sqlite:////srv/app.db (absolute), memory://, postgresql://user@host/db, "
    "redis://host:6379"
)


class Vault:
    """Checkpoints, threads and what belongs to them, over one database.

    Made by `Vault.open`. Usable with `with`, `async with`, or without and `close()`.
    """

    def __init__(self, checkpointer: ExpiringSaver) -> None:
        self._checkpointer = checkpointer

    @classmethod
    def open(cls, url: str | None = None, **options: Any) -> Self:
        """Open a vault; tables are made on first use.

        Args:
            url: Where the data is: `sqlite:///file.db`, `memory://`, `postgresql://...` or `redis://...`. None
                takes it from the environment variable STEPVAULT_URL.
            options: Options of the backend's saver, see docs/options.md.

        Raises:
            ConfigurationError: No URL was given in either form, or it names no known backend. There is no silent
                fall-back to memory.
            MissingDependencyError: The backend's extra is not installed.
        """
        options.setdefault("on_conflict", "raise")
        return cls(_saver(url or os.environ.get(_ENVIRONMENT), options))

    @property
    def checkpointer(self) -> ExpiringSaver:
        """The `checkpointer=` of a graph, sync and async."""
        return self._checkpointer

    @property
    def inbox(self) -> Inbox:
        """Interrupts of all threads that wait for a human, and the decisions on them."""
        return Inbox(self._checkpointer)

    @property
    def effects(self) -> Effects:
        """Side effects that run once per task."""
        return Effects(self._checkpointer)

    def for_tenant(self, tenant: str) -> Self:
        """A view of one tenant's data over the same connections; it sees and touches no other tenant's."""
        return type(self)(self._checkpointer.for_tenant(tenant))

    def setup(self) -> None:
        """Create or migrate the tables. Idempotent; any number of processes may call it at once."""
        self._checkpointer.prepare()

    async def asetup(self) -> None:
        """Async version of `setup`."""
        await self._checkpointer.aprepare()

    def threads(self, *, subject: str | None = None, limit: int = 50, cursor: str | None = None) -> ThreadPage:
        """One page of this tenant's threads, newest first: status, head, size and times of each.

        Args:
            subject: Only threads of this person; looks through all threads.
            limit: Threads per page, at least 1.
            cursor: Where the page before ended.
        """
        return self._checkpointer.threads(subject=subject, limit=limit, cursor=cursor)

    async def athreads(self, *, subject: str | None = None, limit: int = 50, cursor: str | None = None) -> ThreadPage:
        """Async version of `threads`."""
        return await self._checkpointer.athreads(subject=subject, limit=limit, cursor=cursor)

    def close(self) -> None:
        """Close every connection this vault opened. Idempotent."""
        self._checkpointer.close()

    async def aclose(self) -> None:
        """Async version of `close`."""
        await self._checkpointer.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()


def _saver(url: str | None, options: dict[str, Any]) -> ExpiringSaver:
    if not url:
        raise ConfigurationError(
            f"Vault.open needs to know where the data is: pass a URL or set {_ENVIRONMENT}. Forms: {_FORMS}."
        )
    scheme, colon, _ = url.partition("://")
    if not colon:
        raise ConfigurationError(f"{_hidden(url)!r} is no URL. Forms: {_FORMS}.")
    if scheme in ("sqlite", "memory"):
        return _sqlite(url, options)
    if scheme in ("postgresql", "postgres"):
        return _postgres(url, options)
    if scheme.split("+")[0] in ("redis", "rediss", "unix", "valkey", "valkeys"):
        return _redis(url, options)
    raise ConfigurationError(f"No backend has URLs that begin with {scheme}://. Forms: {_FORMS}.")


def _sqlite(url: str, options: dict[str, Any]) -> ExpiringSaver:
    from stepvault.checkpointers.sqlite import SqliteSaver

    if url == "memory://":
        return SqliteSaver.from_conn_string(":memory:", **options)
    if not url.startswith("sqlite:///"):
        raise ConfigurationError(f"An SQLite URL has three slashes before its path: {_FORMS}.")
    return SqliteSaver.from_conn_string(url, **options)


def _postgres(url: str, options: dict[str, Any]) -> ExpiringSaver:
    try:
        from stepvault.checkpointers.postgres import PostgresSaver
    except ModuleNotFoundError as exc:
        raise MissingDependencyError('Postgres needs an extra: pip install "stepvault[postgres]".') from exc
    return PostgresSaver.from_conn_string(url, **options)


def _redis(url: str, options: dict[str, Any]) -> ExpiringSaver:
    try:
        from stepvault.checkpointers.redis import RedisSaver
    except ModuleNotFoundError as exc:
        raise MissingDependencyError('Redis needs an extra: pip install "stepvault[redis]".') from exc
    return RedisSaver.from_conn_string(url, **options)


def _hidden(url: str) -> str:
    """A URL as messages may show it: without what looks like a password."""
    before, at, after = url.rpartition("@")
    return f"...@{after}" if at and ":" in before else url
