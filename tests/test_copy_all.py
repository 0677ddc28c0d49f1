"""`copy_all` moves an app between the official savers and stores and ours, there and back."""

from __future__ import annotations

import asyncio
import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.postgres import PostgresSaver as OfficialPostgres
from langgraph.checkpoint.sqlite import SqliteSaver as OfficialSqlite
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver as AsyncOfficialSqlite
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.postgres import PostgresStore as OfficialPostgresStore
from langgraph.store.sqlite import SqliteStore as OfficialSqliteStore
from langgraph.store.sqlite.aio import AsyncSqliteStore as AsyncOfficialSqliteStore
from langgraph.types import interrupt
from typer.testing import CliRunner

from stepvault import Vault
from stepvault.cli.app import app
from stepvault.copying import acopy_all, copy_all
from stepvault.encryption import Keyring
from stepvault.errors import ConfigurationError, MigrationRequiredError
from stepvault.events import Event
from tests.contract.building import checkpoint, config
from tests.contract.lifetime.building import later
from tests.unit.serde import app_types


def ask(state: MessagesState) -> Any:
    return {"messages": [("ai", interrupt("go on?"))]}


GRAPH = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask")


@pytest.fixture(params=["sqlite", "postgres"])
def official_url(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return f"sqlite:///{tmp_path}/theirs.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def official(official_url: str) -> Any:
    """The official saver and store of one database."""
    if official_url.startswith("sqlite"):
        where, saver, store = official_url.removeprefix("sqlite:///"), OfficialSqlite, OfficialSqliteStore
    else:
        where, saver, store = official_url, OfficialPostgres, OfficialPostgresStore
    with saver.from_conn_string(where) as opened, store.from_conn_string(where) as memory:
        opened.setup()
        memory.setup()
        yield opened, memory


def history(saver: Any) -> list[Any]:
    states = GRAPH.compile(checkpointer=saver).get_state_history(config("t"))
    return [(state.config, state.values, state.next, state.interrupts, state.metadata["step"]) for state in states]


def test_a_database_is_not_copied_onto_itself(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Under another spelling of its URL too; between tenants it is a copy like others."""
    postgres, redis = request.getfixturevalue("postgres_url"), request.getfixturevalue("redis_url")
    (tmp_path / "folder").mkdir()
    for url, again, options in (
        (f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/folder/../a.db", {}),
        (f"sqlite:///{tmp_path}/sealed.db", f"sqlite:///{tmp_path}/sealed.db", {"keyring": Keyring.generate()}),
        (postgres, f"{postgres}{'&' if '?' in postgres else '?'}application_name=other", {}),
        (redis, redis, {}),
    ):
        with Vault.open(url, **options) as source, Vault.open(again, **options) as target:
            source.checkpointer.put(config(), checkpoint({"a": 1}), {}, {})
            source.store.put(("a",), "k", {"n": 1})
            for one, other in ((source.checkpointer, target.checkpointer), (source.store, target.store)):
                for copied in (one, other):
                    with pytest.raises(ConfigurationError, match="are one database"):
                        copy_all(one, copied)
            with pytest.raises(ConfigurationError, match=r"something in the database|give a backup a file"):
                source.backup(again)
            assert copy_all(source.checkpointer, target.for_tenant("acme").checkpointer) == 1
            assert copy_all(source.store, target.for_tenant("acme").store) == 1
        asyncio.run(_acopied(url, again, options))
    result = CliRunner().invoke(app, ["--url", url, "copy", again])
    assert isinstance(result.exception, ConfigurationError)


async def _acopied(url: str, again: str, options: Any) -> None:
    async with Vault.open(url, **options) as source, Vault.open(again, **options) as target:
        for one, other in ((source.checkpointer, target.checkpointer), (source.store, target.store)):
            with pytest.raises(ConfigurationError, match="are one database"):
                await acopy_all(one, other)


def test_from_the_official_saver_and_back(official: Any, tmp_path: Path) -> None:
    saver, memory = official
    GRAPH.compile(checkpointer=saver).invoke({"messages": [("user", "hi")]}, config("t", user_id="ann"))
    memory.put(("ann",), "drink", {"likes": "tea"})
    with Vault.open(f"sqlite:///{tmp_path}/ours.db") as vault:
        assert copy_all(saver, vault.checkpointer) == copy_all(saver, vault.checkpointer) == 1
        assert copy_all(memory, vault.store) == 1
        assert history(vault.checkpointer) == history(saver)
        assert vault.store.get(("ann",), "drink").value == {"likes": "tea"}
        assert vault.subjects.assign("user_id").threads == 1

        (question,) = vault.inbox.list()
        decision = vault.inbox.decide(question.id, "yes")
        done = GRAPH.compile(checkpointer=vault.checkpointer).invoke(decision.command, decision.config)
        assert [message.content for message in done["messages"]] == ["hi", "yes"]
        assert copy_all(saver, vault.checkpointer) == 1  # once more: what has gone on since stays
        assert GRAPH.compile(checkpointer=vault.checkpointer).get_state(config("t")).values == done

        saver.delete_thread("t")
        assert copy_all(vault.checkpointer, saver) == 1
        assert copy_all(vault.store, memory) == 1
        assert history(saver) == history(vault.checkpointer)


async def test_what_only_async_savers_read(tmp_path: Path) -> None:
    url = f"{tmp_path}/theirs.db"
    async with (
        AsyncOfficialSqlite.from_conn_string(url) as saver,
        AsyncOfficialSqliteStore.from_conn_string(url) as memory,
        Vault.open(f"sqlite:///{tmp_path}/ours.db") as vault,
    ):
        await GRAPH.compile(checkpointer=saver).ainvoke({"messages": [("user", "hi")]}, config("t"))
        await memory.aput(("ann",), "drink", {"likes": "tea"})
        told: list[int] = []
        assert await acopy_all(saver, vault.checkpointer, progress=told.append) == 1 == sum(told)
        assert await acopy_all(memory, vault.store) == 1
        graphs = GRAPH.compile(checkpointer=saver), GRAPH.compile(checkpointer=vault.checkpointer)
        theirs = [state.values async for state in graphs[0].aget_state_history(config("t"))]
        assert theirs == [state.values async for state in graphs[1].aget_state_history(config("t"))]
        with pytest.raises(ConfigurationError, match="both stores"):
            await acopy_all(saver, memory)


async def test_to_be_copied_is_no_activity(tmp_path: Path) -> None:
    async with (
        Vault.open(f"sqlite:///{tmp_path}/a.db", ttl={"default_ttl": 30}) as source,
        Vault.open(f"sqlite:///{tmp_path}/b.db") as target,
    ):
        made = checkpoint({"a": 1})
        source.checkpointer.put(config("t"), made, {"step": 0}, made["channel_versions"])
        later(source.checkpointer, 20)
        (before,) = source.threads()
        assert copy_all(source.checkpointer, target.checkpointer) == 1
        assert await acopy_all(source.checkpointer, target.checkpointer) == 1
        assert [thread.expires_at for thread in source.threads()] == [before.expires_at]


def test_memory_does_not_grow_with_a_history(tmp_path: Path) -> None:
    with OfficialSqlite.from_conn_string(f"{tmp_path}/theirs.db") as saver, Vault.open("sqlite:///") as vault:
        peaks = []
        for thread, turns in (("warm", 2), ("short", 10), ("long", 50)):
            saver.delete_thread(thread)
            for turn in range(turns):
                made = checkpoint({"a": f"{turn} " + "x" * 100_000})
                saver.put(config(thread, checkpoint_ns=""), made, {"step": turn}, made["channel_versions"])
            tracemalloc.start()
            assert copy_all(saver, vault.checkpointer) == 1
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            saver.delete_thread(thread)
        assert peaks[2] < peaks[1] + 1_000_000


@pytest.mark.parametrize("same", [False, True], ids=["from another database", "in place"])
def test_a_command_takes_over_a_database(official: Any, official_url: str, same: bool, tmp_path: Path) -> None:
    saver, memory = official
    GRAPH.compile(checkpointer=saver).invoke({"messages": [("user", "hi")]}, config("t", user_id="ann"))
    memory.put(("ann",), "drink", {"likes": "tea"})
    url, source = (official_url, []) if same else (f"sqlite:///{tmp_path}/ours.db", [official_url])
    for _ in range(2):
        done = CliRunner().invoke(app, ["--url", url, "--json", "adopt", *source, "--from-metadata", "user_id"])
        assert done.exit_code == 0, done.exception
        assert {**json.loads(done.stdout), "assigned": 1} == {"threads": 1, "items": 1, "assigned": 1}
    with Vault.open(url) as vault:
        assert history(vault.checkpointer) == history(saver)
        assert [thread.thread_id for thread in vault.threads(subject="ann").threads] == ["t"]
        assert vault.store.get(("ann",), "drink").value == {"likes": "tea"}


def test_objects_are_taken_over_without_their_classes(
    official: Any, official_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = {"claim": app_types.Claim(7, "late"), "kinds": [app_types.Color.RED], "model": app_types.Model(n=1)}
    made = checkpoint(stored)
    at = official[0].put(config("t"), made, {"source": "loop", "step": 0}, made["channel_versions"])
    official[0].put_writes(at, [("claim", app_types.Claim(8))], "task")
    url = f"sqlite:///{tmp_path}/ours.db"
    with monkeypatch.context() as elsewhere:
        elsewhere.setitem(sys.modules, app_types.__name__, None)  # a process that cannot import the app
        assert CliRunner().invoke(app, ["--url", url, "adopt", official_url]).exit_code == 0
    with Vault.open(url) as vault:
        found = vault.checkpointer.get_tuple(config("t"))
    assert found is not None
    assert found.checkpoint["channel_values"] == stored
    assert [value for _, _, value in found.pending_writes or ()] == [app_types.Claim(8)]


@pytest.mark.parametrize("same", [False, True], ids=["from another database", "in place"])
async def test_a_vault_takes_over_a_database_once(
    official: Any, official_url: str, same: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saver, memory = official
    for thread in ("t", "gone"):
        GRAPH.compile(checkpointer=saver).invoke({"messages": [("user", "hi")]}, config(thread, user_id="ann"))
    memory.put(("ann",), "drink", {"likes": "tea"})
    url = official_url if same else f"sqlite:///{tmp_path}/ours.db"
    events: list[Event] = []
    options: Any = {"adopt_from": True if same else official_url, "on_event": events.append}
    with Vault.open(url, **options) as vault:
        for early in (vault.threads, lambda: vault.store.search(()), vault.for_tenant("a").threads):
            with pytest.raises(MigrationRequiredError, match=r"vault.setup\(\) once"):
                early()
        vault.setup()
        assert history(vault.checkpointer) == history(saver)
        assert {thread.thread_id for thread in vault.threads(subject="ann")} == {"t", "gone"}
        assert vault.store.get(("ann",), "drink").value == {"likes": "tea"}
        vault.checkpointer.delete_thread("gone")
        vault.setup()
        assert len(vault.threads()) == 1
    async with Vault.open(url, **options) as vault:
        assert len(await vault.athreads()) == 1
        assert await vault.store.aget(("ann",), "drink") is not None
        await vault.asetup()
        await vault.checkpointer.adelete_thread("t")
    async with Vault.open(url, **options) as vault:
        await vault.asetup()
        assert len(await vault.athreads()) == 0
    assert [(event.kind, event.numbers) for event in events] == [("adopted", {"threads": 2, "items": 1})]
    assert not caplog.records


async def test_a_vault_takes_over_in_an_event_loop(official: Any, official_url: str, tmp_path: Path) -> None:
    saver, _ = official
    GRAPH.compile(checkpointer=saver).invoke({"messages": [("user", "hi")]}, config("t", user_id="ann"))
    ring = Keyring.generate()
    async with Vault.open(f"sqlite:///{tmp_path}/ours.db", adopt_from=official_url, keyring=ring) as vault:
        await vault.asetup()
        assert [thread.subjects for thread in await vault.athreads()] == [("ann",)]


def test_what_cannot_be_taken_over_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="adopt_from"):
        Vault.open("memory://", adopt_from=5)
    for wrong in (f"sqlite:///{tmp_path}/missing.db", "redis://localhost:1"):
        with Vault.open("memory://", adopt_from=wrong) as vault:
            with pytest.raises(ConfigurationError, match=r"no database|reads SQLite"):
                vault.setup()
            with pytest.raises(MigrationRequiredError):
                vault.threads()


def test_threads_that_are_not_read_are_mentioned(
    official: Any, official_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    official[0].put(config(), checkpoint({"a": 1}), {"step": 1}, {"a": "1"})
    for start_empty, lines in ((True, 0), (False, 1)):
        with Vault.open(official_url, start_empty=start_empty) as vault:
            vault.setup()
            assert len(caplog.records) == lines
    assert "start_empty=True" in caplog.text
    with Vault.open(official_url, start_empty=True) as vault:
        vault.checkpointer.put(config(), checkpoint({"a": 2}), {}, {})
    with Vault.open(official_url) as vault:
        vault.setup()
    assert len(caplog.records) == 1


def test_a_command_takes_over_nothing(tmp_path: Path) -> None:
    ours = f"sqlite:///{tmp_path}/ours.db"
    with Vault.open(ours) as vault:
        vault.setup()
    done = CliRunner().invoke(app, ["--url", ours, "--json", "adopt"])
    assert json.loads(done.stdout) == {"threads": 0, "items": 0, "assigned": 0}
    for wrong in ("redis://localhost:1/0", f"sqlite:///{tmp_path}/missing.db"):
        done = CliRunner().invoke(app, ["--url", ours, "adopt", wrong])
        assert isinstance(done.exception, ConfigurationError)


def test_it_keeps_keys_where_the_app_has_them(tmp_path: Path) -> None:
    theirs, ours, kept = (f"sqlite:///{tmp_path}/{name}.db" for name in ("theirs", "ours", "keys"))
    with OfficialSqlite.from_conn_string(f"{tmp_path}/theirs.db") as saver:
        GRAPH.compile(checkpointer=saver).invoke({"messages": [("user", "hi")]}, config("t"))
    keyring = Keyring.generate()
    keyring.to_file(tmp_path / "keyfile")
    options = ("--url", ours, "--keyfile", str(tmp_path / "keyfile"), "--keys-url", kept)
    done = CliRunner().invoke(app, [*options, "adopt", theirs])
    assert done.exit_code == 0, done.exception
    with Vault.open(ours, keyring=keyring, keys_url=kept) as vault:
        assert [thread.thread_id for thread in vault.threads()] == ["t"]
