"""A vault's store and its threads: memory of a thread lives as long as it, and what a run read is known and kept."""

from __future__ import annotations

import asyncio
import contextvars
import io
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import BaseStore
from langgraph.types import Command, interrupt

from stepvault import Vault
from stepvault.checkpointers._ops import reads
from stepvault.checkpointers._ops.spaces import space
from stepvault.errors import IdentifierError, ThreadGoneError
from stepvault.stores._dialect import NewItem, Work
from stepvault.stores._ops import threads
from stepvault.stores._ops.namespaces import ns_key
from tests.contract.building import checkpoint, config, put
from tests.contract.matrix import Database, InThreads, RedisClusterDatabase, SqliteDatabase, matrix

SHORT = 1.2 / 60
PAST = 1.5  # seconds, beyond SHORT
ITEM = ("users", "ann")

pytestmark = pytest.mark.parametrize(
    "database", [param for param in matrix() if param.values[0][0] is not RedisClusterDatabase], indirect=True
)


class Under:
    """A vault and its parts under their async names, whichever half is called."""

    def __init__(self, mode: str, vault: Vault) -> None:
        self.mode, self.vault = mode, vault

    def named(self, of: Any) -> Any:
        return InThreads(of) if self.mode == "sync" else of

    @property
    def store(self) -> Any:
        return self.named(self.vault.store)

    @property
    def saver(self) -> Any:
        return self.named(self.vault.checkpointer)

    def scope(self, thread_id: str) -> tuple[str, ...]:
        return (*self.vault.store.thread_scope(thread_id), "notes")

    async def invoke(self, node: Any, value: Any, at: Any) -> Any:
        graph = StateGraph(MessagesState).add_node("n", node).add_edge(START, "n")
        app = graph.compile(checkpointer=self.vault.checkpointer, store=self.vault.store)
        if self.mode == "sync":
            return await asyncio.to_thread(app.invoke, value, at)
        return await app.ainvoke(value, at)


@pytest.fixture
async def at(database: Database) -> AsyncIterator[Under]:
    prefix = "sqlite:///" if isinstance(database, SqliteDatabase) else ""
    vault = Vault.open(f"{prefix}{database.url}", **database.options)
    await vault.asetup()
    yield Under(database.mode, vault)
    await vault.aclose()


HELLO = {"messages": [("user", "hi")]}


def asks(state: MessagesState, *, store: BaseStore) -> Any:
    store.put(ITEM, "unread", {"n": 0}, index=False, ttl=SHORT)
    if store.get(ITEM, "fact") is None:
        store.put(ITEM, "fact", {"n": 1}, ttl=SHORT)
    assert store.search((*ITEM,), filter={"n": 1}, refresh_ttl=False)
    return {"messages": [("ai", interrupt("may I?"))]}


async def aasks(state: MessagesState, *, store: BaseStore) -> Any:
    await store.aput(ITEM, "unread", {"n": 0}, index=False, ttl=SHORT)
    if await store.aget(ITEM, "fact") is None:
        await store.aput(ITEM, "fact", {"n": 1}, ttl=SHORT)
    assert await store.asearch((*ITEM,), filter={"n": 1}, refresh_ttl=False)
    return {"messages": [("ai", interrupt("may I?"))]}


async def test_what_was_read_outlives_the_question(at: Under) -> None:
    node = asks if at.mode == "sync" else aasks
    for thread_id in ("one", "two", "three"):
        assert "__interrupt__" in await at.invoke(node, HELLO, config(thread_id))
    await at.saver.acopy_thread("three", "copy")
    assert len(await pins(at)) == 4
    await asyncio.sleep(PAST)
    assert (await at.named(at.vault).asweep(dry_run=True)).items == 1
    assert (await at.named(at.vault).asweep()).items == 1
    assert await at.store.aget(ITEM, "unread") is None
    assert (await at.store.aget(ITEM, "fact")).value == {"n": 1}  # reading it moves no deadline: it has none
    await at.store.aput(ITEM, "fact", {"n": 1}, ttl=SHORT)
    await at.invoke(node, Command(resume="yes"), config("one"))
    await at.saver.adelete_thread("two")
    await at.saver.adelete_thread("three")
    await asyncio.sleep(PAST)
    assert await at.store.aget(ITEM, "fact") is not None
    await at.saver.adelete_thread("copy")
    assert await at.store.aget(ITEM, "fact", refresh_ttl=False) is not None  # with its full time
    await asyncio.sleep(PAST)
    assert await at.store.asearch(ITEM) == []
    assert not await pins(at)


async def pins(at: Under) -> list[Any]:
    saver = at.vault.checkpointer
    op = saver._core.dialect.docs(space(saver._scope, reads.PINS), b"", b"", 100)
    return await saver._arun(op)  # type: ignore[no-any-return]


async def test_erasing_a_person_leaves_no_pin_that_names_their_items(at: Under) -> None:
    await at.invoke(asks if at.mode == "sync" else aasks, HELLO, config("of-bob", user_id="bob"))
    assert await pins(at)
    await at.named(at.vault.erasure).aerase("ann")
    assert not await pins(at)
    assert await at.store.asearch(()) == []


async def test_lineage_shows_what_changed_since(at: Under) -> None:
    await at.store.aput(ITEM, "stays", {"n": 2})
    await at.store.aput(ITEM, "goes", {"n": 1})
    await at.store.aput(ITEM, "changes", {"n": 1})
    await at.invoke(asks if at.mode == "sync" else aasks, HELLO, config("t"))
    (run,) = await at.named(at.vault).alineage("t")
    assert {read.key for read in run.reads} == {"fact", "goes", "changes"}
    assert {read.namespace for read in run.reads} == {ITEM}
    assert run.checkpoints[-1] == run.reads[0].checkpoint_id
    assert not run.changed
    await at.store.aput(ITEM, "changes", {"n": 9})
    await at.store.adelete(ITEM, "goes")
    lineage = await at.named(at.vault).alineage("t")
    assert {read.key: read.since for read in lineage.runs[0].changed} == {"changes": "changed", "goes": "gone"}
    assert "2 of 3 items it read changed since" in str(lineage)
    await at.invoke(asks if at.mode == "sync" else aasks, Command(resume="yes"), config("t"))
    first, second = await at.named(at.vault).alineage("t")
    assert len(first.changed) == 2
    assert {read.key for read in second.reads} == {"fact"}
    await at.saver.aprune(["t"])
    (left,) = await at.named(at.vault).alineage("t")
    assert not left.reads
    assert (await at.saver.alineage("t")).items == []


async def test_memory_of_a_thread_goes_with_it(at: Under) -> None:
    saver, store = at.saver, at.store
    for thread_id in ("deleted", "pruned", "other", "t.1"):
        await put(saver, {"a": 1}, at=config(thread_id))
        await store.aput(at.scope(thread_id), "k", {"n": 1}, ttl=SHORT)
    view = Under(at.mode, at.vault.for_tenant("elsewhere"))
    await put(view.saver, {"a": 1}, at=config("deleted"))
    await view.store.aput(view.scope("deleted"), "k", {"n": 1})
    await saver.adelete_thread("deleted")
    await saver.aprune(["pruned"], strategy="delete")
    await asyncio.sleep(PAST)
    assert {item.namespace for item in await store.asearch(())} == {at.scope("other"), at.scope("t.1")}
    assert len(await view.store.asearch(())) == 1
    await store.aput(at.scope("nobody"), "k", {"n": 1})
    await at.named(at.vault).asweep()
    assert len(await store.asearch(at.scope("nobody"))) == 1


async def test_memory_of_an_expired_thread(at: Under) -> None:
    saver, store = at.saver, at.store
    for thread_id in ("swept", "again", "waits"):
        first = await put(saver, {"a": 1}, at=config(thread_id, stepvault_ttl=SHORT))
        await store.aput(at.scope(thread_id), "k", {"n": 1})
    asked = (await at.invoke(asks if at.mode == "sync" else aasks, HELLO, config("waits")))["__interrupt__"]
    assert (asked[0].value, bool(first)) == ("may I?", True)
    await asyncio.sleep(PAST)
    assert await store.aget(at.scope("swept"), "k") is None
    assert await store.alist_namespaces(prefix=at.scope("again")) == []
    assert [item.namespace for item in await store.asearch(("thread_scope",))] == [at.scope("waits")]
    await put(saver, {"a": 1}, at=config("again"))
    assert await store.asearch(at.scope("again")) == []
    await at.named(at.vault).asweep()
    assert await store.asearch(("thread_scope",)) != []
    await put(saver, {"a": 1}, at=config("swept"))
    assert await store.asearch(at.scope("swept")) == []


async def test_a_late_run_leaves_nothing_in_the_memory_of_a_deleted_thread(at: Under) -> None:
    await put(at.saver, {"a": 1}, at=config("t"))
    saver, scope = at.vault.checkpointer, at.scope("t")

    def late(state: MessagesState, *, store: BaseStore) -> Any:
        store.put(scope, "before", {"n": 1})
        saver.delete_thread("t")
        store.put(scope, "after", {"n": 1})

    async def alate(state: MessagesState, *, store: BaseStore) -> Any:
        await store.aput(scope, "before", {"n": 1})
        await saver.adelete_thread("t")
        await store.aput(scope, "after", {"n": 1})

    with pytest.raises(ThreadGoneError):
        await at.invoke(late if at.mode == "sync" else alate, HELLO, config("t"))
    assert await at.store.asearch(()) == []


async def test_a_late_run_takes_nothing_from_a_thread_that_was_made_anew(at: Under) -> None:
    await put(at.saver, {"a": 1}, at=config("t"))
    vault, scope = at.vault, at.scope("t")

    def anew() -> None:
        vault.checkpointer.delete_thread("t")
        made = checkpoint({"a": 2})
        vault.checkpointer.put(config("t"), made, {"source": "loop"}, made["channel_versions"])
        vault.store.put(scope, "theirs", {"n": 2})

    def late(state: MessagesState, *, store: BaseStore) -> Any:
        contextvars.Context().run(anew)
        store.put(scope, "late", {"n": 1})

    async def alate(state: MessagesState, *, store: BaseStore) -> Any:
        await asyncio.get_running_loop().run_in_executor(None, contextvars.Context().run, anew)
        await store.aput(scope, "late", {"n": 1})

    with pytest.raises(ThreadGoneError):
        await at.invoke(late if at.mode == "sync" else alate, HELLO, config("t"))
    assert [(item.key, item.value) for item in await at.store.asearch(())] == [("theirs", {"n": 2})]


async def test_what_is_written_while_a_sweep_looks_stays(at: Under, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread is missing, its memory is old; both are written at the very moment in which that is removed."""
    monkeypatch.setattr(threads, "_YOUNG", 500_000)
    dialect = at.vault.store._scope.core.dialect
    for key in ("old", "written"):
        await at.store.aput(at.scope("nobody"), key, {"n": 1})
    await asyncio.sleep(0.6)
    real = dialect.drop

    def drop(tenant: bytes, rows: Any) -> Any:
        (row,) = (row for row in rows if row.key == b"written")
        item = NewItem(row.ns, row.key, None, None, None, None, None, "", (), row.body)
        yield from dialect.work(tenant, Work(puts=[item]))
        yield from real(tenant, rows)

    monkeypatch.setattr(dialect, "drop", drop)
    await at.named(at.vault).asweep()
    assert [(item.key, item.value) for item in await at.store.asearch(())] == [("written", {"n": 1})]
    await put(at.saver, {"a": 1}, at=config("nobody"))
    monkeypatch.undo()
    monkeypatch.setattr(threads, "_YOUNG", 0)
    await at.named(at.vault).asweep()
    assert [item.key for item in await at.store.asearch(())] == ["written"], "its thread is there now"


async def test_a_sweep_tidies_up_after_killed_workers(at: Under, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "_GRACE", 0)
    monkeypatch.setattr(threads, "_YOUNG", 0)
    await put(at.saver, {"a": 1}, at=config("t"))
    await at.store.aput(at.scope("nobody"), "k", {"n": 1})
    await at.store.aput(at.scope("t"), "k", {"n": 1})
    await at.store.aput(ITEM, "k", {"n": 1}, ttl=SHORT)
    saver = at.vault.checkpointer
    beside = saver._core.wired.store
    await saver._arun(reads.pin(saver._scope, beside, saver._scope.key("t"), [(ITEM, "k")]))
    await asyncio.sleep(PAST)
    assert await at.store.aget(ITEM, "k") is not None
    await asyncio.sleep(0.01)
    await at.named(at.vault).asweep()
    assert [item.namespace for item in await at.store.asearch(("thread_scope",))] == [at.scope("t")]
    await asyncio.sleep(PAST)
    assert await at.store.aget(ITEM, "k") is None


async def test_the_key_of_memory_goes_when_a_sweep_has_left_nothing_of_it(
    at: Under, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed = at.vault.checkpointer._core.keys is not None
    monkeypatch.setattr(threads, "_YOUNG", 500_000)
    for key in ("a", "b"):
        await at.store.aput(at.scope("nobody"), key, {"n": 1})
    await at.named(at.vault).asweep()
    assert len(await at.store.asearch(())) == 2, "it is young"
    assert not sealed or await _living_keys(at, "nobody") == 1
    await asyncio.sleep(0.6)
    await at.named(at.vault).asweep()
    assert await at.store.asearch(()) == []
    assert not sealed or await _living_keys(at, "nobody") == 0
    await at.store.aput(at.scope("nobody"), "c", {"n": 2})
    assert [item.value for item in await at.store.asearch(())] == [{"n": 2}]


async def _living_keys(at: Under, thread: str) -> int:
    """How many keys can still open the memory of a thread."""
    store = at.vault.store
    keys = store._scope.core.dialect.keys
    names = await store._arun(store._scope.core.dialect._names(store._scope.tenant))
    owner = names.owner(names.ns(ns_key(at.scope(thread))))
    rows = await store._arun(keys.at(keys.store.load([owner])))
    return sum(row.wrapped is not None for row in rows)


async def test_what_a_task_beside_the_question_reads_is_kept_too(at: Under) -> None:
    def ask(state: MessagesState) -> Any:
        return {"messages": [("ai", interrupt("may I?"))]}

    def beside(state: MessagesState, *, store: BaseStore) -> Any:
        time.sleep(0.3)
        store.put(ITEM, "late", {"n": 1}, ttl=SHORT)
        assert store.get(ITEM, "late")

    async def abeside(state: MessagesState, *, store: BaseStore) -> Any:
        await asyncio.sleep(0.3)
        await store.aput(ITEM, "late", {"n": 1}, ttl=SHORT)
        assert await store.aget(ITEM, "late")

    graph = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask").add_edge(START, "beside")
    app = graph.add_node("beside", beside if at.mode == "sync" else abeside).compile(
        checkpointer=at.vault.checkpointer, store=at.vault.store
    )
    await (asyncio.to_thread(app.invoke, HELLO, config("t")) if at.mode == "sync" else app.ainvoke(HELLO, config("t")))
    await asyncio.sleep(PAST)
    assert await at.store.aget(ITEM, "late") is not None


async def test_a_thread_whose_id_is_too_long_for_memory_is_removed_like_any_other(at: Under) -> None:
    thread_id = "é" * 300
    with pytest.raises(IdentifierError, match="too long"):
        at.scope(thread_id)
    await put(at.saver, {"a": 1}, at=config(thread_id))
    await at.saver.adelete_thread(thread_id)
    await put(at.saver, {"a": 1}, at=config(thread_id, stepvault_ttl=0.001))
    await put(at.saver, {"a": 1}, at=config("other", stepvault_ttl=0.001))
    await asyncio.sleep(0.2)
    assert (await at.named(at.vault).asweep()).threads == 2
    await put(at.saver, {"a": 1}, at=config(thread_id, user_id="ann"))
    erasure = at.named(at.vault.erasure)
    assert await erasure.aexport("ann", io.StringIO()) > 0
    assert (await erasure.aerase("ann")).state == "receipted"
    assert await at.saver.aget_tuple(config(thread_id)) is None
