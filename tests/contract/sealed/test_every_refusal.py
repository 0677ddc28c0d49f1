"""Every kind of row, changed in every way: each is refused by the error of what was done to it, by both halves."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

from stepvault import Vault
from stepvault._core.envelope import key_id_of
from stepvault._core.keys import ROOT
from stepvault._core.plan import Op
from stepvault.encryption import Keyring
from stepvault.errors import (
    KeyNotFoundError,
    KeyShreddedError,
    PayloadError,
    PlaintextRejectedError,
    RowMismatchError,
    TamperedError,
    TruncatedError,
    UnsupportedFormatError,
)
from tests.contract.building import config, put
from tests.contract.matrix import Database
from tests.contract.sealed.raw import Raw, flipped
from tests.contract.sealed.test_nothing_in_clear import State
from tests.contract.sealed.test_refusals import Service
from tests.contract.sealed.test_stores import Vaults
from tests.contract.sealed.test_swapped_rows import Row, fill, rows_in

SECRET = "owner of one"  # what `fill` stores of a person
KINDS = ("checkpoints", "writes", "chunks", "item", "inbox", "deciders", "holds", "note b'i", "note b'e", "note b't")
HEADER = 44


@pytest.fixture
async def vaults(database: Database) -> AsyncIterator[Vaults]:
    vaults = Vaults(database)
    yield vaults
    await vaults.close()


async def filled(vault: Vault) -> list[Row]:
    """What `fill` stores, and a decision and effects, done and in doubt."""
    await vault.asetup()
    await fill(vault, "one")

    async def ask(state: State) -> State:
        await vault.effects.aonce("pay", lambda of: "paid", "argument")
        answer = interrupt("question")
        raise ConnectionError(answer)

    builder = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    graph = builder.compile(checkpointer=vault.checkpointer)
    await graph.ainvoke({"text": "t"}, config("decided"))
    (asked,) = [found for found in await vault.inbox.alist() if found.thread_id == "decided"]
    decision = await vault.inbox.adecide(asked.id, "answer", by="somebody")
    with pytest.raises(ConnectionError):
        await graph.ainvoke(decision.command, decision.config)
    return [row for row in await rows_in(vault, vault.for_tenant("acme")) if "acme" not in row.place]


def changes(body: bytes) -> list[tuple[bytes, Any]]:
    """What somebody may do to a row, and how it is refused."""
    other_key = body[:8] + bytes(16) + body[24:]
    return [
        (b"", PlaintextRejectedError),
        (b"\x00plain", PlaintextRejectedError),
        (b"\x81\xa1a\x01" * 30, PlaintextRejectedError),
        (body[:-1], TruncatedError),
        (body[:HEADER], TruncatedError),
        (body + b"\0", TruncatedError),
        (body[:1] + b"\x02" + body[2:], UnsupportedFormatError),
        (body[:2] + b"\x02" + body[3:], UnsupportedFormatError),
        (body[:3] + b"\x01" + body[4:], UnsupportedFormatError),
        (other_key, KeyNotFoundError),
        (flipped(body, 8 * 30), TamperedError),  # the nonce
        (flipped(body, 8 * 40), RowMismatchError),  # the row's tag
        (flipped(body, 8 * HEADER), TamperedError),
        (flipped(body, 8 * len(body) - 1), TamperedError),
    ]


def refusals(rows: list[Row]) -> Op[list[str]]:
    """What was not refused, or otherwise."""
    wrong = []
    for row in rows:
        for number, (body, error) in enumerate(changes(row.body)):
            try:
                yield from row.opened(body)
                wrong.append(f"{row.place}: change {number} was not refused")
            except PayloadError as exc:
                if type(exc) is not error:
                    wrong.append(f"{row.place}: change {number}: {exc!r}")
    return wrong


def flips(rows: list[Row], every: int) -> Op[list[str]]:
    wrong = []
    for row in rows:
        for bit in range(0, 8 * len(row.body), every):
            try:
                yield from row.opened(flipped(row.body, bit))
                wrong.append(f"{row.place}: bit {bit}")
            except PayloadError:
                continue
    return wrong


async def both(vault: Vault, op: Any) -> list[str]:
    driver = vault.checkpointer._driver
    return [*await driver.arun(op()), *await asyncio.to_thread(driver.run, op())]


async def test_each_change_of_each_kind_of_row_has_its_error(vaults: Vaults) -> None:
    vault = vaults.open(pseudonymise_ids=True)
    rows = await filled(vault)
    assert {kind for kind in KINDS if any(kind in row.place for row in rows)} == set(KINDS)
    assert await both(vault, lambda: refusals(rows)) == []


@pytest.mark.parametrize("every", [37, pytest.param(1, marks=pytest.mark.soak)])
async def test_each_bit_of_each_kind_of_row_is_refused(vaults: Vaults, every: int) -> None:
    """Those of a header that name another key are looked for in the database: a few rows of each kind."""
    vault = vaults.open(pseudonymise_ids=True)
    rows = await filled(vault)
    some = [row for kind in KINDS for row in [one for one in rows if kind in one.place][:2]]
    assert await vault.checkpointer._driver.arun(flips(some, every)) == []


async def test_what_a_destroyed_key_sealed_is_refused_as_destroyed(vaults: Vaults) -> None:
    vault = vaults.open(pseudonymise_ids=True)
    rows = await filled(vault)
    keys = vault.checkpointer._core.keys
    run = vault.checkpointer._driver.arun
    root = {key.id for key in await run(keys.store.load([ROOT]))}  # which cannot be
    raw = Raw(vault.checkpointer)
    uids = [bytes((await raw.skeleton(thread)).thread.uid) for thread in ("one", "one asks", "decided")]
    await run(keys.shred(uids))
    gone = {key.id for key in await run(keys.store.load(uids))}
    theirs = [row for row in rows if key_id_of(row.body) in gone]
    assert {key_id_of(row.body) for row in theirs} == gone
    assert not gone & root
    for row in theirs:
        with pytest.raises(KeyShreddedError):
            await run(row.opened(row.body))


async def test_tracebacks_with_locals_show_no_key(vaults: Vaults) -> None:
    """Tools that print the locals of frames print our objects by their reprs."""
    vault = vaults.open(pseudonymise_ids=True)
    rows = await filled(vault)
    keys = vault.checkpointer._core.keys
    (root,) = await vault.checkpointer._driver.arun(keys.store.load([ROOT]))
    secrets = await vault.checkpointer._driver.arun(keys.wrapper.unwrap([root]))
    hidden = [bytes(range(32)), secrets[root.id].value]
    for body in (flipped(rows[0].body, 8 * HEADER), b"\x00plain", rows[0].body[:-1]):
        with pytest.raises(PayloadError) as caught:
            await vault.checkpointer._driver.arun(rows[0].opened(body))
        shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
        text = "".join(line for line in shown.format() if "/tests/" not in line.partition("\n")[0])
        assert "identity = " in text or "stored = " in text
        for key in hidden:
            assert repr(key)[2:-1] not in text
            assert key.hex() not in text


class SlowService(Service):
    """A key service that answers late, by its sync half alone."""

    def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        time.sleep(0.4)
        return super().unwrap(key_id, wrapped, context)


async def test_a_slow_key_service_does_not_hold_up_the_event_loop(database: Database) -> None:
    ring = Keyring(primary="far", service=SlowService())
    await put(await database.saver(keyring=ring), {"x": 1})
    reader = database.under_async_names(database.unprepared(keyring=ring))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.005)

    counting = asyncio.create_task(count())
    assert await reader.aget_tuple(config()) is not None
    counting.cancel()
    assert turns > 20
