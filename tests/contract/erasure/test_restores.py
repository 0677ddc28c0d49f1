"""What a journal and a restored database make of each other, and of a hold or a return that came between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepvault.checkpointers._erasure import Erasure
from stepvault.checkpointers._ops.erasing import steps, stones
from stepvault.checkpointers._ops.erasing.steps import Eraser
from stepvault.checkpointers._ops.subjects import token
from stepvault.errors import ErasureError, HoldError, SubjectErasedError
from tests.contract.building import config, put
from tests.contract.matrix import Database


async def test_who_was_erased_again_after_coming_back_stays_erased(async_database: Database, tmp_path: Path) -> None:
    """The backup is from the time between, when they had come back."""
    saver, journal = await async_database.raw(), tmp_path / "journal.jsonl"
    erasure = Erasure(saver, journal=journal)
    await erasure.aerase("ann")
    await erasure.areadmit("ann")
    await put(saver, {"a": 1}, at=config("hers", user_id="ann"))
    assert await erasure.areconcile() == []
    _add(journal, _last(journal, "request"), request="a later one", later=1)

    (done,) = await erasure.areconcile()
    assert done.counts == {"threads": 1, "checkpoints": 1}
    with pytest.raises(SubjectErasedError):
        await put(saver, {"a": 1}, at=config("hers", user_id="ann"))


async def test_who_came_back_after_the_backup_is_let_in(async_database: Database, tmp_path: Path) -> None:
    saver, journal = await async_database.raw(), tmp_path / "journal.jsonl"
    erasure = Erasure(saver, journal=journal)
    await erasure.aerase("ann")
    _add(journal, _last(journal, "request"), readmitted=True, later=1)
    assert await erasure.areconcile() == []
    await put(saver, {"a": 1}, at=config("hers", user_id="ann"))
    assert await erasure.areconcile() == []
    await put(saver, {"a": 2}, at=config("hers", user_id="ann"))


async def test_who_came_back_is_let_in_after_every_restore(async_database: Database, tmp_path: Path) -> None:
    saver, journal = await async_database.raw(), tmp_path / "journal.jsonl"
    erasure = Erasure(saver, journal=journal)
    await erasure.aerase("ann")
    await erasure.areadmit("ann")
    mark = token(saver._scope, "ann")
    for number in range(2):
        await saver._arun(stones._write(saver._scope, {mark: None}))  # from before anything
        await put(saver, {"a": number}, at=config("old", user_id="ann"))
        (done,) = await erasure.areconcile()
        assert done.counts == {"threads": number + 1, "checkpoints": number + 1}
        await put(saver, {"a": number}, at=config("new", user_id="ann"))


async def test_whoever_goes_on_knows_what_was_declared(async_database: Database, tmp_path: Path) -> None:
    """A scheduled job that resumes or reconciles need not be told fields and hooks of the app."""
    saver, journal = await async_database.raw(), tmp_path / "journal.jsonl"
    app = Erasure(saver, journal=tmp_path, personal_fields={"email": "e@example.invalid"}, hooks={"crm": print})
    job = Erasure(saver, journal=journal)
    at = config("both", user_id=["ann", "bob"])
    await put(saver, {"email": "a@b.c"}, at=at)
    with pytest.raises(ErasureError):  # killed, so to speak: its journal cannot be written
        await app.aerase("ann", shared="anonymise")
    (done,) = await job.aresume()
    assert await email(saver, "both") == "e@example.invalid"
    assert done.receipt is not None
    assert done.receipt["receipt"]["hooks"] == {"crm": False}

    mark = token(saver._scope, "ann")
    await saver._arun(stones._write(saver._scope, {mark: None}))  # a backup from before
    await put(saver, {"email": "a@b.c"}, at=config("restored", user_id=["ann", "bob"]))
    (done,) = await job.areconcile()
    assert (done.counts, await email(saver, "restored")) == ({"anonymised": 1}, "[erased]")


async def test_another_choice_than_that_of_an_open_erasure_is_made_too(
    async_database: Database, tmp_path: Path
) -> None:
    saver = await async_database.raw()
    await put(saver, {"a": 1}, at=config("both", user_id=["ann", "bob"]))
    with pytest.raises(ErasureError):
        await Erasure(saver, journal=tmp_path).aerase("ann", shared="anonymise")
    done = await Erasure(saver).aerase("ann", shared="keep")
    assert done.receipt is not None
    assert done.receipt["receipt"]["shared"] == "keep"
    assert [receipt["shared"] for receipt in await Erasure(saver).areceipts()] == ["anonymise", "keep"]


async def email(saver: Any, thread: str) -> Any:
    found = await saver.aget_tuple(config(thread))
    return found.checkpoint["channel_values"]["email"]


async def test_a_hold_that_came_back_stops_only_its_own(async_database: Database, tmp_path: Path) -> None:
    saver, journal = await async_database.raw(), tmp_path / "journal.jsonl"
    erasure = Erasure(saver, journal=journal)
    for person in ("ann", "bob"):
        await put(saver, {"a": 1}, at=config(f"of {person}", user_id=person))
        line = {"token": token(saver._scope, person).hex(), "tenant": saver._scope.tenant.hex()}
        _add(journal, line, request=person)
    await erasure.ahold("ann", "the court's")
    ann, bob = await erasure.areconcile()
    assert (ann.state, bob.state) == ("received", "receipted")
    await erasure.arelease("ann")
    (done,) = await erasure.aresume()
    assert (done.id, done.state, done.counts) == (ann.id, "receipted", {"threads": 1, "checkpoints": 1})


async def test_a_hold_at_the_last_moment_leaves_the_tombstone_before(
    async_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells that the person came back: without it, `reconcile` would take what they wrote since."""
    saver, journal = await async_database.raw(), tmp_path / "journal.jsonl"
    erasure = Erasure(saver, journal=journal)
    await erasure.aerase("ann")
    await erasure.areadmit("ann")
    await put(saver, {"a": 1}, at=config("hers", user_id="ann"))
    looks, real = iter(range(9)), steps._check_hold

    def at_the_last(scope: Any, marks: Any) -> Iterator[Any]:
        if next(looks) == 2:  # asked for, before the tombstone, behind it
            raise HoldError("the court's")
        yield from real(scope, marks)

    monkeypatch.setattr(steps, "_check_hold", at_the_last)
    with pytest.raises(HoldError):
        await erasure.aerase("ann")
    await put(saver, {"a": 2}, at=config("hers, too", user_id="ann"))
    assert await erasure.areconcile() == []
    assert len((await erasure.aplan("ann")).threads) == 2


async def test_what_comes_back_after_the_one_purge_for_all_is_purged_too(
    async_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = await async_database.raw()
    for person in ("ann", "bob"):
        await put(saver, {"a": 1}, at=config(f"of {person}", user_id=person))
    purges: list[str] = []
    real, verify, mark = Eraser.purge, steps._verify, token(saver._scope, "ann")

    def purge(self: Eraser, scope: Any) -> Any:
        purges.append("")
        return (yield from real(self, scope))

    def came_back(scope: Any, eraser: Eraser, current: Any) -> Any:
        if mark in current.tokens and len(purges) == 1:
            return (yield from steps._moved(scope, current, "tombstoned"))
        return (yield from verify(scope, eraser, current))

    monkeypatch.setattr(Eraser, "purge", purge)
    monkeypatch.setattr(steps, "_verify", came_back)
    done = await Erasure(saver).aerase_many(["bob", "ann"])
    assert [request.state for request in done] == ["receipted", "receipted"]  # type: ignore[union-attr]
    assert len(purges) == 2


def _last(journal: Path, name: str) -> dict[str, Any]:
    """The last line that says this."""
    return [line for line in map(json.loads, journal.read_text().splitlines()) if name in line][-1]  # type: ignore[no-any-return]


def _add(journal: Path, line: dict[str, Any], *, later: int = 0, **fields: Any) -> None:
    with journal.open("a") as file:
        file.write(json.dumps({**line, **fields, "at": line.get("at", 0) + later}) + "\n")
