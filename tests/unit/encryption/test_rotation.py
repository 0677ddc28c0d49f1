"""Rotation: no key is lost, whatever happens, and afterwards the old keys open nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from stepvault._core.keys import ROOT
from stepvault._core.plan import Batch, Op
from stepvault._keystore.rotation import Progress, destroy_old, rewrap_page, rotate
from stepvault.encryption import Keyring
from stepvault.errors import ConfigurationError, KeyNotFoundError, WrongKeyError
from tests.unit.encryption.making import OWNER, TENANT, Store, drain
from tools.devlink import ROOT as CHECKOUT

ROW = (b"row",)


def test_payloads_stay_as_they_are_and_the_old_key_opens_nothing(store: Store, keyring: Keyring) -> None:
    stored = store.run(store.keys(keyring).ensure(TENANT, OWNER)).seal(ROW, b"x")
    tokens = store.run(store.keys(keyring).index()).thread(TENANT, b"thread")
    new = keyring.rotated("second")
    assert store.run(rotate(store.dialect, new.wrapper())) == Progress(rewrapped=2, after=None)
    assert store.run(store.dialect.uses()) == [("second", 2)]
    keys = store.keys(new.without("first"))
    assert store.run(keys.sealer(TENANT, OWNER)).open(ROW, stored) == b"x"
    assert store.run(keys.index()).thread(TENANT, b"thread") == tokens
    with pytest.raises(KeyNotFoundError):
        store.run(store.keys(keyring).index())


def test_rotating_again_finds_nothing_to_do(store: Store, keyring: Keyring) -> None:
    store.fill(keyring, 20)
    new = keyring.rotated()
    store.run(rotate(store.dialect, new.wrapper(), page=7))
    assert store.run(rotate(store.dialect, new.wrapper(), page=7)).rewrapped == 0


def test_progress_is_reported_page_by_page(store: Store, keyring: Keyring) -> None:
    store.fill(keyring, 20)
    seen: list[Progress] = []
    store.run(rotate(store.dialect, keyring.rotated().wrapper(), seen.append, page=7))
    assert [progress.rewrapped for progress in seen] == [7, 14, 20]
    assert seen[-1].after is None


def test_new_keys_of_processes_with_the_old_ring_are_found_by_the_next_run(store: Store, keyring: Keyring) -> None:
    new = keyring.rotated()
    store.run(store.keys(keyring).index())
    store.run(rotate(store.dialect, new.wrapper()))
    with pytest.raises(KeyNotFoundError):
        store.run(store.keys(keyring).index())  # it must restart with both keys
    behind = new.with_primary("first")
    store.run(store.keys(behind).ensure(TENANT, OWNER))
    assert store.run(rotate(store.dialect, new.wrapper())).rewrapped == 1


def test_after_destroy_old_nothing_new_is_wrapped_by_the_old_key(store: Store, keyring: Keyring) -> None:
    new = keyring.rotated("second")
    behind = store.keys(new.with_primary("first"))
    store.run(behind.ensure(TENANT, OWNER))
    assert store.run(destroy_old(store.dialect, new.wrapper())) == ["first"]
    with pytest.raises(ConfigurationError, match="'first' was retired"):
        store.run(behind.ensure(TENANT, b"somebody-new-16b"))
    with pytest.raises(ConfigurationError, match="restart with the new keyring"):
        store.run(behind.create(TENANT, b"a-new-thread-16b"))
    assert {row.owner for row in store.rows()} == {ROOT, OWNER}
    assert store.run(destroy_old(store.dialect, new.wrapper())) == ["first"]
    with pytest.raises(ConfigurationError, match="make a fresh primary key"):
        store.run(rotate(store.dialect, new.with_primary("first").wrapper()))


def test_a_key_that_is_missing_is_named_before_anything_changes(store: Store, keyring: Keyring) -> None:
    store.fill(keyring, 3)
    store.fill(Keyring.generate("lost"), 2, first=100)
    with pytest.raises(KeyNotFoundError, match="2 data keys are wrapped by 'lost'"):
        store.run(destroy_old(store.dialect, keyring.rotated().wrapper()))
    assert store.run(store.dialect.uses()) == [("first", 3), ("lost", 2)]
    assert store.run(store.dialect.retired()) == []


def test_one_damaged_key_does_not_hold_up_the_others_and_keeps_the_old_one_in_use(
    store: Store, keyring: Keyring
) -> None:
    owner = store.fill(keyring, 20)[11].owner
    (row,) = store.run(store.dialect.load([owner]))
    store.run(store.dialect.rewrap([(row, row._replace(wrapped=bytes(60)))]))
    new = keyring.rotated("second")
    with pytest.raises(WrongKeyError, match=f"1 data keys could not be rewrapped.*{owner.hex()}"):
        store.run(destroy_old(store.dialect, new.wrapper(), page=7))
    assert store.run(store.dialect.uses()) == [("first", 1), ("second", 19)]


def test_a_shred_during_a_page_stays_a_shred(store: Store, keyring: Keyring) -> None:
    owner = store.fill(keyring, 5)[2].owner
    new = keyring.rotated("second")
    page = rewrap_page(store.dialect, new.wrapper(), Progress())
    rows = store.run(_request(next(page)))
    store.run(store.dialect.shred([owner]))
    progress = store.run(_resumed(page, rows))
    assert progress.rewrapped == 4
    assert [row.wrapped for row in store.run(store.dialect.load([owner]))] == [None]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_killed_at_any_statement_no_key_is_lost_and_the_next_run_finishes(tmp_path: Path, keyring: Keyring) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    keyring.to_file(old)
    keyring.rotated("second").to_file(new)
    printed = _python("kills", tmp_path / "keys.db", old, new, 15)
    rotations, destructions = map(int, printed.split())
    assert rotations > 15
    assert destructions > rotations


def test_two_processes_rotate_at_once(tmp_path: Path, keyring: Keyring) -> None:
    store = Store(tmp_path / "keys.db")
    secrets = {draft.owner: draft.secret.value for draft in store.fill(keyring, 400)}
    new = keyring.rotated("second")
    new.to_file(tmp_path / "new")
    both = [_start("rotate", store.path, tmp_path / "new") for _ in range(2)]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    moved = [int(process.communicate(timeout=60)[0]) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum(moved) == 400
    rows = store.rows()
    opened = drain(new.without("first").wrapper().unwrap(rows))
    assert {row.owner: opened[row.id].value for row in rows} == secrets
    store.close()


def test_ten_thousand_keys_take_the_memory_of_a_page(tmp_path: Path, keyring: Keyring) -> None:
    new = keyring.rotated("second").wrapper()
    peaks = []
    for count in (1_000, 10_000):
        store = Store(tmp_path / f"{count}.db")
        store.fill(keyring, count)
        tracemalloc.start()
        assert store.run(rotate(store.dialect, new)).rewrapped == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert store.run(store.dialect.uses()) == [("second", count)]
        store.close()
    assert peaks[1] < 1.3 * peaks[0]


def _start(*words: object) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "tests.unit.encryption.rotating", *map(str, words)]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT)


def _python(*words: object) -> str:
    process = _start(*words)
    printed, _ = process.communicate(timeout=100)
    assert process.returncode == 0
    return printed


def _request(request: object) -> Op[object]:
    return (yield request)  # type: ignore[misc]


def _resumed(op: Op[Progress], reply: object) -> Op[Progress]:
    """Go on with an operation that has asked its first question."""
    while True:
        try:
            request = op.send(reply)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        reply = yield request


def _batch(statements: object) -> Op[object]:
    return (yield Batch(statements))  # type: ignore[arg-type]
