"""What receipts say, in which order, and by which keys."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import pytest

from stepvault.erasure import commits_to, verify_receipt
from stepvault.errors import ConfigurationError, PayloadError, VerifyFailedError
from stepvault.receipts import verify_receipts
from tests.contract.building import config, put
from tests.contract.erasure.test_erasure import erasure_of, filled
from tests.contract.matrix import Database


async def some(database: Database, count: int) -> tuple[dict[str, Any], list[str]]:
    """Receipts by name, in no order, and the keys that signed them: one more after each second receipt."""
    saver = await database.saver()
    people = [f"p{n}" for n in range(count)]
    await filled(saver, people)
    erasure, receipts = erasure_of(saver), {}
    for n, person in enumerate(people):
        receipts[f"{n}.json"] = (await erasure.aerase(person)).receipt["receipt"]
        if n % 2:
            await erasure.arotate_signing_key()
    names = list(receipts)
    random.Random(1).shuffle(names)
    return {name: receipts[name] for name in names}, [key.public_key for key in await erasure.asigning_keys()]


async def test_a_chain_shows_gaps_forgeries_and_strangers(database: Database) -> None:
    receipts, keys = await some(database, 5)
    assert len(set(keys)) == 3
    report = verify_receipts(receipts, keys)
    assert (report.complete, report.genuine, list(report.last.values())) == (True, 5, [5])
    assert verify_receipts({name: json.dumps(receipt) for name, receipt in receipts.items()}, keys).complete
    with pytest.raises(VerifyFailedError):
        verify_receipt(receipts["4.json"], keys[0])
    assert verify_receipts(receipts, keys[:1]).forged == sorted(["2.json", "3.json", "4.json"], key=[*receipts].index)

    gap = verify_receipts({name: receipt for name, receipt in receipts.items() if name != "2.json"}, keys)
    assert (gap.complete, [*gap.missing.values()]) == (False, [[3]])
    twice = verify_receipts({**receipts, "copy.json": receipts["1.json"]}, keys)
    assert (twice.complete, twice.twice) == (False, ["copy.json"])
    changed = verify_receipts({**receipts, "0.json": {**receipts["0.json"], "removed": {}}}, keys)
    assert (changed.forged, [*changed.missing.values()]) == (["0.json"], [[1]])
    assert verify_receipts({"x": "{}", "y": "no json", "z": "[]"}, keys).forged == ["x", "y", "z"]


async def test_a_receipt_names_nobody_but_commits_to_the_person(database: Database) -> None:
    saver = await database.saver()
    await filled(saver)
    kept = (await erasure_of(saver, issuer="ACME").aerase("ann")).receipt
    receipt, salts = kept["receipt"], kept["salts"]
    assert "ann" not in json.dumps(receipt)
    assert commits_to(receipt, salts, "ann")
    assert not commits_to(receipt, salts, "bob")
    assert not commits_to(receipt, ["00" * 16], "ann")
    assert (receipt["issuer"], receipt["remaining"], receipt["unattributed"]["threads"]) == ("ACME", 0, 1)


async def test_outside_systems_are_told_and_the_receipt_says_who_was(database: Database) -> None:
    saver = await database.saver()
    await filled(saver)
    told: list[Any] = []

    def flaky(ids: list[str]) -> None:
        told.append(ids)
        if len(told) < 3:
            raise TimeoutError

    def broken(ids: list[str]) -> None:
        raise RuntimeError(f"no such person: {ids}")

    async def unheard(ids: list[str]) -> None:
        raise AssertionError

    hooks = {"crm": flaky, "mail": broken, "chat": lambda ids: unheard([*ids])}
    request = await erasure_of(saver, hooks=hooks).aerase("ann")
    assert told == [["ann"]] * 3
    assert request.hooks == request.receipt["receipt"]["hooks"] == {"crm": True, "mail": False, "chat": False}

    with pytest.raises(ConfigurationError, match="'chat' is a coroutine function"):
        erasure_of(saver, hooks={"chat": unheard})


async def test_an_export_names_what_cannot_be_read(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    saver = await database.saver()
    at = config(user_id="ann")
    for n in range(20):
        at = await put(saver, {"a": f"{n}" * 400}, at=at)
    bad = at["configurable"]["checkpoint_id"]
    out = io.StringIO()
    from stepvault.checkpointers._ops import listing, load
    from stepvault.checkpointers._ops.erasing import exporting

    for module in (listing, load):
        monkeypatch.setattr(module, "tuple_of", _failing(module.tuple_of, bad))
    sizes: list[int] = []
    monkeypatch.setattr(exporting, "page", _measured(exporting.page, sizes))
    await erasure_of(saver).aexport("ann", out)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    lines = [line for line in lines if line["kind"] != "step" and line.get("part") != "steps"]
    assert [line["kind"] for line in lines] == ["incomplete", *["checkpoint"] * 19]
    assert lines[0]["checkpoint_id"] == bad
    assert max(sizes) <= 8, "a long thread never stands in memory whole"


def _measured(real: Any, sizes: list[int]) -> Any:
    def page(*args: Any) -> Any:
        lines, following = yield from real(*args)
        sizes.append(len(lines))
        return lines, following

    return page


def _failing(real: Any, bad: str) -> Any:
    def tuple_of(scope: Any, key: Any, row: Any, *rest: Any, **named: Any) -> Any:
        found = real(scope, key, row, *rest, **named)
        if found.checkpoint["id"] == bad:
            raise PayloadError("damaged")
        return found

    return tuple_of


async def test_files_are_rewritten_if_asked_for(database: Database) -> None:
    saver = await database.saver()
    await filled(saver)
    plain = await erasure_of(saver).aerase("ann")
    full = await erasure_of(saver, vacuum=True).aerase("bob")
    asked = {step.name for step in full.purge if step.retryable} - {step.name for step in plain.purge if step.retryable}
    assert (
        asked
        == {
            "sqlite": {"sqlite VACUUM"},
            "postgres": {"postgres VACUUM FULL", "postgres CHECKPOINT"},
            "redis": {"redis BGREWRITEAOF", "redis BGSAVE"},
        }[database.name.split("-")[0]]
    )
    if not database.name.startswith("redis"):  # which may still be at work on the one before
        assert all(step.done for step in full.purge if step.retryable)
