"""The moment at which a thread changes its form, under fire: writers that never rest, deaths, deletions, company."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepvault.checkpointers._directions import unseal
from stepvault.checkpointers._ops import holding
from stepvault.errors import StepvaultError
from tests.contract.building import config, put, whole
from tests.contract.matrix import Database, RedisDatabase
from tests.contract.sealed.conftest import params
from tests.contract.sealed.test_sealing import sealing, unprepared

DIRECTIONS = ("seal", "unseal")
WITHOUT_LOCKS = [param for param in params() if issubclass(param.values[0], RedisDatabase)]


class Died(BaseException):
    """What no code of ours may catch, as none runs after a kill."""


@pytest.fixture(autouse=True)
def short_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "HOLD", 1.0)


async def converting(saver: Any, direction: str, **options: Any) -> Any:
    if direction == "seal":
        return await sealing(saver, **options)
    return await saver._driver.arun(unseal(saver._scope, options.pop("settle", 0), **options))


async def begun(database: Database, direction: str, *threads: str) -> tuple[Any, Any]:
    """A database with threads, who will convert it, and a pod with keys that has noticed."""
    first = await database.saver(keyring=None) if direction == "seal" else await database.saver()
    for thread in threads:
        await put(first, {"log": ["x" * 400, thread]}, at=config(thread))
    return unprepared(database), noticed(unprepared(database))


def noticed(pod: Any) -> Any:
    core = pod._core
    core.tables.admitted, core.tables.ready, core.keys.accept_plain = core.monotonic() + 3600, True, True
    return pod


async def after(database: Database, direction: str) -> Any:
    return await database.saver() if direction == "seal" else await database.saver(keyring=None)


def dies(dialect: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Calls of this primitive end the process."""

    def die(*_: Any, **__: Any) -> Any:
        raise Died
        yield

    monkeypatch.setattr(dialect, name, die)


@pytest.mark.parametrize("direction", DIRECTIONS)
async def test_a_thread_that_is_written_without_pause_is_converted(database: Database, direction: str) -> None:
    converter, pod = await begun(database, direction, "t", "other")
    pods = [pod, noticed(unprepared(database))]
    at, told = (await pod.aget_tuple(config("t"))).config, [0, 0]
    ended = False

    async def hammer(number: int) -> None:
        while not ended:
            await pods[number].aput_writes(at, [("log", [number] * 9)], f"task {number} {told[number]}")
            told[number] += 1

    writers = [asyncio.create_task(hammer(number)) for number in range(2)]
    while not all(told) and not any(writer.done() for writer in writers):
        await asyncio.sleep(0)
    done = await asyncio.wait_for(converting(converter, direction), 60)
    seen = sum(told)
    while sum(told) < seen + 4 and not any(writer.done() for writer in writers):  # they go on, where it stands now
        await asyncio.sleep(0)
    ended = True
    await asyncio.gather(*writers)
    assert done.threads == 2
    found = await (await after(database, direction)).aget_tuple(config("t"))
    tasks = {task for task, _, _ in found.pending_writes}
    assert tasks == {f"task {number} {step}" for number in range(2) for step in range(told[number])}


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("at", ["finish_copy", "delete"])
async def test_a_death_leaves_nothing_that_others_wait_for(
    database: Database, direction: str, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the copy counts, or before its original goes; then a pod writes on, and the next run ends it."""
    converter, pod = await begun(database, direction, "t")
    head = (await pod.aget_tuple(config("t"))).config
    with monkeypatch.context() as patch:
        dies(converter._core.dialect.inner, at, patch)
        with pytest.raises(Died):
            await converting(converter, direction)
    await database.close()
    pod = noticed(unprepared(database))
    late = await put(pod, {"log": ["late"]}, at=head)
    fresh = noticed(unprepared(database))
    assert [entry.config for entry in await whole(fresh, "t")] == [late, head]
    await converting(unprepared(database), direction)
    reader = await after(database, direction)
    assert [entry.config for entry in await whole(reader, "t")] == [late, head]
    assert [info.thread_id for info in await reader.athreads()] == ["t"]


@pytest.mark.parametrize("database", WITHOUT_LOCKS, indirect=True)
@pytest.mark.parametrize("direction", DIRECTIONS)
async def test_a_pod_that_knows_the_original_does_not_write_it_on_when_the_copy_counts(
    database: Database, direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    converter, pod = await begun(database, direction, "t")
    head = (await pod.aget_tuple(config("t"))).config
    with monkeypatch.context() as patch:
        dies(converter._core.dialect.inner, "delete", patch)
        with pytest.raises(Died):
            await converting(converter, direction)
    late = await put(pod, {"log": ["late"]}, at=head)  # waits until the hold has ended
    await converting(unprepared(database), direction)
    assert [entry.config for entry in await whole(await after(database, direction), "t")] == [late, head]


@pytest.mark.parametrize("database", WITHOUT_LOCKS, indirect=True)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("at", ["begin_copy", "finish_copy", "delete"])
async def test_a_thread_that_is_deleted_meanwhile_stays_deleted(
    database: Database, direction: str, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    converter, pod = await begun(database, direction, "t", "other")
    inner = converter._core.dialect.inner
    step, deleted = getattr(inner, at), []

    def and_it_is_deleted(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(inner, at, step)
        deleted.append(await_in_op(pod.adelete_thread("t")))
        yield deleted[0]
        return (yield from step(*args, **options))

    monkeypatch.setattr(inner, at, and_it_is_deleted)
    await converting(converter, direction)
    assert deleted
    reader = await after(database, direction)
    assert {info.thread_id for info in await reader.athreads()} in ({"other"}, {"t"})
    assert len(await reader.athreads()) == 1


def await_in_op(call: Any) -> Any:
    from stepvault._core.plan import Call

    async def wait() -> None:
        await call

    return Call(lambda: None, wait)


@pytest.mark.parametrize("direction", DIRECTIONS)
async def test_several_that_convert_at_once_share_the_work(database: Database, direction: str) -> None:
    threads = [f"t{number}" for number in range(8)]
    first, _ = await begun(database, direction, *threads)
    second = unprepared(database)
    done = await asyncio.gather(*(converting(one, direction) for one in (first, second)))
    assert sum(one.threads for one in done) == 8
    reader = await after(database, direction)
    assert {info.thread_id for info in await reader.athreads()} == set(threads)
    for thread in threads:
        assert len(await whole(reader, thread)) == 1


@pytest.mark.parametrize("database", WITHOUT_LOCKS, indirect=True)
async def test_a_writer_waits_no_longer_than_it_is_told(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hold that never ends is an error that names the thread, and nothing is stored."""
    from stepvault._core.rows import Hold
    from stepvault.checkpointers.redis import writing

    saver = await database.saver()
    head = await put(saver, {"x": 1}, at=config("held"))
    dialect, key = saver._core.dialect, saver._scope.key("held")
    monkeypatch.setattr(writing, "PATIENCE", 0.1)
    hold = Hold(key, b"somebody", 60.0)
    assert await saver._driver.arun(dialect.hold(hold))
    assert not await saver._driver.arun(dialect.hold(Hold(key, b"another", 60.0)))
    with pytest.raises(StepvaultError, match="held"):
        await put(saver, {"x": 2}, at=head)
    assert len(await whole(saver, "held")) == 1
    await saver._driver.arun(dialect.let_go(hold))
    await put(saver, {"x": 2}, at=head)
    assert len(await whole(saver, "held")) == 2


@pytest.mark.parametrize("database", WITHOUT_LOCKS, indirect=True)
async def test_a_copy_that_is_cancelled_lets_the_writers_go_on(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stepvault._core.plan import Call
    from stepvault._core.rows import Hold

    saver = await database.saver()
    await put(saver, {"x": 1}, at=config("held"))
    dialect, key, reading = saver._core.dialect, saver._scope.key("held"), asyncio.Event()

    async def for_ever() -> None:
        reading.set()
        await asyncio.Event().wait()

    def skeleton(_: Any) -> Any:
        yield Call(lambda: None, for_ever)

    with monkeypatch.context() as patch:
        patch.setattr(holding, "HOLD", 60.0)
        patch.setattr(dialect.inner, "skeleton", skeleton)
        copying = asyncio.create_task(saver.acopy_thread("held", "copy"))
        await reading.wait()
        assert not await saver._driver.arun(dialect.hold(Hold(key, b"another", 1.0)))
        copying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await copying
    assert await saver._driver.arun(dialect.hold(Hold(key, b"another", 1.0)))


async def test_a_copy_of_a_thread_that_is_written_and_pruned_without_pause_is_whole(database: Database) -> None:
    saver, pod = await database.saver(), await database.saver()
    values = {"log": [f"{number} " * 99 for number in range(30)]}
    head, ended, steps = await put(saver, values, at=config("t")), False, 0

    async def work() -> None:
        nonlocal head, steps
        while not ended:
            changed = {"log": [*values["log"], f"only {steps} " * 99]}
            head = await put(pod, changed, at=head)
            await pod.aput_writes(head, [("log", f"write {steps} " * 99)], "task")
            steps += 1
            if steps % 4 == 0:
                await pod.aprune(["t"], strategy="keep_latest")

    worker = asyncio.create_task(work())
    while steps < 2:
        await asyncio.sleep(0)
    copies = [f"copy {number}" for number in range(6)]
    for name in copies:
        await saver.acopy_thread("t", name)
    ended = True
    await worker
    reader = await database.saver()
    for name in copies:
        found = await whole(reader, name)
        assert found
        for entry in found:
            assert entry.checkpoint["channel_values"]["log"][:30] == values["log"]
