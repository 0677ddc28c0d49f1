"""Key-encryption keys of a database: listed, rotated, destroyed, kept elsewhere."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from stepvault import Vault
from stepvault._core.crypto import Secret
from stepvault._core.keys import Draft
from stepvault._keystore.rotation import Progress
from stepvault.checkpointers._vault_keys import VaultKeys
from stepvault.checkpointers.sqlite import SqliteSaver
from stepvault.errors import ConfigurationError, KeyNotFoundError
from tests.contract.building import config, put, whole
from tests.contract.matrix import KEYRING, Database


async def test_a_rotation_leaves_every_thread_readable_and_the_old_key_useless(database: Database) -> None:
    saver = await database.saver()
    for number in range(5):
        await put(saver, {"number": number}, at=config(str(number)))
    ring = VaultKeys(saver).generate("second")
    assert ring.ids == ("second", "test")
    second = await database.saver(keyring=ring)
    seen: list[Progress] = []
    done = await VaultKeys(second).arotate(report=seen.append)
    assert (done.rewrapped, done.destroyable) == (6, ())  # five threads, and the root key
    assert seen[-1].after is None
    await put(saver, {"late": 1}, at=config("late"))  # by a process that still wraps with the old key

    done = await VaultKeys(second).arotate(destroy_old=True)
    assert (done.rewrapped, done.destroyable) == (1, ("test",))
    third = await database.saver(keyring=ring.without("test"))
    assert len(await third.athreads()) == 6
    for number in range(5):
        assert len(await whole(third, str(number))) == 1
    keys = {key.id: key for key in await VaultKeys(third).alist()}
    assert (keys["second"].primary, keys["second"].wraps) == (True, 7)
    assert (keys["test"].retired, keys["test"].available, keys["test"].wraps) == (True, False, 0)
    with pytest.raises(ConfigurationError, match="'test' was retired"):
        await put(saver, {"x": 1}, at=config("too late"))
    with pytest.raises(KeyNotFoundError):
        await (database.under_async_names(database.unprepared())).aget_tuple(config("1"))


async def test_two_that_rotate_at_once_share_the_work(database: Database) -> None:
    saver = await database.saver()
    for number in range(12):
        await put(saver, {"number": number}, at=config(str(number)))
    ring = KEYRING.rotated("second")
    savers = [await database.saver(keyring=ring) for _ in range(2)]
    done = await asyncio.gather(*(VaultKeys(one).arotate(destroy_old=True) for one in savers))
    assert sum(one.rewrapped for one in done) >= 13
    assert {one.destroyable for one in done} == {("test",)}
    third = await database.saver(keyring=ring.without("test"))
    for number in range(12):
        assert len(await whole(third, str(number))) == 1


async def test_keys_in_a_database_of_their_own(database: Database, tmp_path: Path) -> None:
    """Without the key store, payloads are noise; and the key store holds no payload."""
    url = f"sqlite:///{tmp_path / 'keys' / 'keys.db'}"
    (tmp_path / "keys").mkdir()
    saver = await database.saver(keys_url=url)
    await put(saver, {"x": "value"}, metadata={"who": "x"})
    assert len(await whole(await database.saver(keys_url=url))) == 1
    assert await Ops(saver).keys_beside() == []
    for wrong in ({}, {"keys_url": f"sqlite:///{tmp_path / 'other.db'}"}):
        other = database.under_async_names(database.unprepared(**wrong))
        with pytest.raises(ConfigurationError, match="check keys_url"):
            await other.aget_tuple(config())


class Ops:
    def __init__(self, saver: Any) -> None:
        self._saver = saver

    async def keys_beside(self) -> list[Any]:
        """The keys that stand beside the payloads."""
        inner = self._saver._core.dialect._inner
        return list(await self._saver._driver.arun(inner.docs(b"keys", b"k", b"", 10)))


def test_a_vault_has_its_keys(tmp_path: Path) -> None:
    with Vault.open(f"sqlite:///{tmp_path / 'app.db'}", keyring=KEYRING) as vault:
        assert [key.id for key in vault.keys.list()] == ["test"]
        assert vault.keys.rotate().rewrapped == 0
    with Vault.open("memory://") as vault, pytest.raises(ConfigurationError, match="not sealed"):
        vault.keys.list()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keys_url": "sqlite:///keys.db"}, "needs a keyring"),
        ({"keyring": b"x" * 32}, "must be a stepvault.encryption.Keyring, not bytes"),
        ({"keyring": KEYRING, "keys_url": "mysql://host"}, "keys_url begins with none of"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        SqliteSaver.from_conn_string(":memory:", **options)


async def many_keys(saver: Any, count: int) -> None:
    """Data keys of owners that hold nothing, stored a thousand at a time."""
    keys = saver._core.keys
    for start in range(0, count, 1000):
        drafts = [Draft(os.urandom(16), 1, Secret(os.urandom(32))) for _ in range(min(1000, count - start))]
        rows = await saver._driver.arun(keys.wrapper.wrap(drafts))
        assert await saver._driver.arun(keys.store.insert_all(rows))


@pytest.mark.parametrize("count", [1200, pytest.param(10_000, marks=pytest.mark.soak)])
async def test_many_keys_are_rewrapped_page_by_page_by_whoever_is_there(database: Database, count: int) -> None:
    await many_keys(await database.saver(), count)
    ring = KEYRING.rotated("second")
    savers = [await database.saver(keyring=ring) for _ in range(2)]
    seen: list[Progress] = []
    done = await asyncio.gather(*(VaultKeys(one).arotate(destroy_old=True, report=seen.append) for one in savers))
    assert sum(one.rewrapped for one in done) == count + 1  # and the root key
    assert {one.destroyable for one in done} == {("test",)}
    steps = {progress.after for progress in seen if progress.after is not None}
    assert len(steps) == (count + 1) // 500
    assert [(use.kek, use.keys) for use in await savers[0]._driver.arun(savers[0]._core.keys.store.uses())] == [
        ("second", count + 1)
    ]
