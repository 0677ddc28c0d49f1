"""Leaving: a sealed database becomes an unsealed one, nothing is lost, and everything goes on."""

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

from stepvault.checkpointers._conversion import SealProgress
from stepvault.checkpointers._directions import unseal
from stepvault.checkpointers._erasure import Erasure
from stepvault.checkpointers._inbox import Inbox
from stepvault.encryption import Keyring
from stepvault.errors import ConfigurationError, SubjectErasedError
from tests.contract.building import config, put, whole
from tests.contract.matrix import Database
from tests.contract.sealed.test_nothing_in_clear import Marker, Places, State
from tests.contract.sealed.test_sealing import CHECKOUT, grown, sealing, unprepared


async def unsealing(saver: Any, **options: Any) -> SealProgress:
    return await saver._driver.arun(unseal(saver._scope, options.pop("settle", 0), **options))


async def test_everything_is_as_it_was_and_readable_without_keys(database: Database, marker: Marker) -> None:
    at = Places(marker)
    sealed = await database.saver(ttl={"default_ttl": 600})
    tenants = {"": sealed, "acme": sealed.for_tenant("acme")}
    threads = [at("thread"), "two", "1"]
    for saver in tenants.values():
        for thread in threads:
            await grown(saver, at, thread)
    before = {(name, thread): await whole(saver, thread) for name, saver in tenants.items() for thread in threads}
    seen: list[SealProgress] = []
    assert (await unsealing(sealed, report=seen.append)).threads == 6
    assert [progress.threads for progress in seen] == [1, 2, 3, 4, 5, 6]

    plain = await database.saver(keyring=None, ttl={"default_ttl": 600})
    for name, view in {"": plain, "acme": plain.for_tenant("acme")}.items():
        for thread in threads:
            assert await whole(view, thread) == before[name, thread]
        assert {info.thread_id for info in await view.athreads()} == set(threads)
        assert {info.subjects for info in await view.athreads(subject=at("subject"))} == {(at("subject"),)}
        found = [entry async for entry in view.alist(None, filter={"who": at("metadata"), "step": 1})]
        assert len(found) == 3
    assert set(await plain.atags("two")) == {at("tag")}
    with pytest.raises(ConfigurationError, match="was unsealed"):
        await unprepared(database).aget_tuple(config())
    assert (await unsealing(unprepared(database))).threads == 0
    await put(plain, {"x": 1}, at=(await plain.aget_tuple(config("two"))).config)
    await grown(plain, at, "new")

    resealed = unprepared(database)
    assert (await sealing(resealed)).threads == 7
    assert at.found_in(database.content()) == []
    assert await whole(resealed, at("thread")) == before["", at("thread")]
    assert {info.thread_id for info in await resealed.athreads(subject=at("subject"))} == {*threads, "new"}


async def test_who_was_erased_stays_erased_and_questions_can_be_answered(database: Database, marker: Marker) -> None:
    at = Places(marker)

    def graph_on(saver: Any) -> Any:
        builder = StateGraph(State)
        builder.add_node("ask", lambda state: {"log": [interrupt(at("question"))]})
        builder.add_edge(START, "ask")
        return builder.compile(checkpointer=saver)

    sealed = await database.raw()
    await graph_on(sealed).ainvoke({"text": at("text")}, config(at("thread"), user_id="kept"))
    await put(sealed, {"x": 1}, at=config("theirs", user_id="erased"))
    await Erasure(sealed).aerase("erased")
    (asked,) = await Inbox(sealed).alist()
    await Inbox(sealed).aamend(asked.id, external_ref=at("reference"))
    await unsealing(sealed)

    plain = await database.raw(keyring=None)
    with pytest.raises(SubjectErasedError):
        await put(plain, {"x": 1}, at=config("again", user_id="erased"))
    (found,) = await Inbox(plain).alist(external_ref=at("reference"))
    assert (found.id, found.value, found.thread_id) == (asked.id, at("question"), at("thread"))
    decision = await Inbox(plain).adecide(found.id, at("answer"), by=at("decider"))
    done = await graph_on(plain).ainvoke(decision.command, decision.config)
    assert done["log"] == [at("answer")]
    assert (await Erasure(plain).aplan("kept")).threads[0].thread_id == at("thread")
    assert (await Erasure(plain).aplan(at("decider"))).decisions == 1
    resealed = database.unprepared()
    await sealing(resealed)
    with pytest.raises(SubjectErasedError):
        await put(resealed, {"x": 1}, at=config("again", user_id="erased"))
    assert (await Erasure(resealed).aplan(at("decider"))).decisions == 1
    assert at.found_in(database.content()) == []


async def test_pods_with_keys_go_on_throughout_and_pods_without_come_in_at_the_end(database: Database) -> None:
    leaver, pod = await database.saver(), await database.saver()
    counts = {f"t{number}": 1 for number in range(4)}
    for thread in counts:
        await put(leaver, {"log": [0]}, at=config(thread))
    task = asyncio.create_task(unsealing(leaver, settle=1.0))
    while not leaver._core.keys.leaving:
        await asyncio.sleep(0)
    with pytest.raises(ConfigurationError, match="pass keyring="):
        await unprepared(database, keyring=None).aget_tuple(config("t0"))
    pod._core.tables.admitted = float("-inf")  # a minute later, which `settle` stands for
    turns = cycle(counts.copy())
    while not task.done():
        heads = {thread: await pod.aget_tuple(config(thread)) for thread in counts}
        assert all(heads.values())
        thread = next(turns)
        await put(pod, {"log": [counts[thread]]}, at=heads[thread].config)
        counts[thread] += 1
        if len(counts) < 8:
            counts[f"new {len(counts)}"] = 1
            await put(pod, {"log": [0]}, at=config(f"new {len(counts) - 1}"))
    await task
    await put(pod, {"late": 1}, at=config("late"))  # it has not looked yet
    plain = await database.saver(keyring=None)
    for thread, count in {**counts, "late": 1}.items():
        assert len(await whole(plain, thread)) == count, thread
    assert {info.thread_id for info in await plain.athreads(limit=500)} == {*counts, "late"}
    pod._core.tables.admitted = float("-inf")
    with pytest.raises(ConfigurationError, match="was unsealed"):
        await put(pod, {"x": 1}, at=config("t0"))


async def test_only_its_own_keys_unseal_and_seal_a_database(database: Database) -> None:
    saver = await database.saver()
    await put(saver, {"x": 1})
    with pytest.raises(ConfigurationError, match="keyring="):
        await unsealing(unprepared(database, keyring=None))
    with pytest.raises(Exception, match="key"):
        await unsealing(unprepared(database, keyring=Keyring({"test": os.urandom(32)})))
    assert await (await database.saver()).aget_tuple(config()) is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("every", [30, pytest.param(1, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])])
def test_killed_at_any_statement_nothing_is_lost_and_the_next_run_goes_on(tmp_path: Path, every: int) -> None:
    argv = [sys.executable, "-m", "tests.contract.sealed.killing", str(tmp_path), str(every), "unseal"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=1000, cwd=CHECKOUT)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= (15 if every > 1 else 200)
