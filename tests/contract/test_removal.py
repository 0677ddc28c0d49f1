"""Taking things out: what is asked for goes, all of it, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from stepvault._core.rows import Deleted, ThreadRow
from stepvault.checkpointers._ops.subjects import token
from stepvault.checkpointers.postgres import removing as postgres_removing
from stepvault.checkpointers.sqlite import removing
from stepvault.errors import ConfigurationError
from tests.contract.building import config, id_of, ids, listed, new_id, put, whole
from tests.contract.matrix import Database

SHARED = ["x" * 600, "y" * 600]


async def grow(saver: Any, thread: str = "t", ns: str = "", steps: int = 4, run: str | None = None) -> list[Any]:
    """A chain of checkpoints with writes, as a run would leave it; returns their configs."""
    at, found = config(thread, ns), []
    for step in range(steps):
        metadata = {"step": step} | ({"run_id": run} if run else {})
        items = [*SHARED, *(f"{thread}{ns}{i}" * 300 for i in range(step))]
        at = await put(saver, {"items": items}, at=at, metadata=metadata)
        await saver.aput_writes(at, [("items", [f"write {step}" * 300])], f"task {step}")
        found.append(at)
    return found


# -- delete_thread


async def test_a_deleted_thread_is_gone_whole(database: Database) -> None:
    saver = await database.saver(compression=None)
    await grow(saver, "doomed: marker")
    await grow(saver, "doomed: marker", "sub")
    await put(saver, {"secret": ["marker of a value" * 50]}, at=config("doomed: marker"))
    kept = await whole(saver, "kept")
    assert database.sealed or b"marker of a value" in database.content()

    await saver.adelete_thread("doomed: marker")

    assert await saver.aget_tuple(config("doomed: marker")) is None
    assert await saver.aget_tuple(config("doomed: marker", "sub")) is None
    assert await ids(saver, {"configurable": {"thread_id": "doomed: marker"}}) == []
    assert await whole(saver, "kept") == kept
    assert b"marker" not in database.content()


async def test_threads_with_names_like_it_stay(saver: Any) -> None:
    names = ["a", "a%", "%", "_", "A", "aa", "a:b", "a\x00", "a*", "", "{a}"]
    for name in names:
        await grow(saver, name, steps=2)

    for gone in ("%", "_", "a", "a*", ""):
        await saver.adelete_thread(gone)
        names.remove(gone)
        assert {thread.thread_id for thread in await saver.athreads()} == set(names)
        for name in names:
            assert len(await whole(saver, name)) == 2


async def test_deleting_is_idempotent_and_the_id_is_free_again(saver: Any) -> None:
    stored = await grow(saver)
    await saver.adelete_thread("t")
    await saver.adelete_thread("t")
    await saver.adelete_thread("never")

    await put(saver, {"a": [*SHARED, 1]})

    (found,) = await whole(saver)
    assert found.checkpoint["channel_values"] == {"a": [*SHARED, 1]}
    assert await saver.aget_tuple(stored[0]) is None


async def test_another_saver_that_knew_the_deleted_thread_writes_whole_values(database: Database) -> None:
    one, other = await database.saver(), await database.saver()
    stored = await grow(one)
    await other.adelete_thread("t")

    await put(one, {"items": SHARED}, at=stored[-1])
    await one.aput_writes(config("t", "", new_id()), [("items", SHARED)], "task")

    (found,) = await whole(await database.saver())
    assert found.checkpoint["channel_values"] == {"items": SHARED}


# -- prune


async def test_keep_latest_keeps_the_newest_of_each_namespace_as_it_was(saver: Any) -> None:
    await grow(saver)
    await grow(saver, ns="sub", steps=3)
    await grow(saver, ns="sub|deeper", steps=2)
    heads = [await saver.aget_tuple(config("t", ns)) for ns in ("", "sub", "sub|deeper")]

    await saver.aprune(["t"], strategy="keep_latest")

    assert sorted(await whole(saver), key=str) == sorted(heads, key=str)


async def test_keep_last_keeps_so_many_of_each_namespace(saver: Any) -> None:
    await grow(saver)
    await grow(saver, ns="sub", steps=3)
    newest = {ns: (await ids(saver, config("t", ns)))[:2] for ns in ("", "sub")}

    await saver.aprune(["t"], keep_last=2)
    assert {ns: await ids(saver, config("t", ns)) for ns in ("", "sub")} == newest

    for wrong in (-1, "2", True):
        with pytest.raises(ConfigurationError, match="keep_last"):
            await saver.aprune(["t"], keep_last=wrong)
    await saver.aprune(["t"], keep_last=0)
    assert await whole(saver) == []


async def test_keep_latest_keeps_the_head_by_id_not_by_time(saver: Any) -> None:
    early, late = new_id(), new_id()
    await put(saver, {"n": SHARED}, id=late)
    await put(saver, {"n": 2}, id=early)

    await saver.aprune(["t"])

    assert await ids(saver, config()) == [late]


async def test_pruning_frees_what_only_old_checkpoints_needed(database: Database) -> None:
    saver = await database.saver(compression=None)
    first = await put(saver, {"gone": ["old marker" * 100], "kept": ["kept marker" * 100]})
    new = {"gone": "00000002"}
    await put(saver, {}, at=first, channel_versions={"kept": "00000001", "gone": "00000002"}, new=new)
    await saver.aput_writes(first, [("gone", "write marker" * 100)], "task")
    content = database.content()
    assert database.sealed or b"old marker" in content
    assert database.sealed or b"write marker" in content

    await saver.aprune(["t"])

    content = database.content()
    assert database.sealed or b"kept marker" in content
    assert b"old marker" not in content
    assert b"write marker" not in content
    (head,) = await whole(saver)
    assert head.checkpoint["channel_values"] == {"kept": ["kept marker" * 100]}


async def test_a_pruned_thread_grows_on(database: Database) -> None:
    one, other = await database.saver(), await database.saver()
    chain = await grow(one, steps=6)
    await other.aprune(["t"])
    at = chain[-1]
    for saver in (one, other, one):
        items = [*SHARED, *(f"t{i}" * 300 for i in range(8))]
        at = await put(saver, {"items": items}, at=at)
        assert (await other.aget_tuple(at)).checkpoint["channel_values"] == {"items": items}
        assert (await one.aget_tuple(at)).checkpoint["channel_values"] == {"items": items}
    await one.aprune(["t"])
    assert len(await whole(await database.saver())) == 1


async def test_pruning_is_idempotent_and_passes_over_unknown_threads(saver: Any) -> None:
    await grow(saver)
    await grow(saver, "other")
    other = await whole(saver, "other")
    await saver.aprune(["never", "t", "t"])
    pruned = await whole(saver)
    await saver.aprune(["t"])
    await saver.aprune([])

    assert await whole(saver) == pruned
    assert await whole(saver, "other") == other


async def test_the_delete_strategy_deletes(saver: Any) -> None:
    for thread in ("a", "b", "c"):
        await grow(saver, thread)

    await saver.aprune(["a", "c", "never"], strategy="delete")

    assert [thread.thread_id for thread in await saver.athreads()] == ["b"]
    assert len(await whole(saver, "b")) == 4


async def test_an_unknown_strategy_is_refused(saver: Any) -> None:
    await grow(saver)
    with pytest.raises(ConfigurationError, match="strategy"):
        await saver.aprune(["t"], strategy="keep_none")
    assert len(await whole(saver)) == 4


async def test_writes_before_their_checkpoint_survive_a_prune(saver: Any) -> None:
    await grow(saver)
    at = config("t", "", new_id())
    await saver.aput_writes(at, [("items", SHARED)], "task")

    await saver.aprune(["t"])

    await put(saver, id=id_of(at))
    assert (await saver.aget_tuple(at)).pending_writes == [("task", "items", SHARED)]


# -- delete_for_runs


async def test_a_run_is_known_by_its_metadata(saver: Any) -> None:
    await grow(saver, run="one", steps=2)
    await grow(saver, run="two", steps=2)
    await grow(saver, ns="sub", run="one", steps=2)
    await grow(saver, "other", run="one", steps=1)
    await grow(saver, "third", run="three", steps=1)

    await saver.adelete_for_runs(["one", "never"])

    assert {entry.metadata["run_id"] for entry in await listed(saver, None)} == {"two", "three"}
    assert len(await whole(saver)) == 2
    assert [thread.thread_id for thread in await saver.athreads()] == ["third", "t"]
    assert [entry.pending_writes[0][0] for entry in await whole(saver)] == ["task 1", "task 0"]


async def test_deleting_runs_is_idempotent(saver: Any) -> None:
    await grow(saver, run="one")
    await saver.adelete_for_runs([])
    await saver.adelete_for_runs(["%", "on", "one ", ""])
    assert len(await whole(saver)) == 4
    await saver.adelete_for_runs(["one"])
    await saver.adelete_for_runs(["one"])
    assert await whole(saver) == []


async def test_what_later_runs_share_with_a_deleted_one_stays(database: Database) -> None:
    saver = await database.saver(compression=None)
    first = await put(saver, {"items": [*SHARED, "only of one" * 100]}, metadata={"run_id": "one"})
    items = [*SHARED, "of two" * 100]
    second = await put(saver, {"items": items}, at=first, metadata={"run_id": "two"})

    await saver.adelete_for_runs(["one"])

    assert (await saver.aget_tuple(second)).checkpoint["channel_values"] == {"items": items}
    assert (await (await database.saver()).aget_tuple(second)).checkpoint["channel_values"] == {"items": items}
    assert b"only of one" not in database.content()


async def test_many_runs_at_once(saver: Any) -> None:
    for i in range(40):
        await grow(saver, f"t{i % 7}", run=f"run {i}", steps=1)

    await saver.adelete_for_runs([f"run {i}" for i in range(0, 40, 2)])

    assert {entry.metadata["run_id"] for entry in await listed(saver, None)} == {f"run {i}" for i in range(1, 40, 2)}


async def test_threads_go_together_but_one_that_was_written_meanwhile_stays(database: Database) -> None:
    saver = await database.raw(compression=None)
    called = database.under_async_names(saver)
    for name in ("first", "moved", "second"):
        await grow(called, name)
    kept = await whole(called, "moved")
    scope = saver._scope
    keys = [scope.key(name) for name in ("first", "absent", "moved", "second")]
    rows = [
        (key, row)
        for key, (row, _) in zip(keys, await _run(database, saver, _rows(scope, keys)), strict=True)
        if row is not None
    ]
    assert [key.thread for key, _ in rows] == [b"first", b"moved", b"second"]
    await called.aput_writes(kept[-1].config, [("items", ["late"])], "late")

    removed = await _run(database, saver, scope.core.dialect.delete_all(rows))

    assert [found and found.checkpoints for found in removed] == [4, None, 4]
    assert await ids(called, config("first")) == await ids(called, config("second")) == []
    assert len(await ids(called, config("moved"))) == 4
    assert await _run(database, saver, scope.core.dialect.delete_all(rows)) == [None, None, None]
    assert b"second" not in database.content()


async def test_threads_that_are_many_together_go_in_several_transactions(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limited in (removing, postgres_removing):
        monkeypatch.setattr(limited, "_TOGETHER", 9)
    saver = await database.raw()
    called = database.under_async_names(saver)
    for name in ("a", "b", "c", "d"):
        await grow(called, name)
    await grow(called, "long", steps=12)
    scope = saver._scope
    keys = [scope.key(name) for name in ("d", "long", "a", "c", "b")]
    rows = [
        (key, row)
        for key, (row, _) in zip(keys, await _run(database, saver, _rows(scope, keys)), strict=True)
        if row is not None
    ]

    removed = await _run(database, saver, scope.core.dialect.delete_all(rows))

    assert [found.checkpoints for found in removed] == [4, 12, 4, 4, 4]
    assert not await listed(called, None)


@pytest.mark.parametrize("together", [10_000, 9])
async def test_threads_go_by_whose_they_are(together: int, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    for limited in (removing, postgres_removing):
        monkeypatch.setattr(limited, "_TOGETHER", together)
    saver = await database.raw()
    called = database.under_async_names(saver)
    people = {"own": ["ann"], "long": ["ann"], "both": ["ann", "bob"], "three": ["ann", "bob", "cid"], "bob": ["bob"]}
    for name, subjects in people.items():
        for n in range(6):
            await put(called, {"a": n}, at=config(name, user_id=subjects))
    scope = saver._scope
    ann, bob = token(scope, "ann"), token(scope, "bob")
    dialect, keys = scope.core.dialect, [scope.key(name) for name in ("bob", "absent", *people)]

    async def remove(beside: Any) -> list[Any]:
        found = await _run(database, saver, dialect.delete_of(keys, ann, beside))
        assert [row and row.uid for row, _ in await _run(database, saver, _rows(scope, keys))] == [
            row.uid if isinstance(row, ThreadRow) else None for row in found
        ]
        return [row.checkpoints if isinstance(row, Deleted) else row and "stays" for row in found]

    assert await remove([ann]) == ["stays", None, 6, 6, "stays", "stays", "stays"]
    assert await remove([ann, bob]) == ["stays", None, None, None, 6, "stays", "stays"]
    assert await remove(None) == ["stays", None, None, None, None, 6, "stays"]
    assert [row.thread_id for row in await called.athreads()] == ["bob"]


async def _run(database: Database, saver: Any, op: Any) -> Any:
    return saver._run(op) if database.mode == "sync" else await saver._arun(op)


def _rows(scope: Any, keys: list[Any]) -> Any:
    return scope.core.dialect.notes_at([(key, b"") for key in keys])
