"""A payload backup from before an erasure is put back: without its keys nobody reads it, and it goes again."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from stepvault import Vault
from stepvault.errors import KeyShreddedError, SubjectErasedError
from tests.contract.building import checkpoint, config
from tests.contract.matrix import KEYRING, WANTED, Database, InThreads, opened
from tests.contract.sealed.conftest import SealedPostgres, SealedRedis, SealedSqlite


class _OwnPostgres(SealedPostgres):
    fixture = "postgres_url"  # of a database that can be dropped

    def backup(self, _: Path) -> Callable[[], None]:
        server, name = urlunsplit(urlsplit(self.url)._replace(path="/postgres")), urlsplit(self.url).path[1:]

        def run(*statements: str) -> None:
            with psycopg.connect(server, autocommit=True) as connection:
                for statement in statements:
                    connection.execute(statement.encode())

        def restore() -> None:
            run(f"DROP DATABASE {name} WITH (FORCE)", f"CREATE DATABASE {name} TEMPLATE {name}_b")
            run(f"DROP DATABASE {name}_b")

        run(f"CREATE DATABASE {name}_b TEMPLATE {name}")
        return restore


class _OwnSqlite(SealedSqlite):
    def backup(self, folder: Path) -> Callable[[], None]:
        kept = shutil.copytree(Path(self.url).parent, folder / "backup", ignore=shutil.ignore_patterns("keys*", "b*"))

        def restore() -> None:
            for file in Path(self.url).parent.glob(f"{Path(self.url).name}*"):
                file.unlink()
            shutil.copytree(kept, Path(self.url).parent, dirs_exist_ok=True)

        return restore


class _OwnRedis(SealedRedis):
    def backup(self, _: Path) -> Callable[[], None]:
        (node,) = self._nodes()
        kept = {key: (max(node.pttl(key), 0), node.dump(key)) for key in node.scan_iter()}

        def restore() -> None:
            node.flushdb()
            for key, (ttl, dumped) in kept.items():
                node.restore(key, ttl, dumped)  # type: ignore[arg-type]
            node.close()

        return restore


@pytest.fixture(
    params=[
        pytest.param(
            (cls, mode), id=f"{cls.name}-{mode}", marks=pytest.mark.xdist_group(cls.name) if cls.server else ()
        )
        for cls in (_OwnSqlite, _OwnPostgres, _OwnRedis)
        if cls.name.removesuffix("-sealed") in WANTED
        for mode in ("sync", "async")
    ]
)
async def database(request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    async with opened(request, *request.param) as database:
        yield database


class Drill:
    """Vaults over the database, keys and journal in places of their own, called as the test is."""

    def __init__(self, database: Any, folder: Path, **options: Any) -> None:
        self.database, self._folder, self._options = database, folder, options

    def open(self) -> Vault:
        url = f"sqlite:///{self.database.url}" if isinstance(self.database, SealedSqlite) else self.database.url
        keys = f"sqlite:///{self._folder / 'keys.db'}"
        return Vault.open(url, keyring=KEYRING, keys_url=keys, journal=self._folder / "journal.jsonl", **self._options)

    def named(self, what: Any) -> Any:
        return InThreads(what) if self.database.mode == "sync" else what


def fill(vault: Vault) -> None:
    """A question in a thread of each; one that is both people's; memory of each kind."""
    graph = StateGraph(MessagesState).add_node("ask", lambda state: {"messages": [("ai", interrupt("really?"))]})
    compiled, store = graph.add_edge(START, "ask").compile(checkpointer=vault.checkpointer), vault.store
    for person in ("ann", "bob"):
        compiled.invoke({"messages": [("user", f"of {person}")]}, config(person, user_id=person))
        store.put(("users", person), "k", {"of": person})
        store.put((*store.thread_scope(person), "notes"), "k", {"of": person})
    made = checkpoint({"a": "said by ann to bob"})
    vault.checkpointer.put(config("both", user_id=["ann", "bob"]), made, {"source": "loop"}, made["channel_versions"])


def rows_of(vault: Vault) -> tuple[int, int]:
    """How many threads and items there are in the database itself."""
    saver, store = vault.checkpointer, vault.store
    threads = saver._driver.run(saver._core.dialect._inner.threads(b"", 100, None))
    rows, after = store._driver.run(store._scope.core.dialect.inner.page(None, 100))
    while after is not None:
        page, after = store._driver.run(store._scope.core.dialect.inner.page(after, 100))
        rows += page
    return len(threads), len(rows)


@pytest.mark.parametrize("hidden", [False, True], ids=["named", "hidden"])
async def test_a_restored_payload_backup_is_shut_and_goes_again(database: Any, hidden: bool, tmp_path: Path) -> None:
    drill = Drill(database, tmp_path, pseudonymise_ids=hidden)
    with drill.open() as vault:
        fill(vault)
    restore = database.backup(tmp_path)
    async with drill.open() as vault:
        await drill.named(vault.erasure).aerase("ann", shared="erase")
    restore()

    async with drill.open() as vault:
        assert rows_of(vault) == (3, 4)
        saver, store, erasure = (drill.named(part) for part in (vault.checkpointer, vault.store, vault.erasure))
        notes = (*vault.store.thread_scope("bob"), "notes")
        for thread in ("ann", "both"):
            with pytest.raises(KeyShreddedError):
                await saver.aget_tuple(config(thread))
        assert [item.value for item in await store.asearch(())] == [{"of": "bob"}] * 2, "hers are not to be read"
        assert (await store.aget(notes, "k")).value == {"of": "bob"}
        messages = (await saver.aget_tuple(config("bob"))).checkpoint["channel_values"]["messages"]
        assert [message.content for message in messages] == ["of bob"]

        assert (await erasure.aplan("ann")).threads == [], "what nobody can read is nobody's"
        done = await erasure.areconcile()
        assert [(request.counts["threads"], request.counts["checkpoints"]) for request in done] == [(2, 3)]
        assert rows_of(vault) == (1, 2), "nothing is left of hers, readable or not"
        plan = await erasure.aplan("ann")
        assert (plan.threads, plan.namespaces, plan.decisions) == ([], {}, 0)
        assert [one.thread_id for one in (await drill.named(vault.inbox).alist(status=None)).interrupts] == ["bob"]
        assert not [key for key in await drill.named(vault.keys).aof("ann") if key.wrapped_by is not None]
        for late in (saver.aget_tuple(config("bob")), store.aget(notes, "k")):
            assert await late is not None
        with pytest.raises(SubjectErasedError):
            await store.aput(("users", "ann"), "k", {"n": 1})
        assert await erasure.areconcile() == []
