"""What happens to a thread and its memory at the very moment that they are about to go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stepvault import Vault
from stepvault._core.plan import Op
from stepvault.stores._ops.namespaces import ns_key
from tests.contract.building import checkpoint, config
from tests.contract.matrix import KEYRING, Database, SqliteDatabase, everywhere
from tests.faults.scheduler import captured

_SOAK = pytest.param(range(25), id="soak", marks=pytest.mark.soak)

pytestmark = pytest.mark.parametrize("database", everywhere(cluster=[pytest.mark.soak]), indirect=True)


@pytest.fixture(params=["sealed", pytest.param("plain", marks=pytest.mark.soak)])
def pair(request: pytest.FixtureRequest, database: Database, tmp_path: Path) -> Iterator[tuple[Vault, Vault]]:
    """Two processes' vaults."""
    url = f"sqlite:///{database.url}" if isinstance(database, SqliteDatabase) else database.url
    options: dict[str, Any] = {**database.options}
    if request.param == "sealed":
        options |= {"keyring": KEYRING, "keys_url": f"sqlite:///{tmp_path / 'keys.db'}"}
    with Vault.open(url, **options) as one, Vault.open(url, **options) as other:
        one.setup()
        yield one, other


def put(vault: Vault, subject: str) -> None:
    made = checkpoint({"a": subject})
    at = config("t", user_id=subject)
    vault.checkpointer.put(at, made, {"source": "loop", "step": 0}, made["channel_versions"])


def remember(vault: Vault, key: str) -> None:
    vault.store.put((*vault.store.thread_scope("t"), "notes"), key, {"text": key})


def take_over(vault: Vault) -> None:
    vault.checkpointer.delete_thread("t")
    put(vault, "bob")
    remember(vault, "second")


def remembered(vault: Vault) -> set[str]:
    return {item.key for item in vault.store.search(vault.store.thread_scope("t"))}


def erase(vault: Vault, how: str, moment: int, then: Callable[[], None] | None, **options: Any) -> bool:
    """Erase, and at a request of the deletion something else happens first; None: the worker dies there.

    False: the deletion has not so many.
    """
    told: list[Any] = []
    call = getattr(vault.erasure, how)
    op: Op[Any] = captured(vault.checkpointer, lambda _: call("ann", progress=told.append, **options))
    reply, left = None, moment
    while True:
        try:
            request = op.send(reply)
        except StopIteration:
            return left < 0
        if told and told[-1].state == "tombstoned":
            if left == 0 and then is None:
                op.close()
                return True
            if left == 0 and then is not None:
                then()
            left -= 1
        reply = vault.checkpointer._run(_alone(request))


def _alone(request: Any) -> Op[Any]:
    return (yield request)


def standing(vault: Vault) -> Any:
    """Which thread of its name there is."""
    saver = vault.checkpointer
    ((thread, _),) = saver._run(saver._scope.core.dialect.notes_at([(saver._scope.key("t"), b"")]))
    return thread and thread.uid


def living_keys(vault: Vault) -> list[Any]:
    """What could still open the thread's memory."""
    keys, dialect = vault.checkpointer._scope.core.keys, vault.store._scope.core.dialect
    if keys is None:
        return []
    names = vault.store._run(dialect._names(vault.store._scope.tenant))
    owner = names.owner(names.ns(ns_key((*vault.store.thread_scope("t"), "notes"))))
    rows = vault.store._run(dialect.keys.at(dialect.keys.store.load([owner])))
    assert rows
    return [row for row in rows if row.wrapped is not None]


@pytest.mark.parametrize("moments", [pytest.param(range(2, 7), id="few"), _SOAK])
async def test_a_thread_that_becomes_shared_keeps_its_memory(moments: range, pair: tuple[Vault, Vault]) -> None:
    kept = []
    for moment in moments:
        one, other = (vault.for_tenant(f"{moment}") for vault in pair)
        put(one, "ann")
        remember(one, "first")
        before = standing(one)
        if not erase(one, "erase", moment, partial(put, other, "bob")):
            break
        kept.append(standing(one) == before)
        assert [row.subjects for row in other.checkpointer.threads()] == [("bob",)]
        assert remembered(other) == ({"first"} if kept[-1] else set()), moment
        assert kept[-1] or not living_keys(other), moment
    assert set(kept) == {True, False}


@pytest.mark.parametrize("moments", [pytest.param(range(5, 7), id="few"), _SOAK])
async def test_a_thread_of_somebody_else_keeps_its_memory(moments: range, pair: tuple[Vault, Vault]) -> None:
    for moment in moments:
        one, other = (vault.for_tenant(f"{moment}") for vault in pair)
        put(one, "ann")
        remember(one, "first")
        if not erase(one, "anonymise", moment, partial(take_over, other)):
            break
        assert [row.subjects for row in other.checkpointer.threads()] == [("bob",)]
        assert remembered(other) == {"second"} or moment > 5, moment  # then it is gone with what it replaced


@pytest.mark.parametrize("moments", [pytest.param(range(4, 8), id="few"), _SOAK])
@pytest.mark.parametrize("how", ["erase", "anonymise"])
async def test_nothing_readable_is_left_after_a_kill(how: str, moments: range, pair: tuple[Vault, Vault]) -> None:
    for moment in moments:
        one, other = (vault.for_tenant(f"{moment}") for vault in pair)
        put(one, "ann")
        remember(one, "first")
        erase(one, how, moment, None)
        other.erasure.resume()
        assert [row.subjects for row in other.checkpointer.threads()] == ([()] if how == "anonymise" else [])
        assert remembered(one) == remembered(other) == set(), moment
        assert not living_keys(other), moment


async def test_a_thread_that_is_deleted_takes_the_key_of_its_memory_along(pair: tuple[Vault, Vault]) -> None:
    one, other = pair
    for again in range(2):
        put(one, "ann")
        remember(one, f"{again}")
        assert remembered(other) == {f"{again}"}
        one.checkpointer.delete_thread("t")
        assert not living_keys(other)
        assert remembered(other) == set()


@pytest.mark.parametrize("moments", [pytest.param(range(3, 7), id="few"), _SOAK])
async def test_a_thread_that_takes_over_after_a_kill_has_its_own_memory_alone(
    moments: range, pair: tuple[Vault, Vault]
) -> None:
    taken = []
    for moment in moments:
        one, other = (vault.for_tenant(f"{moment}") for vault in pair)
        put(one, "ann")
        remember(one, "first")
        died = erase(one, "erase", moment, None)
        taken.append(standing(other) is None)
        put(other, "bob")
        remember(other, "second")
        other.erasure.resume()
        assert remembered(one) == remembered(other) == ({"second"} if taken[-1] else {"first", "second"}), moment
        if not died:
            break
    assert True in taken
