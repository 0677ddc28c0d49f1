"""A key service, played by a local class that counts its calls, can fail and can be slow.

It stands for AWS KMS, Vault and the like: they cannot run here.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from stepvault._core.keys import ROOT, DataKey
from stepvault._core.plan import Batch, Op, arun
from stepvault._keystore.rotation import destroy_old
from stepvault.encryption import Keyring
from stepvault.errors import ConfigurationError, KeyNotFoundError, KeyUnavailableError, WrongKeyError
from tests.unit.encryption.making import OWNER, TENANT, Clock, Store


class Service:
    """Keeps what it wrapped and gives out tickets for it."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.threads: set[int] = set()
        self.failure: Exception | None = None
        self.kept: dict[bytes, tuple[str, bytes, bytes]] = {}

    def wrap(self, key_id: str, plaintext: bytes, context: bytes) -> bytes:
        self._note("wrap", key_id)
        ticket = b"ticket %d" % len(self.kept)
        self.kept[ticket] = (key_id, plaintext, context)
        return ticket

    def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        self._note("unwrap", key_id)
        kept = self.kept.get(bytes(wrapped))
        if kept is None or (kept[0], kept[2]) != (key_id, context):
            raise WrongKeyError("The service refuses this ciphertext.")
        return kept[1]

    def _note(self, verb: str, key_id: str) -> None:
        self.calls.append(verb)
        self.threads.add(threading.get_ident())
        if self.failure is not None:
            raise self.failure
        if key_id == "unknown":
            raise KeyNotFoundError("The service has no key 'unknown'.")


class AsyncService(Service):
    """The async half; its sync half must not be used from a loop."""

    async def awrap(self, key_id: str, plaintext: bytes, context: bytes) -> bytes:
        await asyncio.sleep(0)
        return super().wrap(key_id, plaintext, context)

    async def aunwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        await asyncio.sleep(0)
        return super().unwrap(key_id, wrapped, context)


class AsyncOnlyService:
    """Has no sync half at all."""

    def __init__(self) -> None:
        self.inner = AsyncService()
        self.awrap, self.aunwrap = self.inner.awrap, self.inner.aunwrap


class LoopDriver:
    """Answers batches in the loop, as an async database driver does."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def execute(self, batch: Batch) -> list[Any]:
        return self.store.driver.execute(batch)

    def session(self, mode: Any) -> Any:
        driver = self

        class Session:
            async def __aenter__(self) -> LoopDriver:
                return driver

            async def __aexit__(self, *exc_info: object) -> None:
                return None

        return Session()


def ring(service: Any) -> Keyring:
    return Keyring(primary="remote/key", service=service)


def test_one_call_makes_a_key_and_none_uses_it_while_it_is_fresh(store: Store) -> None:
    service, clock = Service(), Clock()
    keys = store.keys(ring(service), clock=clock)
    store.run(keys.index())
    service.calls.clear()
    sealer = store.run(keys.ensure(TENANT, OWNER))
    assert service.calls == ["wrap", "unwrap"]
    for _ in range(5):
        assert store.run(keys.sealer(TENANT, OWNER)).open((b"row",), sealer.seal((b"row",), b"x")) == b"x"
    assert len(service.calls) == 2
    clock.now += 60
    store.run(keys.sealer(TENANT, OWNER))
    assert service.calls == ["wrap", "unwrap", "unwrap"]


def test_a_new_thread_costs_one_call(store: Store) -> None:
    service = Service()
    keys = store.keys(ring(service))
    store.run(keys.index())
    service.calls.clear()
    store.run(keys.create(TENANT, OWNER))
    store.run(keys.sealer(TENANT, OWNER))
    assert service.calls == ["wrap"]


def test_a_page_of_threads_is_one_request(store: Store) -> None:
    service = Service()
    keyring = ring(service)
    owners = [draft.owner for draft in store.fill(keyring, 50)]
    keys = store.keys(keyring)
    store.run(keys.index())
    requests: list[str] = []
    sealers = store.run(_noted(keys.sealers(TENANT, dict.fromkeys(owners, ())), requests))
    assert set(sealers) == set(owners)
    assert requests == ["Batch", "Call"]


def _noted(op: Op[Any], requests: list[str]) -> Op[Any]:
    reply = None
    while True:
        try:
            request = op.send(reply)
        except StopIteration as stop:
            return stop.value
        requests.append(type(request).__name__)
        reply = yield request


@pytest.mark.parametrize("failure", [TimeoutError("no answer"), OSError("down"), ValueError("denied")])
def test_a_failing_service_is_worth_a_retry_and_never_taken_for_a_lost_key(store: Store, failure: Exception) -> None:
    service = Service()
    keys = store.keys(ring(service), ttl=0)
    store.run(keys.ensure(TENANT, OWNER))
    service.failure = failure
    with pytest.raises(KeyUnavailableError, match="retrying is safe") as caught:
        store.run(keys.sealer(TENANT, OWNER))
    assert caught.value.__cause__ is failure
    service.failure = None
    store.run(keys.sealer(TENANT, OWNER))


def test_errors_of_ours_pass(store: Store) -> None:
    service = Service()
    with pytest.raises(KeyNotFoundError, match="no key 'unknown'"):
        store.run(store.keys(Keyring(primary="unknown", service=service)).index())
    keys = store.keys(ring(service), ttl=0)
    store.run(keys.ensure(TENANT, OWNER))
    service.kept.clear()
    with pytest.raises(WrongKeyError, match="service refuses"):
        store.run(keys.sealer(TENANT, OWNER))


def test_a_service_that_opens_to_the_wrong_key_is_found_out(store: Store) -> None:
    class Confused(Service):
        def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
            return self.answer

        answer = b"1" * 32

    service = Confused()
    keys = store.keys(ring(service))
    for answer in (b"1" * 32, b"", b"short", None):
        service.answer = answer  # type: ignore[assignment]
        with pytest.raises(WrongKeyError):
            store.run(keys.index())


def test_a_service_that_does_not_wrap_is_found_out(store: Store) -> None:
    class Lazy(Service):
        def wrap(self, key_id: str, plaintext: bytes, context: bytes) -> bytes:
            return b"prefix" + plaintext

    with pytest.raises(ConfigurationError, match="no wrapped key"):
        store.run(store.keys(ring(Lazy())).index())
    assert store.rows() == []


async def test_the_sync_half_runs_beside_the_loop(store: Store) -> None:
    service = Service()
    keys = store.keys(ring(service))
    await arun(keys.ensure(TENANT, OWNER), LoopDriver(store))
    assert service.calls
    assert threading.get_ident() not in service.threads


@pytest.mark.parametrize("kind", [AsyncService, AsyncOnlyService])
async def test_the_async_half_is_preferred_in_a_loop(store: Store, kind: Any) -> None:
    service = kind()
    inner = getattr(service, "inner", service)
    keys = store.keys(ring(service))
    await arun(keys.ensure(TENANT, OWNER), LoopDriver(store))
    assert inner.threads == {threading.get_ident()}
    many = [draft.owner for draft in store.fill(ring(inner), 40)]
    assert set(await arun(keys.sealers(TENANT, dict.fromkeys(many, ())), LoopDriver(store))) == set(many)


def test_a_sync_call_to_an_async_service_says_what_is_missing(store: Store) -> None:
    with pytest.raises(ConfigurationError, match="only the async half"):
        store.run(store.keys(ring(AsyncOnlyService())).index())


def test_keys_move_from_a_local_ring_to_a_service(store: Store, keyring: Keyring) -> None:
    sealer = store.run(store.keys(keyring).ensure(TENANT, OWNER))
    stored = sealer.seal((b"row",), b"x")
    service = Service()
    both = Keyring({"first": bytes(range(32))}, primary="remote/key", service=service)
    assert store.run(destroy_old(store.dialect, both.wrapper())) == ["first"]
    alone = store.keys(both.without("first"))
    assert store.run(alone.sealer(TENANT, OWNER)).open((b"row",), stored) == b"x"
    assert {row.kek for row in store.rows()} == {"remote/key"}
    assert {row.owner for row in store.rows()} == {ROOT, OWNER}
    assert repr(both) == "Keyring(ids=['first'], primary='remote/key', service=Service)"


def test_the_context_names_the_data_key(store: Store) -> None:
    service = Service()
    store.run(store.keys(ring(service)).ensure(TENANT, OWNER))
    contexts = {context for _, _, context in service.kept.values()}
    assert len(contexts) == 2
    row = next(row for row in store.rows() if row.owner == OWNER)
    moved = DataKey(b"somebody-else-16", row.gen, row.id, row.kek, row.wrapped)
    with pytest.raises(WrongKeyError):
        store.run(ring(service).wrapper().unwrap([moved]))
