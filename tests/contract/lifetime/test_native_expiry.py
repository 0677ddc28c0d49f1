"""On Redis a thread that no sweep comes for goes by itself, and the next sweep removes all that led to it."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME
from langgraph.graph import START, StateGraph
from langgraph.types import Interrupt

from stepvault import Vault
from stepvault._keystore import marker, store
from stepvault.checkpointers.redis.keys import Keys
from stepvault.errors import ConfigurationError, ThreadGoneError
from tests.contract.building import config, id_of, ids, listed, put
from tests.contract.lifetime.building import docs_left, later
from tests.contract.lifetime.test_nothing_left import FACTS, MORTAL, THREAD, State, answered, rows, stays
from tests.contract.matrix import KEYRING, AsAsync, Database, RedisDatabase, matrix, opened

REDIS = [param for param in matrix() if issubclass(param.values[0][0], RedisDatabase)]
# In every mode, sealed and on a cluster by default too: nothing else shows that two keys go together there.
EVERY = [pytest.param(*param.values, id=param.id.replace("-", "_"), marks=param.marks) for param in REDIS]
TTL = {"default_ttl": 10, "native_grace_minutes": 5}
MINUTE = 60_000
KEYSTORE = (Keys("stepvault").space(marker.MARKER_SPACE), Keys("stepvault").space(store.SPACE))
AT = config(THREAD, user_id=["ann-77ac", "bob-77ac"])


@pytest.fixture(params=REDIS)
async def redis_database(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    async with opened(request, *request.param) as database:
        yield database


@pytest.fixture(params=[param for param in REDIS if param.values[0][1] == "async"])
async def vault(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Vault, Any]]:
    async with (
        opened(request, *request.param) as database,
        Vault.open(database.url, ttl=TTL, **database.options) as vault,
    ):
        await vault.asetup()
        yield vault, database


def _each(database: Any, kind: str) -> list[tuple[Any, bytes]]:
    return [(node, key) for node in database._nodes() for key in node.scan_iter(f"stepvault:{kind}:*")]


def left_to_live(database: Any) -> int | None:
    """Minutes until the one thread goes by itself; None: it does not."""
    ((node, key),) = _each(database, "ck")
    left = node.pttl(key)
    assert left == -1 or left % MINUTE > MINUTE // 2, left  # a test takes less than that
    if left == -1:
        return None
    ((where, beside),) = _each(database, "led")
    assert (
        abs(int(where.hget(beside, "x")) - _now(where) - left) < MINUTE // 2
    )  # its memory is told from the next one's by it
    return int(left / MINUTE) + 1


def _now(node: Any) -> int:
    seconds, micros = node.time()
    return int(seconds) * 1000 + int(micros) // 1000


def lists(database: Any) -> int:
    return len(_each(database, "led"))


def let_go(database: Any, count: int = 1) -> None:
    """Let the time of every thread that goes by itself be over."""
    going = [(node, key) for node, key in _each(database, "ck") if node.pttl(key) > 0]
    assert len(going) == count
    for node, key in going:
        node.pexpire(key, 0)
    assert not any(node.exists(key) for node, key in going)


async def asked(saver: Any, at: RunnableConfig) -> RunnableConfig:
    stored = await put(saver, {"a": 1}, at=at)
    await saver.aput_writes(stored, [(INTERRUPT, [Interrupt("?", id="i")])], "task")
    return stored


@pytest.mark.parametrize("redis_database", EVERY, indirect=True)
async def test_it_goes_a_grace_after_its_deadline_unless_it_is_pinned(redis_database: Any) -> None:
    saver = await redis_database.saver(ttl=TTL)
    stored = await asked(saver, config())
    assert left_to_live(redis_database) is None
    await saver.aput_writes(stored, [(RESUME, ["yes"]), ("a", 2)], "task")
    assert left_to_live(redis_database) == 15
    await put(saver, {"a": 2}, at=config(stepvault_ttl=20))
    assert left_to_live(redis_database) == 25
    await put(saver, {"a": 2}, at=config(stepvault_ttl=None))
    assert (left_to_live(redis_database), lists(redis_database)) == (None, 0)
    await put(saver, {"a": 3}, at=config(stepvault_ttl=1))
    assert (left_to_live(redis_database), lists(redis_database)) == (6, 1)
    await saver.adelete_thread("t")
    assert _each(redis_database, "ck") == _each(redis_database, "led") == []


async def test_every_writer_moves_it(redis_database: Any) -> None:
    saver = await redis_database.saver(ttl=TTL)
    stored = await put(saver, {"a": "x" * 2_000_000, "b": [str(n) * 300 for n in range(300)]}, at=config(user_id="ann"))
    assert left_to_live(redis_database) == 15  # uploaded in parts
    assert lists(redis_database) == 1
    raw = getattr(saver, "saver", saver)
    long, short = ({"ttl": {**TTL, "default_ttl": minutes}} for minutes in (30, 3))
    for options, minutes in ((long, 35), (short, 8)):
        other = await redis_database.saver(**options)
        await put(other, {"a": 1}, at=stored)
        assert left_to_live(redis_database) == minutes
    await saver.atag(stored, "x")
    assert left_to_live(redis_database) in (8, 15)
    await saver.aprune(["t"], strategy="keep_latest")
    await put(saver, {"a": 1})
    assert left_to_live(redis_database) == 15
    if isinstance(saver, AsAsync):
        with raw.lease("t", ttl=1200):
            assert await asyncio.to_thread(left_to_live, redis_database) == 25
    else:
        async with raw.lease("t", ttl=1200):
            assert left_to_live(redis_database) == 25
    assert left_to_live(redis_database) == 15
    plain = await redis_database.saver()  # it has no `ttl`: what it writes waits for a sweep
    await put(plain, {"a": 1})
    assert (left_to_live(redis_database), lists(redis_database)) == (None, 0)
    later(saver, 5)
    assert await saver.aget_tuple(config()) is not None  # a read that counts
    assert left_to_live(redis_database) == 20
    assert lists(redis_database) == 1
    ((node, key),) = _each(redis_database, "led")
    before = node.hgetall(key)
    node.delete(key)  # lost, with a setting that this is warned of
    await put(saver, {"a": 1}, at=config(user_id="bob"))
    assert len(node.hgetall(key)) == len(before) + 1


async def test_what_was_there_before_gets_it_when_it_is_told_to_expire(redis_database: Any) -> None:
    before = await redis_database.saver()
    await put(before, {"a": 1}, at=config(user_id="ann"))
    assert left_to_live(redis_database) is None
    saver = await redis_database.saver(ttl=TTL)
    await saver.aapply_ttl()
    assert (left_to_live(redis_database), lists(redis_database)) == (15, 1)
    off = await redis_database.saver(ttl={**TTL, "native_grace_minutes": None})
    await put(off, {"a": 1})
    assert (left_to_live(redis_database), lists(redis_database)) == (None, 0)


async def test_a_copy_has_its_own(redis_database: Any) -> None:
    saver = await redis_database.saver(ttl=TTL)
    await put(saver, {"a": 1}, at=config(user_id="ann"))
    await saver.acopy_thread("t", "copy")
    assert lists(redis_database) == 2
    let_go(redis_database, 2)
    await saver.acopy_thread("t", "late")  # there is nothing to copy
    assert await ids(saver) == []
    later(saver, 11)
    assert (await saver.asweep()).threads == 2
    assert _each(redis_database, "led") == []
    assert await docs_left(saver) == []


async def test_one_that_went_by_itself_is_as_one_that_was_swept(redis_database: Any) -> None:
    saver = await redis_database.raw(ttl=TTL)
    named = redis_database.under_async_names(saver)
    run: Any = config(user_id="ann", thread_id="t", run_id="run-1")
    run = {**run, "metadata": {"run_id": "run-1"}, "run_id": "run-1"}
    stored = await put(named, {"a": "old"}, at=run)
    let_go(redis_database)
    assert await named.aget_tuple(stored) is None
    assert await listed(named) == []
    assert (await named.athreads()).threads == []
    with pytest.raises(ConfigurationError):
        await named.atag(stored, "x")
    new = await put(named, {"a": "new"}, at=config(user_id="bob"))  # nothing of ann is left
    assert await ids(named, config()) == [id_of(new)]
    assert {name for name, _ in await docs_left(named)} == {"expiry", "subjects"}
    assert len([name for name, _ in await docs_left(named) if name == "subjects"]) == 1
    later(named, 11)
    assert (await named.asweep()).threads == 1
    assert await docs_left(named) == []


async def test_it_goes_by_the_servers_clock(redis_database: Any) -> None:
    saver = await redis_database.saver(ttl={"default_ttl": 0.2 / 60, "native_grace_minutes": 0.3 / 60})
    await put(saver, {"a": 1}, at=config(user_id="ann"))
    later(saver, 60 * 24)  # a skewed client
    while _each(redis_database, "ck"):
        await asyncio.sleep(0.02)
    report = await saver.asweep(dry_run=True)
    assert (report.threads, lists(redis_database)) == (1, 1)
    assert (await saver.asweep()).threads == 1
    await saver.asweep()  # which takes the tenant out of its lists
    assert [key for _, key in _each(redis_database, "*") if key not in KEYSTORE] == []


async def lived(vault: Vault) -> None:
    """Answered, with nothing that waits; tagged."""
    app = await answered(vault)
    await vault.checkpointer.atag((await app.aget_state(AT)).config, "tag-77ac")


@pytest.mark.parametrize("vault", [param for param in EVERY if param.id.endswith("_async")], indirect=True)
async def test_no_key_of_it_is_left_after_one_sweep(vault: tuple[Vault, Any]) -> None:
    opened, database = vault
    for name in ("other", "gone"):
        await put(opened.checkpointer, {"a": 1}, at=config(name, stepvault_ttl=None))
        await opened.store.aput(FACTS, "fact", {"n": 1}, ttl=MORTAL)
    await opened.checkpointer.adelete_thread("gone")
    await opened.store.adelete(FACTS, "fact")
    await opened.asweep()
    before, keys = await rows(database), len(_living_keys(database))
    await opened.store.aput(FACTS, "fact", {"n": 1}, ttl=MORTAL)
    await lived(opened)
    let_go(database)
    assert list(await opened.inbox.alist(status=None)) == []
    assert list(await opened.inbox.achanges()) == []
    assert await opened.effects.ain_doubt() == []
    assert [thread.thread_id async for thread in _of(opened, "ann-77ac")] == []
    later(opened.checkpointer, 31)
    assert (await opened.asweep(dry_run=True)).threads == 1
    assert (await opened.asweep()).threads == 1
    await opened.store.adelete(FACTS, "fact")
    await opened.asweep()
    left = [name for name in await rows(database) if name not in before and not stays(name)]
    assert [name for name in left if str(KEYSTORE[1]) not in name] == []
    assert len(_living_keys(database)) <= keys + 1  # of the namespace of its memory; the thread's is destroyed


def _living_keys(database: Any) -> list[bytes]:
    """The data keys of a sealed database."""
    spaces = [node.zrange(key, 0, -1) for node, key in _each(database, "doc") if key == KEYSTORE[1]]
    return [member for space in spaces for member in space if member[:1] == b"k" and member[-1:] != b"\xc0"]


async def _of(vault: Vault, subject: str) -> AsyncIterator[Any]:
    for thread in (await vault.athreads(subject=subject)).threads:
        yield thread


@pytest.mark.parametrize("who", ["ann-77ac", "decider-77ac"])
async def test_a_person_of_it_is_erased_to_nothing(who: str, vault: tuple[Vault, Any]) -> None:
    opened, database = vault
    await opened.store.aput(FACTS, "fact", {"n": 1})
    await lived(opened)
    let_go(database)
    exported = io.StringIO()
    await opened.erasure.aexport(who, exported)
    assert "question-77ac" not in exported.getvalue()
    request = await opened.erasure.aerase(who)
    assert request.state == "receipted"
    content = database.content()
    for part in (who, "question-77ac", "memory-77ac", "reference-77ac"):
        assert part.encode() not in content, part
    later(opened.checkpointer, 25 * 60)  # beyond the time for which the thread is closed
    await opened.asweep()
    stay = {"tombstones", "receipts", "signing", "erasures"}
    assert {name for name, _ in await docs_left(opened.checkpointer)} <= stay


@pytest.mark.parametrize("shared", ["keep", "anonymise"])
async def test_who_leaves_a_thread_leaves_what_leads_to_it(shared: Any, vault: tuple[Vault, Any]) -> None:
    opened, database = vault
    await opened.store.aput(FACTS, "fact", {"n": 1})
    await lived(opened)
    await opened.erasure.aerase("ann-77ac", shared=shared)
    assert lists(database) == 1
    assert b"ann-77ac" not in database.content()
    let_go(database)
    later(opened.checkpointer, 11)
    assert (await opened.asweep()).threads == 1
    stay = {"tombstones", "receipts", "signing", "erasures"}
    assert {name for name, _ in await docs_left(opened.checkpointer)} <= stay


async def test_a_new_thread_has_no_memory_of_a_former_one(vault: tuple[Vault, Any]) -> None:
    opened, database = vault
    notes = opened.store.thread_scope("t")
    await put(opened.checkpointer, {"a": 1}, at=config(user_id="ann"))
    await opened.store.aput(notes, "old", {"n": 1})
    let_go(database)
    assert await opened.store.aget(notes, "old") is None
    assert await opened.store.asearch(notes) == []
    await put(opened.checkpointer, {"a": 2}, at=config(user_id="ann"))
    assert await opened.store.aget(notes, "old") is None
    assert len((await opened.athreads(subject="ann")).threads) == 1


async def test_a_run_that_loaded_it_stores_nothing(vault: tuple[Vault, Any]) -> None:
    opened, database = vault

    async def sleep(state: Any) -> Any:
        while not _each(database, "ck"):
            await asyncio.sleep(0.01)
        let_go(database)
        return {"log": ["late"]}

    builder = StateGraph(State).add_node("sleep", sleep).add_edge(START, "sleep")
    with pytest.raises(ThreadGoneError):
        await builder.compile(checkpointer=opened.checkpointer).ainvoke({"log": ["a"]}, config(user_id="ann"))
    assert _each(database, "ck") == []


@pytest.mark.parametrize("redis_database", [param for param in REDIS if param.id == "redis-async"], indirect=True)
async def test_sealing_leaves_nothing_of_it_in_clear(redis_database: Any) -> None:
    options = {k: v for k, v in redis_database.options.items() if k != "keyring"}
    async with Vault.open(redis_database.url, ttl=TTL, **options) as plain:
        await put(plain.checkpointer, {"a": 1}, at=config(THREAD, user_id="ann-77ac"))
        await plain.store.aput((*plain.store.thread_scope(THREAD), "notes"), "own", {"text": "memory-77ac"})
        await put(plain.checkpointer, {"a": 1}, at=config("lives", user_id="bob"))
        let_go(redis_database, 2)
        with pytest.raises(ConfigurationError, match="unsealed"):  # what led to them is not
            await redis_database.raw(keyring=KEYRING)
        await put(plain.checkpointer, {"a": 1}, at=config("lives", user_id="bob"))
    async with Vault.open(redis_database.url, ttl=TTL, keyring=KEYRING, **options) as vault:
        await vault.aseal(settle=0)
        assert [thread.thread_id for thread in (await vault.athreads()).threads] == ["lives"]
        assert lists(redis_database) == 1
        content = redis_database.content()
        for part in (THREAD, "ann-77ac", "memory-77ac", "bob"):
            assert part.encode() not in content, part
        let_go(redis_database)
        later(vault.checkpointer, 31)
        assert (await vault.asweep()).threads == 1
        assert await docs_left(vault.checkpointer) == []


@pytest.mark.parametrize("grace", [0, -1, "1", True])
async def test_what_is_no_grace_is_refused(grace: Any, database: Database) -> None:
    with pytest.raises(ConfigurationError, match="native_grace_minutes"):
        database.unprepared(ttl={"native_grace_minutes": grace})
