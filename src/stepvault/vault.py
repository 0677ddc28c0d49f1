"""`Vault`: everything of one app's persistence over one URL."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from typing_extensions import Self

from stepvault._core.ids import check_text
from stepvault._sealing import Sealing
from stepvault._upkeep import Upkeep
from stepvault.checkpointers._beside import Threads
from stepvault.checkpointers._effects import Effects
from stepvault.checkpointers._erasure import Erasure
from stepvault.checkpointers._inbox import Inbox
from stepvault.checkpointers._ops.overview import ThreadInfo, ThreadPage
from stepvault.checkpointers._shells import ExpiringSaver
from stepvault.checkpointers._subjects import Subjects
from stepvault.checkpointers._vault_keys import VaultKeys
from stepvault.checkpointers._verification import Progress
from stepvault.compaction import CompactionReport, CountTokens, Summarise
from stepvault.errors import ConfigurationError
from stepvault.lineage import Lineage
from stepvault.stores._beside import Beside
from stepvault.stores._ops import threads as store_threads
from stepvault.stores._store import SyncManners
from stepvault.verification import VerifyReport

Parts: TypeAlias = "tuple[ExpiringSaver, Callable[[], SyncManners]]"

__all__ = ["ThreadInfo", "ThreadPage", "Vault"]

_ERASING = ("subject_patterns", "journal", "issuer", "hooks", "personal_fields", "vacuum")
_STORED = ("index", "text", "pseudonymise_ids", "subject_patterns")
_SHARED = ("tenant", "compression", "types", "unknown_types", "fidelity", "secrets", "serde")
_ENVIRONMENT = "STEPVAULT_URL"
_FORMS = (
    "sqlite:///app.db (relative), sqlite:////srv/app.db (absolute), memory://, postgresql://user@host/db, "
    "redis://host:6379"
)


class Vault(Upkeep, Sealing):
    """Checkpoints, threads and what belongs to them, over one database.

    Made by `Vault.open`. Usable with `with`, `async with`, or without and `close()`.
    """

    def __init__(
        self,
        checkpointer: ExpiringSaver,
        make_store: Callable[[], SyncManners],
        erasing: dict[str, Any] | None = None,
        adopt_from: str | None = None,
    ) -> None:
        self._checkpointer = checkpointer
        self._adopt_from = adopt_from
        self._make_store = make_store
        self._store: SyncManners | None = None
        self._making = threading.Lock()
        self._erasing = erasing or {}

    @classmethod
    def open(cls, url: str | None = None, **options: Any) -> Self:
        """Open a vault; tables are made on first use, unless `automatic_setup=False`.

        Args:
            url: Where the data is: `sqlite:///file.db`, `memory://`, `postgresql://...` or `redis://...`. None
                takes it from the environment variable STEPVAULT_URL.
            options: Options of the backend's saver; `index`, `store_ttl` and `text` of its store;
                `subject_patterns`, `journal`, `issuer`, `hooks`, `personal_fields` and `vacuum` of erasures; and
                `adopt_from`. See docs/options.md.

        Raises:
            ConfigurationError: No URL was given in either form, or it names no known backend. There is no silent
                fall-back to memory.
            MissingDependencyError: The backend's extra is not installed.
        """
        options.setdefault("on_conflict", "raise")
        erasing = {name: options.pop(name) for name in _ERASING if name in options}
        options |= {name: erasing[name] for name in _STORED if name in erasing}
        url = url or os.environ.get(_ENVIRONMENT)
        adopt_from = _adopted(url, options)
        automatic = options.pop("automatic_setup", True)
        checkpointer, make_store = _parts(url, options)
        checkpointer._core.dialect.automatic_setup = bool(automatic)
        vault = cls(checkpointer, make_store, erasing, adopt_from)
        if adopt_from is not None:
            checkpointer._core.wired.unadopted = b"adopted" + checkpointer._scope.tenant
        checkpointer._core.wired.store = Beside(lambda: vault.store)
        return vault

    @property
    def checkpointer(self) -> ExpiringSaver:
        """The `checkpointer=` of a graph, sync and async."""
        return self._checkpointer

    @property
    def store(self) -> SyncManners:
        """The `store=` of a graph: memory across threads, in the same database."""
        with self._making:
            if self._store is None:
                store, core = self._make_store(), self._checkpointer._core
                store._scope.core.dialect.automatic_setup = core.dialect.automatic_setup
                store._scope.core.wired.threads = Threads(self._checkpointer)
                store._scope.core.wired.unadopted = core.wired.unadopted
                self._store = store
            return self._store

    @property
    def erasure(self) -> Erasure:
        """Forgetting one person, in threads and memory, with proof."""
        return Erasure(self._checkpointer, self.store, **self._erasing)

    @property
    def subjects(self) -> Subjects:
        """The people whose data there is."""
        return Subjects(self._checkpointer)

    @property
    def inbox(self) -> Inbox:
        """Interrupts of all threads that wait for a human, and the decisions on them."""
        return Inbox(self._checkpointer)

    @property
    def effects(self) -> Effects:
        """Side effects that run once per task."""
        return Effects(self._checkpointer)

    @property
    def keys(self) -> VaultKeys:
        """The key-encryption keys of a vault that was opened with `keyring=`, and their rotation."""
        return VaultKeys(self._checkpointer)

    def for_tenant(self, tenant: str) -> Self:
        """A view of one tenant's data over the same connections; it sees and touches no other tenant's."""
        return type(self)(self._checkpointer.for_tenant(tenant), lambda: self.store.for_tenant(tenant), self._erasing)

    def setup(self) -> None:
        """Create or migrate the tables, and take over what `adopt_from=` names.

        Idempotent; any number of processes may call it at once.
        """
        self._checkpointer.prepare()
        self.store.setup()
        self._take_over()

    async def asetup(self) -> None:
        """Async version of `setup`."""
        await self._checkpointer.aprepare()
        await self.store.asetup()
        if self._adopt_from is not None:
            await asyncio.to_thread(self._take_over)

    def _take_over(self) -> None:
        if self._adopt_from is not None:
            from stepvault.adopting import adopt_once

            adopt_once(self, self._adopt_from)

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

    def lineage(self, thread_id: str) -> Lineage:
        """The runs of a thread: where each began, forks and duplicates, who decided, and what it had read of the store.

        `print` it for a tree. `run.changed` are the items that a run had read and that are not so any more.
        """
        found = self._checkpointer.lineage(thread_id)
        if not found.items:
            return found
        return found.compared(self.store._run(store_threads.versions(self.store._scope, found.items)))

    async def alineage(self, thread_id: str) -> Lineage:
        """Async version of `lineage`."""
        found = await self._checkpointer.alineage(thread_id)
        if not found.items:
            return found
        return found.compared(await self.store._arun(store_threads.versions(self.store._scope, found.items)))

    def verify(
        self, thread_id: str | None = None, *, graph: Any = None, progress: Progress | None = None
    ) -> VerifyReport:
        """Read every checkpoint of every thread, old ones too, and say what cannot be used; see docs/evolution.md.

        Args:
            thread_id: Only this thread.
            graph: A compiled graph: also tell threads that wait for a node or hold a channel it does not have.
            progress: Called after each thread with the report so far.
        """
        return self._checkpointer.verify(thread_id, graph=graph, progress=progress)

    async def averify(
        self, thread_id: str | None = None, *, graph: Any = None, progress: Progress | None = None
    ) -> VerifyReport:
        """Async version of `verify`."""
        return await self._checkpointer.averify(thread_id, graph=graph, progress=progress)

    def repair(self, thread_id: str, to: str) -> str:
        """Put a checkpoint that can be read at the head, as a recorded fork; returns the fork's id.

        Args:
            thread_id: The thread.
            to: The checkpoint to go back to, as `verify` or an error names it.

        Raises:
            ConfigurationError: The thread has no such checkpoint.
            PayloadError: It cannot be read either; nothing was changed.
        """
        return self._checkpointer.repair(thread_id, to)

    async def arepair(self, thread_id: str, to: str) -> str:
        """Async version of `repair`."""
        return await self._checkpointer.arepair(thread_id, to)

    def compact_thread(
        self,
        thread_id: str,
        *,
        keep_messages: int,
        summarise: Summarise | None = None,
        keep_types: Sequence[str | type] = ("system",),
        messages_key: str = "messages",
        count_tokens: CountTokens | None = None,
        dry_run: bool = False,
    ) -> CompactionReport:
        """Shorten the messages of a thread by a new checkpoint; see `compact_thread` of the checkpointer."""
        return self._checkpointer.compact_thread(
            thread_id,
            keep_messages=keep_messages,
            summarise=summarise,
            keep_types=keep_types,
            messages_key=messages_key,
            count_tokens=count_tokens,
            dry_run=dry_run,
        )

    async def acompact_thread(
        self,
        thread_id: str,
        *,
        keep_messages: int,
        summarise: Summarise | None = None,
        keep_types: Sequence[str | type] = ("system",),
        messages_key: str = "messages",
        count_tokens: CountTokens | None = None,
        dry_run: bool = False,
    ) -> CompactionReport:
        """Async version of `compact_thread`."""
        return await self._checkpointer.acompact_thread(
            thread_id,
            keep_messages=keep_messages,
            summarise=summarise,
            keep_types=keep_types,
            messages_key=messages_key,
            count_tokens=count_tokens,
            dry_run=dry_run,
        )

    def close(self) -> None:
        """Close every connection this vault opened. Idempotent."""
        if self._store is not None:
            self._store.close()
        self._checkpointer.close()

    async def aclose(self) -> None:
        """Async version of `close`."""
        if self._store is not None:
            await self._store.aclose()
        await self._checkpointer.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()


def _adopted(url: str | None, options: dict[str, Any]) -> str | None:
    """The URL that `adopt_from=` names, if it is given: True is the same database."""
    given = options.pop("adopt_from", None)
    if given in (None, False):
        return None
    if given is not True and not isinstance(given, str):
        raise ConfigurationError(f"adopt_from must be True or the URL of a database, not {type(given).__name__}.")
    options.setdefault("start_empty", True)
    return url if given is True else given


def _parts(url: str | None, options: dict[str, Any]) -> Parts:
    """The saver of a URL, and how to make the store beside it."""
    if not url:
        raise ConfigurationError(
            f"Vault.open needs to know where the data is: pass a URL or set {_ENVIRONMENT}. Forms: {_FORMS}."
        )
    check_text("url", url)
    scheme, colon, _ = url.partition("://")
    if not colon:
        raise ConfigurationError(f"{_hidden(url)!r} is no URL. Forms: {_FORMS}.")
    stored: dict[str, Any] = {name: options.pop(name) for name in _STORED if name in options}
    if "store_ttl" in options:
        stored["ttl"] = options.pop("store_ttl")
    stored |= {name: options[name] for name in _SHARED if name in options}
    if scheme in ("sqlite", "memory"):
        return _sqlite(url, options, stored)
    if scheme.split("+")[0] in ("postgresql", "postgres"):  # SQLAlchemy's form too
        return _postgres(url, options, stored)
    if scheme.split("+")[0] in ("redis", "rediss", "unix", "valkey", "valkeys"):
        return _redis(url, options, stored)
    raise ConfigurationError(f"No backend has URLs that begin with {scheme}://. Forms: {_FORMS}.")


def _sqlite(url: str, options: dict[str, Any], stored: dict[str, Any]) -> Parts:
    from stepvault.checkpointers.sqlite import SqliteSaver
    from stepvault.stores.sqlite import SqliteStore

    if url != "memory://" and not url.startswith("sqlite:///"):
        raise ConfigurationError(f"An SQLite URL has three slashes before its path: {_FORMS}.")
    saver = SqliteSaver.from_conn_string(":memory:" if url == "memory://" else url, **options)
    return saver, lambda: SqliteStore(_driver(saver), keys=saver._core.keys, **stored)


def _postgres(url: str, options: dict[str, Any], stored: dict[str, Any]) -> Parts:
    from stepvault.checkpointers.postgres import PostgresSaver
    from stepvault.stores.postgres import PostgresStore

    stored |= {name: options[name] for name in ("schema", "table_prefix") if name in options}
    saver = PostgresSaver.from_conn_string(url, **options)
    return saver, lambda: PostgresStore(_driver(saver), keys=saver._core.keys, **stored)


def _redis(url: str, options: dict[str, Any], stored: dict[str, Any]) -> Parts:
    from stepvault.checkpointers.redis import RedisSaver
    from stepvault.stores.redis import RedisStore

    shared = ("prefix", "connection_args", "wait_replicas", "wait_timeout", "cluster_mode", "allow_eviction")
    stored |= {name: options[name] for name in shared if name in options}
    saver = RedisSaver.from_conn_string(url, **options)
    keys = saver._core.keys and saver._core.keys.beside(_driver(saver))
    return saver, lambda: RedisStore(url, keys=keys, **stored)


def _driver(saver: ExpiringSaver) -> Any:
    """The saver's driver, which its store shares: one pool, one SQLite connection, one in-memory database."""
    return saver._driver


def _hidden(url: str) -> str:
    """A URL as messages may show it: without what looks like a password."""
    before, at, after = url.rpartition("@")
    return f"...@{after}" if at and ":" in before else url
