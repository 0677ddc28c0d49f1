"""Sealing a database that was used without keys: nothing is lost, nothing stays readable, everything goes on."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

from stepvault._core.plan import Call, Op
from stepvault.checkpointers._conversion import SealProgress
from stepvault.checkpointers._directions import seal
from stepvault.checkpointers._inbox import Inbox
from stepvault.errors import ConfigurationError
from tests.contract.building import config, put, whole
from tests.contract.matrix import Database
from tests.contract.sealed.test_nothing_in_clear import Marker, Places, State

CHECKOUT = Path(__file__).parents[3]


async def sealing(saver: Any, **options: Any) -> SealProgress:
    return await saver._driver.arun(seal(saver._scope, options.pop("settle", 0), **options))


def unprepared(database: Database, **options: Any) -> Any:
    return database.under_async_names(database.unprepared(**options))


async def grown(saver: Any, at: Places, thread: str, steps: int = 3) -> None:
    before = config(thread, user_id=at("subject"))
    values: dict[str, Any] = {"log": [], "text": at("text") * 40}
    for number in range(steps):
        values = {**values, "log": [*values["log"], f"{at('log')} {number}"]}
        before = await put(saver, values, at=before, metadata={"step": number, "who": at("metadata")})
        await saver.aput_writes(before, [("log", at("write")), ("__error__", at("error"))], f"task {number}")
    await saver.atag(before, at("tag"))


async def test_everything_is_sealed_and_as_it_was(database: Database, marker: Marker) -> None:
    at = Places(marker)
    plain = await database.saver(keyring=None, ttl={"default_ttl": 600})
    tenants = {"": plain, "acme": plain.for_tenant("acme")}
    threads = [at("thread"), "two", "1"]
    for saver in tenants.values():
        for thread in threads:
            await grown(saver, at, thread)
    before = {(name, thread): await whole(saver, thread) for name, saver in tenants.items() for thread in threads}
    assert at.found_in(database.content())

    sealed = unprepared(database, ttl={"default_ttl": 600})
    seen: list[SealProgress] = []
    assert (await sealing(sealed, report=seen.append)).threads == 6
    assert [progress.threads for progress in seen] == [1, 2, 3, 4, 5, 6]

    assert at.found_in(database.content()) == []
    for reader in (sealed, await database.saver()):
        views = {"": reader, "acme": reader.for_tenant("acme")}
        for (name, thread), rows in before.items():
            assert await whole(views[name], thread) == rows
        found = [entry async for entry in reader.alist(None, filter={"who": at("metadata"), "step": 1})]
        assert len(found) == 3
        assert set(await reader.atags("two")) == {at("tag")}
        assert {info.thread_id for info in await reader.athreads()} == set(threads)
        assert {info.subjects for info in await reader.athreads()} == {(at("subject"),)}
    assert [info.thread_id for info in await sealed.athreads(subject=at("subject"))] != []
    with pytest.raises(ConfigurationError, match="pass keyring="):
        await unprepared(database, keyring=None).aget_tuple(config())
    assert (await sealing(sealed)).threads == 0
    await put(sealed, {"x": 1}, at=(await sealed.aget_tuple(config("two"))).config)
    assert len(await whole(sealed, "two")) == 4


async def test_questions_that_wait_can_be_answered_afterwards(database: Database, marker: Marker) -> None:
    at = Places(marker)

    def graph_on(saver: Any) -> Any:
        builder = StateGraph(State)
        builder.add_node("ask", lambda state: {"log": [interrupt(at("question"))]})
        builder.add_edge(START, "ask")
        return builder.compile(checkpointer=saver)

    plain = await database.raw(keyring=None)
    await graph_on(plain).ainvoke({"text": at("text")}, config(at("thread")))
    (asked,) = await Inbox(plain).alist()
    await Inbox(plain).aamend(asked.id, external_ref=at("reference"))
    sealed = database.unprepared()
    await sealing(sealed)
    assert at.found_in(database.content()) == []
    (found,) = await Inbox(sealed).alist(external_ref=at("reference"))
    assert (found.id, found.value, found.thread_id) == (asked.id, at("question"), at("thread"))
    decision = await Inbox(sealed).adecide(found.id, at("answer"), by=at("decider"))
    done = await graph_on(sealed).ainvoke(decision.command, decision.config)
    assert done["log"] == [at("answer")]
    assert at.found_in(database.content()) == []


async def test_pods_with_and_without_keys_at_once(database: Database, marker: Marker) -> None:
    """Pods that have the keys go on throughout; one without them goes on until it looks, and misses nothing."""
    at = Places(marker)
    old = await database.saver(keyring=None)
    threads = [f"t{number}" for number in range(6)]
    for thread in threads:
        await grown(old, at, thread, 1)
    counts = dict.fromkeys(threads, 1)
    sealer, pod = unprepared(database), unprepared(database)
    task, looked = asyncio.create_task(sealing(sealer, settle=1.5)), 0
    while not sealer._core.keys.accept_plain:
        await asyncio.sleep(0)
    with pytest.raises(ConfigurationError, match="pass keyring="):
        await unprepared(database, keyring=None).aget_tuple(config("t0"))
    turns = cycle(threads)
    while not task.done():
        pod._core.tables.admitted = float("-inf")
        heads = {thread: await pod.aget_tuple(config(thread)) for thread in threads}
        assert all(heads.values())
        thread = next(turns)
        await put(pod, {"log": [counts[thread]]}, at=heads[thread].config)
        counts[thread] += 1
        if len(counts) < 18:  # then it stops, as a pod does that has looked
            for saver in (old, pod):
                counts[f"new {len(counts)}"] = 1
                await put(saver, {"text": at("late")}, at=config(f"new {len(counts) - 1}"))
            seen = {thread: len(await whole(old, thread)) for thread in counts}
            if sealer._core.keys.grows_plain:
                assert seen == counts
                looked += 1
    await task
    assert looked
    pod._core.tables.admitted = old._core.tables.admitted = float("-inf")  # a minute later
    for thread, count in counts.items():
        assert len(await whole(pod, thread)) == count, thread
    assert {info.thread_id for info in await pod.athreads(limit=500)} == counts.keys()
    assert at.found_in(database.content()) == []
    with pytest.raises(ConfigurationError, match="pass keyring="):
        await put(old, {"x": 1}, at=config("t0"))


async def test_a_marker_that_was_forged_or_ended_opens_nothing(database: Database) -> None:
    from stepvault._core.rows import DocChange
    from stepvault._keystore.marker import MARKER_KEY, MARKER_SPACE
    from stepvault._keystore.marker import Marker as Stored

    saver = await database.saver()
    await put(saver, {"x": 1})
    inner, keys = saver._core.dialect._inner, saver._core.keys
    for window in (b"", os.urandom(24), (2**62).to_bytes(8, "big") + os.urandom(16)):
        body = Stored((await saver._driver.arun(keys.index())).deployment, b"M", window).body()
        await saver._driver.arun(inner.write_docs(MARKER_SPACE, [DocChange(MARKER_KEY, body, b"v")]))
        with pytest.raises(ConfigurationError, match="half sealed"):
            await database.saver()
        body = b"U" + body[1:]
        await saver._driver.arun(inner.write_docs(MARKER_SPACE, [DocChange(MARKER_KEY, body, b"v")]))
        with pytest.raises(ConfigurationError, match="half unsealed"):
            await database.saver()


async def test_an_unsealed_vault_cannot_be_sealed_without_keys(database: Database) -> None:
    saver = await database.saver(keyring=None)
    with pytest.raises(ConfigurationError, match="keyring="):
        await sealing(saver)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("every", [28, pytest.param(1, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])])
def test_killed_at_any_statement_nothing_is_lost_and_the_next_run_goes_on(tmp_path: Path, every: int) -> None:
    argv = [sys.executable, "-m", "tests.contract.sealed.killing", str(tmp_path), str(every)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=1000, cwd=CHECKOUT)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= (20 if every > 1 else 200)


@pytest.mark.parametrize("asked", ["notes_at", "skeleton", "delete"])
async def test_a_thread_that_is_sealed_while_it_is_looked_for_is_found(database: Database, asked: str) -> None:
    await put(await database.saver(keyring=None), {"x": 1}, at=config("t"))
    pod, sealer = unprepared(database), unprepared(database)
    core, key = pod._core, pod._scope.key("t")
    core.tables.admitted, core.tables.ready, core.keys.accept_plain = core.monotonic(), True, True
    dialect, first = core.dialect, "skeleton" if asked == "skeleton" else "notes_at"
    look = getattr(dialect.inner, first)

    def and_then_it_is_sealed(*args: Any) -> Op[Any]:
        found = yield from look(*args)
        setattr(dialect.inner, first, look)
        yield Call(lambda: sealer._driver.run(seal(sealer._scope, 0)), lambda: sealing(sealer))
        return found

    setattr(dialect.inner, first, and_then_it_is_sealed)
    if asked == "notes_at":
        ((thread, _),) = await pod._driver.arun(dialect.notes_at([(key, b"")]))
        assert thread is not None
    elif asked == "skeleton":
        assert await pod._driver.arun(dialect.skeleton(key)) is not None
    else:
        await pod.adelete_thread("t")
        assert await sealer.aget_tuple(config("t")) is None
