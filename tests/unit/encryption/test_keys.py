"""The keys of a vault on a real key store: who makes them, who shares them, and how they end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from stepvault._core.keys import ROOT, DataKey
from stepvault._core.plan import Batch, Op, Stmt
from stepvault._keystore.keys import Keys
from stepvault.encryption import Keyring
from stepvault.errors import (
    ConfigurationError,
    KeyNotFoundError,
    KeyShreddedError,
    WrongKeyError,
)
from tests.unit.encryption.making import OWNER, TENANT, Clock, Store, drain

ROW = (b"row",)


def test_processes_share_one_root_and_one_key_per_owner(store: Store, keyring: Keyring) -> None:
    one, two = store.keys(keyring), store.keys(keyring)
    stored = store.run(one.ensure(TENANT, OWNER)).seal(ROW, b"x")
    assert store.run(two.ensure(TENANT, OWNER)).open(ROW, stored) == b"x"
    assert [store.run(keys.index()).deployment for keys in (one, two)] == [store.run(one.index()).deployment] * 2
    assert [row.owner for row in store.rows()] == [ROOT, OWNER]


@pytest.mark.parametrize("owner", [ROOT, OWNER])
def test_two_that_make_a_key_at_once_agree(store: Store, keyring: Keyring, owner: bytes) -> None:
    """The second comes in whole between the steps of the first, wherever that can be."""
    for step in range(12):
        store.run(_wipe())
        one, two = store.keys(keyring), store.keys(keyring)
        if owner != ROOT:
            store.run(one.index())
        made = _interleaved(store, _make(one, owner), _make(two, owner), step)
        assert len({token for token, _ in made}) == 1
        sealers = [sealer for _, sealer in made if sealer is not None]
        for sealer in sealers:
            assert sealers[0].open(ROW, sealer.seal(ROW, b"x")) == b"x"


def test_asking_for_a_fresh_owner_costs_nothing(store: Store, keyring: Keyring) -> None:
    keys = store.keys(keyring)
    store.run(keys.ensure(TENANT, OWNER))
    assert drain(keys.sealer(TENANT, OWNER)).keys.owner == OWNER
    assert drain(keys.ensure(TENANT, OWNER)).keys.owner == OWNER


def test_the_key_of_a_new_thread_is_stored_before_anything_is_sealed_with_it(store: Store, keyring: Keyring) -> None:
    keys = store.keys(keyring)
    stored = store.run(keys.create(TENANT, OWNER)).seal(ROW, b"x")
    assert drain(keys.sealer(TENANT, OWNER)).open(ROW, stored) == b"x"
    assert store.run(store.keys(keyring).sealer(TENANT, OWNER)).open(ROW, stored) == b"x"
    store.run(keys.discard(OWNER))
    assert [row.owner for row in store.rows()] == [ROOT]
    with pytest.raises(KeyNotFoundError):
        store.run(keys.sealer(TENANT, OWNER)).open(ROW, stored)


def test_cached_keys_expire(store: Store, keyring: Keyring) -> None:
    clock = Clock()
    keys = store.keys(keyring, clock=clock)
    store.run(keys.ensure(TENANT, OWNER))
    clock.now += 61
    with pytest.raises(AssertionError, match="asked for"):
        drain(keys.sealer(TENANT, OWNER))


def test_shredding_ends_an_owner_for_good(store: Store, keyring: Keyring) -> None:
    clock = Clock()
    keys, other = store.keys(keyring, clock=clock), store.keys(keyring, clock=clock)
    stored = store.run(keys.ensure(TENANT, OWNER)).seal(ROW, b"x")
    store.run(other.sealer(TENANT, OWNER))
    assert store.run(keys.shred([OWNER])) == 1
    assert store.run(keys.shred([OWNER])) == 0
    with pytest.raises(KeyShreddedError):
        store.run(keys.sealer(TENANT, OWNER)).open(ROW, stored)
    for attempt in (keys.ensure(TENANT, OWNER), keys.renew(TENANT, OWNER)):
        with pytest.raises(KeyShreddedError):
            store.run(attempt)
    clock.now += 60
    with pytest.raises(KeyShreddedError):
        store.run(other.sealer(TENANT, OWNER)).open(ROW, stored)


def test_shredding_an_owner_without_a_key_keeps_it_from_getting_one(store: Store, keyring: Keyring) -> None:
    keys = store.keys(keyring)
    assert store.run(keys.shred([OWNER])) == 0
    with pytest.raises(KeyShreddedError):
        store.run(keys.ensure(TENANT, OWNER))


def test_a_key_is_not_made_after_a_shred_that_came_in_between(store: Store, keyring: Keyring) -> None:
    for step in range(8):
        store.run(_wipe())
        keys, eraser = store.keys(keyring), store.keys(keyring)
        first = store.run(keys.ensure(TENANT, OWNER))
        keys.cache.clear()
        renewing, shredding = keys.renew(TENANT, OWNER), eraser.shred([OWNER])
        try:
            _interleaved(store, renewing, shredding, step)
        except KeyShreddedError:
            pass
        else:
            keys.cache.clear()
        with pytest.raises(KeyShreddedError):
            store.run(keys.ensure(TENANT, OWNER)).open(ROW, first.seal(ROW, b"x"))
        assert [row.owner for row in store.rows()] == [ROOT]


def test_a_readmitted_owner_gets_a_new_key_and_nothing_back(store: Store, keyring: Keyring) -> None:
    keys = store.keys(keyring)
    gone = store.run(keys.ensure(TENANT, OWNER)).seal(ROW, b"x")
    store.run(keys.shred([OWNER]))
    sealer = store.run(keys.ensure(TENANT, OWNER, readmit=True))
    assert sealer.open(ROW, sealer.seal(ROW, b"back")) == b"back"
    with pytest.raises(KeyShreddedError):
        sealer.open(ROW, gone)
    assert store.run(store.keys(keyring).ensure(TENANT, OWNER)).open(ROW, sealer.seal(ROW, b"y")) == b"y"


def test_a_generation_rolls_over_and_others_follow(store: Store, keyring: Keyring) -> None:
    keys, other = store.keys(keyring), store.keys(keyring)
    old = store.run(keys.ensure(TENANT, OWNER)).seal(ROW, b"old")
    store.run(other.sealer(TENANT, OWNER))
    new = store.run(keys.renew(TENANT, OWNER)).seal(ROW, b"new")
    assert old[8:24] != new[8:24]
    sealer = store.run(other.sealer(TENANT, OWNER, [old, new]))
    assert (sealer.open(ROW, old), sealer.open(ROW, new)) == (b"old", b"new")


def test_the_root_key_cannot_be_shredded(store: Store, keyring: Keyring) -> None:
    keys = store.keys(keyring)
    store.run(keys.index())
    with pytest.raises(ConfigurationError, match="root key"):
        store.run(keys.shred([OWNER, ROOT]))
    assert [row.owner for row in store.rows()] == [ROOT]


def test_another_keyring_is_refused_at_once(store: Store, keyring: Keyring) -> None:
    store.run(store.keys(keyring).index())
    with pytest.raises(WrongKeyError, match="another key of the same id"):
        store.run(store.keys(Keyring({"first": os.urandom(32)})).index())
    with pytest.raises(KeyNotFoundError, match="'first' is not in the keyring"):
        store.run(store.keys(Keyring.generate("second")).index())


def test_a_database_of_another_key_store_is_refused(tmp_path: Path, store: Store, keyring: Keyring) -> None:
    other = Store(tmp_path / "other.db")
    deployment = store.run(store.keys(keyring).index()).deployment
    store.run(store.keys(keyring).expect(deployment))
    with pytest.raises(ConfigurationError, match="check keys_url"):
        other.run(other.keys(keyring).expect(deployment))
    other.close()


def test_a_key_row_moved_to_another_owner_is_refused(store: Store, keyring: Keyring) -> None:
    victim, thief = OWNER, b"owner-of-thief.."
    keys = store.keys(keyring)
    store.run(keys.ensure(TENANT, victim))
    row = next(row for row in store.rows() if row.owner == victim)
    store.run(store.dialect.insert(DataKey(thief, row.gen, row.id, row.kek, row.wrapped)))
    with pytest.raises(WrongKeyError):
        store.run(keys.sealer(TENANT, thief))


def test_every_flipped_bit_of_a_wrapped_key_is_refused(keyring: Keyring) -> None:
    wrapper = keyring.wrapper()
    store_row = drain(Keyring.wrapper(keyring).wrap([_draft()]))[0]
    assert store_row.wrapped is not None
    for bit in range(8 * len(store_row.wrapped)):
        changed = bytearray(store_row.wrapped)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(WrongKeyError):
            drain(wrapper.unwrap([store_row._replace(wrapped=bytes(changed))]))
    for size in range(len(store_row.wrapped)):
        with pytest.raises(WrongKeyError):
            drain(wrapper.unwrap([store_row._replace(wrapped=store_row.wrapped[:size])]))


def test_key_rows_can_live_in_another_database(tmp_path: Path, store: Store, keyring: Keyring) -> None:
    payloads = Store(tmp_path / "payloads.db")
    keys = store.keys(keyring, elsewhere=store.driver)
    stored = payloads.run(keys.ensure(TENANT, OWNER)).seal(ROW, b"x")
    assert [row.owner for row in store.rows()] == [ROOT, OWNER]
    assert payloads.rows() == []
    keys.cache.clear()
    assert payloads.run(keys.sealer(TENANT, OWNER)).open(ROW, stored) == b"x"
    assert payloads.run(keys.shred([OWNER])) == 1
    payloads.close()


async def test_another_database_is_asked_without_blocking_the_loop(store: Store, keyring: Keyring) -> None:
    keys = store.keys(keyring, elsewhere=store.driver)
    sealer = await store.driver.arun(keys.ensure(TENANT, OWNER))
    assert sealer.open(ROW, sealer.seal(ROW, b"x")) == b"x"


def test_owners_are_linked_to_subjects(store: Store, keyring: Keyring) -> None:
    ann, bob = b"ann", b"bob"
    store.run(store.dialect.link(ann, [b"1", b"2"]))
    store.run(store.dialect.link(bob, [b"2"]))
    store.run(store.dialect.link(bob, [b"2"]))
    assert store.run(store.dialect.linked(ann)) == [(b"1", 1, False, b""), (b"2", 2, False, b"")]
    assert store.run(store.dialect.linked(b"nobody")) == []


def test_tombstones_are_forgotten_after_their_time_and_never_with_a_living_key(store: Store, keyring: Keyring) -> None:
    keys = store.keys(keyring)
    for owner in (b"gone", b"back", b"alive"):
        store.run(keys.ensure(TENANT, owner))
        store.run(store.dialect.link(b"ann", [owner]))
    store.run(keys.shred([b"gone", b"back"]))
    store.run(keys.ensure(TENANT, b"back", readmit=True))
    assert store.run(store.dialect.forget(0, 100)) == 0
    assert store.run(store.dialect.forget(2**53, 100)) == 1
    assert [link.owner for link in store.run(store.dialect.linked(b"ann"))] == [b"alive", b"back"]
    assert {row.owner for row in store.run(store.dialect.load([b"gone", b"back", b"alive"]))} == {b"back", b"alive"}


def test_shredded_keys_are_not_left_in_the_file(store: Store, keyring: Keyring) -> None:
    keys = store.keys(keyring)
    store.run(keys.ensure(TENANT, OWNER))
    wrapped = next(row.wrapped for row in store.rows() if row.owner == OWNER)
    assert wrapped is not None
    connection = store.driver.connection()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert wrapped in store.path.read_bytes()
    store.run(keys.shred([OWNER]))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    for file in store.path.parent.iterdir():
        assert wrapped not in file.read_bytes()


def _draft() -> Any:
    from stepvault._core.crypto import Secret
    from stepvault._core.keys import Draft

    return Draft(OWNER, 1, Secret(b"d" * 32))


def _make(keys: Keys, owner: bytes) -> Op[Any]:
    index = yield from keys.index()
    sealer = (yield from keys.ensure(TENANT, owner)) if owner != ROOT else None
    return index.thread(TENANT, b"thread"), sealer


def _interleaved(store: Store, first: Op[Any], second: Op[Any], step: int) -> list[Any]:
    """Run `second` whole after so many requests of `first`."""
    reply, results = None, []
    try:
        for number in range(1000):
            if number == step:
                results.append(store.run(second))
            request = first.send(reply)
            reply = store.run(_request(request))
    except StopIteration as stop:
        results.append(stop.value)
    if len(results) == 1:
        results.append(store.run(second))
    return results


def _request(request: Any) -> Op[Any]:
    return (yield request)


def _wipe() -> Op[None]:
    yield Batch([Stmt("DELETE FROM stepvault_doc")])
